"""What all tests share: data made from the shipped samples, and a catalog folder of their own."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "data" / "shippable"
IDX = SHIPPED / "fashion-mnist-1000-test-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True, scope="session")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Catalogs of one test run are nobody else's."""
    os.environ["GRISTMILL_CATALOG_FOLDER"] = str(tmp_path_factory.mktemp("catalogs"))
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def idx() -> str:
    """1,000 Fashion-MNIST images."""
    return str(IDX)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 JPEGs of many sizes in class folders, cut from the shipped photos."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(5)
    with tarfile.open(SHIPPED / "cc0-photos.tar") as archive:
        sources = [(Path(m.name).stem, archive.extractfile(m).read()) for m in archive.getmembers() if m.isfile()]  # type: ignore[union-attr]
    pictures = [(name, Image.open(io.BytesIO(data)).convert("RGB")) for name, data in sources]
    for i in range(120):
        name, picture = pictures[i % len(pictures)]
        width, height = (int(side) for side in rng.integers(120, 500, 2))
        left = int(rng.integers(0, max(1, picture.width - width)))
        top = int(rng.integers(0, max(1, picture.height - height)))
        part = picture.crop((left, top, min(picture.width, left + width), min(picture.height, top + height)))
        (folder / name).mkdir(exist_ok=True)
        part.save(folder / name / f"{i:04}.jpg", quality=int(rng.integers(60, 96)), subsampling=int(rng.integers(0, 3)))
    return folder


def external(name: str) -> Path | None:
    """Data that is not shipped, or None with a line that says so."""
    path = Path(os.environ.get("GRISTMILL_DATA", ROOT.parent / "shared" / "data")) / name
    if path.exists():
        return path
    print(f"NOT TESTED on real data: {path} is absent (set GRISTMILL_DATA)")
    return None
