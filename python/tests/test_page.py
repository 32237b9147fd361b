"""The page and the steering through the real front: fetched over HTTP, written as a file, and never in the way."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import IDX
from gristmill import Loader
from gristmill.errors import ConfigError
from gristmill.torch import Loader as TorchLoader

ANY = "127.0.0.1:0"


def state(loader: Loader[Any]) -> dict[str, Any]:
    """What a browser is told."""
    assert loader.page_url is not None
    with urllib.request.urlopen(f"{loader.page_url}api/state", timeout=10) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def test_a_browser_sees_the_run(idx: str) -> None:
    with TorchLoader(idx, recipe="mnist", batch_size=50, page=ANY, epochs=3) as loader:
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        assert state(loader)["epochs"] == []
        for batch in loader:
            live = loader.loss(model(batch.images), batch)
        assert torch.isfinite(live)
        loader.tested(0.75)
        iterator = iter(loader)
        next(iterator)
        told = state(loader)
        with urllib.request.urlopen(loader.page_url or "", timeout=10) as page:
            assert b"<title>" in page.read()
    (epoch,) = told["epochs"]
    assert epoch["report"]["samples"] == 1_000
    assert epoch["outcome"]["test_accuracy"] == 0.75
    assert 0 < epoch["outcome"]["accuracy"] < 1
    assert epoch["outcome"]["loss"] > 0
    assert told["live"]["progress"]["epoch"] == 1
    assert told["live"]["progress"]["batches"] == 20
    assert told["of"] == 3
    with pytest.raises(OSError, match="refused"):
        state(loader)


def test_without_a_page_nothing_is_served(idx: str) -> None:
    with Loader(idx, recipe="mnist") as loader:
        assert loader.page_url is None
        loader.tested(0.5)


def test_losses_alone_do_not_say_who_was_right(idx: str) -> None:
    with TorchLoader(idx, recipe="mnist", batch_size=500, page=ANY) as loader:
        for batch in loader:
            loader.feedback(batch, per_sample_loss=torch.full((500,), 0.25))
        (epoch,) = state(loader)["epochs"]
        assert epoch["outcome"]["loss"] == 0.25
        assert epoch["outcome"]["accuracy"] is None
        with urllib.request.urlopen(f"{loader.page_url}api/samples?kind=hardest", timeout=10) as answer:
            assert json.load(answer)["total"] == 1_000


def test_arrays_feed_it_too(idx: str) -> None:
    with Loader(idx, recipe="mnist", batch_size=500, page=ANY) as loader:
        for batch in loader:
            half = np.linspace(0, 1, 500, dtype=np.float32)
            loader.feedback_arrays(batch.ids, half, 1 - half, np.ones(500))
        (epoch,) = state(loader)["epochs"]
    assert epoch["outcome"] == {
        "loss": 1.0,
        "accuracy": 0.5,
        "test_accuracy": None,
        "kept_share": None,
        "wall_ms": None,
    }


@pytest.mark.parametrize("kind", [Loader, TorchLoader])
def test_a_port_in_use_is_a_warning_and_training_goes_on(idx: str, kind: type[Loader[Any]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.warns(RuntimeWarning, match=f"{address}.*in use.*127.0.0.1:0.*goes on") as told:
            loader = kind(idx, recipe="mnist", page=address)
        assert told[0].filename == __file__
        with loader:
            assert loader.page_url is None
            assert sum(len(batch.labels) for batch in loader) == 1_000


def test_a_report_that_cannot_be_written_is_said_at_once(idx: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "out.html"
    with pytest.warns(RuntimeWarning, match=re.escape(str(path))):
        loader = Loader(idx, recipe="mnist", report=path)
    assert sum(len(batch.labels) for batch in loader) == 1_000
    with pytest.warns(RuntimeWarning, match=re.escape(str(path))):
        loader.close()


def test_a_report_is_written_once(idx: str, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Loader(idx, recipe="mnist", report=path) as loader:
            assert not path.exists()
            for _ in loader:
                pass
        assert '"ended":true' in path.read_text()
        path.unlink()
        loader.close()
        assert not path.exists()


def test_a_program_that_closes_nothing_has_its_report(tmp_path: Path) -> None:
    script = f"""
