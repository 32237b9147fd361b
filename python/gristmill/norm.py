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

__all__ = ["BatchWeights", "left_out", "mixes_samples", "weigh"]

#: How many steps of the graph behind a loss are looked at before it is given up.
_STEPS_MAX = 100_000


class BatchWeights:
    """What each sample of the batch that was handed over last counts; nothing while all count alike."""

    def __init__(self) -> None:
        self._shares: torch.Tensor | None = None
        self._there: dict[torch.device, torch.Tensor] = {}

    def note(self, weights: torch.Tensor) -> None:
        """Another batch is handed over."""
        alike = len(weights) < 2 or bool((weights == weights[0]).all())
        self._shares = None if alike else weights / weights.sum()
        self._there = {}

    def clear(self) -> None:
        """No batch of the loader is under way."""
        self._shares, self._there = None, {}

    def shares(self, values: torch.Tensor) -> torch.Tensor | None:
        """What each sample counts, together 1; none if all count alike, or the values are of another batch."""
        if self._shares is None or len(self._shares) != len(values):
            return None
        if values.device not in self._there:
            self._there[values.device] = self._shares.to(values.device, non_blocking=True)
        return self._there[values.device]

    def __deepcopy__(self, _: Any) -> BatchWeights:
        # A copy of a model is trained by the same loader.
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"_shares": None, "_there": {}}


class _Normalise(torch.autograd.Function):
    """Normalises by a weighted mean and variance.

    Everything is computed from centred values in at least 32 bits: a mean that is large beside the deviation, and
    gradients of half precision, lose nothing.
    """

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, shares: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        exact = _exact(values)
        shares = shares.to(exact.dtype)
        mean = _moment(exact, shares)
        centred = exact - _by_channel(mean, values)
        squares = centred.square()
        variance = _moment(squares, shares)
        # Half precision takes half the memory until then: it is centred again.
        kept = centred if values.dtype == exact.dtype else values
        ctx.save_for_backward(kept, mean, variance, shares, scale)
        ctx.shift_dtype, ctx.epsilon = shift.dtype, epsilon
        ctx.mark_non_differentiable(mean, variance)
        factor = _by_channel(scale.to(exact.dtype) * torch.rsqrt(variance + epsilon), values)
        # Large pieces of memory are dear on a processor: one that is no longer needed takes what comes next.
        out = torch.addcmul(_by_channel(shift.to(exact.dtype), values), centred, factor, out=squares)
        return out.to(values.dtype), mean, variance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        kept, mean, variance, shares, scale = ctx.saved_tensors
        centred = kept if kept.dtype == mean.dtype else kept.to(mean.dtype) - _by_channel(mean, kept)
        exact, exact_scale = grad.to(centred.dtype), scale.to(centred.dtype)
        # As if mean and variance were given, which the library does in few passes.
        by_values, by_scale, by_shift = torch.ops.aten.native_batch_norm_backward(
            exact, centred, exact_scale, torch.zeros_like(mean), variance, None, None, False, ctx.epsilon, [True] * 3
        )
        # But a value moves the mean by its sample's share of it, over the places of a channel; the variance likewise.
        inverse = torch.rsqrt(variance + ctx.epsilon)
        part = shares[:, None] / -centred[0, 0].numel()
        factor = exact_scale * inverse
        by_values.addcmul_(centred, _by_sample(part * (by_scale * inverse * factor), centred))
        by_values.add_(_by_sample(part * (by_shift * factor), centred))
        return by_values.to(kept.dtype), None, by_scale.to(scale.dtype), by_shift.to(ctx.shift_dtype), None


def _moment(values: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """The mean of each channel, each sample counting by its share."""
    means = values.mean(tuple(range(2, values.ndim))) if values.ndim > 2 else values
    # Not as a product of matrices, which mixed precision would make in half precision.
    return (shares[:, None] * means).sum(0)


def _exact(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _by_channel(numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One number per channel, in a form that goes with the values."""
    return numbers.view([1, -1] + [1] * (values.ndim - 2))


def _by_sample(numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One number per sample and channel, in such a form."""
    return numbers.view([*numbers.shape] + [1] * (values.ndim - 2))


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
                # The variance of what the batch was drawn from.
                left = 1 - shares.square().sum() / values[0, 0].numel()
                unbiased = variance / left.clamp(min=1e-3)
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
    """Has the model's batch norms, in place, count samples by these weights. Returns how many those are."""
    count = 0
    for module in model.modules():
        if type(module) in _KINDS:
            module.__class__ = _KINDS[type(module)]
        if isinstance(module, _Weighted):
            module.batch_weights = weights
            count += 1
    return count


def left_out(model: nn.Module) -> list[str]:
    """The kinds of batch norm in a model that go by the samples of a batch all the same."""
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)}
    return sorted(kind.__name__ for kind in kinds if not issubclass(kind, _Weighted))


def mixes_samples(outcome: torch.Tensor) -> bool | None:
    """Whether batch norm lies behind this tensor, so that one sample's outcome depends on the others of its batch.

    Seen from the graph that the backward pass will take; none if that hides something, or there is none. Batch norm
    that is written out by hand cannot be told from other sums.
    """
    waiting: list[Any] = [outcome.grad_fn]
    seen: set[Any] = set()
    hidden = outcome.grad_fn is None
    while waiting and len(seen) < _STEPS_MAX:
        step = waiting.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        name = type(step).__name__
        # One that is frozen goes by what it has learned, and mixes nothing.
        if name == "_NormaliseBackward" or ("BatchNorm" in name and getattr(step, "_saved_training", True)):
            return True
        # Scripted, compiled and hand-written parts do not show what is in them.
        hidden |= not hasattr(torch._C._functions, name)
        waiting += [next_step for next_step, _ in step.next_functions]
    return None if hidden or waiting else False
