"""What the trainings of bench/selection.py say together: a row per method, as text, as JSON lines and as a picture.

Accuracy is in per cent, so that it, its spread and the difference share a unit. Differences and speed-ups are taken
seed by seed against `uniform`, over the seeds that both have; a comparison cut short stays fair.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from selection_train import Reading

BASE = "uniform"


@dataclass(frozen=True)
class Row:
    """One method over its seeds."""

    method: str
    accuracy: float
    accuracy_sd: float
    delta_points: float
    delta_sd: float
    speedup: float
    speedup_sd: float
    speedup_wall: float
    wall_saved_share: float
    trained_share: float
    io_saved_share: float
    seeds: int
    epochs: int

    def values(self) -> dict[str, Any]:
        """As plain values, rounded to what they are worth."""
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def spread(values: Sequence[float]) -> float:
    """The standard deviation over seeds; 0 for one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def rows(readings: Sequence[Reading], methods: Sequence[str], samples: int, epochs: int) -> list[Row]:
    """A row for every method that shares a seed with `uniform`, in the order of `methods`."""
    found = {(reading.method, reading.seed): reading for reading in readings}
    result = []
    for method in methods:
        seeds = sorted(seed for name, seed in found if name == method and (BASE, seed) in found)
        if not seeds:
            continue
        own = [found[method, seed] for seed in seeds]
        base = [found[BASE, seed] for seed in seeds]
        pairs = list(zip(own, base, strict=True))
        accuracies = [100 * reading.accuracy for reading in own]
        deltas = [100 * (reading.accuracy - other.accuracy) for reading, other in pairs]
        fetched = sum(reading.fetched_bytes for reading in own)
        wall_s, base_wall_s = sum(reading.wall_s for reading in own), sum(other.wall_s for other in base)
        result.append(
            Row(
                method=method,
                accuracy=statistics.mean(accuracies),
                accuracy_sd=spread(accuracies),
                delta_points=statistics.mean(deltas),
                delta_sd=spread(deltas),
                speedup=sum(other.cpu_s for other in base) / sum(reading.cpu_s for reading in own),
                speedup_sd=spread([other.cpu_s / reading.cpu_s for reading, other in pairs]),
                speedup_wall=base_wall_s / wall_s,
                wall_saved_share=1 - wall_s / base_wall_s,
                trained_share=sum(reading.trained for reading in own) / (samples * epochs * len(seeds)),
                io_saved_share=1 - fetched / max(1, sum(other.fetched_bytes for other in base)),
                seeds=len(seeds),
                epochs=own[0].epochs,
            )
        )
    return result


def front(table: Sequence[Row]) -> list[Row]:
    """The rows that no other row beats in both accuracy and speed-up, the fastest last."""
    best: list[Row] = []
    for row in sorted(table, key=lambda row: (-row.speedup, -row.accuracy)):
        if not best or row.accuracy > best[-1].accuracy:
            best.append(row)
    return best[::-1]


def text(table: Sequence[Row]) -> str:
    """The rows for reading; a star marks those that no other method beats in both."""
    dominant = {row.method for row in front(table)}
    width = max([len(row.method) for row in table] + [6]) + 2
    head = "accuracy %       difference       CPU time     wall time (saved)   trained  I/O saved  seeds  epochs"
    lines = [f"  {'method':<{width}}{head}"]
    for row in table:
        star = "*" if row.method in dominant else " "
        lines.append(
            f"{star} {row.method:<{width}}{row.accuracy:6.2f} ±{row.accuracy_sd:5.2f}   "
            f"{row.delta_points:+6.2f} ±{row.delta_sd:5.2f}   {row.speedup:5.2f} x      {row.speedup_wall:5.2f} x "
            f"({row.wall_saved_share:4.0%})     {row.trained_share:6.1%}     {row.io_saved_share:6.1%}  "
            f"{row.seeds:>5}  {row.epochs:>6}"
        )
    return "\n".join(lines)


WIDTH, HEIGHT = 880, 560
LEFT, RIGHT, TOP, BOTTOM = 74, 30, 62, 62
INK, SOFT, GRID, ACCENT, FRONT = "#1f2933", "#52606d", "#e4e7eb", "#c2410c", "#94a3b8"
LETTER, LINE = 7.0, 15.0

