"""Batch norm that counts samples by their weights, for models that are trained on a selection.

A selection trains easy samples rarely and gives them more weight when it does, so that the gradient is that of all
samples. Batch norm knows nothing of weights: it normalises by the mean and variance of the samples that were chosen,
the hard ones, and the model is then used on all. Here both are weighted, and so are those of all samples again.

Deliberately not here: ``SyncBatchNorm``, whose ranks would have to share their weights; it stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["BatchWeights", "mixes_samples", "weigh"]

#: How many steps of the graph behind a loss are looked at before it is given up.
_STEPS_MAX = 100_000


class BatchWeights:
    """The weights of the batch that was handed over last; none while all samples count alike."""

    def __init__(self) -> None:
        self.weights: torch.Tensor | None = None

    def note(self, weights: torch.Tensor) -> None:
        """Another batch is handed over."""
        alike = len(weights) < 2 or bool((weights == weights[0]).all())
        self.weights = None if alike else weights

    def shares(self, values: torch.Tensor) -> torch.Tensor | None:
        """What each sample counts, together 1; none if all count alike, or the values are of another batch."""
        if self.weights is None or len(self.weights) != len(values):
            return None
        weights = self.weights.to(values.device, torch.float32, non_blocking=True)
        return weights / weights.sum()

    def __getstate__(self) -> dict[str, Any]:
        return {"weights": None}


class _Normalise(torch.autograd.Function):
    """Normalises by a weighted mean and variance, in no more passes over the values than batch norm takes."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, shares: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        exact = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        shares = shares.to(exact.dtype)
        places = tuple(range(2, values.ndim))
        means = exact.mean(places) if places else exact
        squares = exact.square().mean(places) if places else exact.square()
        mean = shares @ means
        variance = (shares @ squares - mean.square()).clamp_(min=0)
        ctx.save_for_backward(values, shares, scale, mean, torch.rsqrt(variance + epsilon))
        ctx.mark_non_differentiable(mean, variance)
        out = functional.batch_norm(values, mean, variance, scale, shift, False, 0.0, epsilon)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        values, shares, scale, mean, inverse = ctx.saved_tensors
        over = (0, *range(2, values.ndim))
        by_channel, by_sample = [1, -1] + [1] * (values.ndim - 2), [-1] + [1] * (values.ndim - 1)
        by_shift = grad.sum(over, dtype=mean.dtype)
        by_scale = ((grad * values).sum(over, dtype=mean.dtype) - mean * by_shift) * inverse
        # A value moves the mean by its sample's share of it, over the places of a channel; the variance likewise.
        part = (shares / values[0, 0].numel()).to(grad.dtype).view(by_sample)
        slope = by_scale * inverse
        shared = torch.addcmul(
            (by_shift - slope * mean).to(grad.dtype).view(by_channel), slope.to(grad.dtype).view(by_channel), values
        )
        inner = grad - shared.mul_(part)
        return inner.mul_((scale * inverse).to(grad.dtype).view(by_channel)), None, by_scale, by_shift, None


class _Weighted:
    """What is put before a batch norm: while training, samples count by their weights."""

    batch_weights: BatchWeights

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        norm: Any = self
        shares = self.batch_weights.shares(values) if norm.training and values.ndim > 1 else None
        if shares is None:
            plain: torch.Tensor = super().forward(values)  # type: ignore[misc]
            return plain
        norm._check_input_dim(values)
        channels = values.shape[1]
        scale = norm.weight if norm.weight is not None else torch.ones(channels, device=values.device)
        shift = norm.bias if norm.bias is not None else torch.zeros(channels, device=values.device)
        out: torch.Tensor
        out, mean, variance = _Normalise.apply(values, shares, scale, shift, norm.eps)
        if norm.track_running_stats and norm.running_mean is not None:
            with torch.no_grad():
                norm.num_batches_tracked.add_(1)
                follow = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
                # The variance of what the batch was drawn from; a batch of one value says nothing about it.
                left = float(1 - shares.square().sum() / values[0, 0].numel())
                unbiased = variance / left if left > 1e-3 else variance
                norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), follow)
                norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), follow)
        return out


class WeightedBatchNorm1d(_Weighted, nn.BatchNorm1d):
    """``BatchNorm1d`` by the weights of the batch."""


class WeightedBatchNorm2d(_Weighted, nn.BatchNorm2d):
    """``BatchNorm2d`` by the weights of the batch."""


class WeightedBatchNorm3d(_Weighted, nn.BatchNorm3d):
    """``BatchNorm3d`` by the weights of the batch."""


_KINDS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: WeightedBatchNorm1d,
    nn.BatchNorm2d: WeightedBatchNorm2d,
    nn.BatchNorm3d: WeightedBatchNorm3d,
}


def weigh(model: nn.Module, weights: BatchWeights) -> int:
    """Has the model's batch norms, in place, count samples by these weights. Returns how many there are."""
    count = 0
    for module in model.modules():
        if type(module) in _KINDS:
            module.__class__ = _KINDS[type(module)]
        if isinstance(module, _Weighted):
            module.batch_weights = weights
            count += 1
    return count


def mixes_samples(outcome: torch.Tensor) -> bool | None:
    """Whether batch norm lies behind this tensor, so that one sample's outcome depends on the others of its batch.

    Seen from the graph that the backward pass will take; none if that hides something, or there is none.
    """
    waiting, seen = [outcome.grad_fn], set()
    if outcome.grad_fn is None:
        return None
    hidden = False
    while waiting:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        name = type(step).__name__
        if "BatchNorm" in name or name == "_NormaliseBackward":
            return True
        # Compiled or hand-written parts do not show what is in them.
        hidden |= isinstance(step, torch.autograd.function.BackwardCFunction) or len(seen) > _STEPS_MAX
        waiting += [next_step for next_step, _ in step.next_functions]
        if len(seen) > _STEPS_MAX:
            return None
    return None if hidden else False
