"""What can go wrong, as exceptions.

>>> issubclass(ConfigError, ValueError) and issubclass(StoreError, OSError)
True
"""

__all__ = ["ConfigError", "CorruptSampleError", "GristmillError", "StoreError"]


class GristmillError(Exception):
    """The base of all errors of Gristmill."""


class ConfigError(GristmillError, ValueError):
    """What was asked for makes no sense: an argument, a setting, a source that is not a data set."""


class StoreError(GristmillError, OSError):
    """The data could not be reached, or not in time."""


class CorruptSampleError(GristmillError):
    """A sample, or the catalog, is damaged or not what it was when it was catalogued."""
