"""The data that benchmarks measure on: real files where they are at hand, the shipped ones where not.

Everything made here lies in bench/work and is made once. GRISTMILL_DATA names the folder with the larger sets
(default: shared/data beside the repository); what is not there is replaced, and the replacement says its name.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "target" / "release"
WORK = ROOT / "bench" / "work"
CATALOGS = WORK / "catalogs"
SMALL_SAMPLES = 60_000


def outside_data() -> Path:
    """Where data that is not shipped would be."""
    return Path(os.environ.get("GRISTMILL_DATA", ROOT.parent / "shared" / "data"))


def pictures() -> tuple[Path, str]:
    """A folder of JPEGs, and what to call them."""
    WORK.mkdir(parents=True, exist_ok=True)
    archive_path = outside_data() / "imagenet-sample" / "images.tar"
    if archive_path.exists():
        folder = WORK / "imagenet"
        if not folder.exists():
            with tarfile.open(archive_path) as archive:
                archive.extractall(WORK / "imagenet.growing", filter="data")
            (WORK / "imagenet.growing").rename(folder)
        return folder, "ImageNet sample (260 JPEGs)"
    print(f"{archive_path} is absent (set GRISTMILL_DATA): measuring on pictures cut from the shipped photos")
    folder = WORK / "photos"
    if not folder.exists():
        subprocess.run([RELEASE / "cut-photos", folder, "600"], check=True)
    return folder, "600 pictures cut from the shipped photos"


def jpegs(folder: Path) -> list[Path]:
    """The JPEGs below a folder, in a fixed order."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg"})


def class_folders(folder: Path, least: int) -> Path:
    """At least ``least`` pictures as class folders, each holding all of ``folder`` once as hard links.

    So a small sample gives an epoch of useful length to every loader, and what fills the page cache stays small.
    """
    files = jpegs(folder)
    copies = -(-least // len(files))
    made = WORK / f"{folder.name}-x{copies}"
    if not made.exists():
        growing = made.with_suffix(".growing")
        shutil.rmtree(growing, ignore_errors=True)
        for copy in range(copies):
            (growing / f"{copy:02}").mkdir(parents=True)
            for file in files:
                os.link(file, growing / f"{copy:02}" / file.name)
        growing.rename(made)
    return made


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array in an idx file of bytes, gzipped or not."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3]))
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def write_idx(path: Path, array: npt.NDArray[np.uint8]) -> None:
    """Writes it again, not packed."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def small_samples() -> tuple[Path, str]:
    """60,000 pictures of 28 x 28 grey bytes in one idx file (labels beside it), and what to call them."""
    full = outside_data() / "fashion-mnist"
    if full.exists():
        stem, suffix, name = full / "train", "", "Fashion-MNIST (60,000 x 784 bytes)"
    else:
        stem, suffix = ROOT / "data" / "shippable" / "fashion-mnist-4000-train", "-repeated"
        name = "4,000 of Fashion-MNIST, repeated to 60,000 x 784 bytes"
    folder = WORK / f"small{suffix}"
    if not folder.exists():
        growing = folder.with_suffix(".growing")
        growing.mkdir(parents=True, exist_ok=True)
        for part in ("images-idx3", "labels-idx1"):
            array = read_idx(stem.with_name(f"{stem.name}-{part}-ubyte.gz"))
            repeats = [SMALL_SAMPLES // len(array)] + [1] * (array.ndim - 1)
            write_idx(growing / f"train-{part}-ubyte", np.tile(array, repeats))
        growing.rename(folder)
    return folder / "train-images-idx3-ubyte", name
