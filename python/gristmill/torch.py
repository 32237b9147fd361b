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
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Sampler as TorchSampler
from torch.utils.dlpack import from_dlpack

from gristmill import _gristmill
from gristmill.errors import ConfigError
from gristmill.loader import Batch, LoaderArguments, launcher_rank, recipe_text, whole
from gristmill.loader import Loader as _Loader

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Batch", "Dataset", "Loader", "Sampler"]

#: Readers of a parent process, kept so that a forked child never closes what is not its own.
_inherited: list[_gristmill.Reader] = []


def _process_group_rank() -> tuple[int, int]:
    """Rank and world of the process group if there is one, else what the launcher says."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return launcher_rank()


class Loader(_Loader[torch.Tensor]):
    """Shuffled batches as tensors that share the engine's memory. Arguments are those of :class:`gristmill.Loader`.

    ``pin_memory``: batches are moved into pinned memory when a CUDA device is there (``None``, the default, or
    ``True``); ``False`` leaves them where they are.
    """

    def __init__(
        self, source: str | PathLike[str], *, pin_memory: bool | None = None, **arguments: Unpack[LoaderArguments]
    ) -> None:
        super().__init__(source, **arguments)
        self._pin = pin_memory is not False and torch.cuda.is_available()

    def _rank(self) -> tuple[int, int]:
        return _process_group_rank()

    def _array(self, memory: _gristmill.Memory) -> torch.Tensor:
        tensor = from_dlpack(memory)
        return tensor.pin_memory() if self._pin else tensor

    def _ones(self, count: int) -> torch.Tensor:
        return torch.ones(count)

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


class Sampler(TorchSampler[list[int]]):
    """The engine's batch order for an existing DataLoader: ``DataLoader(dataset, batch_sampler=Sampler(...))``.

    Seeded, shared by the ranks, with equally many batches on each; ``set_epoch`` and ``state_dict`` as on the Loader.

    >>> from torch.utils.data import DataLoader
    >>> dataset = Dataset(DATA, recipe="mnist")
    >>> sampler = Sampler(dataset, batch_size=100, seed=1)
    >>> len(DataLoader(dataset, batch_sampler=sampler))
    10
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
        self._epoch = 0
        self._batch = 0
        self._resuming = False
        self._length = len(self._order(0))

    def _order(self, epoch: int) -> list[list[int]]:
        return _gristmill.order(self._samples, self._seed, epoch, *self._shape)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        if self._batch > 0 and not self._resuming:
            self._epoch, self._batch = self._epoch + 1, 0
        self._resuming = False
        if self._dataset is not None:
            self._dataset.set_epoch(self._epoch)
        # At its end it stays in this epoch: a DataLoader asks for the last batch long before it is trained.
        for ids in self._order(self._epoch)[self._batch :]:
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
        return {
            "samples": self._samples,
            "seed": self._seed,
            "shape": list(self._shape),
            "epoch": self._epoch,
            "batch": batch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where ``state_dict`` was taken."""
        own = self.state_dict()
        for key in ("samples", "seed", "shape"):
            if state.get(key) != own[key]:
                raise ConfigError(
                    f"the state was saved with {key} = {state.get(key)!r}, but this sampler has {own[key]!r}"
                )
        self._epoch = whole("epoch", state.get("epoch"), 0)
        self._batch = whole("batch", state.get("batch"), 0)
        if self._batch >= len(self):
            self._epoch, self._batch = self._epoch + 1, 0
        self._resuming = True
