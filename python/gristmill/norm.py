"""Batch norm that counts samples by their weights, for models that are trained on a selection.

A selection trains easy samples rarely and gives them more weight when it does, so that the gradient is that of all
samples. Batch norm knows nothing of weights: it normalises by the mean and variance of the samples that were chosen,
the hard ones, and the model is then used on all. Here both are weighted, and so are those of all samples again.

Deliberately not here: ``SyncBatchNorm``, whose ranks would have to share their weights; it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = ["BatchWeights", "left_out", "mixes_samples", "weigh"]

#: How many steps of the graph behind a loss are looked at before it is given up.
_STEPS_MAX = 100_000


class BatchWeights:
    """What each sample of the batch that was handed over last counts; nothing while all count alike."""

    def __init__(self) -> None:
        self._shares: torch.Tensor | None = None
        self._there: dict[torch.device, Shares] = {}

    def note(self, weights: torch.Tensor) -> None:
        """Another batch is handed over."""
        alike = len(weights) < 2 or bool((weights == weights[0]).all())
        self._shares = None if alike else weights / weights.sum()
        self._there = {}

    def clear(self) -> None:
        """No batch of the loader is under way."""
        self._shares, self._there = None, {}

    def shares(self, values: torch.Tensor) -> Shares | None:
        """What each sample counts; none if all count alike, or the values are of another batch."""
        if self._shares is None or len(self._shares) != len(values):
            return None
        if values.device not in self._there:
            self._there[values.device] = Shares(self._shares, values.device)
        return self._there[values.device]

    def __deepcopy__(self, _: Any) -> BatchWeights:
        # A copy of a model is trained by the same loader.
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"_shares": None, "_there": {}}


class Shares:
    """What each sample of a batch counts, together 1, on one device and in the forms that layers need.

    Layers of one size share them: a network of small layers spends more time on starting small operations than on
    values.
    """

    def __init__(self, shares: torch.Tensor, device: torch.device) -> None:
        self.squares = float(shares.square().sum())
        self._shares = shares.to(device, non_blocking=True)
        self._made: dict[tuple[str, int, torch.dtype], torch.Tensor] = {}

    def each(self, dtype: torch.dtype) -> torch.Tensor:
        """The share of each sample, as a column."""
        return self._kept("each", 1, dtype, lambda shares: shares[:, None])

    def less(self, places: int, dtype: torch.dtype) -> torch.Tensor:
        """The share of each of a sample's places, negative, as a column."""
        return self._kept("less", places, dtype, lambda shares: shares[:, None] / -places)

    def places(self, places: int, dtype: torch.dtype) -> torch.Tensor:
        """The share of every place of every sample."""
        return self._kept("places", places, dtype, lambda shares: (shares / places).repeat_interleave(places))

    def _kept(
        self, name: str, places: int, dtype: torch.dtype, make: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        key = (name, places, dtype)
        if key not in self._made:
            self._made[key] = make(self._shares.to(dtype))
        return self._made[key]


class _Normalise(torch.autograd.Function):
    """Normalises by a weighted mean and variance.

    Everything is computed in at least 32 bits, and no variance as a difference of squares: a mean that is large beside
    the deviation loses no more than it does in the library's own batch norm.
    """

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, shares: Shares, scale: torch.Tensor, shift: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        exact = _exact(values)
        mean, variance, spare = _moments(exact, shares)
        if spare.stride() != exact.stride():
            spare = torch.empty_like(exact)
        ctx.save_for_backward(values, mean, variance, scale)
        ctx.shares, ctx.shift_dtype, ctx.epsilon = shares, shift.dtype, epsilon
        ctx.mark_non_differentiable(mean, variance)
        # As a model that is not trained does it, with mean and variance as they are given.
        out, _, _ = torch.ops.aten.native_batch_norm.out(
            exact, scale.to(exact.dtype), shift.to(exact.dtype), mean, variance, False, 0.0, epsilon,
            out=spare, save_mean=torch.empty_like(mean), save_invstd=torch.empty_like(mean),
        )  # fmt: skip
        return out.to(values.dtype), mean, variance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        values, mean, variance, scale = ctx.saved_tensors
        exact, exact_grad = _exact(values), grad.to(mean.dtype)
        exact_scale = scale.to(mean.dtype)
        # As if mean and variance were given, which the library does in few passes.
        side_by_side = exact.is_contiguous()
        by_values, by_scale, by_shift = torch.ops.aten.native_batch_norm_backward(
            exact_grad, exact, exact_scale, mean, variance, None, None, False, ctx.epsilon, [side_by_side, True, True]
        )
        # But a value moves the mean by its sample's share of it, over the places of a channel; the variance likewise.
        part = ctx.shares.less(values[0, 0].numel(), mean.dtype)
        inverse = torch.rsqrt(variance + ctx.epsilon)
        factor = exact_scale * inverse
        rise = by_scale * inverse * factor
        rest = _by_sample(part * torch.addcmul(by_shift * factor, rise, mean, value=-1), exact)
        rise = _by_sample(part * rise, exact)
        if side_by_side:
            by_values.addcmul_(exact, rise).add_(rest)
        else:
            # The same in fewer passes, which are slow where the places of a channel are side by side.
            by_values = torch.addcmul(rest, exact, rise)
            by_values.addcmul_(exact_grad, _by_sample(factor[None], exact))
        return by_values.to(values.dtype), None, by_scale.to(scale.dtype), by_shift.to(ctx.shift_dtype), None


def _moments(values: torch.Tensor, shares: Shares) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean and variance of each channel, each sample counting by its share; and memory for as many values."""
    samples, channels = values.shape[:2]
    places = values[0, 0].numel()
    by_place = values.movedim(1, -1)
    # Large pieces of memory are dear on a processor: there is one, and what comes next is written over it.
    if by_place.is_contiguous():
        # The channels of a place are side by side, and the values are a matrix with a row per place.
        rows, counts, spare = by_place.view(-1, channels), shares.places(places, values.dtype), torch.empty_like(values)
        about = _counted(rows, counts)
        off = torch.sub(rows, about, out=spare.movedim(1, -1).view(-1, channels))
        # A sum of very many large numbers is not exact, what is left of them is.
        rest = _counted(off, counts)
        return about + rest, _counted(off.square_(), counts) - rest.square(), spare
    # Group norm, with a group per channel, has the moments of each sample in one quick pass. Of what else it gives only
    # the memory is used. (In the other layout it is slow, and takes differences of squares for variances.)
    spare, means, inverse = torch.native_group_norm(
        values.contiguous(), None, None, samples, channels, places, channels, 0.0
    )
    each = shares.each(values.dtype)
    mean = (each * means).sum(0)
    return mean, (each * ((means - mean).square() + inverse.pow(-2))).sum(0), spare


def _counted(rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The sum of rows, each of which counts so much."""
    # Where the memory is given mixed precision leaves it alone; it would make the product in half precision.
    return torch.mv(rows.t(), counts, out=rows.new_empty(rows.shape[1]))


def _exact(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _by_sample(numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One number per sample and channel, in a form that goes with the values."""
    return numbers.view([*numbers.shape] + [1] * (values.ndim - 2))


class _Weighted:
    """What is put before a batch norm: while training, samples count by their weights."""

    batch_weights: BatchWeights

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        norm: Any = self
        alone = norm.training and values.ndim > 1 and values.numel() == values.shape[1]
        if alone and norm.running_mean is not None and norm.num_batches_tracked > 0:
            # One value has no variance, and a selection can leave one sample for an epoch's last batch. It goes by what
            # was seen so far, as in a model that is not trained, instead of ending the training. (Where nothing was
            # seen yet it is the program that makes batches of one, and torch's error says so.)
            norm._check_input_dim(values)
            return functional.batch_norm(
                values, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
            )
        weighs = norm.training and values.ndim > 1 and values.numel() > 0
        shares = self.batch_weights.shares(values) if weighs else None
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
                left = max(1e-3, 1 - shares.squares / values[0, 0].numel())
                norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), follow)
                norm.running_var.mul_(1 - follow).add_(variance.to(norm.running_var.dtype), alpha=follow / left)
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
