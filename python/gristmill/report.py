"""Where the time of an epoch went, for terminals and notebooks."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["Report"]

_PARTS = (("fetch", "fetch_ms"), ("decode", "decode_ms"), ("other ops", "ops_ms"), ("hand-over", "hand_over_ms"))
_EXCHANGE_NOTES = (
    ("balanced", "moves evened out the selection"),
    ("refilled", "samples were filled in from the store"),
    ("missed", "samples were missed and read from the store"),
    ("left", "samples were left for the next epoch"),
    ("again", "samples were trained again"),
)
_COLOURS = ("#3b7dd8", "#d8743b", "#6aa84f", "#999999")


def _time(ms: float) -> str:
    """A time in the unit that people would use for it."""
    return f"{ms:.1f} ms" if ms < 1_000 else f"{ms / 1e3:.2f} s"


class Report:
    """What one epoch cost. Print it, show it in a notebook, or look at ``report.values``.

    >>> report = Report({"epoch": 0, "samples": 10, "batches": 1, "wall_ms": 1000.0, "samples_per_s": 10.0, "bytes": 5,
    ...     "wait": {"total_ms": 500.0, "fetch_ms": 400.0, "decode_ms": 100.0, "ops_ms": 0.0, "hand_over_ms": 0.0}})
    >>> report.wait_share
    0.5
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = dict(values)

    @classmethod
    def _from_json(cls, text: str) -> Report:
        return cls(json.loads(text))

    @property
    def wait_share(self) -> float:
        """Which part of the epoch the training loop waited for data, 0 to 1."""
        wall = float(self.values.get("wall_ms", 0.0))
        return min(1.0, float(self._wait["total_ms"]) / wall) if wall > 0 else 0.0

    @property
    def tiers(self) -> dict[str, int]:
        """How many samples came from where (memory, disk, peer, upstream, store); empty without a cache."""
        return {tier["tier"]: int(tier["samples"]) for tier in self.values.get("tiers", ()) if tier["samples"]}

    @property
    def hit_ratio(self) -> float | None:
        """Which part of the samples the store was not asked for, 0 to 1; None without a cache."""
        tiers = self.tiers
        behind = tiers.get("store", 0) + tiers.get("upstream", 0)
        return 1 - behind / sum(tiers.values()) if tiers else None

    @property
    def split(self) -> dict[str, Any]:
        """Where samples were cut and what that saved; empty if nothing was to be split."""
        return dict(self.values.get("split") or {})

    @property
    def exchange(self) -> dict[str, Any]:
        """What this rank holds, sent and received; empty without an exchange."""
        return dict(self.values.get("exchange") or {})

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """What the steering decided before this epoch: ``knob``, ``from``, ``to``, ``action`` and more."""
        return [dict(decision) for decision in self.values.get("decisions", ())]

    @property
    def _wait(self) -> Mapping[str, float]:
        wait: Mapping[str, float] = self.values.get("wait") or dict.fromkeys(("total_ms", *(k for _, k in _PARTS)), 0.0)
        return wait

    def _shares(self) -> list[tuple[str, float, float]]:
        total = self._wait["total_ms"]
        return [(name, self._wait[key], self._wait[key] / total if total > 0 else 0.0) for name, key in _PARTS]

    def _head(self) -> str:
        get = self.values.get
        return (
            f"epoch {get('epoch', 0)}: {get('samples', 0):,} samples in {get('batches', 0):,} batches, "
            f"{_time(get('wall_ms', 0.0))}, {get('samples_per_s', 0.0):,.0f} samples/s, "
            f"{get('bytes', 0) / 1e6:,.1f} MB {'from memory' if get('from_memory') else 'read'}"
        )

    def _notes(self) -> list[str]:
        notes = []
        if selection := self.values.get("selection"):
            kept, samples = selection["kept"], selection["samples"]
            share = kept / max(samples, 1)
            notes.append(
                f"selection {selection['kind']}: {kept:,} of {samples:,} samples ({share:.0%}): {selection['reason']}"
            )
            shares = selection.get("class_shares") or []
            if len(shares) > 1 and min(shares) < 1:
                notes.append(f"classes keep {min(shares):.0%} to {max(shares):.0%} of their samples")
            if selection.get("guard"):
                notes.append(f"accuracy: {selection['guard']}")
            if selection.get("unknown"):
                notes.append(f"{selection['unknown']} reports of the trainer were no numbers")
        if (ratio := self.hit_ratio) is not None:
            parts = "; ".join(f"{samples:,} from {tier}" for tier, samples in self.tiers.items())
            notes.append(f"cache: {ratio:.1%} of the samples were there; {parts}")
        if split := self.split:
            notes.append(f"split {split['mode']}: {split['reason']}")
            if split["bytes"]:
                came, raw = split["bytes"], split["raw_bytes"]
                notes.append(
                    f"{came / 1e6:,.1f} MB over the link instead of {raw / 1e6:,.1f} ({raw / came:.2f}x less), "
                    f"{split['upstream_cpu_s']:.2f} s of the node's CPU"
                )
            if past := split.get("past"):
                notes.append(f"{past:,} samples of the cache came prepared: decoding here would take longer")
            if split.get("calibration_bytes"):
                beside = split["calibration_bytes"] / 1e6
                notes.append(f"{beside:.1f} MB beside that, once, to learn how fast the node is")
            if split.get("predicted_s") is not None:
                notes.append(f"predicted {split['predicted_s']:.2f} s, took {split['measured_s']:.2f} s")
            notes += [f"{short['samples']:,} samples came raw: {short['reason']}" for short in split["shortfalls"]]
        if exchange := self.exchange:
            notes.append(
                f"exchange: holds {exchange['held']:,} samples, fraction {exchange['fraction']:g}; "
                f"sent {exchange['sent']:,} ({exchange['bytes_sent'] / 1e6:,.1f} MB), "
                f"received {exchange['received']:,} ({exchange['bytes_received'] / 1e6:,.1f} MB); "
                f"waited {_time(exchange['wait_ms'])} for it"
            )
            for key, words in _EXCHANGE_NOTES:
                if exchange.get(key):
                    notes.append(f"{exchange[key]:,} {words}")
        notes += [f"steering: {decision['line']}" for decision in self.decisions]
        if fallbacks := int(self.values.get("fallbacks", 0)):
            notes.append(f"{fallbacks:,} samples were read from the store because the shared node did not give them")
        if self.values.get("retries"):
            notes.append(f"{self.values['retries']} reads were tried again")
        if self.values.get("skipped"):
            notes.append(f"{self.values['skipped']} bad samples were left out")
        return notes

    def __str__(self) -> str:
        if not self.values:
            return "nothing has been read yet"
        lines = [self._head(), f"  waited {_time(self._wait['total_ms'])} ({self.wait_share:.0%} of the epoch)"]
        for name, ms, share in self._shares():
            lines.append(f"    {name:<10} {_time(ms):>9} {share:>5.0%}  {'#' * round(share * 30)}".rstrip())
        return "\n".join(lines + [f"  {note}" for note in self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.values:
            return f"<div>{self}</div>"
        bars = "".join(
            f"<div style='width:{share * 100:.1f}%;background:{colour}' title='{html.escape(name)}'></div>"
            for (name, _, share), colour in zip(self._shares(), _COLOURS, strict=True)
        )
        rows = "".join(
            f"<tr><td><span style='color:{colour}'>&#9632;</span> {html.escape(name)}</td>"
            f"<td style='text-align:right'>{_time(ms)}</td><td style='text-align:right'>{share:.0%}</td></tr>"
            for (name, ms, share), colour in zip(self._shares(), _COLOURS, strict=True)
        )
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self._notes())
        return (
            f"<div style='max-width:36em'><div><b>{html.escape(self._head())}</b></div>"
            f"<div>waited {_time(self._wait['total_ms'])} ({self.wait_share:.0%} of the epoch)</div>"
            f"<div style='display:flex;height:12px;background:#eee'>{bars}</div><table>{rows}</table>{notes}</div>"
        )
