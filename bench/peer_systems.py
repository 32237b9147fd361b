"""The loaders that bench/peers.py compares, each as users write it, and the stopwatch around them.

Run as a program it measures one of them in a process of its own and prints one JSON line:

    python bench/peer_systems.py NAME DATA PASSES SEED

A system is opened once and gives batches by passes. The first pass is not timed (imports, threads, workers and the page
cache come to life in it). CPU time is read at the beginning and the end of the timed passes, when workers still live:
the process's own to the nanosecond, that of its descendants from /proc (in ticks of 10 ms). So start-up costs nobody
anything. All do the same work: decode, random-resized crop to 224, flip, normalise; batches of 64, full ones only;
2 threads or worker processes; OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pictures import CATALOGS, WORK, read_idx

BATCH, THREADS, SIDE = 64, 2, 224
SMALL_BATCH = 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GREY_MEAN, GREY_STD = 0.1307, 0.3081

#: One pass over the data, as a count of samples per batch.
Pass = Callable[[], Iterator[int]]


def checked(batches: Iterator[Any], shape: tuple[int, ...], dtype: Any) -> Iterator[int]:
    """Counts samples, and sees to it that every system hands over the same thing."""
    for images, labels in batches:
        assert tuple(images.shape[1:]) == shape, images.shape
        assert images.dtype == dtype, images.dtype
        assert len(images) == len(labels)
        yield len(labels)


def gristmill(data: Path, seed: int) -> Pass:
    """Gristmill's loader."""
    import torch
    from gristmill.torch import Loader

    loader = Loader(
        data,
        recipe="imagenet-train",
        batch_size=BATCH,
        drop_last=True,
        num_workers=THREADS,
        seed=seed,
        settings={"catalog.folder": CATALOGS},
    )
    return lambda: checked(iter(loader), (3, SIDE, SIDE), torch.float32)


def _worker_processes(dataset: Any) -> Pass:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(
        dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=THREADS, persistent_workers=True
    )
    return lambda: checked(iter(loader), (3, SIDE, SIDE), torch.float32)


def dataloader_pil(data: Path, seed: int) -> Pass:
    """DataLoader, ImageFolder and torchvision's transforms on Pillow images: what most people have."""
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    torch.manual_seed(seed)
    steps = [
        transforms.RandomResizedCrop(SIDE),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return _worker_processes(ImageFolder(data, transforms.Compose(steps)))


def _decoded(path: str) -> Any:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def dataloader_tensor(data: Path, seed: int) -> Pass:
    """The same with torchvision's own JPEG decoder and its transforms on tensors."""
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    torch.manual_seed(seed)
    steps = [
        v2.RandomResizedCrop(SIDE, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    return _worker_processes(ImageFolder(data, v2.Compose(steps), loader=_decoded))


def dali(data: Path, seed: int) -> Pass:
    """DALI's CPU operators."""
    import torch

    # Imported by name: with and without DALI at hand, a type checker sees the same.
    fn, types, nvidia = (import_module(f"nvidia.dali{part}") for part in (".fn", ".types", ""))
    base, front = (import_module(f"nvidia.dali.plugin.{part}") for part in ("base_iterator", "pytorch"))

    def graph() -> Any:
        files, labels = fn.readers.file(file_root=str(data), random_shuffle=True, name="files")
        crops = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0], num_attempts=10)
        small = fn.resize(crops, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            small,
            dtype=types.FLOAT,
            output_layout="CHW",
            mirror=fn.random.coin_flip(),
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
        )
        return images, labels

    pipeline = nvidia.pipeline_def(batch_size=BATCH, num_threads=THREADS, device_id=None, seed=seed)(graph)
    loader = front.DALIGenericIterator(
        pipeline(),
        ["images", "labels"],
        reader_name="files",
        last_batch_policy=base.LastBatchPolicy.DROP,
        auto_reset=True,
    )
    return lambda: checked(((b["images"], b["labels"]) for (b,) in loader), (3, SIDE, SIDE), torch.float32)


def ffcv(data: Path, seed: int) -> Pass:
    """ffcv, on a file of its own format; its writer encodes the pictures anew, at quality 90."""
    import numpy as np
    import torch
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    beton = WORK / f"{data.name}.beton"
    if not beton.exists():
        growing = beton.with_suffix(".growing")
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
        DatasetWriter(str(growing), fields, num_workers=THREADS).from_indexed_dataset(ImageFolder(data))
        growing.rename(beton)
    mean, std = (np.array(values) * 255 for values in (MEAN, STD))
    loader = Loader(
        str(beton),
        batch_size=BATCH,
        num_workers=THREADS,
        order=OrderOption.RANDOM,
        drop_last=True,
        seed=seed,
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((SIDE, SIDE)),
                RandomHorizontalFlip(),
                NormalizeImage(mean, std, np.float32),
                ToTensor(),
                ToTorchImage(),
            ],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )
    return lambda: checked(iter(loader), (3, SIDE, SIDE), torch.float32)


