"""Gristmill keeps deep-learning training fed when data is the bottleneck.

With PyTorch use :class:`gristmill.torch.Loader`; with NumPy alone :class:`gristmill.Loader`.
"""

from gristmill._gristmill import __version__
from gristmill.errors import ConfigError, CorruptSampleError, GristmillError, StoreError
from gristmill.loader import Batch, Loader
from gristmill.report import Report

__all__ = [
    "Batch",
    "ConfigError",
    "CorruptSampleError",
    "GristmillError",
    "Loader",
    "Report",
    "StoreError",
    "__version__",
]
