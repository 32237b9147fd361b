"""Everything at once and steered, against torch's DataLoader and each technique alone, on PyTorch.

    make bench-all
    .venv/bin/python bench/all.py --scenario b,c --epochs 12 --seeds 3 --json

The scenarios a, b and c of `gristmill compare all`: photos over a slow link, small samples in a store that answers
slowly, and everything near. bench/all_train.py says how each is trained. What counts is how much sooner plain's final
accuracy is reached, less its spread over seeds (at least half a point), seed by seed; the median over seeds is shown.
Seeds take turns over all configurations. Finished trainings are kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shlex
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gristmill
import torch
from all_train import Outcome, Scene, scene, train
from pictures import WORK

CONFIGURATIONS = {
    "a": ("plain", "selection", "cache", "split", "all"),
    "b": ("plain", "selection", "cache", "all"),
    "c": ("plain", "selection", "cache", "all"),
}
TOLERANCE_LEAST = 0.005
KEPT = WORK / "all.jsonl"
#: What is promised of the steered run: how many times sooner than plain.
PROMISES = {"a": 4.0, "b": 3.0, "c": 0.99}


@dataclass(frozen=True)
class Row:
    """One configuration's figures over all seeds."""

    scenario: str
    configuration: str
    speedup: float | None
    speedup_epochs: float
    accuracy: float
    accuracy_sd: float | None
    delta_points: float
    seconds: float
    time_to_s: float | None
    trained_share: float
    bytes_read: int
    seeds: int
    epochs: int
    decisions: list[dict[str, Any]]


def time_to(own: Outcome, target: float) -> float:
    """When a training first had this accuracy; infinite if it never did."""
    pairs = zip(own.elapsed_s, own.accuracies, strict=True)
    return next((elapsed for elapsed, accuracy in pairs if accuracy >= target), float("inf"))


def row(outcomes: list[Outcome], plain: list[Outcome]) -> Row:
    """The figures of one configuration, beside those of plain."""
    ends = [one.accuracies[-1] for one in plain]
    tolerance = max(TOLERANCE_LEAST, statistics.stdev(ends) if len(ends) > 1 else 0.0)
    pairs = list(zip(outcomes, plain, strict=True))
    targets = [end - tolerance for end in ends]
    times = [time_to(own, target) for own, target in zip(outcomes, targets, strict=True)]
    bases = [time_to(base, target) for base, target in zip(plain, targets, strict=True)]
    # The lower middle: a speed-up that half of the seeds do not have is none.
    sooner = statistics.median_low(base / own for own, base in zip(times, bases, strict=True))
    accuracies = [own.accuracies[-1] for own in outcomes]
    whole = statistics.median(times)
    first = outcomes[0]
    return Row(
        scenario=first.scenario,
        configuration=first.configuration,
        speedup=sooner if sooner > 0 else None,
        speedup_epochs=statistics.median(base.elapsed_s[-1] / own.elapsed_s[-1] for own, base in pairs),
        accuracy=statistics.mean(accuracies),
        accuracy_sd=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        delta_points=100 * statistics.mean(own.accuracies[-1] - base.accuracies[-1] for own, base in pairs),
        seconds=statistics.mean(own.elapsed_s[-1] for own in outcomes),
        time_to_s=whole if whole < float("inf") else None,
        trained_share=statistics.mean(sum(own.trained) / sum(base.trained) for own, base in pairs),
        bytes_read=round(statistics.mean(own.bytes_read for own in outcomes)),
        seeds=len(outcomes),
        epochs=len(first.elapsed_s),
        decisions=[told for own in outcomes for told in own.decisions],
    )


def text(rows: list[Row]) -> str:
    """The table in words, and whether what is promised holds."""
    lines = ["   configuration  sooner     there       all           accuracy  spread  points  trained      read"]
    for r in rows:
        spread = "-" if r.accuracy_sd is None else f"{100 * r.accuracy_sd:.2f}"
        sooner = "-" if r.speedup is None else f"{r.speedup:.2f}x"
        read = f"{r.bytes_read / 1e6:.1f} MB"
        there = "never" if r.time_to_s is None else f"{r.time_to_s:.1f} s"
        lines.append(
            f"{r.scenario}  {r.configuration:<13} {sooner:>7} {there:>9} {r.seconds:>7.1f} s {r.speedup_epochs:>6.2f}x "
            f"{r.accuracy:>8.2%}  {spread:>6}  {r.delta_points:>+6.2f}  {r.trained_share:>6.0%} {read:>9}"
        )
    for r in (r for r in rows if r.configuration == "all"):
        times = r.speedup_epochs if r.scenario == "c" else r.speedup or 0.0
        word = "holds" if times >= PROMISES[r.scenario] else "DOES NOT HOLD"
        lines.append(f"{r.scenario}: {times:.2f}x, at least {PROMISES[r.scenario]}x is promised: {word}")
    return "\n".join(lines)


