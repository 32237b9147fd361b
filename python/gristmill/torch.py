"""Gristmill for PyTorch: a loader of its own, and a dataset and a sampler for an existing DataLoader.

>>> from gristmill.torch import Loader
>>> loader = Loader(DATA, recipe="mnist", batch_size=100)
>>> images, labels = next(iter(loader))
>>> images.shape, labels.dtype
(torch.Size([100, 1, 28, 28]), torch.int64)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Sampler as TorchSampler
from torch.utils.dlpack import from_dlpack

from gristmill import _gristmill
from gristmill.arguments import LoaderArguments, recipe_text, whole
from gristmill.errors import ConfigError
from gristmill.learning import Learning, has_process_group
from gristmill.loader import Batch
from gristmill.loader import Loader as _Loader
from gristmill.norm import BatchWeights, left_out, weigh
from gristmill.page import warn
from gristmill.peers import launcher_rank
from gristmill.selection import selection_settings

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Batch", "Dataset", "Loader", "Sampler"]

_Model = TypeVar("_Model", bound=torch.nn.Module)

#: Readers of a parent process, kept so that a forked child never closes what is not its own.
_inherited: list[_gristmill.Reader] = []


def _process_group_rank() -> tuple[int, int]:
    """Rank and world of the process group if there is one, else what the launcher says."""
    if has_process_group():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return launcher_rank()


class Loader(Learning, _Loader[torch.Tensor]):
    """Shuffled batches as tensors that share the engine's memory. Arguments are those of :class:`gristmill.Loader`.

    ``pin_memory``: batches are moved into pinned memory when a CUDA device is there (``None``, the default, or
    ``True``); ``False`` leaves them where they are.
    """

    def __init__(
        self, source: str | PathLike[str], *, pin_memory: bool | None = None, **arguments: Unpack[LoaderArguments]
    ) -> None:
        super().__init__(source, **arguments)
        self._pin = pin_memory is not False and torch.cuda.is_available()
        self._num_classes = len(self.classes) or None
        self._entropy = self._choice is not None and self._choice.wants_entropy

    def weigh(self, model: _Model) -> _Model:
        """Has the model's batch norms count samples by their weights, in place, and gives the model back.

        A selection that trains easy samples rarely gives them more weight; batch norm would otherwise normalise by the
        hard ones, which are many, and the model is then used on all. Call it once, before training, and forward each
        batch whole before you take the next. Without weights (a full epoch, a selection without them, ``eval()``) they
        are the batch norms that they were. Only ``BatchNorm1d``, ``2d`` and ``3d`` are weighed.

        >>> loader = Loader(DATA, recipe="mnist", batch_size=100, selection="weighted")
        >>> model = loader.weigh(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(784)))
        """
        self._batch_weights = self._batch_weights or BatchWeights()
        self._weighed = weigh(model, self._batch_weights) > 0 or self._weighed
        others = left_out(model)
        self._left_out |= bool(others)
        if others:
            warn(f"{', '.join(others)}: not weighed, so that they go by the samples that were chosen and not by all")
        return model

    def _next_epoch(self) -> None:
        super()._next_epoch()
        if self._batch_weights is not None:
            self._batch_weights.clear()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._looked = None

    def _make(self, batch: _gristmill.Batch) -> Any:
        made = super()._make(batch)
        if self._batch_weights is not None:
            self._batch_weights.note(from_dlpack(batch.weights()))
        return made

    def _rank(self) -> tuple[int, int]:
        return _process_group_rank()

    def _array(self, memory: _gristmill.Memory) -> torch.Tensor:
        tensor = from_dlpack(memory)
        return tensor.pin_memory() if self._pin else tensor

    def _stack(self, samples: list[Any]) -> Any:
        return torch.stack(samples)


class Dataset(TorchDataset[Any]):
    """A map-style dataset for an existing DataLoader: ``dataset[i]`` is ``(sample, label)``.

    Safe in forked and spawned workers. Whole batches are read at once (``__getitems__``). ``transform`` is any
    callable, run after the recipe; without a recipe it gets the sample's bytes.

    >>> dataset = Dataset(DATA, recipe="mnist")
    >>> image, label = dataset[3]
    >>> len(dataset), image.shape
    (1000, torch.Size([1, 28, 28]))
    """

    def __init__(
        self,
        source: str | PathLike[str],
        *,
        recipe: str | PathLike[str] | Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        seed: int = 0,
        config: str | PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        for name, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise ConfigError(f"{name} is {function!r}; it must be callable")
        text = [
            (str(key), str(value)) for key, value in {"loader.seed": whole("seed", seed, 0), **(settings or {})}.items()
        ]
        self._arguments = (os.fspath(source), recipe_text(recipe), text)
        self._config = config
        self.transform = transform
        self.target_transform = target_transform
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._open()

    def _open(self) -> None:
        self._reader = _gristmill.Reader(*self._arguments, config=self._config)
        self._process = os.getpid()

    def _own_reader(self) -> _gristmill.Reader:
        if self._process != os.getpid() and not self._reader.survives_fork:
            _inherited.append(self._reader)
            self._open()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_reader", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return self._reader.classes

    def set_epoch(self, epoch: int) -> None:
        """Which epoch's randomness the recipe draws; workers that run already see it too."""
        self._epoch[0] = whole("epoch", epoch, 0)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            raise TypeError("a Gristmill dataset is asked for one index at a time, or for a list by __getitems__")
        index = index.__index__()
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside of a data set of {len(self)} samples")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        batch = self._own_reader().read(int(self._epoch[0]), [int(index) for index in indices])
        memory = batch.images()
        samples: Any = from_dlpack(memory) if memory is not None else batch.raw()
        labels: list[int] = from_dlpack(batch.labels()).tolist()
        transform = self.transform or (lambda sample: sample)
        target = self.target_transform or (lambda label: label)
        return [(transform(sample), target(label)) for sample, label in zip(samples, labels, strict=True)]


