"""What a training loop tells a selection, by tensors: loss and feedback in one, and whether the model has batch norm.

:class:`Learning` is what the loader and the sampler of :mod:`gristmill.torch` have in common. It is not made by users.
Deliberately not here: what is done with it (``selection``, and the engine behind), and batch norm itself (``norm``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from gristmill import _gristmill
from gristmill.errors import ConfigError
from gristmill.norm import BatchWeights, mixes_samples
from gristmill.page import warn
from gristmill.selection import Chooser

__all__ = ["Learning", "has_process_group", "learned_columns"]

#: Selections that give samples weights.
_WEIGHING = ("weighted", "infobatch")
#: A label that nobody has, so that all others count.
_NO_LABEL = -(1 << 62)
#: Above so many predictions tensor operations are as good, and need no copy of them.
_NATIVE_MAX = 1 << 20


def has_process_group() -> bool:
    """Whether this process is one of several that torch.distributed knows."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Learning(Chooser):
    """Loss and feedback in one: what the loader and the sampler add to a training loop."""

    #: Feedback of the last batch, on its way from a device: ids, and the copy that is under way.
    _late: tuple[torch.Tensor, torch.Tensor, bool] | None = None
    _copied: Any = None
    _num_classes: int | None = None
    _entropy: bool = False
    #: The epoch in which the model was looked at last: does it normalise by whoever is in a batch?
    _looked: int | None = None
    _warned: bool = False
    #: The weights that the model's batch norms go by, if they do, and whether there are any.
    _batch_weights: BatchWeights | None = None
    _weighed: bool = False
    #: Whether there are others, that do not go by weights.
    _left_out: bool = False

    def _look(self, outcome: torch.Tensor) -> None:
        """At the first step of an epoch: a selection goes by what batch norm the model has."""
        if self._choice is None or self._looked == self._epoch or not outcome.requires_grad:
            return
        self._looked = self._epoch
        # Of a part that is not trained the graph shows nothing; but batch norms that were weighed are there.
        mixes = self._weighed or mixes_samples(outcome)
        weighed = self._weighed and not self._left_out
        self._choice.norm("weighed" if weighed else "absent" if mixes is False else "unknown")
        if mixes and not (self._weighed or self._warned) and self.selection.get("kind") in _WEIGHING:
            self._warned = True
            warn(
                "the model has batch norm, which goes by the samples that were chosen and not by all: with a loader, "
                "call loader.weigh(model) before training, so that it goes by their weights"
            )

    def _can_gather(self) -> bool:
        return has_process_group() or super()._can_gather()

    def _gather(self, pack: bytes) -> Sequence[bytes]:
        if not has_process_group():
            return super()._gather(pack)
        packs: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(packs, pack)
        return packs

    def loss(self, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        """The cross entropy of a batch, each sample with its weight; tells the selection what was learned.

        It is the mean over the batch. Everything is computed where ``logits`` are, and one small copy per batch
        comes back.
        """
        labels = self._check(logits, batch)
        self._look(logits)
        log_p = torch.log_softmax(logits.float(), 1)
        each = _losses(log_p, labels)
        if self._choice is not None or self._page is not None:
            self._tell(log_p.detach(), each.detach(), labels, batch.ids)
        if self._choice is None:
            return each.mean()
        return torch.dot(each, batch.weights.to(each, non_blocking=True) / len(each))

    def feedback(
        self, batch: Any, logits: torch.Tensor | None = None, *, per_sample_loss: torch.Tensor | None = None
    ) -> None:
        """Tells the selection what was learned, for a training loop with a loss of its own.

        Give the ``logits`` of a classifier, or the loss of each sample before any weight. Weigh it yourself:
        ``(each * batch.weights).mean()``, the mean over the batch's samples and not over their weights.

        A loss per sample is taken for a cross entropy: above ln 2 a sample counts as predicted wrongly, and while a
        quarter of them does ``weighted`` skips nothing (up to twice that early in a run whose length is known). For a
        loss of another scale set ``wrong_max=1``. As it does not tell who was right, the accuracy guard watches nothing
        from then on.
        """
        if (logits is None) == (per_sample_loss is None):
            raise ConfigError("feedback takes logits or per_sample_loss: one of them")
        if self._choice is None and self._page is None:
            return
        if logits is not None:
            labels = self._check(logits, batch)
            self._look(logits)
            log_p = torch.log_softmax(logits.detach().float(), 1)
            self._tell(log_p, _losses(log_p, labels), labels, batch.ids)
        else:
            each = _per_sample(batch, per_sample_loss)
            p_true = torch.exp(-each.clamp(min=0))
            self._send(batch.ids, torch.stack([p_true, 1 - p_true, each]), classified=False)

    def keep(self, batch: Any, per_sample_loss: torch.Tensor) -> torch.Tensor:
        """Which samples of a batch that was just forwarded are to be trained on: all but for ``biggest-loser``."""
        each = _per_sample(batch, per_sample_loss)
        if self._choice is None:
            return torch.ones(len(each), dtype=torch.bool)
        self._heard = True  # losses are what it goes by
        kept = self._choice.keep(batch.ids.cpu().numpy().tobytes(), each.cpu().numpy().tobytes())
        return torch.frombuffer(bytearray(kept), dtype=torch.bool)

    def _check(self, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        """The labels of a batch where the logits are; an error if the two do not go together."""
        if not isinstance(logits, torch.Tensor) or not hasattr(batch, "labels"):
            kinds = f"a {type(logits).__name__} and a {type(batch).__name__}"
            raise ConfigError(f"{kinds} were given: it takes the model's logits, a tensor, and the loader's batch")
        if logits.ndim != 2 or len(logits) != len(batch.labels):
            wanted = f"({len(batch.labels)}, {self._num_classes or 'classes'})"
            raise ConfigError(f"logits have shape {tuple(logits.shape)}; this batch needs {wanted}")
        if self._num_classes is not None and logits.shape[1] < self._num_classes:
            raise ConfigError(f"logits have {logits.shape[1]} columns, but there are {self._num_classes} classes")
        labels: torch.Tensor = batch.labels
        return labels.to(logits.device, non_blocking=True)

    @torch.no_grad()
    def _tell(self, log_p: torch.Tensor, each: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> None:
        if log_p.device.type == "cpu" and log_p.numel() <= _NATIVE_MAX:
            # As tensor operations it would take longer than a small network's step.
            rows = log_p.contiguous().numpy().tobytes()
            columns_bytes = _gristmill.learned(rows, labels.long().numpy().tobytes(), log_p.shape[1], self._entropy)
            self._flush()
            self._hear(ids.cpu().numpy().tobytes(), columns_bytes)
        else:
            self._send(ids, learned_columns(log_p, each, self._entropy))

    def _send(self, ids: torch.Tensor, columns: torch.Tensor, classified: bool = True) -> None:
        self._flush()
        if columns.device.type != "cuda":
            self._take(ids, columns.cpu(), classified)
        else:
            # Not waited for: it is taken when the next batch's is sent, or when an epoch begins or a state is saved.
            self._late = (ids, columns.to("cpu", non_blocking=True), classified)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def _flush(self) -> None:
        if self._late is not None:
            self._copied.synchronize()
            ids, columns, classified = self._late
            self._late = None
            self._take(ids, columns, classified)

    def _take(self, ids: torch.Tensor, columns: torch.Tensor, classified: bool) -> None:
        self._hear(ids.cpu().numpy().tobytes(), columns.contiguous().numpy().tobytes(), classified)


def _per_sample(batch: Any, per_sample_loss: Any) -> torch.Tensor:
    """A loss for each sample of a batch, without its graph; an error if the two do not go together."""
    if not isinstance(per_sample_loss, torch.Tensor) or not hasattr(batch, "ids"):
        kinds = f"a {type(batch).__name__} and a {type(per_sample_loss).__name__}"
        raise ConfigError(f"{kinds} were given: it takes the loader's batch and per_sample_loss, a tensor")
    if per_sample_loss.shape != (len(batch.ids),):
        raise ConfigError(f"per_sample_loss has shape {tuple(per_sample_loss.shape)} for {len(batch.ids)} samples")
    return per_sample_loss.detach().float()


def _losses(log_p: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What each sample's own label lacks."""
    try:
        return functional.nll_loss(log_p, labels.long(), reduction="none", ignore_index=_NO_LABEL)
    except (IndexError, RuntimeError) as error:
        if log_p.device.type != "cpu":
            raise
        low, high = int(labels.min()), int(labels.max())
        raise ConfigError(f"labels go from {low} to {high}, but logits have {log_p.shape[1]} columns") from error


def learned_columns(log_p: torch.Tensor, each: torch.Tensor, entropy: bool) -> torch.Tensor:
    """What ``_gristmill.learned`` computes, where the tensors are."""
    columns = torch.empty((4 if entropy else 3, len(each)), device=each.device)
    torch.exp(-each, out=columns[0])
    if log_p.shape[1] > 1:
        # The largest probability of another label: the largest of all, or the second where that is the own one.
        best, second = log_p.topk(2, 1)[0].unbind(1)
        torch.exp(torch.where(each == -best, second, best), out=columns[1])
    else:
        columns[1] = 0
    columns[2] = each
    if entropy:
        columns[3] = -(log_p.exp() * log_p).nan_to_num(0).sum(1) / math.log(2)
    return columns
