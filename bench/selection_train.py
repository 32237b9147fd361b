"""One training of bench/selection.py: one method, one seed, through the loader that users get.

Only the training loop is timed, judging is not. CPU seconds are those of the whole process, the loader's threads
included; on a machine with other work they say more than the clock does, which is kept beside them.

Every method trains the same network from the same weights with the same schedule over the epochs: an epoch with fewer
batches passes through its part of the schedule in larger steps. Two methods need more of the loop than a list of ids:
`biggest-loser` forwards everything and trains what it keeps in batches of its own, and `proxy` first trains a small
network, whose time and bytes count, though its samples are not called trained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from gristmill.torch import Batch, Loader
from models import MODELS, Training, build
from selection_data import Data
from torch import nn
from torch.nn import functional

UNTHROTTLED_MEMORY = "1GiB"
#: So little that the data does not fit and every sample is read from the throttled store.
THROTTLED_MEMORY = "64MiB"

Selection = str | dict[str, Any]
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """What every method of a comparison shares."""

    data: Data
    model: str
    epochs: int
    threads: int
    throttle_bytes_per_s: int
    #: Any further settings of the loader, such as a cache.
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def training(self) -> Training:
        """How the network is trained."""
        return MODELS[self.model]

    def settings(self) -> dict[str, Any]:
        """The loader's further settings."""
        if self.throttle_bytes_per_s == 0:
            return {"loader.memory_bytes_max": UNTHROTTLED_MEMORY, **self.more}
        return {
            "loader.memory_bytes_max": THROTTLED_MEMORY,
            "store.throttle_bytes_per_s": self.throttle_bytes_per_s,
            **self.more,
        }


