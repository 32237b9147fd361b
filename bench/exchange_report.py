"""What the trainings of bench/exchange.py say together: a row per case, as text, as JSON lines and as a picture.

The columns are those of `gristmill compare exchange`. Differences are taken seed by seed against global shuffling.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from exchange_train import Case, Reading
from selection_report import spread, ticks

#: How many points below global shuffling are as good.
WITHIN_POINTS = 0.5
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 400, 62, 96, 44, 54
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"]


@dataclass(frozen=True)
class Row:
    """One case over its seeds."""

    ranks: int
    fraction: float | str
    partition: str
    choose: str
    accuracy: float
    accuracy_sd: float
    delta_points: float
    delta_points_sd: float
    moved_share: float
    divergence: float | None
    train_loss: float
    samples: int
    batch: int
    global_batch: int
    rate: float
    steps: int
    seeds: int
    epochs: int

    def values(self) -> dict[str, Any]:
        """As plain values, rounded to what they are worth."""
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(self).items()}

    @property
    def place(self) -> float:
        """The fraction as a number; global is beyond all."""
        return 2.0 if isinstance(self.fraction, str) else self.fraction


def rows(readings: Sequence[Reading], cases: Sequence[Case], samples: int) -> list[Row]:
    """A row for every case that shares a seed with global shuffling on as many ranks."""
    found: dict[tuple[str, int], Reading] = {(repr(reading.case), reading.seed): reading for reading in readings}

    def key(case: Case) -> str:
        return repr(asdict(trained_as(case)))

    result = []
    for case in cases:
        base = key(Case(case.world, None, case.partition, case.choose))
        seeds = sorted(seed for name, seed in found if name == key(case) and (base, seed) in found)
        if not seeds:
            continue
        own = [found[key(case), seed] for seed in seeds]
        deltas = [100 * (reading.accuracy - found[base, reading.seed].accuracy) for reading in own]
        accuracies = [reading.accuracy for reading in own]
        apart = [reading.divergence for reading in own if reading.divergence is not None]
        result.append(
            Row(
                ranks=case.world.ranks,
                fraction="global" if case.fraction is None else case.fraction,
                partition=case.partition,
                choose=case.choose,
                accuracy=statistics.mean(accuracies),
                accuracy_sd=spread(accuracies),
                delta_points=statistics.mean(deltas),
                delta_points_sd=spread(deltas),
                moved_share=statistics.mean(reading.moved_share for reading in own),
                divergence=statistics.mean(apart) if apart else None,
                train_loss=statistics.mean(reading.train_loss for reading in own),
                samples=samples,
                batch=case.world.batch,
                global_batch=case.world.global_batch,
                rate=case.world.rate,
                steps=own[0].steps,
                seeds=len(seeds),
                epochs=case.world.epochs,
            )
        )
    return result


def trained_as(case: Case) -> Case:
    """The training that a case needs: global shuffling knows no partition, and what is not exchanged is not chosen."""
    if case.fraction is None:
        return Case(case.world, None, "even", "uniform")
    return Case(case.world, case.fraction, case.partition, case.choose if case.fraction > 0 else "uniform")


def lines_of(table: Sequence[Row]) -> dict[tuple[str, int, str], list[Row]]:
    """The rows of each partition, number of ranks and choice; where nothing is chosen they belong to every choice."""
    result: dict[tuple[str, int, str], list[Row]] = {}
    for row in table:
        result.setdefault((row.partition, row.ranks, row.choose), [])
    for (partition, ranks, choose), line in result.items():
        for row in table:
            chosen = isinstance(row.fraction, float) and row.fraction > 0
            if (row.partition, row.ranks) == (partition, ranks) and (not chosen or row.choose == choose):
                line.append(row)
        line.sort(key=lambda row: row.place)
    return result


def smallest(line: Sequence[Row]) -> float | None:
    """The smallest fraction from which on all are as good as global shuffling."""
    found = None
    for row in reversed(line):
        if isinstance(row.fraction, str):
            continue
        if row.delta_points < -WITHIN_POINTS:
            break
        found = row.fraction
    return found


def text(table: Sequence[Row]) -> str:
    """The rows for reading."""
    out: list[str] = []
    before = None
    for (partition, ranks, choose), line in lines_of(table).items():
        if partition != before:
            names = "".join(f"  {'0 (local)' if row.fraction == 0 else row.fraction!s:>14}" for row in line)
            out += [""] if before else []
            out.append(f"{partition:<9} {'ranks':>6} {'each':>7}  {'choose':<10}{names}  smallest")
            before = partition
        cells = "".join(f"  {f'{100 * row.accuracy:.2f} ±{100 * row.accuracy_sd:.2f}':>14}" for row in line)
        enough = smallest(line)
        shown = "none" if enough is None else f"{enough:g}"
        out.append(f"{'':<9} {ranks:>6,} {line[0].samples // ranks:>7,}  {choose:<10}{cells}  {shown:>8}")
    worlds = {row.ranks: f"{row.ranks:,} x {row.batch} ({row.epochs} epochs, rate {row.rate:g})" for row in table}
    out += [
        "",
        f"right on test data in %, ± one standard deviation over {table[0].seeds} seed(s); smallest: the fraction from"
        f" which on all are within {WITHIN_POINTS} points of global",
        "ranks x batch: " + ", ".join(worlds.values()),
    ]
    return "\n".join(out)


def panel(lines: Sequence[tuple[int, Sequence[Row]]], title: str, low: float, high: float, left: float) -> list[str]:
    """Accuracy against the fraction, a curve per number of ranks; global shuffling stands at 1."""

    def across(value: float) -> float:
        return left + LEFT + min(1.0, value) * (WIDTH - LEFT - RIGHT)

    def down(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{left + LEFT}" y="26" font-size="14" font-weight="600">{escape(title)}</text>']
    for value in ticks(low, high, 8):
        y = down(value)
        parts.append(f'<path d="M{left + LEFT} {y:.1f}H{left + WIDTH - RIGHT}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{left + LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.5g}</text>')
    for value in (0, 0.2, 0.4, 0.6, 0.8, 1):
        name = "global" if value == 1 else f"{value:g}"
        parts.append(f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{name}</text>')
    middle = left + (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">fraction exchanged per epoch</text>')
    ends: list[float] = []
    for place, (ranks, line) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        points = [(across(row.place), down(100 * row.accuracy)) for row in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        end = points[-1][1]
        while any(abs(end - other) < 14 for other in ends):
            end += 14
        ends.append(end)
        parts.append(f'<text x="{left + WIDTH - RIGHT + 8}" y="{end + 4:.1f}" fill="{colour}">{ranks:,} ranks</text>')
    return parts


def svg(table: Sequence[Row], title: str) -> str:
    """A panel per partition and choice, beside each other, on one scale."""
    panels: dict[tuple[str, str], list[tuple[int, Sequence[Row]]]] = {}
    for (partition, ranks, choose), line in lines_of(table).items():
        panels.setdefault((partition, choose), []).append((ranks, line))
    values = [100 * row.accuracy for row in table]
    room = max(0.2, 0.05 * (max(values) - min(values)))
    low, high = min(values) - room, max(values) + room
    wide = WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {HEIGHT}" font-family="system-ui, sans-serif"'
        ' font-size="12" fill="#1f2933">',
        f'<title>{escape(title)}</title><rect width="{wide}" height="{HEIGHT}" fill="white"/>',
    ]
    for place, ((partition, choose), lines) in enumerate(panels.items()):
        head = f"{title}: {partition} partition, choose {choose}, accuracy in %"
        parts += panel(lines, head, low, high, place * WIDTH)
    return "\n".join([*parts, "</svg>", ""])
