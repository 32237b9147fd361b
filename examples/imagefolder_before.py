"""Trains a small network on a folder of class folders, with DataLoader and torchvision.

    python examples/imagefolder_before.py DATA --epochs 1 --batch-size 32

DATA holds train/CLASS/*.jpg and val/CLASS/*.jpg. The same with Gristmill is imagefolder_after.py; the difference
between the two files is all there is to learn:

    diff examples/imagefolder_before.py examples/imagefolder_after.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

NORMALISE = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
TRAIN = transforms.Compose(
    [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(), NORMALISE]
)
EVAL = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), NORMALISE])


def network(classes: int, width: int) -> nn.Module:
    """Four strided convolutions and a linear layer: enough to learn something, small enough for a CPU."""
    layers: list[nn.Module] = []
    channels = [3, width, 2 * width, 4 * width, 8 * width]
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], classes))


def train_epoch(
    model: nn.Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """One pass over the training data; the mean loss."""
    model.train()
    total, count = 0.0, 0
    for images, labels in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item() * len(labels), count + len(labels)
    return total / max(count, 1)


@torch.no_grad()
def accuracy(model: nn.Module, batches: Iterable[Any], device: torch.device) -> float:
    """Which part of the samples the model names rightly."""
    model.eval()
    right, count = 0, 0
    for images, labels in batches:
        guess = model(images.to(device, non_blocking=True)).argmax(1).cpu()
        right, count = right + int((guess == labels).sum()), count + len(labels)
    return right / max(count, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on DATA/train, test it on DATA/val.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--checkpoint", type=Path, default=Path("model.pt"))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    common = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": device.type == "cuda"}
    train_set = ImageFolder(args.data / "train", TRAIN)
    train = DataLoader(train_set, shuffle=True, drop_last=True, **common)
    val = DataLoader(ImageFolder(args.data / "val", EVAL), shuffle=False, **common)
    classes = train_set.classes

    model = network(len(classes), args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        loss = train_epoch(model, train, optimizer, device)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model, val, device):.1%}, {seconds:.1f} s")
    torch.save({"model": model.state_dict(), "classes": classes}, args.checkpoint)


if __name__ == "__main__":
    main()
