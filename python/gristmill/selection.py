"""Selection: which samples an epoch trains on, told by what the trainer learned.

:class:`Chooser` is what the loaders and the sampler have in common. It is not made by users.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill import _gristmill
from gristmill.errors import ConfigError, GristmillError
from gristmill.exchange import PATIENCE_S, Speaker
from gristmill.page import warn
from gristmill.peers import mpi_is_here, peers_here

__all__ = ["Chooser", "selection_settings"]


def selection_settings(selection: str | Mapping[str, Any] | None, families: str, epochs: int | None) -> dict[str, Any]:
    """The settings that an argument ``selection`` stands for: a name, or a mapping with ``kind`` and its options."""
    if selection is None:
        settings: dict[str, Any] = {}
    elif isinstance(selection, str):
        settings = {"selection.kind": selection}
    elif isinstance(selection, Mapping):
        if "kind" not in selection:
            raise ConfigError(
                f"selection {dict(selection)!r} has no kind; give e.g. {{'kind': 'bucket', 'relax': 0.2}}"
            )
        words = {True: "on", False: "off"}
        settings = {
            f"selection.{key}": words.get(value, value) if isinstance(value, bool) else value
            for key, value in selection.items()
        }
    else:
        raise ConfigError(
            f"selection is {selection!r}; it must be a name ('uniform' trains on everything) or a mapping with its kind"
        )
    if families != "off":
        settings["selection.families"] = families
    if epochs is not None:
        if isinstance(epochs, bool) or not hasattr(epochs, "__index__") or epochs < 1:
            raise ConfigError(f"epochs is {epochs!r}; it must be a whole number of at least 1")
        settings["selection.epochs"] = int(epochs)
    return settings


class Chooser:
    """What selects samples, and what it must be told."""

    _choice: _gristmill.Choice | None
    #: What a browser looks at, and is told what was learned.
    _page: _gristmill.Page | None = None
    _rank_world: tuple[int, int]
    _epoch: int
    #: Batches of this epoch that were handed over, where that is known, and how many epochs the run has.
    _batch: int = 0
    _epochs: int | None = None
    #: Whether anything was learned, or its absence was said.
    _heard: bool = False

    #: The way to the other ranks, once it was needed.
    _speaker: Speaker | None = None

    def _gather(self, pack: bytes) -> Sequence[bytes]:
        """What all ranks heard, in the order of ranks. A framework with a process group overrides it."""
        if not mpi_is_here():
            raise GristmillError(
                f"selection over {self._rank_world[1]} ranks must share feedback, which needs a process group "
                "(use gristmill.torch under torchrun, after torch.distributed.init_process_group, or mpirun and mpi4py)"
            )
        if self._speaker is None:
            self._speaker = Speaker(peers_here(self._rank_world, PATIENCE_S)).ends_with(self)
        return self._speaker.gather(pack, PATIENCE_S)

    def _can_gather(self) -> bool:
        """Whether ranks can share what they heard."""
        return mpi_is_here()

    def _share(self, epoch: int) -> None:
        """Before an epoch begins, or when one is over: all ranks learn what each of them heard."""
        self._flush()
        choice = self._choice
        if choice is None or choice.begun is None or choice.begun >= epoch or not choice.must_share:
            return
        choice.merge(list(self._gather(choice.pending())))

    def _check_heard(self) -> None:
        """After a whole epoch: says so if nothing was learned in it, as that is easily forgotten."""
        self._flush()
        kind = self.selection.get("kind", "uniform")
        if not self._heard and kind != "uniform":
            warn(
                f"selection={kind!r} was told nothing about this epoch, so that everything is trained: make "
                "loader.loss(logits, batch) your loss, or call loader.feedback (feedback_arrays) for each batch"
            )
            self._heard = True

    def _flush(self) -> None:
        """Hands over feedback that is still on its way from a device."""

    @property
    def selection(self) -> dict[str, Any]:
        """What was selected for the epoch that began last: ``kept``, ``samples``, ``reason`` and more."""
        text = self._choice.report() if self._choice is not None else None
        return json.loads(text) if text is not None else {}

    @property
    def proxy_phase(self) -> bool:
        """Whether the epoch under way, or else the next one, is for the small model of ``selection="proxy"``."""
        return self._choice is not None and self._epoch < self._choice.proxy_epochs

    @property
    def progress(self) -> float:
        """How much of the run is behind, 0 to 1, for schedules that move with every batch: epochs differ in length.

        It takes ``epochs``. A :class:`gristmill.torch.Sampler` counts what was asked for, ahead of training.
        """
        if self._epochs is None:
            raise ConfigError("progress needs to know how many epochs the run has: give the loader epochs=")
        part = self._batch / max(1, len(self)) if self._batch else 0.0  # type: ignore[arg-type]
        return min(1.0, (self._epoch + part) / self._epochs)

    def feedback_arrays(self, ids: Any, p_true: Any, p_rival: Any, loss: Any, entropy: Any = None) -> None:
        """Tells what was learned about a batch, as arrays: probability of the label, the largest other one, loss."""
        if self._choice is None and self._page is None:
            return
        import numpy as np

        columns = [p_true, p_rival, loss] + ([] if entropy is None else [entropy])
        arrays = [np.asarray(column, np.float32).reshape(-1) for column in columns]
        numbers = np.asarray(ids).reshape(-1)
        if numbers.dtype.kind not in "iu":
            raise ConfigError(f"ids are {numbers.dtype}; they must be whole numbers")
        numbers = numbers.astype(np.int64)
        for name, array in zip(("p_true", "p_rival", "loss", "entropy"), arrays, strict=False):
            if len(array) != len(numbers):
                raise ConfigError(f"feedback has {len(numbers)} ids but {len(array)} values of {name}")
        if len(numbers):
            self._hear(numbers.tobytes(), np.stack(arrays).tobytes())

    def _hear(self, ids: bytes, columns: bytes, classified: bool = True) -> None:
        """Passes on what was learned. ``classified``: the probabilities are a classifier's and say who was right."""
        self._heard = True
        if self._choice is not None:
            self._choice.feedback(ids, columns, classified)
        if self._page is not None:
            self._page.learned(ids, columns, classified)