def known(path: Path) -> dict[str, Outcome]:
    """What was trained before; a line that was cut off is passed over."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            kept = json.loads(line)
            found[kept["training"]] = Outcome(**kept["outcome"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def run(scenes: list[Scene], args: argparse.Namespace) -> dict[tuple[str, str], list[Outcome]]:
    """Trains everything, seed by seed."""
    kept = known(args.keep)
    total = args.seeds * sum(len(CONFIGURATIONS[of.letter]) for of in scenes)
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    done, begun, trained = 0, time.monotonic(), 0
    for of in scenes:
        for seed in range(args.seeds):
            for name in CONFIGURATIONS[of.letter]:
                identity = f"{gristmill.__version__} {of} {name} {seed} {args.epochs} {args.workers}"
                training = hashlib.sha256(identity.encode()).hexdigest()
                outcome = kept.get(training)
                if outcome is None:
                    outcome = train(of, name, seed, args.epochs, args.workers)
                    trained += 1
                    args.keep.parent.mkdir(parents=True, exist_ok=True)
                    with args.keep.open("a") as file:
                        file.write("\n" + json.dumps({"training": training, "outcome": outcome.values()}))
                outcomes.setdefault((of.letter, name), []).append(outcome)
                done += 1
                left = (time.monotonic() - begun) / max(trained, 1) * (total - done)
                figures = f"{outcome.elapsed_s[-1]:.1f} s, accuracy {outcome.accuracies[-1]:.2%}"
                print(
                    f"{of.letter} {name}, seed {seed}: {figures}; {done} of {total}, about {left:.0f} s left",
                    file=sys.stderr,
                )
    return outcomes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="a,b,c", help="some of a, b, c")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8, help="workers of the DataLoader (default 8)")
    parser.add_argument("--link", type=float, default=500.0, metavar="MBIT", help="a: the link, Mbit per second")
    parser.add_argument("--round-trip-ms", type=int, default=2, help="a: what a request takes there and back")
    parser.add_argument("--latency-ms", type=int, default=5, help="b: time before the first byte of each read")
    parser.add_argument("--accelerator", type=float, help="samples per second of the pretended accelerator")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where finished trainings are kept")
    parser.add_argument("--json", action="store_true", help="print a JSON line per configuration instead of the table")
    parser.add_argument("--out", type=Path, help="write command, machine and table to this file too")
    args = parser.parse_args()
    for name in ("epochs", "seeds", "workers", "latency_ms", "link"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.round_trip_ms < 0:
        parser.error("--round-trip-ms must be at least 0")
    if args.accelerator is not None and args.accelerator <= 0:
        parser.error("--accelerator must be above 0")
    args.letters = [letter.strip() for letter in args.scenario.split(",")]
    if unknown := [letter for letter in args.letters if letter not in CONFIGURATIONS]:
        parser.error(f"--scenario: {unknown[0]!r} is not one of {', '.join(CONFIGURATIONS)}")
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    link = round(args.link * 1e6 / 8)
    scenes = [scene(one, link, args.round_trip_ms, args.latency_ms, args.accelerator) for one in args.letters]
    try:
        outcomes = run(scenes, args)
    except KeyboardInterrupt:
        raise SystemExit(f"stopped; what is done is in {args.keep}, and the same command goes on from there") from None
    rows = [row(outcomes[key], outcomes[key[0], "plain"]) for key in outcomes]
    shown = "\n".join(
        [
            f"command: python bench/all.py {shlex.join(sys.argv[1:])}",
            f"{args.epochs} epochs, {args.seeds} seed(s), {args.workers} workers; a: {args.link:g} Mbit/s, "
            f"{args.round_trip_ms} ms there and back, paced on both sides; b: {args.latency_ms} ms to the first byte",
            f"{platform.machine()}, torch {torch.__version__}, gristmill {gristmill.__version__}",
            text(rows),
        ]
    )
    print("\n".join(json.dumps(asdict(each)) for each in rows) if args.json else shown)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(shown + "\n")


if __name__ == "__main__":
    main()
