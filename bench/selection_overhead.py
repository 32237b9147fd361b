"""What selecting costs: deciding what an epoch has, and telling what was learned.

    .venv/bin/python bench/selection_overhead.py --data fashion-mnist --models mlpnet,convnet
    .venv/bin/python bench/selection_overhead.py --data cifar10 --models resnet24 --epochs 8

Both are measured inside of a real training of `weighted` through the loader that users get. Deciding: from asking for
an epoch until it has begun, less what the same takes in a plain loader. Telling: what `loader.loss` takes beyond the
cross entropy of torch for the same logits, which is computed beside it (before or after it in turns) and left out of
the epoch's time. Both as shares of the CPU time of that epoch and of one that trains everything; medians of the epochs
in which something was left out, and of plain ones without the first. On a processor, where nothing of it runs beside a
step.

Deliberately not here: ten million samples (`make bench-scale`), the backward pass of a weighted loss, and batch norm by
weights, which is a part of the model (bench/results/selection-norm.txt).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import torch
from gristmill.torch import Loader
from models import MODELS
from selection_data import Data, prepare
from selection_train import UNTHROTTLED_MEMORY, Learner
from torch import nn
from torch.nn import functional

PLAIN_EPOCHS = 4

T = TypeVar("T")


@dataclass
class Cost:
    """What one epoch took, in CPU seconds."""

    decide_s: float = 0.0
    loss_s: float = 0.0
    plain_loss_s: float = 0.0
    epoch_s: float = 0.0
    trained: int = 0

    @property
    def told_s(self) -> float:
        """What telling came to: the loss beyond a plain one."""
        return self.loss_s - self.plain_loss_s


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the CPU seconds of this thread that it took."""
    begun = time.thread_time()
    result = work()
    return result, time.thread_time() - begun


def train(data: Data, model: str, kind: str, epochs: int, seed: int) -> list[Cost]:
    """The costs of each epoch."""
    training = MODELS[model]
    learner = Learner(training, seed, epochs)
    loader = Loader(
        data.train,
        recipe=data.train_recipe,
        batch_size=training.batch,
        seed=seed,
        num_workers=1,
        selection=kind,
        epochs=epochs,
        settings={"loader.memory_bytes_max": UNTHROTTLED_MEMORY},
    )
    if kind != "uniform" and any(isinstance(part, nn.BatchNorm2d) for part in learner.model.modules()):
        loader.weigh(learner.model)
    costs = []
    with closing(loader):
        for epoch in range(epochs):
            cost, begun_s = Cost(), time.process_time()
            begun, cost.decide_s = timed(partial(iter, loader))
            learner.model.train()
            for place, batch in enumerate(begun):
                logits = learner.forward(batch.images)
                plain = partial(functional.cross_entropy, logits, batch.labels)
                # Whoever comes second finds everything warm.
                first_s = timed(plain)[1] if place % 2 else 0.0
                loss, loss_s = timed(partial(loader.loss, logits, batch))
                plain_s = first_s or timed(plain)[1]
                cost.loss_s, cost.plain_loss_s = cost.loss_s + loss_s, cost.plain_loss_s + plain_s
                learner.step(loss, epoch + place / max(1, len(loader)))
                cost.trained += len(batch.labels)
            cost.epoch_s = time.process_time() - begun_s - cost.plain_loss_s
            costs.append(cost)
            if sys.stderr.isatty():
                print(f"\r\x1b[K{model} {kind} {epoch + 1}/{epochs}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return costs


def compare(data: Data, model: str, epochs: int, seed: int) -> dict[str, object]:
    """Medians over the epochs in which something was left out."""
    plain = train(data, model, "uniform", PLAIN_EPOCHS, seed)[1:]
    selected = [cost for cost in train(data, model, "weighted", epochs, seed) if cost.trained < data.samples]
    if not selected:
        raise SystemExit(f"{model} left nothing out in {epochs} epochs of {data.name}: give it more --epochs")
    whole_s = statistics.median(cost.epoch_s for cost in plain)
    plain_begin_s = statistics.median(cost.decide_s for cost in plain)
    decide_s = statistics.median(cost.decide_s for cost in selected) - plain_begin_s
    told_s = statistics.median(cost.told_s for cost in selected)
    own_s = statistics.median(cost.epoch_s for cost in selected)
    return {
        "data": data.name,
        "model": model,
        "samples": data.samples,
        "trained_share": round(statistics.median(cost.trained for cost in selected) / data.samples, 4),
        "decide_ms": round(1e3 * decide_s, 2),
        "tell_ms": round(1e3 * told_s, 2),
        "epoch_s": round(own_s, 3),
        "plain_epoch_s": round(whole_s, 3),
        "decide_share": round(decide_s / whole_s, 5),
        "overhead_share": round((decide_s + told_s) / whole_s, 5),
        "overhead_share_of_own": round((decide_s + told_s) / own_s, 5),
        "epochs": [asdict(cost) for cost in selected],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder, or mnist, fashion-mnist, cifar10")
    parser.add_argument("--models", default="mlpnet,convnet", help="separated by commas (default mlpnet,convnet)")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print a JSON line per model, with every epoch")
    args = parser.parse_args()
    models = args.models.split(",")
    if unknown := [model for model in models if model not in MODELS]:
        parser.error(f"--models: there is no {unknown[0]}; there are {', '.join(MODELS)}")
    if args.epochs < 3:
        parser.error("--epochs must be at least 3: the first and the last train on everything")
    torch.set_num_threads(1)
    data = prepare(args.data, 0, 0.0, plain=True)
    if not args.json:
        columns = f"{'data':<14}{'model':<10}{'trained':>8}{'decide':>9}{'tell':>10}{'epoch':>9}{'plain':>9}"
        print(f"{columns}   share of a plain epoch, of its own")
    for model in models:
        row = compare(data, model, args.epochs, args.seed)
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{row['data']:<14}{row['model']:<10}{row['trained_share']:>8.0%}{row['decide_ms']:>6} ms"
            f"{row['tell_ms']:>7} ms{row['epoch_s']:>7} s"
            f"{row['plain_epoch_s']:>7} s   {row['overhead_share']:.2%}, {row['overhead_share_of_own']:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
