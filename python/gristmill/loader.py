"""The loader, for NumPy. :mod:`gristmill.torch` has the same with tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Generic, TypeVar

from gristmill import _gristmill
from gristmill.arguments import cache_settings, check_classes, recipe_text, split_settings, whole
from gristmill.errors import ConfigError, GristmillError
from gristmill.exchange import Exchange, exchange_settings, patience_of, refuse
from gristmill.page import Shown, page_settings, report_path, steer_settings, warn
from gristmill.peers import launcher_rank
from gristmill.report import Report
from gristmill.selection import Chooser, selection_settings

__all__ = ["Batch", "Loader"]

A = TypeVar("A")
_STATE_VERSION = 1


class Batch(Generic[A]):
    """One batch: ``images``, ``labels``, ``ids`` and ``weights``; unpacks as ``images, labels``.

    ``images`` is one array over memory of the engine, not a copy; without a recipe it is a list of ``bytes``.
    ``skipped`` lists the samples that were left out because they are bad, as pairs of id and reason.
    """

    __slots__ = ("ids", "images", "labels", "skipped", "weights")

    def __init__(self, images: A | list[Any], labels: A, ids: A, weights: A, skipped: list[tuple[int, str]]) -> None:
        self.images = images
        self.labels = labels
        self.ids = ids
        self.weights = weights
        self.skipped = skipped

    def __iter__(self) -> Iterator[Any]:
        yield self.images
        yield self.labels

    def __getitem__(self, index: int) -> Any:
        return (self.images, self.labels)[index]

    def __len__(self) -> int:
        """How many values it unpacks into: always 2. ``len(batch.labels)`` counts its samples."""
        return 2

    def __repr__(self) -> str:
        shape = tuple(self.images.shape) if hasattr(self.images, "shape") else f"{len(self.images)} samples"  # type: ignore[arg-type]
        return f"Batch(images={shape}, labels={len(self.labels)})"  # type: ignore[arg-type]


class Loader(Shown, Chooser, Generic[A]):
    """Shuffled batches of a data set, read and decoded by native threads.

    >>> import gristmill
    >>> loader = gristmill.Loader(DATA, recipe="mnist", batch_size=100, seed=1)
    >>> len(loader)
    10
    >>> for images, labels in loader:
    ...     pass
    >>> images.shape, labels.dtype
    ((100, 1, 28, 28), dtype('int64'))

    Arguments have torch's names where they mean the same. ``num_workers`` are threads of this process (none of them
    copies anything); ``None`` or 0 begins with one per core. ``prefetch_factor`` batches per thread may lie ready;
    ``None`` begins with four batches in all. ``rank`` and ``world_size`` come from the launcher when not
    given. ``transform`` is called with each sample after the recipe, ``collate_fn`` with a list of (sample, label).
    ``selection`` trains only on samples that teach something (``"weighted"``, ``"bucket"``, ... or a mapping with
    ``kind`` and options); tell it what the model learned (:meth:`feedback_arrays`, or ``loss`` of
    :class:`gristmill.torch.Loader`) and how many ``epochs`` the run has, so that the last ones train on everything.
    ``families`` finds near-duplicates once (all pictures are read for it): ``"remove"`` trains one of each per epoch,
    ``"repeat"`` trains one that is in memory again instead of fetching its relative, ``"auto"`` does what fits.
    ``cache`` keeps samples in memory between epochs: a share of the data set (``"20%"``), a size (``"4GiB"``, or a
    number of bytes), or the URL of a node that several jobs share (``"grist://host:7077/name"``). ``None`` is as the
    config says, which is no cache unless it names one. A cache changes no batch, unless ``cache.stand_ins`` is set.
    ``split`` lets the node behind the loader (``grist://`` as source or as cache) run the first ops where that makes an
    epoch shorter: ``"auto"``, ``"best"``, ``"sophon"``, ``"resize"``, ``"all"``, ``"fastflow"`` or ``"none"``. It
    changes no batch, and ``report()`` says what it did.
    ``exchange`` lets each of several ranks hold its own slice of the data set, so that the store is read once, and swap
    this fraction of it with other ranks in every epoch (0.3 is nearly as good as a shuffle of everything; ``"auto"``
    finds the fraction), while training runs. ``hold`` is the folder of the slice, which a restart goes on with; without
    it the slice is in memory. All ranks make their loader together: under ``torchrun`` after
    ``torch.distributed.init_process_group``, or under ``mpirun`` with mpi4py.
    From epoch to epoch the loader moves threads, reads in flight, batches ahead and the split, one at a time, to where
    it reads faster, and never what is read; ``report().decisions`` says what and why. What you set stays
    (``pin="auto"``); ``pin="none"`` makes it only the start, ``pin=["threads"]`` leaves those alone, ``steer="off"``
    moves nothing.
    ``page=True`` shows live charts and the data in a browser of this machine (``page_url``; or give an address such as
    ``"127.0.0.1:7078"``). ``report="out.html"`` writes the same as one file when the loader is closed or Python ends.
    Of several ranks the first has them. ``loss`` and ``feedback`` tell the page what was learned, :meth:`tested` how
    the test data fared.
    ``settings`` are any others by name, e.g. ``settings={"loader.memory_bytes_max": "2GiB"}``.
    """

    def __init__(
        self,
        source: str | PathLike[str],
        *,
        recipe: str | PathLike[str] | Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        batch_size: int = 64,
        shuffle: bool = True,
        drop_last: bool = False,
        num_workers: int | None = None,
        prefetch_factor: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
        on_bad: str = "raise",
        selection: str | Mapping[str, Any] | None = None,
        families: str = "off",
        epochs: int | None = None,
        cache: str | int | None = None,
        split: str | None = None,
        exchange: float | str | None = None,
        hold: str | PathLike[str] | None = None,
        steer: str | None = None,
        pin: str | Iterable[str] | None = None,
        page: bool | str | None = None,
        report: str | PathLike[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[tuple[Any, Any]]], Any] | None = None,
        config: str | PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        rebuild: bool = False,
    ) -> None:
        for name, function in (("transform", transform), ("collate_fn", collate_fn)):
            if function is not None and not callable(function):
                raise ConfigError(f"{name} is {function!r}; it must be callable")
        if not isinstance(source, (str, os.PathLike)):
            raise ConfigError(f"source is {source!r}; it must be a path or a URL")
        if (rank is None) != (world_size is None):
            raise ConfigError("rank and world_size go together: give both or none")
        here = self._rank() if rank is None or world_size is None else (rank, world_size)
        threads = whole("num_workers", num_workers or 0, 0)
        # What nobody asked for is not set, so that the steering may move it.
        knobs = {"loader.threads": threads} if threads else {}
        if prefetch_factor is not None:
            ahead = whole("prefetch_factor", prefetch_factor, 1) * (threads or os.cpu_count() or 1)
            knobs["loader.prefetch_batches"] = min(ahead, 64)
        self._batch_size = whole("batch_size", batch_size, 1)
        self._seed = whole("seed", seed, 0)
        self._rank_world = (whole("rank", here[0], 0), whole("world_size", here[1], 1))
        pairs = {
            "loader.batch": self._batch_size,
            "loader.shuffle": bool(shuffle),
            "loader.drop_last": bool(drop_last),
            **knobs,
            "loader.seed": self._seed,
            "loader.rank": self._rank_world[0],
            "loader.world": self._rank_world[1],
            "loader.uneven": uneven,
            "loader.on_bad": on_bad,
            **selection_settings(selection, families, epochs),
            **cache_settings(cache),
            **split_settings(split),
            **exchange_settings(exchange, hold),
            **steer_settings(steer, pin),
            **page_settings(page),
            **(settings or {}),
        }
        written = report_path(report)
        if self._rank_world[0] > 0:
            # One page of a run is enough, and there is one port.
            pairs["page.listen"], written = "", None
        text = [
            (str(key), str(value).lower() if isinstance(value, bool) else str(value)) for key, value in pairs.items()
        ]
        try:
            self._engine = _gristmill.Engine(
                os.fspath(source), recipe_text(recipe), text, config=config, rebuild=rebuild
            )
        except GristmillError as error:
            patience_s = patience_of(text, config)
            if patience_s is not None and self._rank_world[1] > 1:
                refuse(error, self._rank_world, patience_s)
            raise
        self._choice = self._engine.choice
        part = self._engine.exchange
        self._exchange = Exchange(part, self._rank_world) if part is not None else None
        self._transform = transform
        self._collate_fn = collate_fn
        self._shuffle = bool(shuffle)
        self._epoch = 0
        self._epochs = epochs
        self._batch = 0
        self._resuming = False
        self._running: _gristmill.Epoch | None = None
        self._last_report: Report | None = None
        self._decisions: list[dict[str, Any]] = []
        self._closed = self._empty_told = False
        self._show(self._engine, written, epochs)
        check_classes(self.classes, source)

    # What a subclass for another framework changes.

    def _rank(self) -> tuple[int, int]:
        return launcher_rank()

    def _array(self, memory: _gristmill.Memory) -> Any:
        import numpy as np

        return np.from_dlpack(memory)

    def _stack(self, samples: list[Any]) -> Any:
        import numpy as np

        return np.stack(samples)

    # Facts.

    @property
    def classes(self) -> list[str]:
        """The names of the classes; a label is a place in this list."""
        return self._engine.classes

    @property
    def num_samples(self) -> int:
        """How many samples the data set has, over all ranks."""
        return len(self._engine)

    @property
    def epoch(self) -> int:
        """The epoch that the next (or current) iteration reads."""
        return self._epoch

    @property
    def exchange(self) -> dict[str, Any]:
        """What the exchange of this, or else the last, epoch did; empty without one.

        ``resumes_at`` is the epoch that the slices on disk are ready for: where a run that was killed goes on.
        """
        if self._exchange is None:
            return {}
        engine = self._exchange.engine
        text = engine.report(self._epoch) or (engine.report(self._epoch - 1) if self._epoch > 0 else None)
        return {"resumes_at": engine.resumes_at, **(json.loads(text) if text is not None else {})}

    def __len__(self) -> int:
        """Batches per epoch on this rank, the same on every rank; with a selection, of the epoch that began last."""
        return self._engine.batches()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.num_samples:,} samples, {len(self.classes)} classes, {len(self):,} batches)"
        )

    # Iteration.

    def __iter__(self) -> Iterator[Any]:
        if self._closed:
            raise GristmillError("this loader is closed")
        self._settle()
        if self._batch > 0 and not self._resuming:
            # The last iteration was left early; this one is a new epoch, as with a DataLoader.
            self._next_epoch()
        elif self._batch > 0 and self._batch >= len(self):
            # Saved behind the last batch, when the ranks had not finished with each other.
            self._begin().close()
            self._next_epoch()
        self._resuming = False
        self._share(self._epoch)
        running = self._begin()
        self._running = running
        if self._page is not None:
            self._page.began(running)
        return self._batches(running)

    def _begin(self) -> _gristmill.Epoch:
        if self._exchange is not None:
            if self._exchange.engine.running not in (None, self._epoch):
                # It was left early, and set_epoch has named another since: every rank has the same to finish.
                self._exchange.finish()
            self._exchange.fill(self._epoch)
        try:
            running = self._engine.epoch(self._epoch, self._batch)
        except GristmillError as error:
            if self._exchange is not None:
                self._exchange.refuse(self._epoch, error)
            raise
        batches = self._engine.batches()
        if self._exchange is not None:
            self._exchange.begin(batches)
        rank, world = self._rank_world
        if batches == 0 and rank == 0 and not self._empty_told:
            self._empty_told = True
            warn(
                f"epoch {self._epoch} has no batch: {self.num_samples} samples for {world} ranks do not fill one of "
                f"batch_size={self._batch_size}; without drop_last=True and uneven='drop' there is a smaller one"
            )
        return running

    def _batches(self, running: _gristmill.Epoch) -> Iterator[Any]:
        try:
            while (batch := running.next()) is not None:
                made = self._make(batch)
                self._check_current(running)
                if self._exchange is not None:
                    self._exchange.handed(batch.index)
                # Counted before it is handed over: a state taken while it is trained on continues behind it.
                self._batch = batch.index + 1
                if self._page is not None:
                    self._page.live(running, self._batch)
                yield made
            self._check_current(running)
            self._check_heard()
            self._next_epoch()
            if self._page is not None:
                running.close()
                self._page.epoch(running)
            # Every rank comes here after its last batch, so a state saved between epochs knows what all of them heard.
            running.close()
            if self._can_gather():
                self._share(self._epoch)
        finally:
            if self._running is running:
                self._settle()
            running.close()

    def _next_epoch(self) -> None:
        """The epoch is over on this rank; with an exchange, when it is over on all of them."""
        if self._exchange is not None:
            self._exchange.finish()
        self._epoch, self._batch = self._epoch + 1, 0

    def _can_gather(self) -> bool:
        return self._exchange is not None or super()._can_gather()

    def _gather(self, pack: bytes) -> Sequence[bytes]:
        return self._exchange.gather(pack) if self._exchange is not None else super()._gather(pack)

    def _check_current(self, running: _gristmill.Epoch) -> None:
        """A loader has one place in its data: an iterator from before the newest one has lost it."""
        if self._running is not running:
            raise GristmillError(
                "this iterator ended when the loader was closed or iterated anew; make a second loader"
            )

    def _make(self, batch: _gristmill.Batch) -> Any:
        labels = self._array(batch.labels())
        memory = batch.images()
        images: Any = self._array(memory) if memory is not None else batch.raw()
        if self._transform is not None or self._collate_fn is not None:
            samples = [self._transform(sample) for sample in images] if self._transform is not None else list(images)
            if self._collate_fn is not None:
                return self._collate_fn(list(zip(samples, labels, strict=True)))
            images = self._stack(samples) if samples and hasattr(samples[0], "shape") else samples
        return Batch(images, labels, self._array(batch.ids()), self._array(batch.weights()), batch.skipped())

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration reads. Naming the current one keeps the place of a resumed loader."""
        epoch = whole("epoch", epoch, 0)
        if epoch != self._epoch or not self._resuming:
            self._epoch, self._batch, self._resuming = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on with the next batch, in another process, with any number of threads.

        With a selection on several ranks, save one per rank, or save between epochs: what a rank has heard inside of
        an epoch is its own until the epoch is over.
        """
        self._flush()
        return {
            "version": _STATE_VERSION,
            "digest": self._engine.digest,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "global_batch": self._batch_size * self._rank_world[1],
            "epoch": self._epoch,
            "batch": self._batch,
            "batch_samples": self._batch_samples(),
            "selection": self._choice.state() if self._choice is not None else None,
            "exchange": self._exchange.engine.state() if self._exchange is not None else None,
            "world_size": self._rank_world[1],
        }

    def _batch_samples(self) -> int:
        """Samples in a batch of all ranks, in the epoch under way: a selection may make them smaller."""
        own = self._batch_size if self._choice is None else self._choice.batch_size()
        return own * self._rank_world[1]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where ``state_dict`` was taken. The data, the seed and the global batch must be the same."""
        own = self.state_dict()
        for key in ("version", "digest", "seed", "shuffle", "global_batch"):
            if key not in state:
                raise ConfigError(f"this state has no {key!r}; it is not from a Gristmill loader")
            if state[key] != own[key]:
                raise ConfigError(f"the state was saved with {key} = {state[key]!r}, but this loader has {own[key]!r}")
        saved = state.get("selection")
        if (saved is None) != (self._choice is None):
            raise ConfigError("the state and this loader differ in their selection; give both the same")
        slices = state.get("exchange")
        if (slices is None) != (self._exchange is None):
            raise ConfigError("the state and this loader differ in their exchange; give both the same")
        ranks = state.get("world_size", self._rank_world[1])
        if slices is not None and ranks != self._rank_world[1] and state.get("batch") != 0:
            # Slices are dealt out anew, so nobody knows which samples of this epoch were trained already.
            raise ConfigError(
                f"the state was saved on {ranks} ranks inside of an epoch, but this loader is one of "
                f"{self._rank_world[1]} (with an exchange, save between epochs to change the number of ranks)"
            )
        self._end()
        if self._choice is not None and saved is not None:
            self._choice.restore(bytes(saved))
            then, now = state.get("batch_samples"), self._batch_samples()
            if state.get("batch") != 0 and then != now:
                # The place is a number of batches: of others it is another place, and samples would be trained twice.
                self._choice.restore(bytes(own["selection"]))
                raise ConfigError(
                    f"the state was saved on {ranks} ranks inside of an epoch in batches of {then} samples, but for "
                    f"{self._rank_world[1]} the selection cuts that epoch into batches of {now}; save between epochs "
                    "to change the number of ranks"
                )
        if self._exchange is not None and slices is not None:
            self._exchange.engine.restore(bytes(slices))
        self._epoch = whole("epoch", state.get("epoch"), 0)
        self._batch = whole("batch", state.get("batch"), 0)
        if self._batch >= len(self) and self._exchange is None:
            self._epoch, self._batch = self._epoch + 1, 0
        self._resuming = True

    def report(self) -> Report:
        """Where the time of the current, or else the last, epoch went."""
        if self._running is not None:
            return Report._from_json(self._running.report())
        return self._last_report or Report({})

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """Everything that the steering decided in the epochs of this loader so far, oldest first.

        Each has ``line``, a sentence, and ``epoch``, ``knob``, ``from``, ``to``, ``action``, ``reason``,
        ``predicted`` and ``measured``. ``report().decisions`` has those of one epoch.
        """
        return [dict(decision) for decision in self._decisions]

    # End.

    def _end(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _settle(self) -> None:
        """Ends the epoch that is under way, and keeps what it came to."""
        if self._running is not None:
            self._last_report = Report._from_json(self._running.report())
            self._decisions += self._last_report.decisions
        self._end()

    def close(self) -> None:
        """Ends the threads. The loader cannot be used after it."""
        self._end()
        if self._exchange is not None:
            self._exchange.close()
        self._closed = True
        self._unshow()

    def __enter__(self) -> Loader[A]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
