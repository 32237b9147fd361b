"""The exchange between four real processes, under mpirun and under torchrun, against ranks that are threads."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SHIPPED
from gristmill import Loader
from gristmill.errors import ConfigError

RANKS = 4
EPOCHS = 3
PICTURES = [{"kind": "decode"}, {"kind": "resize", "size": [16, 16]}, {"kind": "to-tensor"}]
ARGUMENTS = {
    "batch_size": 20,
    "seed": 7,
    "num_workers": 1,
    "exchange": 0.3,
    "settings": {"exchange.patience_ms": 30000},
}
MPIRUN = ["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone"]


def launch(command: list[str], jobs: list[dict[str, Any]], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the jobs on every rank."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        # Or ranks that torchrun starts again look for each other where the dead ones were (pytorch issue 135712).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    program = str(Path(__file__).with_name("exchange_rank.py"))
    return subprocess.run(
        [*command, program, str(folder / "jobs.json")], capture_output=True, text=True, timeout=240, env=environment
    )


def lines(out: Path) -> list[list[dict[str, Any]]]:
    """What each rank wrote."""
    return [
        [json.loads(line) for line in Path(f"{out}.{rank}").read_text().splitlines() if line.endswith("}")]
        for rank in range(RANKS)
    ]


def batches(out: Path) -> list[list[dict[str, Any]]]:
    """The batches that each rank was given; an error of a rank is a failure."""
    ranks = lines(out)
    assert not [line for rank in ranks for line in rank if "error" in line], ranks
    return [[line for line in rank if "batch" in line] for rank in ranks]


def check_complete(ranks: list[list[dict[str, Any]]], samples: int) -> None:
    """No sample lost, none twice, in every epoch."""
    for epoch in range(EPOCHS):
        ids = [i for rank in ranks for line in rank if line["epoch"] == epoch for i in line["ids"]]
        assert sorted(ids) == list(range(samples)), epoch


def unpacked(name: str, folder: Path) -> str:
    """Shipped pictures, unpacked: a slice is filled sample by sample, which a packed file does not allow."""
    for part in ("images-idx3", "labels-idx1"):
        packed = SHIPPED / f"{name}-{part}-ubyte.gz"
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return str(folder / f"{name}-images-idx3-ubyte")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 Fashion-MNIST images, unpacked."""
    return unpacked("fashion-mnist-1000-test", tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="session")
def program() -> Path:
    """The command line, whose ranks are threads."""
    subprocess.run(["cargo", "build", "--locked", "--quiet", "-p", "gristmill"], cwd=ROOT, check=True)
    return ROOT / "target" / "debug" / "gristmill"


@pytest.fixture(scope="session")
def expected(
    program: Path, numbers: str, photos: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[list[dict[str, Any]]]]:
    """What ranks in one process hand out, for pictures and for numbers."""
    folder = tmp_path_factory.mktemp("expected")
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps({"op": PICTURES}))
    for name, data, way in (("idx", numbers, "mnist"), ("photos", str(photos), str(recipe))):
        command = [program, "bench", "load", data, "--recipe", way, "--batch", "20", "--seed", "7", "--threads", "1"]
        command += ["--ranks", str(RANKS), "--exchange", "0.3", "--epochs", str(EPOCHS), "--json"]
        subprocess.run([*command, "--batches-out", folder / name], check=True, capture_output=True)
    return {name: batches(folder / name) for name in ("idx", "photos")}


def plain_jobs(numbers: str, photos: Path, folder: Path) -> list[dict[str, Any]]:
    """Numbers with slices in memory, pictures with slices on disk."""
    on_disk = {**ARGUMENTS, "recipe": PICTURES, "hold": str(folder / "slices-photos")}
    return [
        {"data": numbers, "out": str(folder / "idx"), "epochs": EPOCHS, "arguments": {**ARGUMENTS, "recipe": "mnist"}},
        {"data": str(photos), "out": str(folder / "photos"), "epochs": EPOCHS, "arguments": on_disk},
    ]


def check_conforms(folder: Path) -> None:
    assert lines(folder / "conform") == [[{"conforms": True}]] * RANKS


def bad_jobs(numbers: str, photos: Path, folder: Path) -> list[dict[str, Any]]:
    """What ranks may differ in; each must be told to all of them."""
    arguments = {**ARGUMENTS, "recipe": "mnist"}
    differences = {
        "seed": {"seed": 8},
        "fraction": {"exchange": 0.5},
        "batch": {"batch_size": 21},
        "broken": {"recipe": "no-such-recipe"},
    }
    return [
        {"data": numbers, "out": str(folder / name), "epochs": 1, "arguments": arguments, "only": {"2": difference}}
        for name, difference in differences.items()
    ]


def check_told(folder: Path) -> None:
    for name, words in (("seed", "seed is 7 on rank 0 but 8 on rank 2"), ("fraction", "0.5"), ("batch", "rank 2")):
        errors = [rank[0]["error"] for rank in lines(folder / name)]
        assert len(set(errors)) == 1, errors
        assert words in errors[0]
        assert errors[0].startswith("ConfigError")
    errors = [rank[0]["error"] for rank in lines(folder / "broken")]
    assert all("no-such-recipe" in error for error in errors), errors
    assert all("rank 2" in errors[rank] for rank in (0, 1, 3)), errors


