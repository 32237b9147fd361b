"""The split through the real front: a served node runs the first ops, and no batch changes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from gristmill import Loader
from gristmill.errors import ConfigError
from gristmill.torch import Loader as TorchLoader


def binary() -> Path:
    """The command line, built by now or built here."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [path for name in ("debug", "release") if (path := target / name / "gristmill").exists()]
    if not found:
        subprocess.run(["cargo", "build", "--locked", "-p", "gristmill"], cwd=ROOT, check=True)
        found = [target / "debug" / "gristmill"]
    return max(found, key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def node(photos: Path) -> Iterator[str]:
    """A node near the photos, with two cores for ops."""
    command = [binary(), "serve", photos, "--listen", "127.0.0.1:0", "--cores", "2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["tcp"]
        finally:
            process.terminate()
            process.wait(20)


def epochs(loader: Loader[Any], count: int) -> list[tuple[bytes, bytes]]:
    """Every batch of some epochs as bytes."""
    batches = []
    for _ in range(count):
        for batch in loader:
            batches.append((np.asarray(batch.images).tobytes(), np.asarray(batch.ids).tobytes()))
    return batches


def load(source: str, **more: Any) -> Loader[Any]:
    """A loader whose link, as it is told, is slow."""
    slow = {"split.link_bytes_per_s": "1MB"}
    return Loader(source, recipe="imagenet-train", batch_size=32, seed=3, settings=slow, **more)


@pytest.mark.parametrize("policy", ["auto", "best", "sophon", "resize", "all", "fastflow", "none"])
def test_a_split_changes_no_batch(photos: Path, node: str, policy: str) -> None:
    with load(str(photos)) as plain, load(node, split=policy) as loader:
        assert epochs(loader, 2) == epochs(plain, 2)
        report = loader.report()
    if policy == "none":
        assert report.split == {}
        return
    split = report.split
    assert split["mode"] == policy
    assert split["reason"] in str(report)
    assert sum(stage["samples"] for stage in split["stages"]) == 120
    if policy in ("auto", "best"):
        assert split["bytes"] * 1.2 < split["raw_bytes"]
        assert split["upstream_cpu_s"] > 0
        assert split["predicted_s"] > 0
        assert "over the link instead of" in report._repr_html_()


def test_tensors_and_a_shared_node(photos: Path, node: str) -> None:
    def load(**more: Any) -> TorchLoader:
        settings = {"split.link_bytes_per_s": "1MB"}
        return TorchLoader(photos, recipe="imagenet-train", batch_size=32, seed=3, settings=settings, **more)

    with load() as plain, load(cache=node, split="best") as loader:
        assert epochs(loader, 2) == epochs(plain, 2)
        assert loader.report().split["wanted"] > 0


def test_a_plain_store_has_nothing_to_split(photos: Path) -> None:
    with load(str(photos), split="auto") as loader:
        epochs(loader, 1)
        assert "no node" in loader.report().split["reason"]
        assert "no node" in str(loader.report())


@pytest.mark.parametrize(("split", "words"), [("some", "auto"), ("", "auto"), (3, "name"), (True, "name")])
def test_a_bad_split_is_a_clear_error(photos: Path, split: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Loader(photos, recipe="imagenet-train", split=split)