class Chosen:
    """The samples of one batch that a :class:`Sampler` gave: ``ids``, ``labels`` and ``weights``."""

    __slots__ = ("ids", "labels", "weights")

    def __init__(self, ids: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> None:
        self.ids = ids
        self.labels = labels
        self.weights = weights


class Sampler(Learning, TorchSampler[list[int]]):
    """The engine's batch order for an existing DataLoader: ``DataLoader(dataset, batch_sampler=Sampler(...))``.

    Seeded, shared by the ranks, with equally many batches on each; ``set_epoch`` and ``state_dict`` as on the Loader.

    >>> from torch.utils.data import DataLoader
    >>> dataset = Dataset(DATA, recipe="mnist")
    >>> sampler = Sampler(dataset, batch_size=100, seed=1)
    >>> len(DataLoader(dataset, batch_sampler=sampler))
    10

    With a ``selection`` an epoch has only the samples worth training. Tell it what was learned, batch by batch::

        for index, (images, labels) in enumerate(dataloader):
            logits = model(images)
            loss = sampler.loss(logits, sampler.batch(index, labels))
    """

    def __init__(
        self,
        data: Dataset | int,
        *,
        batch_size: int = 64,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
        selection: str | Mapping[str, Any] | None = None,
        families: str = "off",
        epochs: int | None = None,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ConfigError("rank and world_size go together: give both or none")
        here = _process_group_rank() if rank is None or world_size is None else (rank, world_size)
        self._samples = whole("data", data if isinstance(data, int) else len(data), 0)
        self._dataset = data if isinstance(data, Dataset) else None
        self._shape = (
            whole("batch_size", batch_size, 1),
            whole("rank", here[0], 0),
            whole("world_size", here[1], 1),
            uneven,
            bool(drop_last),
        )
        self._seed = whole("seed", seed, 0) if shuffle else None
        self._rank_world = (self._shape[1], self._shape[2])
        self._choice = self._new_choice(seed, shuffle, selection_settings(selection, families, epochs))
        self._entropy = self._choice is not None and self._choice.wants_entropy
        if self._dataset is not None:
            self._num_classes = len(self._dataset.classes) or None
        self._epoch = 0
        self._epochs = epochs
        self._batch = 0
        self._resuming = False
        self._ids: list[list[int]] = []
        self._weights: list[list[float]] = []
        self._first = 0
        self._length = len(_gristmill.order(self._samples, self._seed, 0, *self._shape))

    def _new_choice(self, seed: int, shuffle: bool, settings: dict[str, Any]) -> _gristmill.Choice | None:
        if settings.get("selection.kind", "uniform") == "uniform" and "selection.families" not in settings:
            return None
        batch, rank, world, uneven, drop_last = self._shape
        pairs = {
            "loader.batch": batch,
            "loader.rank": rank,
            "loader.world": world,
            "loader.uneven": uneven,
            "loader.drop_last": str(drop_last).lower(),
            "loader.seed": seed,
            "loader.shuffle": str(bool(shuffle)).lower(),
            **settings,
        }
        text = [(key, str(value)) for key, value in pairs.items()]
        if self._dataset is not None:
            return self._dataset._own_reader().choice(text)
        if "selection.families" in settings:
            raise ConfigError("families need the pictures: give the sampler a Dataset, not a number of samples")
        return _gristmill.Choice(self._samples, text)

    def _order(self, epoch: int) -> tuple[list[list[int]], list[list[float]]]:
        if self._choice is None:
            return _gristmill.order(self._samples, self._seed, epoch, *self._shape), []
        self._share(epoch)
        return self._choice.order(epoch, 0)

    def __len__(self) -> int:
        return self._length if self._choice is None else self._choice.batches()

    def batch(self, index: int, labels: torch.Tensor) -> Chosen:
        """The ids and weights of a batch of the iteration under way, with the labels that were read for it.

        ``index`` counts from the beginning of the iteration, as ``enumerate`` does, also in a resumed epoch.
        """
        index = whole("index", index, 0) + self._first
        if index >= len(self._ids):
            raise ConfigError(f"there is no batch {index}: this epoch has {len(self._ids)}")
        ids = torch.tensor(self._ids[index])
        weights = torch.tensor(self._weights[index]) if self._weights else torch.ones(len(ids))
        if len(labels) != len(ids):
            raise ConfigError(f"batch {index} has {len(ids)} samples, but {len(labels)} labels were given")
        if labels.device.type == "cpu" and len(labels) and self._num_classes is not None:
            least, most = (int(end) for end in labels.aminmax())
            if least < 0 or most >= self._num_classes:
                raise ConfigError(f"labels go from {least} to {most}, but there are {self._num_classes} classes")
        return Chosen(ids, labels, weights)

    def __iter__(self) -> Iterator[list[int]]:
        if self._batch > 0 and not self._resuming:
            if self._batch >= len(self._ids):
                self._check_heard()
            self._epoch, self._batch = self._epoch + 1, 0
        self._resuming = False
        if self._dataset is not None:
            self._dataset.set_epoch(self._epoch)
        # At its end it stays in this epoch: a DataLoader asks for the last batch long before it is trained.
        self._ids, self._weights = self._order(self._epoch)
        self._first = self._batch
        for ids in self._ids[self._batch :]:
            self._batch += 1
            yield ids

    def set_epoch(self, epoch: int) -> None:
        """Which epoch comes next. Naming the current one keeps the place of a resumed sampler."""
        epoch = whole("epoch", epoch, 0)
        if epoch != self._epoch or not self._resuming:
            self._epoch, self._batch, self._resuming = epoch, 0, False

    def state_dict(self, *, batches_trained: int | None = None) -> dict[str, Any]:
        """Where it is. A DataLoader with workers asks for batches ahead of training: say how many were trained."""
        batch = self._batch if batches_trained is None else whole("batches_trained", batches_trained, 0)
        self._flush()
        return {
            "samples": self._samples,
            "seed": self._seed,
            "shape": list(self._shape),
            "epoch": self._epoch,
            "batch": batch,
            "selection": self._choice.state() if self._choice is not None else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where ``state_dict`` was taken."""
        self._looked = None
        own = self.state_dict()
        for key in ("samples", "seed", "shape"):
            if state.get(key) != own[key]:
                raise ConfigError(
                    f"the state was saved with {key} = {state.get(key)!r}, but this sampler has {own[key]!r}"
                )
        saved = state.get("selection")
        if (saved is None) != (self._choice is None):
            raise ConfigError("the state and this sampler differ in their selection; give both the same")
        if self._choice is not None and saved is not None:
            self._choice.restore(bytes(saved))
        self._epoch = whole("epoch", state.get("epoch"), 0)
        self._batch = whole("batch", state.get("batch"), 0)
        if self._batch >= len(self):
            self._epoch, self._batch = self._epoch + 1, 0
        self._resuming = True
