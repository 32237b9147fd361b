"""The networks that bench/selection.py and bench/exchange.py train, and how each is trained.

Small enough for a few processor cores: what is compared is which samples they see. Each has a narrower sibling, the
proxy that ranks samples in place of the full network (Select via Proxy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.nn import functional

CLASSES = 10


class MLPNet(nn.Module):
    """Two hidden layers over the 784 pixels of a 28 x 28 picture."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layers(images))


class ConvNet(nn.Module):
    """Two 5 x 5 convolutions with pooling, then two dense layers, for 28 x 28 pictures."""

    def __init__(self, width: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * width, 5 * width),
            nn.ReLU(),
            nn.Linear(5 * width, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layers(images))


class NormNet(nn.Module):
    """Two strided convolutions and a dense layer, each with batch norm, for 28 x 28 pictures."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(98 * width, 8 * width, bias=False),
            nn.BatchNorm1d(8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.layers(images))


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm around a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.first_norm(self.first(images)), inplace=True)
        return functional.relu(self.second_norm(self.second(inner)) + self.shortcut(images), inplace=True)


class ResNet(nn.Module):
    """Three residual blocks at 16, 8 and 4 pixels a side, for 32 x 32 pictures."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(self.layers(images).mean((2, 3))))


class PartNorm(nn.Module):
    """Batch norm of a batch that consists of equal parts, one per rank: each part by its own mean and variance.

    So do ranks that train in parallel and share nothing but gradients. The running numbers follow the mean over parts.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, features: int, parts: int, follow: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.parts, self.follow, self.epsilon = parts, follow, epsilon
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return functional.batch_norm(
                values, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.epsilon
            )
        parts = values.reshape(self.parts, len(values) // self.parts, values.shape[1], -1)
        # First over pixels, which lie side by side: many times faster than over both at once.
        mean = parts.mean(3, keepdim=True).mean(1, keepdim=True)
        centred = parts - mean
        variance = centred.square().mean(3, keepdim=True).mean(1, keepdim=True)
        with torch.no_grad():
            count = parts.shape[1] * parts.shape[3]
            unbiased = variance.mean(0).flatten() * (count / max(1, count - 1))
            self.running_mean.lerp_(mean.mean(0).flatten(), self.follow)
            if count > 1:
                self.running_var.lerp_(unbiased, self.follow)
        factor = torch.rsqrt(variance + self.epsilon) * self.weight.view(1, 1, -1, 1)
        return (centred * factor + self.bias.view(1, 1, -1, 1)).reshape(values.shape)


def in_parts(model: nn.Module, parts: int) -> nn.Module:
    """The same network with batch norm part by part."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(model, name, PartNorm(child.num_features, parts))
        else:
            in_parts(child, parts)
    return model


@dataclass(frozen=True)
class Training:
    """How one network is trained: SGD with Nesterov momentum; its rate rises linearly, then falls as a cosine to 0."""

    make: Callable[[], nn.Module]
    proxy: Callable[[], nn.Module]
    learning_rate: float
    weight_decay: float
    rise_share: float
    batch: int = 128
    momentum: float = 0.9


MODELS = {
    "mlpnet": Training(MLPNet, lambda: MLPNet(64), 0.05, 0.0, 0.0),
    "convnet": Training(ConvNet, lambda: ConvNet(5), 0.03, 0.0, 0.0),
    "resnet": Training(ResNet, lambda: ResNet(6), 0.2, 5e-4, 0.1),
    # Large enough, and left alone enough, to fit its training data, as the networks that people train are.
    "resnet24": Training(lambda: ResNet(24), lambda: ResNet(12), 0.1, 0.0, 0.1),
}


def build(training: Training, seed: int, proxy: bool = False) -> nn.Module:
    """The network with seeded weights, laid out as convolutions on a CPU like it."""
    torch.manual_seed(seed)
    model = training.proxy() if proxy else training.make()
    return model.to(memory_format=torch.channels_last)
