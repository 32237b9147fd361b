"""One training of bench/all.py: a scenario, a configuration, a seed, on PyTorch.

`plain` is torch's own DataLoader over the same files: each worker reads one sample at a time (waiting for the latency
of the store, and for its turn at the link or the store, which all workers share) and prepares it with Pillow and
torchvision. Everything else goes through gristmill.torch.Loader: a technique alone with as many threads and reads as
plain has workers, `hand` with everything and many reads, `all` with nothing said but the techniques, steered. A step on
the pretended accelerator lasts at least as long as it would there; what the network takes of that is counted in.

Only training is timed, judging is not, nor what comes before: Gristmill's catalog and connections, and the start of
plain's workers. A DataLoader has its workers read as soon as they run, so they wait at a gate that opens with the
clock. Threads of Gristmill start with the clock.

Deliberately not here: the data and what it is slowed down by (bench/all_scene.py), several trainings at a time
(bench/all_together.py), and the figures (bench/all_report.py).
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from all_scene import HEADER_BYTES, MEAN, SAMPLE_BYTES, SCALE, SIDE, STD, Scene, node, settings
from gristmill.report import Report
from gristmill.torch import Loader
from pictures import jpegs, read_idx
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

CLASSES = 10
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
#: The widths of the hidden layers, of each job.
HIDDEN = ((64, 32), (32,))
#: How long the workers of a DataLoader may take to start.
START_S = 120


@dataclass
class Course:
    """One job from beginning to end, epoch by epoch."""

    elapsed_s: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)


@dataclass
class Outcome:
    """What one training came to: one job, or two of them."""

    scenario: str
    configuration: str
    seed: int
    jobs: list[Course] = field(default_factory=list)
    bytes_read: int = 0
    decisions: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Outcome:
        """What `values` gave."""
        return cls(**{**values, "jobs": [Course(**job) for job in values["jobs"]]})

    def values(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @property
    def seconds(self) -> float:
        """Until the slowest job was done."""
        return max(job.elapsed_s[-1] for job in self.jobs)

    @property
    def accuracy(self) -> float:
        """In the end, the mean over the jobs."""
        return statistics.mean(job.accuracies[-1] for job in self.jobs)

    @property
    def trained(self) -> int:
        """Samples in all epochs of all jobs."""
        return sum(sum(job.trained) for job in self.jobs)


def nothing() -> None:
    """Who is alone waits for nobody, and tells nobody."""


@dataclass(frozen=True)
class Place:
    """Where a training stands among others that run at the same time."""

    index: int = 0
    #: The node that all of them read from.
    source: str | None = None
    #: When the store is free again, which all of them share.
    free_at: Any = None
    #: Waits until all of them are here.
    meet: Callable[[], object] = nothing
    #: Says that another epoch is done.
    tell: Callable[[], object] = nothing


ALONE = Place()


class Files(Dataset[tuple[torch.Tensor, int]]):
    """The samples as a plain program reads them: one at a time, each as slow as the store or the link is."""

    def __init__(self, of: Scene, free_at: Any = None) -> None:
        self.scene = of
        self.photos = of.photos
        self.free_at = multiprocessing.Value("d", 0.0) if free_at is None else free_at
        #: Nothing is read before it is set.
        self.gate = multiprocessing.Event()
        self.began = False
        self.trainer = os.getpid()
        if self.photos:
            self.files = jpegs(of.train)
            names = sorted({file.parent.name for file in self.files})
            self.labels = [names.index(file.parent.name) for file in self.files]
            self.prepare = transforms.Compose(
                [
                    transforms.RandomResizedCrop(SIDE, SCALE),
                    transforms.RandomHorizontalFlip(),
                    transforms.ToTensor(),
                    transforms.Normalize(MEAN, STD),
                ]
            )
        else:
            labels = of.train.with_name(of.train.name.replace("images-idx3", "labels-idx1"))
            self.labels = [int(label) for label in read_idx(labels)]

    def __len__(self) -> int:
        return len(self.labels)

    def total_bytes(self) -> int:
        """The size of all samples."""
        if self.photos:
            return sum(file.stat().st_size for file in self.files)
        return SAMPLE_BYTES * len(self)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # Asked for once in each worker, and not with each sample.
        while not self.began:
            self.began = self.gate.wait(1)
            if not self.began and os.getppid() != self.trainer:
                raise RuntimeError("the training that this worker belongs to is gone")
        if self.photos:
            path = self.files[index]
            self._wait(path.stat().st_size / self.scene.link_bytes_per_s)
            with Image.open(path) as picture:
                return self.prepare(picture.convert("RGB")), self.labels[index]
        self._wait(1 / self.scene.requests_per_s if self.scene.requests_per_s else 0.0)
        with self.scene.train.open("rb") as file:
            file.seek(HEADER_BYTES + SAMPLE_BYTES * index)
            pixels = torch.frombuffer(bytearray(file.read(SAMPLE_BYTES)), dtype=torch.uint8)
        return (pixels.reshape(1, 28, 28).float() / 255 - 0.1307) / 0.3081, self.labels[index]

    def _wait(self, taken_s: float) -> None:
        """Waits for its turn at what all workers share, which it takes for so long, and for the way there and back."""
        with self.free_at.get_lock():
            start = max(time.monotonic(), self.free_at.value)
            self.free_at.value = end = start + taken_s
        time.sleep(max(0.0, end + self.scene.latency_ms / 1e3 - time.monotonic()))


class Learner:
    """A small network, its optimiser, and the accelerator that it pretends to run on."""

    def __init__(self, of: Scene, seed: int, epochs: int, hidden: tuple[int, ...] = HIDDEN[0]) -> None:
        torch.manual_seed(seed)
        inputs = 3 * SIDE * SIDE if of.photos else SAMPLE_BYTES
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            layers += [nn.Linear(inputs, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
            inputs = width
        self.model = nn.Sequential(*layers, nn.Linear(inputs, CLASSES))
        #: What is called in a step: with several ranks, the model and their mean.
        self.forward: Callable[[torch.Tensor], torch.Tensor] = self.model
        self.optimiser = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
        self.epochs = epochs
        self.accelerator = of.accelerator

    def step(self, images: torch.Tensor, epoch: int, loss_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """One step, which lasts as long as the accelerator takes."""
        begun = time.perf_counter()
        for group in self.optimiser.param_groups:
            group["lr"] = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        loss = loss_of(self.forward(images))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        time.sleep(max(0.0, len(images) / self.accelerator - (time.perf_counter() - begun)))

    @torch.no_grad()
    def accuracy(self, of: Scene) -> float:
        """Which part of the judged samples it names rightly."""
        self.model.eval()
        # Whoever judges looks at all of them, whatever its rank is.
        alone: dict[str, Any] = {"rank": 0, "world_size": 1, "settings": {"steer.mode": "off"}}
        with Loader(of.judged, recipe=of.judged_recipe, batch_size=500, shuffle=False, **alone) as loader:
            right = sum(int((self.model(images).argmax(1) == labels).sum()) for images, labels in loader)
            self.model.train()
            return right / loader.num_samples


def train(of: Scene, configuration: str, seed: int, epochs: int, workers: int, place: Place = ALONE) -> Outcome:
    """Trains once and says what came of it. With several ranks only the first judges, and says what it trained."""
    course = Course()
    outcome = Outcome(of.letter, configuration, seed, [course])
    learner = Learner(of, seed, epochs, HIDDEN[place.index if of.jobs > 1 else 0])
    with contextlib.ExitStack() as stack:
        if configuration == "plain":
            epoch_of = plain(of, learner, workers, outcome, place)
        else:
            source = place.source or (stack.enter_context(node(of)) if of.link_bytes_per_s else str(of.train))
            loader = Loader(
                source,
                recipe=of.recipe,
                batch_size=of.batch,
                seed=seed,
                epochs=epochs,
                num_workers=None if configuration in ("hand", "all") else workers,
                settings=settings(of, configuration, workers),
            )
            stack.enter_context(closing(loader))
            loader.weigh(learner.model)
            epoch_of = through(loader, learner, outcome)
        if of.ranks > 1:
            learner.forward = nn.parallel.DistributedDataParallel(learner.model)
        elapsed = 0.0
        for epoch in range(epochs):
            if epoch == 0 or of.ranks > 1:
                place.meet()
            begun = time.perf_counter()
            course.trained.append(epoch_of(epoch))
            elapsed += time.perf_counter() - begun
            course.elapsed_s.append(elapsed)
            course.accuracies.append(learner.accuracy(of) if of.ranks == 1 or place.index == 0 else 0.0)
            place.tell()
    return outcome


def _here(started: Any, _worker: int) -> None:
    """What a worker does first."""
    started.release()


def plain(of: Scene, learner: Learner, workers: int, outcome: Outcome, place: Place) -> Callable[[int], int]:
    """Epochs of torch's own DataLoader, whose workers wait at the gate when this returns."""
    files = Files(of, place.free_at)
    chance = torch.Generator().manual_seed(outcome.seed)
    sampler: DistributedSampler[int] | None = None
    if of.ranks > 1:
        sampler = DistributedSampler(files, of.ranks, place.index, seed=outcome.seed)
    # More workers than cores are right here: they wait, and do not compute.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    started = multiprocessing.Semaphore(0)
    loader = DataLoader(
        files,
        of.batch,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=workers,
        worker_init_fn=partial(_here, started),
        persistent_workers=True,
        generator=chance,
    )
    first: list[Iterable[Any]] = [iter(loader)]
    for _ in range(workers):
        if not started.acquire(timeout=START_S):
            raise RuntimeError(f"the workers did not start within {START_S} s")
    total = files.total_bytes()

    def epoch_of(epoch: int) -> int:
        if sampler is not None:
            sampler.set_epoch(epoch)
        files.gate.set()
        trained = 0
        for images, labels in first.pop() if first else loader:
            learner.step(images, epoch, partial(nn.functional.cross_entropy, target=labels))
            trained += len(labels)
        outcome.bytes_read += total // of.ranks
        return trained

    return epoch_of


def through(loader: Loader, learner: Learner, outcome: Outcome) -> Callable[[int], int]:
    """Epochs of Gristmill's loader."""

    def epoch_of(epoch: int) -> int:
        trained = 0
        for batch in loader:
            learner.step(batch.images, epoch, partial(loader.loss, batch=batch))
            trained += len(batch.labels)
        report = loader.report()
        outcome.bytes_read += came(report)
        outcome.decisions += [{"seed": outcome.seed, **told} for told in report.decisions]
        return trained

    return epoch_of


def came(report: Report) -> int:
    """Bytes that came from afar in an epoch: what crossed the link, if it was looked at, else raw samples.

    Of a rank that holds a slice, what filled it too: only small samples are swapped here, which all have one size.
    """
    if exchange := report.exchange:
        behind = [tier for tier in report.values.get("tiers", ()) if tier["tier"] in ("upstream", "store")]
        return sum(int(tier["bytes"]) for tier in behind) + int(exchange["refilled"]) * SAMPLE_BYTES
    return int(report.split.get("bytes") or report.values["bytes"])