Box = tuple[float, float, float, float]


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values between low and high, at most about `most`."""
    step = 10.0**-3
    factors = (2.0, 2.5, 2.0)
    turn = 0
    while (high - low) / step > most:
        step *= factors[turn % 3]
        turn += 1
    first = int(low / step) + (low > 0)
    return [place * step for place in range(first, int(high / step) + 1) if low <= place * step <= high]


def overlap(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return wide * tall if wide > 0 and tall > 0 else 0.0


def label_place(x: float, y: float, name: str, taken: Sequence[Box]) -> tuple[float, float, Box]:
    """Where a point's name covers the least of what is drawn: beside it, else above or below."""
    wide = len(name) * LETTER
    options = [
        (x + dx * (10 if dx > 0 else 10 + wide) if dx else x - wide / 2, y + dy * LINE)
        for dy in (0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0)
        for dx in (1, -1, 0)
        if dx or dy
    ]

    def cost(place: tuple[int, tuple[float, float]]) -> float:
        order, (left, middle) = place
        box = (left, middle - LINE / 2, left + wide, middle + LINE / 2)
        outside = max(0.0, LEFT - box[0]) + max(0.0, box[2] - (WIDTH - RIGHT))
        outside += max(0.0, TOP - box[1]) + max(0.0, box[3] - (HEIGHT - BOTTOM))
        return sum(overlap(box, other) for other in taken) + 1_000 * outside + 3 * order

    _, (left, middle) = min(enumerate(options), key=cost)
    return left, middle, (left, middle - LINE / 2, left + wide, middle + LINE / 2)


def svg(table: Sequence[Row], title: str) -> str:
    """Accuracy against speed-up, one point per method with its spread; what lies on the line is beaten by none."""
    low_x = min([row.speedup - row.speedup_sd for row in table] + [1.0]) - 0.1
    high_x = max(row.speedup + row.speedup_sd for row in table) + 0.25
    low_y = min(row.accuracy - row.accuracy_sd for row in table)
    high_y = max(row.accuracy + row.accuracy_sd for row in table)
    room = max(0.05, 0.08 * (high_y - low_y))
    low_y, high_y = low_y - room, high_y + room

    def across(value: float) -> float:
        return LEFT + (value - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)

    def down(value: float) -> float:
        return TOP + (high_y - value) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="600">{escape(title)}</text>',
        f'<text x="{LEFT}" y="45" fill="{SOFT}">Up and to the right is better. Bars: one standard deviation over seeds.'
        " On the line: beaten by no other in both.</text>",
    ]
    for value in ticks(low_x, high_x, 9):
        x = across(value)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:.4g}x</text>')
    for value in ticks(low_y, high_y, 8):
        y = down(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.5g}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 16}" text-anchor="middle" fill="{SOFT}">'
        "speed-up: CPU time of uniform training / CPU time of the method</text>"
    )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text transform="translate(20 {middle}) rotate(-90)" text-anchor="middle" fill="{SOFT}">accuracy, %</text>'
    )
    line = front(table)
    path = f"M{across(line[0].speedup):.1f} {down(line[0].accuracy):.1f}"
    for row in line[1:]:
        path += f"V{down(row.accuracy):.1f}H{across(row.speedup):.1f}"
    parts.append(f'<path d="{path}" fill="none" stroke="{FRONT}" stroke-width="1.5" stroke-dasharray="5 4"/>')

    taken: list[Box] = [
        (across(row.speedup) - 6, down(row.accuracy) - 6, across(row.speedup) + 6, down(row.accuracy) + 6)
        for row in table
    ]
    for row in table:
        x, y = across(row.speedup), down(row.accuracy)
        colour = ACCENT if row.method.startswith("weighted") else INK if row.method == BASE else "#3b6ea5"
        up, below = down(row.accuracy + row.accuracy_sd), down(row.accuracy - row.accuracy_sd)
        ahead, behind = across(row.speedup - row.speedup_sd), across(row.speedup + row.speedup_sd)
        parts.append(f'<path d="M{x:.1f} {up:.1f}V{below:.1f}M{ahead:.1f} {y:.1f}H{behind:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" stroke="white"/>')
    for row in sorted(table, key=lambda row: (not row.method.startswith("weighted"), -row.speedup)):
        left, at, box = label_place(across(row.speedup), down(row.accuracy), row.method, taken)
        taken.append(box)
        weight = ' font-weight="600"' if row.method.startswith("weighted") else ""
        # Its halo is a text of its own: not every viewer knows how to paint a stroke first.
        at_place = f'x="{left:.1f}" y="{at + 4:.1f}"{weight}'
        halo = 'stroke="white" stroke-width="3" stroke-linejoin="round" aria-hidden="true"'
        parts.append(f"<text {at_place} {halo}>{escape(row.method)}</text>")
        parts.append(f"<text {at_place}>{escape(row.method)}</text>")
    return "\n".join([*parts, "</svg>", ""])