def _small_gristmill(data: Path, seed: int, recipe: Any, dtype: Any) -> Pass:
    from gristmill.torch import Loader

    loader = Loader(
        data,
        recipe=recipe,
        batch_size=SMALL_BATCH,
        num_workers=THREADS,
        seed=seed,
        settings={"catalog.folder": CATALOGS},
    )
    return lambda: checked(iter(loader), (1, 28, 28), dtype)


def small_gristmill_u8(data: Path, seed: int) -> Pass:
    """Gristmill's loader, bytes as they are."""
    import torch

    return _small_gristmill(data, seed, [{"kind": "decode"}, {"kind": "to-tensor", "dtype": "u8"}], torch.uint8)


def small_gristmill_f32(data: Path, seed: int) -> Pass:
    """Gristmill's loader, normalised floats."""
    import torch

    return _small_gristmill(data, seed, "mnist", torch.float32)


def _small_dataloader(data: Path, seed: int, floats: bool) -> Pass:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class InMemory(Dataset[Any]):
        """Asked for whole batches, which is the fastest a DataLoader gets from memory."""

        def __init__(self) -> None:
            images = read_idx(data)
            labels = read_idx(data.with_name(data.name.replace("images-idx3", "labels-idx1")))
            self.images = torch.from_numpy(images.copy()).unsqueeze(1)
            self.labels = torch.from_numpy(labels.astype("int64"))

        def __len__(self) -> int:
            return len(self.labels)

        def __getitems__(self, ids: list[int]) -> Any:
            images = self.images[ids]
            if floats:
                images = images.float().div_(255).sub_(GREY_MEAN).div_(GREY_STD)
            return images, self.labels[ids]

    torch.manual_seed(seed)
    loader = DataLoader(InMemory(), batch_size=SMALL_BATCH, shuffle=True, num_workers=0, collate_fn=_as_it_is)
    return lambda: checked(iter(loader), (1, 28, 28), torch.float32 if floats else torch.uint8)


def _as_it_is(batch: Any) -> Any:
    return batch


def small_dataloader_u8(data: Path, seed: int) -> Pass:
    """DataLoader over tensors in memory, bytes as they are."""
    return _small_dataloader(data, seed, floats=False)


def small_dataloader_f32(data: Path, seed: int) -> Pass:
    """DataLoader over tensors in memory, normalised floats."""
    return _small_dataloader(data, seed, floats=True)


#: Name -> how to open it, the module it needs, how to get that.
PICTURES: dict[str, tuple[Callable[[Path, int], Pass], str, str]] = {
    "gristmill": (gristmill, "gristmill", "make bench-peers"),
    "dataloader-pil": (dataloader_pil, "torchvision", "pip install torchvision"),
    "dataloader-tensor": (dataloader_tensor, "torchvision", "pip install torchvision"),
    "dali": (dali, "nvidia.dali", "pip install nvidia-dali-cuda120"),
    "ffcv": (ffcv, "ffcv", "see https://ffcv.io: apt-get install libopencv-dev pkg-config; pip install ffcv"),
}
SMALL: dict[str, tuple[Callable[[Path, int], Pass], str, str]] = {
    "small-gristmill-u8": (small_gristmill_u8, "gristmill", "make bench-peers"),
    "small-dataloader-u8": (small_dataloader_u8, "torch", "pip install torch"),
    "small-gristmill-f32": (small_gristmill_f32, "gristmill", "make bench-peers"),
    "small-dataloader-f32": (small_dataloader_f32, "torch", "pip install torch"),
}


def installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def descendants_cpu_s() -> float:
    """CPU seconds of all processes below this one, living or ended and waited for."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # After the name: state, parent, ...; user, system, and those of children that were waited for.
            parents[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    own = os.getpid()
    own_fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, own_fields[13:15]))
    for process, (parent, used) in parents.items():
        while parent not in (0, own) and parent in parents:
            parent = parents[parent][0]
        ticks += used if parent == own and process != own else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    name, data, passes, seed = sys.argv[1:]
    import torch

    torch.set_num_threads(1)
    one_pass = {**PICTURES, **SMALL}[name][0](Path(data), int(seed))
    sum(one_pass())
    cpu, wall = time.process_time() + descendants_cpu_s(), time.perf_counter()
    samples = sum(sum(one_pass()) for _ in range(int(passes)))
    wall = time.perf_counter() - wall
    cpu = time.process_time() + descendants_cpu_s() - cpu
    print(json.dumps({"samples": samples, "cpu_us": cpu * 1e6 / samples, "per_s": samples / wall}))


if __name__ == "__main__":
    main()
