"""What the comparison of selections makes of its trainings: rows, the front, what is kept and what goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

# Last, since modules there have common names.
sys.path.append(str(ROOT / "bench"))

import selection
import selection_report
import selection_run
from models import MODELS
from selection_data import Data
from selection_run import Job, Progress
from selection_train import Plan, Reading, train


def reading(method: str, seed: int, accuracy: float, cpu_s: float, **more: Any) -> Reading:
    return Reading(method, seed, 10, accuracy, cpu_s, 2 * cpu_s, **{"trained": 500, "fetched_bytes": 100, **more})


READINGS = [
    reading("uniform", 0, 0.90, 100, trained=1_000, fetched_bytes=1_000),
    reading("uniform", 1, 0.92, 120, trained=1_000, fetched_bytes=1_000),
    reading("weighted", 0, 0.91, 50),
    reading("weighted", 1, 0.91, 60),
    reading("bucket", 0, 0.89, 80),
    reading("infobatch", 2, 0.99, 10),  # no uniform training has this seed
]


def test_rows_compare_seed_by_seed_with_uniform() -> None:
    rows = selection_report.rows(READINGS, ["uniform", "weighted", "bucket", "infobatch"], 100, 10)
    assert [row.method for row in rows] == ["uniform", "weighted", "bucket"]
    weighted, bucket = rows[1].values(), rows[2].values()
    assert (weighted["accuracy"], weighted["accuracy_sd"]) == (91.0, 0.0)
    assert (weighted["delta_points"], weighted["speedup"], weighted["speedup_wall"]) == (0.0, 2.0, 2.0)
    assert (weighted["trained_share"], weighted["io_saved_share"], weighted["seeds"]) == (0.5, 0.9, 2)
    # One seed is held against uniform with that seed, not against the mean of both.
    assert (bucket["delta_points"], bucket["speedup"], bucket["seeds"]) == (-1.0, 1.25, 1)
    assert [row.method for row in selection_report.front(rows)] == ["weighted"]
    text = selection_report.text(rows)
    assert [line[0] for line in text.splitlines()[1:]] == [" ", "*", " "]
    assert selection_report.svg(rows, "a & b").count("<circle") == 3


def plan(epochs: int = 10, samples: int = 100) -> Plan:
    folder = ROOT / "data" / "shippable"
    data = Data(
        "shipped",
        folder / "fashion-mnist-1000-test-images-idx3-ubyte.gz",
        folder / "fashion-mnist-1000-test-images-idx3-ubyte.gz",
        "mnist",
        "mnist",
        samples,
    )
    return Plan(data, "mlpnet", epochs, 1, 0)


def test_what_is_finished_is_kept_for_this_build_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "WORK", tmp_path)
    kept = selection.State(plan(), 1, fresh=False)
    kept.add(READINGS[0])
    with kept.path.open("a") as file:
        file.write('{"method": "cut off by a ki\n')
    again = selection.State(plan(), 1, fresh=False)
    assert again.find("uniform", 0) == READINGS[0]
    assert again.find("uniform", 1) is None
    for other in (selection.State(plan(epochs=11), 1, fresh=False), selection.State(plan(), 2, fresh=False)):
        assert not other.readings
    monkeypatch.setattr(selection, "build", lambda: "another")
    assert not selection.State(plan(), 1, fresh=False).readings
    monkeypatch.undo()
    monkeypatch.setattr(selection, "WORK", tmp_path)
    assert not selection.State(plan(), 1, fresh=True).readings


def test_another_build_has_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {selection.build(tmp_path)}
    for file in ("loader.py", "_gristmill.abi3.so"):
        (tmp_path / file).write_text("something")
        names.add(selection.build(tmp_path))
    assert len(names) == 3
    assert selection.build(tmp_path) in names
    monkeypatch.setattr(selection, "WORK", tmp_path)
    kept = selection.State(plan(), 1, fresh=False)
    monkeypatch.setattr(selection, "build", lambda: "another")
    with pytest.raises(SystemExit, match="changed meanwhile: uniform is not kept"):
        kept.add(READINGS[0])


def test_fewer_waits_for_what_weighted_cost() -> None:
    methods = [selection.method_of(name) for name in ("uniform", "weighted:noise=0.1", "fewer")]
    assert methods[1].selection == {"kind": "weighted", "noise": 0.1}
    epochs = selection.epochs_of(plan(), methods)
    fewer = Job("fewer", "uniform", "off", 0)
    assert epochs(Job("uniform", "uniform", "off", 0), []) == 10
    assert epochs(fewer, []) is None
    assert epochs(fewer, [reading("weighted:noise=0.1", 0, 0.9, 1.0, trained=430)]) == 4
    for wrong in ("wieghted", "bucket:relax"):
        with pytest.raises(SystemExit, match=wrong):
            selection.method_of(wrong)
    for method in methods:
        selection.check(plan(), method)
    with pytest.raises(SystemExit, match=r"bucket:relex=1: .*did you mean \"selection.relax\""):
        selection.check(plan(), selection.method_of("bucket:relex=1"))
    with pytest.raises(SystemExit, match="fewer needs weighted before it"):
        selection.epochs_of(plan(), methods[::2])


class Half:
    """A training that is half done after a minute and a half."""

    job, epochs, done, whole_s, elapsed_s = Job("uniform", "uniform", "off", 0), 10, 5, 180.0, 90.0


def test_the_remaining_time_is_known_after_the_first_epoch() -> None:
    progress = Progress([], jobs=3, workers=2)
    waiting = [Job("bucket", "bucket", "off", 0)]
    assert progress.left(waiting, []) == "remaining time not known yet"
    # One and a half for its other half beside three for another like it.
    assert progress.left(waiting, [Half()]) == "about 3 min left"  # type: ignore[list-item]
    progress.readings.append(reading("bucket", 1, 0.9, 300))
    assert progress.left(waiting, [Half()]) == "about 10 min left"  # type: ignore[list-item]
    assert progress.left(waiting * 3, [Half()]) == "about 16 min left"  # type: ignore[list-item]
    assert progress.left([], []) == "about 0 min left"


@pytest.mark.parametrize("method", ["uniform", "infobatch", "biggest-loser", "proxy"])
def test_a_training_says_what_it_cost(method: str) -> None:
    small = plan(epochs=8, samples=1_000)
    assert small.training is MODELS["mlpnet"]
    chosen, families = selection.METHODS[method]
    heard: list[int] = []
    one = train(small, method, chosen, families, 0, 8, lambda done, _of: heard.append(done))
    assert heard[-1] == 8
    assert 0.3 < one.accuracy <= 1
    assert 0 < one.trained <= 8_000
    assert (method == "uniform") == (one.trained == 8_000)
    assert one.cpu_s > 0


def test_a_training_that_fails_says_so() -> None:
    job = Job("weighted", {"kind": "weighted", "noise": -1}, "off", 0)
    with pytest.raises(SystemExit, match=r"seed 0 weighted failed: selection.noise = \"-1\""):
        selection_run.run(plan(), [job], 1, [], lambda job, readings: 1, lambda reading: None)
