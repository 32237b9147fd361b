"""One training of bench/exchange.py: many ranks in one process, in the orders that the engine decides.

Data-parallel SGD with M ranks is one step on a batch of M parts: gradients are averaged, weights are the same
everywhere. Only batch norm sees a part at a time (models.PartNorm). Who holds what, what moves and in which order it is
trained comes from gristmill._gristmill.ExchangeSimulation, the same decisions as in a real training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from gristmill._gristmill import ExchangeSimulation
from models import NormNet, ResNet, in_parts
from selection_data import HOLDOUT_SAMPLES, RECORD_BYTES, SPLIT_SEED, Bytes, folder_of, read
from torch import nn
from torch.nn import functional

NETWORKS: dict[str, Callable[[], nn.Module]] = {"normnet": NormNet, "resnet": ResNet}
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
#: The part of a training in which the rate rises.
WARM_PART = 0.1
#: The global batch that --lr is for, and how far the rate grows with it.
BATCH_OF_RATE, RATE_GROWS_MAX = 256, 16
#: Samples per batch on a rank; steps below which a training gets more epochs. As in `gristmill compare exchange`.
BATCH_MIN, BATCH_MAX = 8, 32
STEPS_MIN = 300

Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Samples:
    """Pictures and labels in memory: what is trained, and what judges."""

    name: str
    images: torch.Tensor
    labels: torch.Tensor
    judged_images: torch.Tensor
    judged_labels: torch.Tensor


def tensor(pictures: Bytes) -> torch.Tensor:
    """Pictures as numbers from -1 to 1, of one channel or three."""
    sides = (3, 32, 32) if pictures.shape[1] == RECORD_BYTES - 1 else (1, 28, 28)
    return (torch.from_numpy(pictures.copy()).view(-1, *sides).float() / 255 - 0.5) / 0.5


def samples_of(named: str, holdout: bool) -> Samples:
    """The data set that --data names, judged by its test part or by a slice of the training part."""
    folder = folder_of(named)
    images, labels = read(folder, train=True)
    if holdout:
        order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
        judged, kept = np.sort(order[:HOLDOUT_SAMPLES]), np.sort(order[HOLDOUT_SAMPLES:])
        test = (images[judged], labels[judged])
        images, labels = images[kept], labels[kept]
    else:
        test = read(folder, train=False)
    long = [torch.from_numpy(column.astype(np.int64)) for column in (labels, test[1])]
    return Samples(folder.name, tensor(images), long[0], tensor(test[0]), long[1])


@dataclass(frozen=True)
class World:
    """A number of ranks, and what follows from it."""

    ranks: int
    batch: int
    rate: float
    epochs: int

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in one step."""
        return self.ranks * self.batch


def world_of(ranks: int, samples: int, rate: float, epochs: int, batch: int | None) -> World:
    """The same rules as `gristmill compare exchange` has."""
    each = samples // ranks
    if batch is None:
        root = min(BATCH_MAX, max(BATCH_MIN, math.isqrt(each)))
        batch = 1 << (root.bit_length() - 1)
        if each % batch * 10 > each:
            batch = max(range(batch * 3 // 4, batch + 1), key=lambda size: (each // size * size, size))
    per_epoch = samples // (ranks * batch)
    if per_epoch == 0:
        raise SystemExit(f"{samples} samples are not one batch of {batch} for each of {ranks} ranks")
    grown = rate * min(RATE_GROWS_MAX, ranks * batch / BATCH_OF_RATE)
    return World(ranks, batch, grown, max(epochs, -(-STEPS_MIN // per_epoch)))


@dataclass(frozen=True)
class Case:
    """What is trained: on how many ranks, and how samples come to them."""

    world: World
    fraction: float | None
    partition: str
    choose: str

    @property
    def shown(self) -> str:
        """In words."""
        fraction = "global" if self.fraction is None else f"{self.fraction:g} {self.partition} {self.choose}"
        return f"{self.world.ranks} ranks, {fraction}"


@dataclass
class Reading:
    """What one training came to."""

    case: dict[str, Any]
    seed: int
    accuracy: float
    train_loss: float
    moved_share: float
    divergence: float | None
    steps: int

    def values(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@torch.no_grad()
def accuracy(model: nn.Module, samples: Samples) -> float:
    """Which part of the judged samples the network names rightly."""
    model.eval()
    right = 0
    for start in range(0, len(samples.judged_labels), 1_000):
        logits = model(samples.judged_images[start : start + 1_000])
        right += int((logits.argmax(1) == samples.judged_labels[start : start + 1_000]).sum())
    return right / len(samples.judged_labels)


def train(samples: Samples, network: str, case: Case, seed: int, told: Told) -> Reading:
    """Trains once. `told` hears of every finished epoch."""
    world, count = case.world, len(samples.labels)
    torch.manual_seed(seed)
    model = in_parts(NETWORKS[network](), world.ranks)
    optimiser = torch.optim.SGD(model.parameters(), lr=world.rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    ranks = ExchangeSimulation(
        samples.labels.tolist(),
        world.ranks,
        world.batch,
        seed,
        fraction=case.fraction,
        partition=case.partition,
        choose=case.choose,
    )
    losses = torch.ones(count)
    per_epoch = count // world.global_batch
    step = moved = 0
    mean_loss = 0.0
    for epoch in range(world.epochs):
        order = torch.from_numpy(np.frombuffer(ranks.order(losses.numpy().tobytes()), np.uint32).astype(np.int64))
        model.train()
        mean_loss = 0.0
        for place in range(per_epoch):
            ids = order[place * world.global_batch : (place + 1) * world.global_batch]
            part = step / (per_epoch * world.epochs)
            rate = world.rate * 0.5 * (1 + math.cos(math.pi * part)) * min(1.0, max(1 / 64, part / WARM_PART))
            for group in optimiser.param_groups:
                group["lr"] = rate
            each = functional.cross_entropy(model(samples.images[ids]), samples.labels[ids], reduction="none")
            loss = each.mean()
            if not torch.isfinite(loss):
                raise SystemExit(f"{case.shown}: the loss of epoch {epoch} is {loss}; --lr is too high")
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[ids] = each.detach()
            mean_loss += float(loss.detach()) / per_epoch
            step += 1
        moved += ranks.commit()
        told(epoch + 1, world.epochs)
    apart = ranks.divergence()
    return Reading(
        case=asdict(case),
        seed=seed,
        accuracy=accuracy(model, samples),
        train_loss=mean_loss,
        moved_share=moved / (count * world.epochs),
        divergence=apart[0] if apart else None,
        steps=step,
    )
