"""The cache through the real front: the same batches with and without it, and a report that says what it did."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import IDX
from gristmill import Loader
from gristmill.errors import ConfigError
from gristmill.report import Report
from gristmill.torch import Loader as TorchLoader


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 images that are not gzipped: nothing inside a gzip file can be cached by itself."""
    folder = tmp_path_factory.mktemp("plain")
    for packed in (IDX, Path(str(IDX).replace("images-idx3", "labels-idx1"))):
        with gzip.open(packed) as source, (folder / packed.stem).open("wb") as target:
            shutil.copyfileobj(source, target)
    return str(folder / IDX.stem)


def epochs(loader: Loader[Any], count: int) -> tuple[list[tuple[bytes, bytes, bytes]], list[Report]]:
    """Every batch of some epochs as bytes, and the report of each epoch."""
    batches, reports = [], []
    for _ in range(count):
        for batch in loader:
            parts = (np.asarray(batch.images), np.asarray(batch.labels), np.asarray(batch.ids))
            images, labels, ids = (part.tobytes() for part in parts)
            batches.append((images, labels, ids))
        reports.append(loader.report())
    return batches, reports


@pytest.mark.parametrize("policy", ["foresight", "score", "lru", "lfu", "static"])
def test_a_cache_changes_no_batch(plain: str, policy: str) -> None:
    def load(**more: Any) -> Loader[Any]:
        return Loader(plain, recipe="mnist", batch_size=64, seed=7, **more)

    without, plain_reports = epochs(load(), 3)
    cached, reports = epochs(load(cache="20%", settings={"cache.policy": policy}), 3)
    assert cached == without
    assert plain_reports[0].hit_ratio is None
    assert plain_reports[0].tiers == {}
    assert sum(reports[1].tiers.values()) == 1_000


def test_hits_grow_and_are_reported(plain: str) -> None:
    with Loader(plain, batch_size=64, cache="30%", settings={"cache.policy": "static"}) as loader:
        _, reports = epochs(loader, 2)
    first, second = reports[0].hit_ratio, reports[1].hit_ratio
    assert first == 0.0
    # Each sample takes something beside its bytes, so a little less than 30 % fits.
    assert second is not None
    assert 0.2 < second <= 0.3
    assert reports[1].values["bytes"] < reports[0].values["bytes"]
    assert "from memory" in str(reports[1])
    assert "from store" in reports[1]._repr_html_()


@pytest.mark.parametrize("size", [1 << 20, "1MiB"])
def test_sizes_in_bytes(plain: str, size: str | int) -> None:
    with TorchLoader(plain, batch_size=64, cache=size) as loader:
        _, reports = epochs(loader, 2)
    assert reports[1].hit_ratio == 1.0, "all of it fits"
    assert reports[1].tiers == {"memory": 1_000}


def test_off_is_no_cache(plain: str) -> None:
    with Loader(plain, batch_size=64, cache="off") as loader:
        _, reports = epochs(loader, 1)
    assert reports[0].hit_ratio is None


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ("100B", "smallest sample"),
        (700, "smallest sample"),
        ("0%", "20%"),
        ("some", "20%"),
        (0, "at least 1"),
        (True, "whole number"),
        (0.2, "whole number"),
    ],
)
def test_a_bad_cache_is_a_clear_error(plain: str, cache: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Loader(plain, batch_size=64, cache=cache)


def test_a_gzipped_container_cannot_be_cached(idx: str) -> None:
    with pytest.raises(ConfigError, match="gunzip"):
        Loader(idx, batch_size=64, cache="20%")
