"""Runs the trainings of bench/selection.py: what is ready first, a process for each, several at a time if asked.

A process of its own gives every training the same start, and CPU seconds in which nothing of another one is. Trainings
that run at the same time share what cores share, so that only tables made with the same --workers compare.

Deliberately not here: what a training does (selection_train.py) and what is made of them (selection_report.py).
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from gristmill.errors import ConfigError
from selection_train import Plan, Reading, Selection, train

MINUTES_TO_HOURS = 100
LINE_EVERY_S = 60


@dataclass(frozen=True)
class Job:
    """One training: a method with its selection and what it does with families, and a seed."""

    method: str
    selection: Selection
    families: str
    seed: int

    @property
    def title(self) -> str:
        """How progress names it."""
        return f"seed {self.seed} {self.method}"


#: How many epochs a job has, by what is trained; None while another one must be finished first.
Epochs = Callable[[Job, Sequence[Reading]], int | None]


class Progress:
    """What runs and how long the rest takes, on stderr: a line that changes, or now and then a new one."""

    def __init__(self, readings: list[Reading], jobs: int, workers: int) -> None:
        self.readings, self.jobs, self.workers = readings, jobs, workers
        self.finished = 0
        self.live = sys.stderr.isatty()
        self.shown_s = time.monotonic()

    def expected_s(self, job: Job, running: Sequence[Running]) -> float:
        """How long this training takes, by its method's finished ones, else by all; 0 while nothing is known."""
        own = [reading.wall_s for reading in self.readings if reading.method == job.method]
        every = [reading.wall_s for reading in self.readings]
        every += [one.whole_s for one in running if one.done]
        return statistics.mean(own or every) if own or every else 0.0

    def left(self, waiting: Iterable[Job], running: Sequence[Running]) -> str:
        """The remaining time in words."""
        whole = [one.whole_s if one.done else self.expected_s(one.job, running) for one in running]
        ahead = [max(0.0, all_s - one.elapsed_s) for all_s, one in zip(whole, running, strict=True)]
        ahead += [self.expected_s(job, running) for job in waiting]
        if not (self.readings or any(one.done for one in running)):
            return "remaining time not known yet"
        minutes = max([sum(ahead) / self.workers, *ahead]) / 60
        return f"about {minutes:.0f} min left" if minutes < MINUTES_TO_HOURS else f"about {minutes / 60:.1f} h left"

    def show(self, waiting: Sequence[Job], running: Sequence[Running]) -> None:
        """What runs now."""
        now = time.monotonic()
        if not running or not (self.live or now - self.shown_s >= LINE_EVERY_S):
            return
        self.shown_s = now
        shown = ", ".join(f"{one.job.title} {one.done}/{one.epochs}" for one in running)
        line = f"[{self.finished}/{self.jobs}] {shown}; {self.left(waiting, running)}"
        start, end = ("\r\x1b[K", "") if self.live else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)

    def begin(self, job: Job, waiting: Sequence[Job], running: Sequence[Running]) -> None:
        """A training starts."""
        if not self.live:
            line = f"[{self.finished}/{self.jobs}] {job.title}: starts, {self.left(waiting, running)}"
            print(line, file=sys.stderr, flush=True)

    def end(self, job: Job, reading: Reading, samples: int) -> None:
        """It is over."""
        self.finished += 1
        start = "\r\x1b[K" if self.live else ""
        passes = reading.trained / samples
        line = f"accuracy {100 * reading.accuracy:.2f} %, {passes:.1f} passes over the data, {reading.cpu_s:.0f} CPU s"
        print(f"{start}[{self.finished}/{self.jobs}] {job.title}: {line}", file=sys.stderr, flush=True)


class Running:
    """A training in its process, which says an epoch's number after each, and at last what came of it."""

    def __init__(self, plan: Plan, job: Job, epochs: int) -> None:
        self.job, self.epochs, self.done = job, epochs, 0
        self.begun_s = self.heard_s = time.monotonic()
        # Processes with threads cannot be forked.
        context = multiprocessing.get_context("spawn")
        self.ear, mouth = context.Pipe(duplex=False)
        self.process = context.Process(target=_train, args=(plan, job, epochs, mouth), daemon=True)
        self.process.start()
        # Only the training holds this end now, so that its death is heard.
        mouth.close()

    @property
    def elapsed_s(self) -> float:
        """How long it runs."""
        return time.monotonic() - self.begun_s

    @property
    def whole_s(self) -> float:
        """How long all of it takes, by the epochs that are over."""
        return (self.heard_s - self.begun_s) * self.epochs / self.done

    def hear(self) -> Reading | None:
        """The next word of the training: None after an epoch, its reading in the end."""
        try:
            said: int | str | Reading = self.ear.recv()
        except EOFError:
            self.process.join()
            raise SystemExit(f"{self.job.title} died (exit code {self.process.exitcode})") from None
        if isinstance(said, str):
            raise SystemExit(f"{self.job.title} failed: {said}")
        if isinstance(said, Reading):
            self.process.join()
            return said
        self.done, self.heard_s = said, time.monotonic()
        return None

    def stop(self) -> None:
        """Ends it, if it has not ended."""
        self.process.kill()
        self.process.join()


def _end_with_parent() -> None:
    """Whatever ended the program that began this training, it does not go on beside the next one."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _train(plan: Plan, job: Job, epochs: int, mouth: Connection[Any, Any]) -> None:
    """One training, in its own process."""
    torch.set_num_threads(plan.threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def told(done: int, _of: int) -> None:
        mouth.send(done)

    try:
        mouth.send(train(plan, job.method, job.selection, job.families, job.seed, epochs, told))
    except KeyboardInterrupt:
        os._exit(130)
    except ConfigError as error:
        mouth.send(str(error))
    except Exception:
        mouth.send(traceback.format_exc())


def run(
    plan: Plan,
    jobs: Sequence[Job],
    workers: int,
    readings: list[Reading],
    epochs_of: Epochs,
    keep: Callable[[Reading], None],
) -> bool:
    """Trains everything in turn, `workers` at a time, and keeps each reading; False if it was interrupted."""
    waiting, running = list(jobs), list[Running]()
    progress = Progress(readings, len(waiting), workers)
    try:
        while waiting or running:
            for job in list(waiting):
                epochs = epochs_of(job, readings) if len(running) < workers else None
                if epochs is not None:
                    waiting.remove(job)
                    running.append(Running(plan, job, epochs))
                    progress.begin(job, waiting, running)
            for ear in wait([one.ear for one in running]):
                one = next(one for one in running if one.ear is ear)
                reading = one.hear()
                if reading is not None:
                    running.remove(one)
                    keep(reading)
                    progress.end(one.job, reading, plan.data.samples)
            progress.show(waiting, running)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return False
    finally:
        for one in running:
            one.stop()
    return True
