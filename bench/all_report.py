"""What the trainings of bench/all.py say together: a row per configuration, and whether what is promised holds.

What counts is the time until plain's final accuracy is reached, less its spread over seeds (at least half a point). Of
two jobs each has its own accuracy to reach, and the slower one counts. It is said in two ways. `by seed` is that of
`gristmill compare all`: each seed against plain's of the same seed, and of these the median. But torch shuffles in
another order, so that two trainings of one seed have no more in common here than any two, and one lucky seed of plain
decides much; `sooner` therefore goes by the means over seeds, of accuracies and of times, epoch by epoch. A promise
holds only if it does by both.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from all_train import Course, Outcome

TOLERANCE_LEAST = 0.005
#: What is promised of the steered run: how many times sooner than plain; in c, how much faster.
PROMISES = {"a": 4.0, "b": 3.0, "c": 0.99}
#: And in d and e: how many times as long as the best that was set by hand.
AS_GOOD = 1.1
#: How far a prediction may be from what was measured.
OFF_MAX = 0.15
NEVER = float("inf")


@dataclass(frozen=True)
class Row:
    """One configuration's figures over all seeds."""

    scenario: str
    configuration: str
    #: How many times sooner it had plain's accuracy, by the means over seeds; none if it never had.
    speedup: float | None
    #: The median of the seeds.
    speedup_by_seed: float | None
    #: How many times sooner it had trained all epochs.
    speedup_epochs: float
    accuracy: float
    accuracy_sd: float | None
    delta_points: float
    seconds: float
    time_to_s: float | None
    time_to_by_seed_s: float | None
    trained_share: float
    bytes_read: int
    seeds: int
    epochs: int
    #: What slows the scenario down.
    ground: str
    decisions: list[dict[str, Any]]


def time_to(course: Course, target: float) -> float:
    """When a job first had this accuracy; infinite if it never did."""
    pairs = zip(course.elapsed_s, course.accuracies, strict=True)
    return next((elapsed for elapsed, accuracy in pairs if accuracy >= target), NEVER)


def slowest(jobs: list[Course], plain: list[Course], tolerance: float) -> float:
    """When every job was as good as the same job of plain in the end, but for the tolerance."""
    pairs = zip(jobs, plain, strict=True)
    return max(time_to(own, base.accuracies[-1] - tolerance) for own, base in pairs)


def mean_jobs(outcomes: list[Outcome]) -> list[Course]:
    """The jobs as means over seeds, epoch by epoch."""

    def means(values: Iterable[list[float]]) -> list[float]:
        return [statistics.mean(each) for each in zip(*values, strict=True)]

    return [
        Course(means(course.elapsed_s for course in same), means(course.accuracies for course in same))
        for same in zip(*(one.jobs for one in outcomes), strict=True)
    ]


def median(values: list[float]) -> float:
    """The middle one; of two the mean, and the lower if that is none at all."""
    return 0.0 if statistics.median_low(values) <= 0 else statistics.median(values)


def known(value: float) -> float | None:
    """A figure, if there is one."""
    return value if 0 < value < NEVER else None


def row(outcomes: list[Outcome], plain: list[Outcome], ground: str) -> Row:
    """The figures of one configuration, beside those of plain."""
    ends = [one.accuracy for one in plain]
    tolerance = max(TOLERANCE_LEAST, statistics.stdev(ends) if len(ends) > 1 else 0.0)
    pairs = list(zip(outcomes, plain, strict=True))
    base_jobs = mean_jobs(plain)
    whole = slowest(mean_jobs(outcomes), base_jobs, tolerance)
    by_seed = [slowest(own.jobs, base.jobs, tolerance) for own, base in pairs]
    ratios = [slowest(base.jobs, base.jobs, tolerance) / own_s for own_s, base in zip(by_seed, plain, strict=True)]
    accuracies = [own.accuracy for own in outcomes]
    first = outcomes[0]
    return Row(
        scenario=first.scenario,
        configuration=first.configuration,
        speedup=known(slowest(base_jobs, base_jobs, tolerance) / whole),
        speedup_by_seed=known(median(ratios)),
        speedup_epochs=statistics.median(base.seconds / own.seconds for own, base in pairs),
        accuracy=statistics.mean(accuracies),
        accuracy_sd=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        delta_points=100 * statistics.mean(own.accuracy - base.accuracy for own, base in pairs),
        seconds=statistics.mean(own.seconds for own in outcomes),
        time_to_s=known(whole),
        time_to_by_seed_s=known(statistics.median(by_seed)),
        trained_share=statistics.mean(own.trained / base.trained for own, base in pairs),
        bytes_read=round(statistics.mean(own.bytes_read for own in outcomes)),
        seeds=len(outcomes),
        epochs=len(first.jobs[0].elapsed_s),
        ground=ground,
        decisions=[told for own in outcomes for told in own.decisions],
    )


