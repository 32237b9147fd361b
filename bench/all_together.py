"""Several trainings at a time for bench/all.py: two jobs that share a store, or ranks that train one model.

Each is a process of its own, as with any launcher. Plain loops share the store's reads per second. Jobs with a cache
read through one node, which is the only one to read the store; without one each has half of the reads, as no process
knows what another one does, and each rank has its part. Jobs begin together and then run freely; ranks step together,
and wait for each other before each epoch.

Deliberately not here: how one of them trains (bench/all_train.py).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from all_scene import TECHNIQUES, Scene, node, throttle
from all_train import Course, Outcome, Place, train
from pictures import RELEASE
from torch import distributed

#: How long nothing may be heard of any training; each speaks after every epoch.
PATIENCE_S = 600


def together(of: Scene, configuration: str, seed: int, epochs: int, workers: int) -> Outcome:
    """Trains all jobs or ranks of a scenario at once and says what came of them together."""
    with contextlib.ExitStack() as stack:
        source = None
        if of.shares_node(configuration):
            source = stack.enter_context(node(of, TECHNIQUES["cache"]["cache.size"], throttle(of)))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gristmill-ranks-"))
        # Processes with threads cannot be forked, and this one may have trained before.
        context = multiprocessing.get_context("spawn")
        free_at, told = context.Value("d", 0.0), context.Queue()
        gate = context.Barrier(of.jobs)
        size = max(of.jobs, of.ranks)
        common = (of, configuration, seed, epochs, workers, source, free_at, gate, Path(folder) / "meet", told)
        processes = [context.Process(target=_one, args=(index, *common)) for index in range(size)]
        for process in processes:
            process.start()
            stack.callback(_end, process)
        joined = join(of, _hear(told, processes))
        if source is not None:
            joined.bytes_read = _read_by(source)
    return joined


def _end(process: Any) -> None:
    """Whoever said what came of it ends by itself; who did not, because another failed, does not."""
    process.join(5)
    process.kill()
    process.join()


def _end_with_parent() -> None:
    """Whatever ended the program that began this training, it does not go on beside the next one."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _hear(told: Any, processes: list[Any]) -> list[Outcome]:
    """What every process says in the end, in their order; one that failed ends all."""
    heard: dict[int, Outcome] = {}
    until = time.monotonic() + PATIENCE_S
    while len(heard) < len(processes):
        try:
            index, said = told.get(timeout=1)
        except queue.Empty:
            dead = [place for place, one in enumerate(processes) if one.exitcode not in (None, 0)]
            if dead:
                raise SystemExit(f"trainings {dead} died") from None
            if time.monotonic() > until:
                silent = [place for place in range(len(processes)) if place not in heard]
                raise SystemExit(f"nothing was heard of trainings {silent} for {PATIENCE_S} s") from None
            continue
        until = time.monotonic() + PATIENCE_S
        if isinstance(said, str):
            raise SystemExit(f"training {index} failed: {said}")
        if said is not None:
            heard[index] = said
    return [heard[index] for index in range(len(processes))]


def _one(
    index: int,
    of: Scene,
    configuration: str,
    seed: int,
    epochs: int,
    workers: int,
    source: str | None,
    free_at: Any,
    gate: Any,
    meeting: Path,
    told: Any,
) -> None:
    """One job or rank, in its own process. It puts nothing after each epoch, and what came of it in the end."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        meet: Callable[[], object] = gate.wait
        if of.ranks > 1:
            distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=index, world_size=of.ranks)
            meet = distributed.barrier
        place = Place(index, source, free_at, meet, lambda: told.put((index, None)))
        told.put((index, train(of, configuration, seed, epochs, workers, place)))
        if of.ranks > 1:
            distributed.destroy_process_group()
    except Exception:
        told.put((index, traceback.format_exc()))


def join(of: Scene, outcomes: list[Outcome]) -> Outcome:
    """All of them as one: every job by itself; of ranks the slowest one's time, and what the first one says."""
    first = outcomes[0]
    courses = [one.jobs[0] for one in outcomes]
    judges = outcomes if of.jobs > 1 else outcomes[:1]
    ranks = Course(
        elapsed_s=[max(each) for each in zip(*(course.elapsed_s for course in courses), strict=True)],
        accuracies=courses[0].accuracies,
        trained=[sum(each) for each in zip(*(course.trained for course in courses), strict=True)],
    )
    return Outcome(
        first.scenario,
        first.configuration,
        first.seed,
        jobs=courses if of.jobs > 1 else [ranks],
        bytes_read=sum(one.bytes_read for one in outcomes),
        decisions=[decision for one in judges for decision in one.decisions],
    )


def _read_by(source: str) -> int:
    """Bytes that a node read from its store."""
    command = [str(RELEASE / "gristmill"), "status", source, "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return int(said["sets"][0]["node"]["store_bytes"])
