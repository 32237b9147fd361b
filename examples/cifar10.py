"""CIFAR-10 as its authors publish it (binary version), with no conversion: train, test, and see where the time went.

    python examples/cifar10.py cifar-10-batches-bin --epochs 2
    python examples/cifar10.py cifar-10-batches-bin --epochs 15 --selection weighted     # only what still teaches

The folder holds data_batch_*.bin (any number of them) and test_batch.bin. Named as a folder, its training batches are
read; the test batch is a data set of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gristmill.torch import Loader
from torch import nn

# What "cifar-train" ends with, without its random crop and flip.
EVAL: list[Mapping[str, Any]] = [
    {"kind": "decode"},
    {"kind": "to-tensor"},
    {"kind": "normalise", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]},
]


def network(width: int) -> nn.Module:
    """Three blocks of convolution and pooling."""
    layers: list[nn.Module] = []
    channels = [3, width, 2 * width, 4 * width]
    for before, after in pairwise(channels):
        layers += [
            nn.Conv2d(before, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * 16, 10))


@torch.no_grad()
def accuracy(model: nn.Module, loader: Loader) -> float:
    """Which part of the samples the model names rightly."""
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / loader.num_samples


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on CIFAR-10's binary files.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--selection", default="uniform", help="which samples an epoch trains on; uniform is all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train = Loader(
        args.data,
        recipe="cifar-train",
        batch_size=args.batch_size,
        drop_last=True,
        seed=args.seed,
        selection=args.selection,
        epochs=args.epochs,
    )
    test = Loader(args.data / "test_batch.bin", recipe=EVAL, batch_size=500, shuffle=False)
    print(train)
    model = train.weigh(network(args.width))  # its batch norm counts samples by their weights, as the loss does
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        model.train()
        for batch in train:
            loss = train.loss(model(batch.images), batch)  # cross entropy; tells the selection what was learned
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trained = train.report().values["samples"] / train.num_samples
        print(f"epoch {epoch}: trained on {trained:.0%}, accuracy {accuracy(model, test):.1%}")
    print(train.report())


if __name__ == "__main__":
    main()