import os
from gristmill import Loader
loader = Loader({str(IDX)!r}, recipe="mnist", report="out.html", page="{ANY}")
for batch in loader:
    pass
if os.fork() == 0:
    raise SystemExit  # A child has neither page nor report.
os.wait()
assert not os.path.exists("out.html")
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert '"epoch":0' in (tmp_path / "out.html").read_text()


def test_only_the_first_rank_has_a_page(idx: str, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    with Loader(idx, recipe="mnist", rank=1, world_size=2, page=ANY, report=path) as loader:
        assert loader.page_url is None
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"page": 7078}, "page is 7078"),
        ({"page": "nonsense"}, "not an address"),
        ({"page": "0.0.0.0:0"}, "others could look"),
        ({"report": 7}, "report is 7"),
        ({"report": "out.txt"}, "ends in .html"),
        ({"steer": 3}, "steer is 3"),
        ({"steer": "maybe"}, "on or off"),
        ({"pin": "tyres"}, "some of threads"),
        ({"pin": [1]}, "pin is"),
        ({"steer": "off", "pin": ["threads"]}, "lets none move"),
    ],
)
def test_wrong_arguments_are_one_sentence(idx: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Loader(idx, recipe="mnist", **arguments)


def test_a_share_that_is_none(idx: str) -> None:
    with Loader(idx, recipe="mnist", page=ANY) as loader, pytest.raises(ConfigError, match="from 0 to 1"):
        loader.tested(75)


@pytest.fixture
def slow(photos: Path) -> dict[str, Any]:
    """120 pictures from a store that takes a while to answer, and every knob wrong."""
    throttled = {
        "store.throttle_latency_ms": "20",
        "store.reads_in_flight": "1",
        "loader.prefetch_batches": "1",
    }
    return {
        "source": str(photos),
        "recipe": "imagenet-eval",
        "batch_size": 10,
        "num_workers": 1,
        "settings": throttled,
    }


def test_a_bad_start_is_mended_and_said(slow: dict[str, Any]) -> None:
    decided: list[dict[str, Any]] = []
    with Loader(**slow, pin="none", page=ANY) as loader:
        for _ in range(4):
            for _ in loader:
                pass
            report = loader.report()
            decided += report.decisions
            for decision in report.decisions:
                assert decision["line"] in str(report)
        shown = state(loader)["decisions"]
        assert loader.decisions == decided, "those of all epochs"
    first = decided[0]
    assert (first["action"], first["knob"], first["from"], first["epoch"]) == ("moved", "reads", "1", 1)
    assert first["predicted"] > 1.5
    assert "waiting for the store" in first["reason"]
    verdict = next(one for one in decided if one["knob"] == "reads" and one["measured"] is not None)
    assert (verdict["action"], verdict["measured"] > 1.2) == ("kept", True)
    on_page = next(one for one in shown if one["knob"] == "reads" and one["epoch"] == 1)
    assert (on_page["action"], on_page["measured"]) == ("kept", verdict["measured"])
    assert on_page["reason"].startswith(first["reason"])


@pytest.mark.parametrize(
    "arguments", [{"pin": "all"}, {"steer": "off"}, {"pin": ["reads", "threads", "ahead", "split"]}]
)
def test_what_is_pinned_stays(slow: dict[str, Any], arguments: dict[str, Any]) -> None:
    with Loader(**slow, **arguments) as loader:
        for _ in range(2):
            for _ in loader:
                pass
            assert loader.report().decisions == []
            assert loader.report().values["reads_in_flight"] == 1
        assert loader.decisions == []


def test_what_somebody_set_stays(slow: dict[str, Any]) -> None:
    slow["settings"] = {"store.throttle_latency_ms": "20", "store.reads_in_flight": "1"}
    del slow["num_workers"]
    with Loader(**slow) as loader:
        for _ in range(3):
            for _ in loader:
                pass
            assert all(one["knob"] != "reads" for one in loader.report().decisions), "it was set, so it stays"
