"""The data that bench/selection.py trains and judges on, as plain files below bench/work.

MNIST and Fashion-MNIST come as gzipped idx files, which the engine would keep in memory; unpacked, every sample is a
read of its own, so that bytes saved are bytes not read. The same copy is where a slice of the training data becomes
the judge (--holdout) and where labels are flipped (--mislabel): no training loop needs to know of either.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pictures import WORK, outside_data

RECORD_BYTES = 3_073
HOLDOUT_SAMPLES = 5_000
SPLIT_SEED = 20_240
CIFAR_MEAN = [0.4914, 0.4822, 0.4465]
CIFAR_STD = [0.2470, 0.2435, 0.2616]
CIFAR_JUDGED: list[Mapping[str, Any]] = [
    {"kind": "decode"},
    {"kind": "to-tensor"},
    {"kind": "normalise", "mean": CIFAR_MEAN, "std": CIFAR_STD},
]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Data:
    """A data set on disk, with the recipes for training on it and for judging by it."""

    name: str
    train: Path
    judged: Path
    train_recipe: str | list[Mapping[str, Any]]
    judged_recipe: str | list[Mapping[str, Any]]
    samples: int
    #: Whether pictures that are usually cropped and flipped are shown as they are.
    plain: bool = False


def folder_of(named: str) -> Path:
    """The folder that --data means: a path, or the name of a set where the outside data lies."""
    for folder in (Path(named), outside_data() / named, WORK / named):
        if folder.is_dir() and is_known(folder):
            return folder
    hint = " (make it with: python bench/fetch_cifar10.py bench/work/cifar10)" if "cifar" in named else ""
    raise SystemExit(f"{named} is no folder with idx files or CIFAR-10 batches, nor is it below {outside_data()}{hint}")


def is_known(folder: Path) -> bool:
    """Whether this folder holds a complete training set of a known form."""
    return len(list(folder.glob("data_batch_*.bin"))) == 5 or any(folder.glob("train-images-idx3-ubyte*"))


def idx(folder: Path, name: str) -> Bytes:
    """An idx file, gzipped or not."""
    packed = folder / f"{name}.gz"
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    sides = content[3]
    shape = [int.from_bytes(content[4 + 4 * side : 8 + 4 * side], "big") for side in range(sides)]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * sides).reshape(shape)


def write_idx(path: Path, array: Bytes) -> None:
    """Writes an idx file of bytes."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    path.write_bytes(head + array.tobytes())


def read(folder: Path, train: bool) -> tuple[Bytes, Bytes]:
    """Pictures (one row each) and labels of one part of a set."""
    if any(folder.glob("data_batch_*.bin")):
        names = sorted(folder.glob("data_batch_*.bin")) if train else [folder / "test_batch.bin"]
        rows = np.concatenate([np.fromfile(name, np.uint8).reshape(-1, RECORD_BYTES) for name in names])
        return rows[:, 1:], rows[:, 0]
    part = "train" if train else "t10k"
    images = idx(folder, f"{part}-images-idx3-ubyte")
    return images.reshape(len(images), -1), idx(folder, f"{part}-labels-idx1-ubyte")


def write(folder: Path, train: bool, images: Bytes, labels: Bytes) -> None:
    """Writes one part of a set in the form it had."""
    if images.shape[1] == RECORD_BYTES - 1:
        rows = np.concatenate([labels.reshape(-1, 1), images], axis=1)
        (folder / ("data_batch_1.bin" if train else "test_batch.bin")).write_bytes(rows.tobytes())
        return
    part = "train" if train else "t10k"
    write_idx(folder / f"{part}-images-idx3-ubyte", images.reshape(-1, 28, 28))
    write_idx(folder / f"{part}-labels-idx1-ubyte", labels)


def flipped(labels: Bytes, share: float) -> Bytes:
    """The labels, a seeded share of them changed to another class."""
    rng = np.random.default_rng(SPLIT_SEED)
    wrong = rng.choice(len(labels), round(share * len(labels)), replace=False)
    classes = int(labels.max()) + 1
    changed = labels.copy()
    changed[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return changed


def prepare(named: str, holdout: int, mislabel: float, plain: bool = False) -> Data:
    """The set as plain files: judged by its test part, or by so many samples of the training part, then not trained."""
    source = folder_of(named)
    name = source.name if Path(named).is_dir() else named
    kind = f"{name}{f'-holdout-{holdout}' if holdout else ''}{f'-mislabel-{mislabel:g}' if mislabel else ''}"
    folder = WORK / "selection-data" / kind
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        growing = Path(tempfile.mkdtemp(prefix=f"{folder.name}.growing-", dir=folder.parent))
        images, labels = read(source, train=True)
        if holdout:
            order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
            judged, kept = np.sort(order[:holdout]), np.sort(order[holdout:])
            write(growing, False, images[judged], labels[judged])
            images, labels = images[kept], labels[kept]
        else:
            write(growing, False, *read(source, train=False))
        write(growing, True, images, flipped(labels, mislabel))
        try:
            os.replace(growing, folder)
        except OSError:
            # Another comparison that began at the same time was there first, with the same files.
            shutil.rmtree(growing)
            if not folder.exists():
                raise
    images, labels = read(folder, train=True)
    if images.shape[1] == RECORD_BYTES - 1:
        recipe = CIFAR_JUDGED if plain else "cifar-train"
        return Data(name, folder, folder / "test_batch.bin", recipe, CIFAR_JUDGED, len(labels), plain)
    return Data(name, folder, folder / "t10k-images-idx3-ubyte", "mnist", "mnist", len(labels))