@dataclass(frozen=True)
class Verdict:
    """Whether what is promised of the steered run holds, and whether it is as accurate as plain."""

    holds: bool
    accuracy_holds: bool
    says: str


def verdict(own: Row, rows: list[Row]) -> Verdict:
    """The verdict on the steered run of a scenario, whose rows are among these."""
    others = [r for r in rows if r.scenario == own.scenario and r is not own]
    plain = next(r for r in others if r.configuration == "plain")
    holds, said = promise(own, [r for r in others if r is not plain], plain)
    spread = max(TOLERANCE_LEAST, plain.accuracy_sd or 0.0)
    close = own.accuracy >= plain.accuracy - spread
    measured = [d for d in own.decisions if d.get("predicted") and d.get("measured")]
    off = sum(abs(d["predicted"] / d["measured"] - 1) > OFF_MAX for d in measured)
    points = f"{own.delta_points:+.2f} points, spread {100 * spread:.2f}"
    says = (
        f"{own.scenario}: {'holds' if holds else 'DOES NOT HOLD'} ({said}); "
        f"accuracy {'within' if close else 'OUTSIDE'} plain's spread ({points}); "
        f"{off} of {len(measured)} predictions off by more than {OFF_MAX:.0%}"
    )
    return Verdict(holds, close, says)


def promise(own: Row, alone: list[Row], plain: Row) -> tuple[bool, str]:
    """Whether the promise holds by the means and by seed, in both figures."""
    if own.scenario not in PROMISES:
        tried = [plain, *alone]
        best = min(r.time_to_s or NEVER for r in tried), min(r.time_to_by_seed_s or NEVER for r in tried)
        took = own.time_to_s or NEVER, own.time_to_by_seed_s or NEVER
        ratios = [mine / other for mine, other in zip(took, best, strict=True)]
        said = f"of the best one's time without steering it took {both(*ratios)}; at most {AS_GOOD}x is promised"
        return max(ratios) <= AS_GOOD, said
    least = PROMISES[own.scenario]
    if own.scenario == "c":
        said = f"all epochs {times(own.speedup_epochs)} as fast as plain, at least {least}x is promised"
        return own.speedup_epochs >= least, said
    figures = own.speedup or 0.0, own.speedup_by_seed or 0.0
    holds = min(figures) >= least
    said = f"sooner {both(*figures)}, at least {least}x is promised"
    if own.scenario == "a":
        bests = max(r.speedup or 0.0 for r in alone), max(r.speedup_by_seed or 0.0 for r in alone)
        holds = holds and all(mine > best for mine, best in zip(figures, bests, strict=True))
        said += f"; the best alone {both(*bests)}"
    return holds, said


def times(ratio: float | None) -> str:
    """So many times, in words."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def both(means: float, by_seed: float) -> str:
    """Two figures in words; what was never reached is none."""
    words = [times(known(figure)) if known(figure) else "never" for figure in (means, by_seed)]
    return f"{words[0]} by means and {words[1]} by seed"


def text(rows: list[Row]) -> str:
    """The table in words, and whether what is promised holds."""
    lines = [
        "   configuration  sooner  by seed     there       all           accuracy  spread  points  trained      read"
    ]
    for r in rows:
        spread = "-" if r.accuracy_sd is None else f"{100 * r.accuracy_sd:.2f}"
        read = f"{r.bytes_read / 1e6:.1f} MB"
        there = "never" if r.time_to_s is None else f"{r.time_to_s:.1f} s"
        lines.append(
            f"{r.scenario}  {r.configuration:<13} {times(r.speedup):>7}  {times(r.speedup_by_seed):>7} {there:>9} "
            f"{r.seconds:>7.1f} s {r.speedup_epochs:>6.2f}x {r.accuracy:>8.2%}  {spread:>6}  {r.delta_points:>+6.2f}  "
            f"{r.trained_share:>6.0%} {read:>9}"
        )
    return "\n".join(lines + [verdict(r, rows).says for r in rows if r.configuration == "all"])


def values(own: Row, rows: list[Row]) -> dict[str, Any]:
    """A row as plain values; that of `all` says with it what came of the promise."""
    judged = {"promise": asdict(verdict(own, rows))} if own.configuration == "all" else {}
    return {**asdict(own), **judged}