def check_restarted(folder: Path, expected: list[list[dict[str, Any]]], samples: int) -> None:
    """What was handed out before the kill and after the restart is what an undisturbed run hands out."""
    # Those who lived on were told who had died, unless the launcher was quicker.
    said = [line["error"] for rank in lines(folder / "killed") for line in rank if "error" in line]
    assert all("rank 2 is gone" in words for words in said), said
    first = [[line for line in rank if "batch" in line] for rank in lines(folder / "killed")]
    second = batches(folder / "restarted")
    whole = []
    for rank in range(RANKS):
        begins = second[rank][0]["epoch"]
        assert begins == 1, "the epoch that was not finished begins anew"
        before = [line for line in first[rank] if line["epoch"] < begins]
        half = [line for line in first[rank] if line["epoch"] >= begins]
        again = [line for line in second[rank] if line["epoch"] == begins]
        assert half, "it was killed inside of the epoch"
        assert half == again[: len(half)]
        whole.append(before + second[rank])
    assert whole == expected
    check_complete(whole, samples)
    reports = [line["report"] for rank in lines(folder / "restarted") for line in rank if "report" in line]
    assert sum(report["refilled"] for report in reports) == 0, "nothing that was held had to be read again"


def absent_jobs(numbers: str, folder: Path) -> list[dict[str, Any]]:
    """A rank that is late, one that never comes, and one whose exchange is in a config file and that cannot begin."""
    config = folder / "exchange.toml"
    config.write_text("[exchange]\nfraction = 0.3\npatience_ms = 30000\n")
    arguments = {**ARGUMENTS, "recipe": "mnist"}
    plain = {key: value for key, value in arguments.items() if key not in ("exchange", "settings")}
    impatient = {**arguments, "settings": {"exchange.patience_ms": 2000}}
    job = {"data": numbers, "epochs": 1}
    return [
        {**job, "out": str(folder / "late"), "arguments": arguments, "absent": 2, "absent_s": 1.0, "late": True},
        {
            **job,
            "out": str(folder / "config"),
            "arguments": {**plain, "config": str(config)},
            "only": {"1": {"recipe": "no-such-recipe"}},
        },
        {**job, "out": str(folder / "absent"), "arguments": impatient, "absent": 2, "absent_s": 4.0},
    ]


def check_absent(folder: Path) -> None:
    assert all(len(rank) > 0 for rank in batches(folder / "late"))
    for rank, found in enumerate(lines(folder / "config")):
        assert "no-such-recipe" in found[0]["error"]
        assert rank == 1 or "rank 1 cannot take part" in found[0]["error"]
    for rank, found in enumerate(lines(folder / "absent")):
        assert rank == 2 or "rank 2 did not come within 2 s" in found[0]["error"], found


def kill_jobs(photos: Path, folder: Path) -> list[dict[str, Any]]:
    arguments = {**ARGUMENTS, "recipe": PICTURES, "hold": str(folder / "slices")}
    job = {"data": str(photos), "epochs": EPOCHS, "arguments": arguments}
    killed = {**job, "out": str(folder / "killed"), "kill": [2, 1, 1]}
    return [killed, {**job, "out": str(folder / "restarted"), "goes_on": True}]