@dataclass
class Reading:
    """What one training cost and what came of it."""

    method: str
    seed: int
    epochs: int
    accuracy: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    trained: int = 0
    fetched_bytes: int = 0
    #: Time that training waited for bytes, and the share of samples by epoch that a cache had.
    io_wait_s: float = 0.0
    hits_by_epoch: list[float] = field(default_factory=list)
    trained_by_epoch: list[int] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Learner:
    """A network with its optimiser and its place in the schedule."""

    def __init__(self, training: Training, seed: int, epochs: int, proxy: bool = False) -> None:
        self.training = training
        self.epochs = epochs
        self.model = build(training, seed, proxy)
        self.optimiser = torch.optim.SGD(
            self.model.parameters(),
            lr=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            nesterov=True,
            fused=True,  # one pass over the weights instead of four: of a small network's step that is a good part
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits of a batch."""
        logits: torch.Tensor = self.model(images.contiguous(memory_format=torch.channels_last))
        return logits

    def step(self, loss: torch.Tensor, epoch: float) -> None:
        """One step down this loss, `epoch` epochs into the training."""
        rate = self.training.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / self.epochs)))
        rise_epochs = self.training.rise_share * self.epochs
        if epoch < rise_epochs:
            rate *= max(0.1, epoch / rise_epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def train_listed(learner: Learner, loader: Loader, epoch: int, begun: Iterator[Any]) -> int:
    """One epoch, begun already, in which the loader alone decides what is trained."""
    learner.model.train()
    trained = 0
    batches = max(1, len(loader))
    for place, batch in enumerate(begun):
        logits = learner.forward(batch.images)
        learner.step(loader.loss(logits, batch), epoch + min(1.0, place / batches))
        trained += len(batch.labels)
    return trained


class Kept:
    """Samples kept by the loader's word, gathered until they fill a batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.images: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []
        self.count = 0

    def add(self, batch: Batch[torch.Tensor], keep: torch.Tensor) -> None:
        """Adds what is kept of a batch; copied, since the batch's memory goes back to the loader."""
        assert isinstance(batch.images, torch.Tensor)
        self.images.append(batch.images[keep])
        self.labels.append(batch.labels[keep])
        self.count += int(keep.sum())

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch of them (or the rest), the oldest first."""
        images, labels = torch.cat(self.images), torch.cat(self.labels)
        self.images, self.labels = [images[self.batch :]], [labels[self.batch :]]
        self.count = len(self.labels[0])
        return images[: self.batch], labels[: self.batch]


def train_kept(learner: Learner, loader: Loader, epoch: int, begun: Iterator[Any], kept: Kept) -> int:
    """One epoch of Selective-Backprop: everything is forwarded, what is kept is forwarded again and trained."""
    trained = 0
    batches = max(1, len(loader))

    def train_one(place: int) -> int:
        images, labels = kept.take()
        learner.step(functional.cross_entropy(learner.forward(images), labels), epoch + min(1.0, place / batches))
        return len(labels)

    learner.model.train()
    for place, batch in enumerate(begun):
        with torch.no_grad():
            losses = functional.cross_entropy(learner.forward(batch.images), batch.labels, reduction="none")
        kept.add(batch, loader.keep(batch, losses))
        while kept.count >= kept.batch:
            trained += train_one(place)
    # What is left waits for the next epoch; at the very end it is trained (batch norm needs two).
    if epoch + 1 == learner.epochs and kept.count > 1:
        trained += train_one(batches)
    return trained


@torch.no_grad()
def accuracy(model: nn.Module, plan: Plan) -> float:
    """Which part of the judged samples the network names rightly."""
    model.eval()
    with Loader(plan.data.judged, recipe=plan.data.judged_recipe, batch_size=500, shuffle=False) as loader:
        right = 0
        for images, labels in loader:
            logits = model(images.contiguous(memory_format=torch.channels_last))
            right += int((logits.argmax(1) == labels).sum())
        return right / loader.num_samples


def proxy_epochs(selection: Selection) -> int:
    """How long the small network is trained, which its schedule must know."""
    return int(selection["warmup"]) if isinstance(selection, dict) else 1


def opened(plan: Plan, selection: Selection, families: str, seed: int, epochs: int) -> Loader:
    """The loader of a training; a selection that makes no sense is an error at once."""
    options = {"kind": selection} if isinstance(selection, str) else dict(selection)
    options.pop("norm", None)  # the network's business
    return Loader(
        plan.data.train,
        recipe=plan.data.train_recipe,
        batch_size=plan.training.batch,
        seed=seed,
        num_workers=plan.threads,
        selection=options,
        families=families,
        epochs=epochs,
        settings=plan.settings(),
    )


def train(plan: Plan, method: str, selection: Selection, families: str, seed: int, epochs: int, told: Told) -> Reading:
    """Trains once and says what it cost. `told` hears of every finished epoch."""
    reading = Reading(method, seed, epochs)
    training = plan.training
    learner = Learner(training, seed, epochs)
    proxy: Learner | None = None
    kept = Kept(training.batch)
    options: Mapping[str, Any] = {"kind": selection} if isinstance(selection, str) else selection
    kind = options["kind"]
    loader = opened(plan, selection, families, seed, epochs)
    # Batch norm goes by the weights of samples, unless a comparison wants to know what that brings.
    if options.get("norm") != "plain":
        loader.weigh(learner.model)
    with closing(loader):
        epoch = ahead = 0
        while epoch < epochs:
            wall, cpu = time.perf_counter(), time.process_time()
            # What the loader says of an epoch holds from its beginning.
            begun = iter(loader)
            if kind == "proxy" and loader.proxy_phase:
                proxy = proxy or Learner(training, seed, proxy_epochs(selection), proxy=True)
                train_listed(proxy, loader, ahead, begun)
                trained, ahead = 0, ahead + 1
            elif kind == "biggest-loser":
                trained = train_kept(learner, loader, epoch, begun, kept)
                epoch += 1
            else:
                trained = train_listed(learner, loader, epoch, begun)
                epoch += 1
            reading.wall_s += time.perf_counter() - wall
            reading.cpu_s += time.process_time() - cpu
            reading.trained += trained
            reading.trained_by_epoch.append(trained)
            report = loader.report()
            reading.fetched_bytes += int(report.values["bytes"])
            reading.io_wait_s += report.values["wait"]["fetch_ms"] / 1e3
            reading.hits_by_epoch.append(report.hit_ratio or 0.0)
            told(epoch, epochs)
    reading.accuracy = accuracy(learner.model, plan)
    return reading
