"""Caches under real networks, read from a slow store: accuracy, time per epoch, time waited for bytes, bytes read.

    make bench-cache
    .venv/bin/python bench/cache.py --data fashion-mnist --model convnet --epochs 15 --seeds 3
    .venv/bin/python bench/cache.py --data bench/work/cifar10 --model resnet --size 20% --throttle 10000000 --json

The sides are those of `gristmill compare cache`: `none` (all samples, no cache), `default` (all samples, least recently
used), `icache` (its sampling and its cache by scores, with stand-ins) and `ours` (weighted selection, foresight). Each
trains through gristmill.torch.Loader exactly as bench/selection_train.py says; seeds take turns over all sides. Figures
are means per epoch, the first one with its empty cache included. The link is slow on purpose: a cache helps as far as
training waits for bytes, and not beyond.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gristmill
import torch
from models import MODELS
from selection_data import prepare
from selection_train import Plan, Reading, train

BASE = "default"
#: Each side with its selection and the settings of its cache.
SIDES: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("uniform", {"cache.policy": "lru"}),
    "none": ("uniform", {"cache.size": "off"}),
    "icache": ("iis", {"cache.policy": "score", "cache.stand_ins": True}),
    "ours": ("weighted", {"cache.policy": "foresight"}),
}


@dataclass(frozen=True)
class Row:
    """One side's figures over all seeds."""

    policy: str
    size: str
    hit_ratio: float
    bytes_read: int
    io_wait_s: float
    io_wait_ratio: float
    epoch_s: float
    epoch_ratio: float
    accuracy: float
    accuracy_sd: float | None
    delta_points: float
    seeds: int
    epochs: int
    bytes_per_s: int


def row(name: str, readings: list[Reading], base: list[Reading], args: argparse.Namespace) -> Row:
    """The figures of one side, beside those of the side that all are compared with."""

    def wait_s(of: list[Reading]) -> float:
        return statistics.mean(r.io_wait_s / r.epochs for r in of)

    def epoch_s(of: list[Reading]) -> float:
        return statistics.mean(r.wall_s / r.epochs for r in of)

    accuracies = [r.accuracy for r in readings]
    return Row(
        policy=name,
        size="off" if name == "none" else args.size,
        hit_ratio=statistics.mean(statistics.mean(r.hits_by_epoch) for r in readings),
        bytes_read=round(statistics.mean(r.fetched_bytes / r.epochs for r in readings)),
        io_wait_s=wait_s(readings),
        io_wait_ratio=wait_s(base) / max(wait_s(readings), 1e-9),
        epoch_s=epoch_s(readings),
        epoch_ratio=epoch_s(base) / max(epoch_s(readings), 1e-9),
        accuracy=statistics.mean(accuracies),
        accuracy_sd=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        # Seed by seed: a good seed is good for every side.
        delta_points=100 * statistics.mean(own.accuracy - b.accuracy for own, b in zip(readings, base, strict=True)),
        seeds=len(readings),
        epochs=args.epochs,
        bytes_per_s=args.throttle,
    )


def text(rows: list[Row]) -> str:
    """The table in words."""
    lines = ["policy    size    hits     read    I/O wait          epoch           accuracy  spread  points"]
    for r in rows:
        spread = "-" if r.accuracy_sd is None else f"{100 * r.accuracy_sd:.2f}"
        lines.append(
            f"{r.policy:<8} {r.size:>5}  {r.hit_ratio:>6.1%} {r.bytes_read / 1e6:>6.1f} MB {r.io_wait_s:>7.2f} s "
            f"{r.io_wait_ratio:>5.2f}x {r.epoch_s:>7.2f} s {r.epoch_ratio:>5.2f}x  {r.accuracy:>7.2%}  {spread:>6}  "
            f"{r.delta_points:>+6.2f}"
        )
    return "\n".join([*lines, "means per epoch, the first one included; x: how many times less than default"])


def run(plan: Plan, names: list[str], args: argparse.Namespace) -> dict[str, list[Reading]]:
    """Trains every side with every seed."""
    readings: dict[str, list[Reading]] = {name: [] for name in names}
    for seed in range(args.seeds):
        for name in names:
            selection, cache = SIDES[name]
            more = {"cache.size": args.size, "store.throttle_latency_ms": args.latency_ms, **cache}
            own = Plan(plan.data, plan.model, plan.epochs, plan.threads, plan.throttle_bytes_per_s, more)
            reading = train(own, name, selection, "off", seed, plan.epochs, lambda _done, _of: None)
            readings[name].append(reading)
            line = f"accuracy {reading.accuracy:.2%}, {reading.wall_s / reading.epochs:.2f} s per epoch"
            print(f"seed {seed} {name}: {line}", file=sys.stderr, flush=True)
    return readings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mnist", help="a folder, or mnist, fashion-mnist, cifar10")
    parser.add_argument("--model", choices=MODELS, default="convnet")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", default="20%", help="how large the cache is (default 20%%)")
    parser.add_argument("--policies", default=",".join(SIDES), help=f"some of {', '.join(SIDES)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of the loader (default 1)")
    parser.add_argument("--throttle", type=int, default=5_000_000, metavar="BYTES_PER_S", help="the link to the store")
    parser.add_argument("--latency-ms", type=int, default=1, help="time before the first byte of each read")
    parser.add_argument("--json", action="store_true", help="print a JSON line per side instead of the table")
    parser.add_argument("--out", type=Path, help="write command, machine and table to this file too")
    args = parser.parse_args()
    for name in ("epochs", "seeds", "threads", "throttle"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if unknown := [name for name in args.policies.split(",") if name not in SIDES]:
        parser.error(f"--policies: {unknown[0]!r} is not one of {', '.join(SIDES)}")
    return args


def main() -> None:
    args = arguments()
    names = list(dict.fromkeys([BASE, *args.policies.split(",")]))
    torch.set_num_threads(args.threads)
    data = prepare(args.data, 0, 0.0)
    plan = Plan(data, args.model, args.epochs, args.threads, args.throttle)
    readings = run(plan, names, args)
    table = [row(name, readings[name], readings[BASE], args) for name in names]
    shown = "\n".join(
        [
            f"command: python bench/cache.py {shlex.join(sys.argv[1:])}",
            f"{data.name}, {data.samples:,} training samples, {args.model}, {args.epochs} epochs, "
            f"{args.seeds} seed(s), from a store of {args.throttle / 1e6:g} MB/s, latency {args.latency_ms} ms",
            f"{platform.machine()}, {args.threads} thread(s), torch {torch.__version__}, "
            f"gristmill {gristmill.__version__}",
            text(table),
        ]
    )
    print("\n".join(json.dumps(asdict(each)) for each in table) if args.json else shown)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(shown + "\n")


if __name__ == "__main__":
    main()
