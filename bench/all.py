"""Everything at once and steered, against torch's DataLoader and each technique alone, on PyTorch.

    make bench-all
    .venv/bin/python bench/all.py --scenario b,c --epochs 12 --seeds 3 --json

The scenarios of `gristmill compare all`: (a) photos over a slow link, (b) small samples in a store that answers slowly,
(c) everything near, (d) two jobs that share a store, (e) four ranks. bench/all_scene.py makes them, bench/all_train.py
says how each is trained, bench/all_report.py what counts; docs/guides/compare-all.md what differs between the two.
Seeds take turns over all configurations. Finished trainings are kept: the same command goes on where it was stopped,
unless Gristmill was built anew or changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import all_scene
import all_together
import all_train
import gristmill
import torch
from all_report import Row, row, text, values
from all_scene import Scene, scene
from all_together import together
from all_train import Outcome, train
from gristmill import _gristmill
from pictures import RELEASE, WORK

CONFIGURATIONS = {
    "a": ("plain", "selection", "cache", "split", "all"),
    "b": ("plain", "selection", "cache", "all"),
    "c": ("plain", "selection", "cache", "all"),
    "d": ("plain", "selection", "cache", "hand", "all"),
    "e": ("plain", "selection", "cache", "exchange", "hand", "all"),
}
KEPT = WORK / "all.jsonl"


def build() -> str:
    """What tells this build of Gristmill, and what this program does with it, from others: trainings depend on both."""
    package = Path(gristmill.__file__).parent
    here = [Path(module.__file__ or "") for module in (all_scene, all_train, all_together)]
    files = [Path(_gristmill.__file__), RELEASE / "gristmill", *sorted(package.glob("*.py")), *here]
    content = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files if file.exists()]
    said = sorted((name, value) for name, value in os.environ.items() if name.startswith("GRISTMILL_"))
    return repr((torch.__version__, content, said))


def read_kept(path: Path) -> dict[str, Outcome]:
    """What was trained before; a line that was cut off is passed over."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            kept = json.loads(line)
            found[kept["training"]] = Outcome.of(kept["outcome"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def keep(path: Path, training: str, outcome: Outcome) -> None:
    """Adds a finished training."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("\n" + json.dumps({"training": training, "outcome": outcome.values()}))


def order(scenes: list[Scene], args: argparse.Namespace) -> Iterator[tuple[Scene, int, str]]:
    """Everything that is to be trained, seed by seed."""
    for of in scenes:
        for seed in range(args.seeds):
            for name in CONFIGURATIONS[of.letter]:
                if name in args.names or name == "plain":
                    yield of, seed, name


def run(scenes: list[Scene], args: argparse.Namespace) -> dict[tuple[str, str], list[Outcome]]:
    """Trains everything."""
    kept, this = read_kept(args.keep), build()
    todo = list(order(scenes, args))
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    begun, trained = time.monotonic(), 0
    for done, (of, seed, name) in enumerate(todo, 1):
        identity = f"{this} {of} {name} {seed} {args.epochs} {args.workers}"
        training = hashlib.sha256(identity.encode()).hexdigest()
        outcome = kept.get(training)
        if outcome is None:
            trained_by = together if of.jobs > 1 or of.ranks > 1 else train
            outcome = trained_by(of, name, seed, args.epochs, args.workers)
            trained += 1
            keep(args.keep, training, outcome)
        outcomes.setdefault((of.letter, name), []).append(outcome)
        left = (time.monotonic() - begun) / max(trained, 1) * (len(todo) - done)
        figures = f"{outcome.seconds:.1f} s, accuracy {outcome.accuracy:.2%}"
        print(
            f"{of.letter} {name}, seed {seed}: {figures}; {done} of {len(todo)}, about {left:.0f} s left",
            file=sys.stderr,
        )
    return outcomes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="a,b,c,d,e", help="some of a, b, c, d, e (default: all)")
    parser.add_argument(
        "--configurations",
        metavar="NAMES",
        help="only these, and plain: some of plain, selection, cache, split, "
        "exchange, hand, all (default: all that a scenario has)",
    )
    parser.add_argument("--epochs", type=int, default=12, help="of each training (default 12)")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each configuration (default 3)")
    parser.add_argument("--workers", type=int, default=8, help="workers of each DataLoader (default 8)")
    parser.add_argument(
        "--link", type=float, default=500.0, metavar="MBIT", help="a: the link, Mbit per second (default 500)"
    )
    parser.add_argument(
        "--round-trip-ms", type=int, default=2, help="a: what a request takes there and back (default 2)"
    )
    parser.add_argument(
        "--latency-ms", type=int, default=5, help="b: time before the first byte of each read (default 5)"
    )
    parser.add_argument(
        "--accelerator",
        type=float,
        metavar="N",
        help="samples per second that the pretended accelerator of a job or rank takes (default: 4000 in c, else 8000, "
        "as in gristmill compare all)",
    )
    parser.add_argument("--keep", type=Path, default=KEPT, help=f"where finished trainings are kept (default {KEPT})")
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
    args.letters = list(dict.fromkeys(letter.strip() for letter in args.scenario.split(",")))
    if unknown := [letter for letter in args.letters if letter not in CONFIGURATIONS]:
        parser.error(f"--scenario: {unknown[0]!r} is not one of {', '.join(CONFIGURATIONS)}")
    every = list(dict.fromkeys(name for names in CONFIGURATIONS.values() for name in names))
    args.names = every if args.configurations is None else [name.strip() for name in args.configurations.split(",")]
    if unknown := [name for name in args.names if name not in every]:
        parser.error(f"--configurations: {unknown[0]!r} is not one of {', '.join(every)}")
    return args


def head(scenes: list[Scene], args: argparse.Namespace) -> list[str]:
    """Command, machine and ground."""
    return [
        f"command: python bench/all.py {shlex.join(sys.argv[1:])}",
        f"{args.epochs} epochs, {args.seeds} seed(s), {args.workers} workers of plain, in each job or rank",
        *(f"{of.letter}: {of.about}" for of in scenes),
        f"{platform.machine()}, torch {torch.__version__}, gristmill {gristmill.__version__}",
    ]


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    link = round(args.link * 1e6 / 8)
    scenes = [scene(one, link, args.round_trip_ms, args.latency_ms, args.accelerator) for one in args.letters]
    try:
        outcomes = run(scenes, args)
    except KeyboardInterrupt:
        raise SystemExit(f"stopped; what is done is in {args.keep}, and the same command goes on from there") from None
    about: dict[str, Any] = {of.letter: of.about for of in scenes}
    rows: list[Row] = [row(outcomes[key], outcomes[key[0], "plain"], about[key[0]]) for key in outcomes]
    shown = "\n".join([*head(scenes, args), text(rows)])
    print("\n".join(json.dumps(values(each, rows)) for each in rows) if args.json else shown)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(shown + "\n")


if __name__ == "__main__":
    main()
