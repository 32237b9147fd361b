"""Local, partial and global shuffling at many ranks on real networks: how much must be exchanged?

    make bench-exchange
    .venv/bin/python bench/exchange.py --data fashion-mnist --ranks 8,64,512,2048 --seeds 2
    .venv/bin/python bench/exchange.py --data bench/work/cifar10 --model resnet --partition sorted --json

M ranks are trained for real in one process (bench/exchange_train.py says how), each with its own batch-norm statistics,
in the orders that the engine decides. The columns are those of `gristmill compare exchange`, which does the same with
the embedded model. --data is as for bench/selection.py.

Seeds take turns. Every finished training is kept in bench/work, so that the same command goes on where it was stopped
(--fresh begins anew); Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

import gristmill
import torch
from exchange_report import lines_of, rows, smallest, svg, text, trained_as
from exchange_train import NETWORKS, Case, Reading, Samples, samples_of, train, world_of
from pictures import WORK


class State:
    """Finished trainings, kept as lines of a file that belongs to one network and data set."""

    def __init__(self, samples: Samples, network: str, holdout: bool, fresh: bool) -> None:
        parts = [samples.name, len(samples.labels), network, holdout, gristmill.__version__]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
        self.path = WORK / f"exchange-{samples.name}-{network}-{digest}.jsonl"
        self.readings: list[Reading] = []
        if fresh:
            self.path.unlink(missing_ok=True)
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                self.readings.append(Reading(**json.loads(line)))
            except (ValueError, TypeError):
                print(f"{self.path}: a line that is no reading is passed over", file=sys.stderr)

    def has(self, case: Case, seed: int) -> bool:
        """Whether this was trained."""
        wanted = asdict(case)
        return any(reading.case == wanted and reading.seed == seed for reading in self.readings)

    def add(self, reading: Reading) -> None:
        """Keeps a reading."""
        self.readings.append(reading)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(reading.values()) + "\n")


def run(samples: Samples, network: str, cases: list[Case], seeds: int, state: State) -> bool:
    """Trains everything that is not there yet; False if it was interrupted."""
    wanted = list(dict.fromkeys(trained_as(case) for case in cases))
    jobs = [(seed, case) for seed in range(seeds) for case in wanted if not state.has(case, seed)]
    total = sum(case.world.epochs for _, case in jobs)
    done, started, live = 0, time.monotonic(), sys.stderr.isatty()

    def told(place: int, seed: int, case: Case, epoch: int, epochs: int) -> None:
        nonlocal done
        done += 1
        minutes = (time.monotonic() - started) / done * (total - done) / 60
        words = f"[{place + 1}/{len(jobs)}] seed {seed} {case.shown}: epoch {epoch} of {epochs}, {minutes:.0f} min left"
        if live:
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
        elif epoch == epochs:
            print(words, file=sys.stderr, flush=True)

    try:
        for place, (seed, case) in enumerate(jobs):

            def told_here(epoch: int, epochs: int, place: int = place, seed: int = seed, case: Case = case) -> None:
                told(place, seed, case, epoch, epochs)

            state.add(train(samples, network, case, seed, told_here))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return False
    if live and jobs:
        print("\r\x1b[K", end="", file=sys.stderr)
    return True


def fraction_of(word: str) -> float | None:
    """A fraction, or none for global."""
    if word == "global":
        return None
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise SystemExit(f"--fractions: {word!r} is not a fraction from 0 to 1, nor global")
    return value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mnist", help="a folder, or mnist, fashion-mnist, cifar10")
    parser.add_argument("--model", choices=NETWORKS, default="normnet")
    parser.add_argument("--ranks", default="8,64,512,2048")
    parser.add_argument("--fractions", default="0,0.1,0.3,0.9,global", help="global is always one of them")
    parser.add_argument("--partition", default="even,sorted")
    parser.add_argument("--choose", default="uniform", help="of uniform, class, importance, balanced")
    parser.add_argument("--epochs", type=int, default=20, help="more if they would be fewer than 300 steps")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--batch", type=int, help="samples per batch on one rank (default: by the samples of a rank)")
    parser.add_argument(
        "--lr", type=float, default=0.2, help="for a global batch of 256; grows with it, up to 16 times"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--holdout", action="store_true", help="judge by 5,000 training samples that are not trained")
    parser.add_argument("--fresh", action="store_true", help="forget kept trainings, as after a change of the engine")
    parser.add_argument("--json", action="store_true", help="print a JSON line per case instead of the table")
    parser.add_argument("--out", type=Path, help="write command, machine and table to this file too")
    parser.add_argument("--svg", type=Path, help="draw accuracy against the fraction into this file")
    args = parser.parse_args()
    for name in ("epochs", "seeds", "threads", "batch"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    for name, known in (("partition", {"even", "sorted"}), ("choose", {"uniform", "class", "importance", "balanced"})):
        if not set(getattr(args, name).split(",")) <= known:
            parser.error(f"--{name} must be of {', '.join(sorted(known))}")
    if not all(word.isdigit() and int(word) >= 2 for word in args.ranks.split(",")):
        parser.error("--ranks must be numbers from 2 on")
    return args


def cases_of(args: argparse.Namespace, samples: int) -> list[Case]:
    """All cases that were asked for; what is not exchanged is not chosen and stands under the first choice only."""
    parts = {fraction_of(word) for word in args.fractions.split(",")}
    fractions: list[float | None] = [*sorted(part for part in parts if part is not None), None]
    worlds = [world_of(int(word), samples, args.lr, args.epochs, args.batch) for word in args.ranks.split(",")]
    chooses = args.choose.split(",")
    return [
        Case(world, fraction, partition, choose)
        for partition in args.partition.split(",")
        for world in worlds
        for choose in chooses
        for fraction in fractions
        if fraction or choose == chooses[0]
    ]


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    samples = samples_of(args.data, args.holdout)
    cases = cases_of(args, len(samples.labels))
    state = State(samples, args.model, args.holdout, args.fresh)
    finished = run(samples, args.model, cases, args.seeds, state)
    table = rows([reading for reading in state.readings if reading.seed < args.seeds], cases, len(samples.labels))
    if not table:
        print("nothing is finished yet", file=sys.stderr)
        raise SystemExit(130)
    judge = "a slice of the training data" if args.holdout else "the test data"
    lines = [
        f"command: python bench/exchange.py {shlex.join(sys.argv[1:])}",
        f"{samples.name}, {len(samples.labels):,} training samples, {args.model}, judged by {judge}",
        f"{platform.machine()}, {args.threads} thread(s), torch {torch.__version__}, gristmill {gristmill.__version__}",
        "" if finished else "interrupted: not every case has every seed",
        text(table),
    ]
    shown = "\n".join(line for line in lines if line)
    if args.json:
        print("\n".join(json.dumps(row.values()) for row in table))
        for (partition, ranks, choose), line in lines_of(table).items():
            summary = {"summary": True, "ranks": ranks, "partition": partition, "choose": choose}
            print(json.dumps({**summary, "smallest_fraction": smallest(line)}))
    else:
        print(shown)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(shown + "\n")
    if args.svg is not None:
        args.svg.parent.mkdir(parents=True, exist_ok=True)
        args.svg.write_text(svg(table, f"{samples.name}, {args.model}"))
    if not finished:
        raise SystemExit(130)


if __name__ == "__main__":
    main()