def test_mpirun_gives_what_threads_give(numbers: str, photos: Path, expected: Any, tmp_path: Path) -> None:
    jobs = [{"conform": True, "out": str(tmp_path / "conform")}]
    jobs += plain_jobs(numbers, photos, tmp_path) + bad_jobs(numbers, photos, tmp_path)
    done = launch(MPIRUN, jobs, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    check_conforms(tmp_path)
    for name, samples in (("idx", 1_000), ("photos", 120)):
        ranks = batches(tmp_path / name)
        assert ranks == expected[name]
        check_complete(ranks, samples)
    report = lines(tmp_path / "photos")[0][-1]["report"]
    assert report["committed"]
    assert report["sent"] == report["received"] == 9, report
    check_told(tmp_path)


def test_mpirun_killed_and_started_again(photos: Path, expected: Any, tmp_path: Path) -> None:
    killed, again = kill_jobs(photos, tmp_path)
    assert launch(MPIRUN, [killed], tmp_path).returncode != 0
    done = launch(MPIRUN, [again], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    check_restarted(tmp_path, expected["photos"], 120)


def test_mpirun_saved_inside_of_an_epoch(numbers: str, expected: Any, tmp_path: Path) -> None:
    job = {"data": numbers, "epochs": EPOCHS, "arguments": {**ARGUMENTS, "recipe": "mnist"}}
    jobs = []
    for name, place in (("middle", [1, 5]), ("end", [1, 13])):
        out = str(tmp_path / name)
        jobs += [{**job, "out": out, "save": place}, {**job, "out": out, "resume": True}]
    fewer = {**job, "out": str(tmp_path / "middle"), "resume": True}
    jobs.append({**job, "out": str(tmp_path / "left"), "left_early": 3})
    done = launch(MPIRUN, jobs, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    left = [[line for line in rank if line["epoch"] > 0] for rank in batches(tmp_path / "left")]
    assert left == [[line for line in rank if line["epoch"] > 0] for rank in expected["idx"]]
    for name, batch in (("middle", 5), ("end", 13)):
        rest = [[line for line in rank if (line["epoch"], line["batch"]) >= (1, batch)] for rank in expected["idx"]]
        assert batches(tmp_path / name) == rest
    # Two ranks with twice the batch train the same global batches, but nobody knows what of this epoch was trained.
    fewer["arguments"] = {**fewer["arguments"], "batch_size": 40}
    done = launch([*MPIRUN[: MPIRUN.index("-n") + 1], "2", *MPIRUN[MPIRUN.index("-n") + 2 :]], [fewer], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = [line["error"] for rank in (0, 1) for line in lines(tmp_path / "middle")[rank]]
    assert len(errors) == 2, errors
    assert "saved on 4 ranks inside of an epoch" in errors[0]


def test_mpirun_selects_alike_and_keeps_ranks_even(numbers: str, tmp_path: Path) -> None:
    arguments = {**ARGUMENTS, "recipe": "mnist", "selection": {"kind": "weighted", "wrong_max": 1}, "epochs": 20}
    jobs = [{"data": numbers, "out": str(tmp_path / "exchange"), "epochs": 4, "arguments": arguments}]
    plain = {**arguments, "exchange": None, "settings": {}}
    jobs += [{"data": numbers, "out": str(tmp_path / "plain"), "epochs": 4, "arguments": plain}]
    done = launch(MPIRUN, jobs, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    # Feedback is shared over MPI with an exchange and without one.
    for name in ("exchange", "plain"):
        ranks = batches(tmp_path / name)
        for epoch in range(4):
            counts = [sum(line["epoch"] == epoch for line in rank) for rank in ranks]
            assert len(set(counts)) == 1, counts
        last = [i for rank in ranks for line in rank if line["epoch"] == 3 for i in line["ids"]]
        assert len(last) < 900, "what was learned is left out"


def test_torchrun_gives_what_threads_give_and_survives_a_kill(
    numbers: str, photos: Path, expected: Any, tmp_path: Path
) -> None:
    killed, again = kill_jobs(photos, tmp_path)
    jobs = [{"conform": True, "out": str(tmp_path / "conform")}]
    jobs += [*plain_jobs(numbers, photos, tmp_path), *bad_jobs(numbers, photos, tmp_path), killed]
    assert launch(TORCHRUN, jobs, tmp_path).returncode != 0, "the launcher ends the others when one dies"
    done = launch(TORCHRUN, [again], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    check_conforms(tmp_path)
    for name in ("idx", "photos"):
        assert batches(tmp_path / name) == expected[name]
    check_told(tmp_path)
    check_restarted(tmp_path, expected["photos"], 120)


@pytest.mark.parametrize("command", [MPIRUN, TORCHRUN], ids=["mpirun", "torchrun"])
def test_a_rank_that_does_not_come_is_named(command: list[str], numbers: str, tmp_path: Path) -> None:
    done = launch(command, absent_jobs(numbers, tmp_path), tmp_path)
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    check_absent(tmp_path)


def test_torchrun_restarts_the_ranks_itself(photos: Path, expected: Any, tmp_path: Path) -> None:
    killed, again = kill_jobs(photos, tmp_path)
    job = {**killed, "restarted": {"out": again["out"], "goes_on": True, "kill": None}}
    done = launch([*TORCHRUN, "--max-restarts=1"], [job], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    check_restarted(tmp_path, expected["photos"], 120)


@pytest.mark.parametrize("command", [MPIRUN, TORCHRUN], ids=["mpirun", "torchrun"])
def test_the_example_learns(command: list[str], tmp_path: Path) -> None:
    data = unpacked("fashion-mnist-4000-train", tmp_path)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    run = [*command, str(ROOT / "examples" / "exchange.py"), data, "--epochs", "2"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    right = [float(found) for found in re.findall(r"4000 samples over all ranks, ([0-9.]+)% right", done.stdout)]
    assert len(right) == 2, done.stdout
    assert right[-1] > 70, right
    assert "exchange" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"exchange": 0.3}, "at least 2 ranks"),
        ({"exchange": 1.5, "rank": 0, "world_size": 2}, "1.5"),
        ({"exchange": float("nan")}, "nan|NaN"),
        ({"exchange": "much"}, "much"),
        ({"exchange": True}, "True"),
        ({"exchange": 0.3, "hold": 7}, "hold"),
        ({"exchange": 0.3, "rank": 0, "world_size": 2}, "init_process_group"),
    ],
)
def test_bad_input_is_told(numbers: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Loader(numbers, recipe="mnist", **arguments)


def test_no_exchange_is_the_plain_loader(numbers: str) -> None:
    plain, off = Loader(numbers, recipe="mnist", seed=1), Loader(numbers, recipe="mnist", seed=1, exchange="off")
    assert [batch.ids.tolist() for batch in plain] == [batch.ids.tolist() for batch in off]
    assert off.exchange == {}
