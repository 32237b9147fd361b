"""Every way of selecting samples against training on all of them, on real models: accuracy against time.

    make bench-selection
    .venv/bin/python bench/selection.py --data mnist --model convnet --epochs 15 --seeds 3
    .venv/bin/python bench/selection.py --data bench/work/cifar10 --model resnet --methods uniform,weighted --json
    .venv/bin/python bench/selection.py --data cifar10 --model resnet24 --epochs 60 --plain     # no crops, no flips
    .venv/bin/python bench/selection.py --data mnist --model convnet --sweep            # by training data only

Trains through gristmill.torch.Loader (bench/selection_train.py says how and what is timed). --data is a folder with the
idx files of MNIST or Fashion-MNIST or with the batches of CIFAR-10 (bench/fetch_cifar10.py fetches them), or the name
of such a folder below GRISTMILL_DATA or bench/work.

A method may carry options of its selection: bucket:relax=0.2:recall=off; norm=plain leaves batch norm as it is,
which otherwise goes by the weights of samples (loader.weigh). `fewer` is the honest control: uniform
training with its epochs cut to what `weighted` cost; a selection that does not beat it selects nothing of worth.

Seeds take turns, each over all methods. Every finished training is kept in bench/work, so that the same command goes
on where it was stopped (--fresh begins anew, as is right after a change of the engine); Ctrl-C prints what there is.
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
from models import MODELS
from pictures import WORK
from selection_data import HOLDOUT_SAMPLES, prepare
from selection_report import BASE, rows, svg, text
from selection_train import Plan, Reading, Selection, train

FEWER = "fewer"
#: Of the smallest set there is, CIFAR-10, half remains.
HOLDOUT_MOST = 25_000
#: Each method with its selection and what it does with families of near-duplicates.
METHODS: dict[str, tuple[Selection, str]] = {
    BASE: ("uniform", "off"),
    "weighted": ("weighted", "off"),
    FEWER: ("uniform", "off"),
    "bucket": ("bucket", "off"),
    "bucket-norecall": ({"kind": "bucket", "recall": "off"}, "off"),
    "bucket-remove": ("bucket", "remove"),
    "bucket-repeat": ("bucket", "repeat"),
    "infobatch": ("infobatch", "off"),
    "biggest-loser": ("biggest-loser", "off"),
    "online": ("online", "off"),
    "active-bias": ("active-bias", "off"),
    "proxy": ({"kind": "proxy", "warmup": 3, "share": 0.5}, "off"),
    "iis": ("iis", "off"),
}
#: What --sweep compares: the constants of `bucket` that are not published, and those of `weighted`.
SWEEP = [
    BASE,
    *[f"bucket:relax={relax}:smoothing={beta}" for beta in (0.8, 0.9, 0.95) for relax in (0.1, 0.15, 0.2, 0.5)],
    *[f"bucket:recall_share={share}" for share in (0.25, 1.0)],
    "bucket:warmup=1",
    "bucket:warmup=3",
    *[f"weighted:noise={noise}" for noise in (0.05, 0.1, 0.2, 0.5)],
    *[f"weighted:weight_max={most}" for most in (1.0, 2.0, 5.0)],
    "weighted:least=0.25",
    "weighted:full_share=0.125",
]


@dataclass(frozen=True)
class Method:
    """A method as it was asked for."""

    name: str
    selection: Selection
    families: str


def method_of(asked: str) -> Method:
    """Reads NAME or NAME:option=value:option=value."""
    name, *options = asked.split(":")
    if name not in METHODS:
        raise SystemExit(f"unknown method {name}; there are {', '.join(METHODS)}")
    selection, families = METHODS[name]
    if not options:
        return Method(asked, selection, families)
    values: dict[str, Any] = {"kind": selection} if isinstance(selection, str) else dict(selection)
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise SystemExit(f"{option} in {asked} is not option=value")
        try:
            values[key] = json.loads(value)
        except json.JSONDecodeError:
            values[key] = value
    return Method(asked, values, families)


class State:
    """Finished trainings, kept as lines of a file that belongs to one set-up."""

    def __init__(self, plan: Plan, fresh: bool) -> None:
        # What a reading depends on, apart from its method and seed; the data's place does not matter.
        parts = {
            "data": str(plan.data.train.name),
            "samples": plan.data.samples,
            "epochs": plan.epochs,
            "model": plan.model,
            "training": {key: value for key, value in asdict(plan.training).items() if key not in ("make", "proxy")},
            "threads": plan.threads,
            "throttle": plan.throttle_bytes_per_s,
            "version": gristmill.__version__,
            **({"plain": True} if plan.data.plain else {}),
        }
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]
        self.path = WORK / f"selection-{plan.data.train.name}-{plan.model}-{plan.epochs}-{digest}.jsonl"
        self.readings: list[Reading] = []
        if fresh:
            self.path.unlink(missing_ok=True)
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    self.readings.append(Reading(**json.loads(line)))
                except (ValueError, TypeError):
                    print(f"{self.path}: a line that is no reading is passed over", file=sys.stderr)

    def find(self, method: str, seed: int) -> Reading | None:
        """The reading of this method and seed, if there is one."""
        return next((r for r in self.readings if (r.method, r.seed) == (method, seed)), None)

    def add(self, reading: Reading) -> None:
        """Keeps a reading."""
        self.readings.append(reading)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(reading.values()) + "\n")


class Progress:
    """What runs and how long the rest takes, on stderr: a line that changes, or plain lines without a terminal."""

    def __init__(self, state: State, jobs: list[tuple[int, Method]]) -> None:
        self.state = state
        self.jobs = jobs
        self.live = sys.stderr.isatty()
        self.started = time.monotonic()

    def expected_s(self, method: str) -> float:
        """How long one training of this method takes, by those that are finished; 0 while none is."""
        own = [r.wall_s for r in self.state.readings if r.method == method]
        every = [r.wall_s for r in self.state.readings]
        return statistics.mean(own or every) if every else 0.0

    def left(self, place: int, done_share: float) -> str:
        """The remaining time in words."""
        seconds = sum(self.expected_s(method.name) for _, method in self.jobs[place + 1 :])
        seconds += self.expected_s(self.jobs[place][1].name) * (1 - done_share)
        if seconds == 0:
            return "remaining time not known yet"
        minutes = seconds / 60
        return f"about {minutes:.0f} min left" if minutes < 100 else f"about {minutes / 60:.1f} h left"

    def begin(self, place: int) -> None:
        """A training starts."""
        seed, method = self.jobs[place]
        self.shown = f"[{place + 1}/{len(self.jobs)}] seed {seed} {method.name}"
        if not self.live:
            print(f"{self.shown}: starts, {self.left(place, 0.0)}", file=sys.stderr, flush=True)

    def epoch(self, place: int, done: int, epochs: int) -> None:
        """One of its epochs is over."""
        if self.live:
            line = f"{self.shown}: epoch {done} of {epochs}, {self.left(place, done / epochs)}"
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def end(self, reading: Reading, samples: int) -> None:
        """It is over."""
        start = "\r\x1b[K" if self.live else ""
        passes = reading.trained / samples
        line = f"accuracy {100 * reading.accuracy:.2f} %, {passes:.1f} passes over the data, {reading.cpu_s:.0f} CPU s"
        print(f"{start}{self.shown}: {line}", file=sys.stderr, flush=True)


def weighted_before(names: list[str]) -> str:
    """The `weighted`, perhaps with options, whose cost `fewer` is cut to: the first one before it."""
    for name in names[: names.index(FEWER)]:
        if name.partition(":")[0] == "weighted":
            return name
    raise SystemExit("fewer needs weighted before it: its epochs are cut to what weighted cost")


def fewer_epochs(plan: Plan, state: State, methods: list[Method], seed: int) -> int:
    """How many uniform epochs cost what `weighted` cost with this seed."""
    weighted = state.find(weighted_before([method.name for method in methods]), seed)
    assert weighted is not None, "methods are trained in their order"
    return max(1, min(plan.epochs, round(weighted.trained / plan.data.samples)))


def run(plan: Plan, methods: list[Method], seeds: int, state: State) -> bool:
    """Trains everything that is not there yet; False if it was interrupted."""
    jobs = [(s, m) for s in range(seeds) for m in methods if state.find(m.name, s) is None]
    progress = Progress(state, jobs)
    try:
        for place, (seed, method) in enumerate(jobs):
            progress.begin(place)
            epochs = fewer_epochs(plan, state, methods, seed) if method.name == FEWER else plan.epochs

            def told(done: int, of: int, place: int = place) -> None:
                progress.epoch(place, done, of)

            reading = train(plan, method.name, method.selection, method.families, seed, epochs, told)
            state.add(reading)
            progress.end(reading, plan.data.samples)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return False
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder, or mnist, fashion-mnist, cifar10")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", help=f"separated by commas (default: {','.join(METHODS)})")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of the loader (default 1)")
    parser.add_argument("--throttle", type=int, default=0, metavar="BYTES_PER_S", help="read from a store this slow")
    parser.add_argument(
        "--holdout",
        type=int,
        nargs="?",
        const=HOLDOUT_SAMPLES,
        default=0,
        metavar="SAMPLES",
        help=f"judge by training samples that are not trained (default {HOLDOUT_SAMPLES:,})",
    )
    parser.add_argument("--sweep", action="store_true", help="compare constants of the methods; implies --holdout")
    parser.add_argument("--plain", action="store_true", help="CIFAR-10 as it is, without random crops and flips")
    parser.add_argument("--mislabel", type=float, default=0.0, metavar="SHARE", help="flip this share of the labels")
    parser.add_argument("--fresh", action="store_true", help="forget kept trainings, as after a change of the engine")
    parser.add_argument("--json", action="store_true", help="print a JSON line per method instead of the table")
    parser.add_argument("--out", type=Path, help="write command, machine and table to this file too")
    parser.add_argument("--svg", type=Path, help="draw accuracy against speed-up into this file")
    args = parser.parse_args()
    for name in ("epochs", "seeds", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not 0 <= args.mislabel < 1:
        parser.error("--mislabel must be from 0 to below 1")
    if args.plain and not args.model.startswith("resnet"):
        parser.error("--plain is for CIFAR-10 and the resnets: the other sets are never cropped or flipped")
    if not 0 <= args.holdout <= HOLDOUT_MOST:
        parser.error(f"--holdout must be from 0 to {HOLDOUT_MOST:,}")
    if args.throttle < 0:
        parser.error("--throttle must be at least 0")
    return args


def main() -> None:
    args = arguments()
    asked = args.methods.split(",") if args.methods else SWEEP if args.sweep else list(METHODS)
    methods = [method_of(name) for name in dict.fromkeys([BASE, *asked])]
    names = [method.name for method in methods]
    if FEWER in names:
        weighted_before(names)
    torch.set_num_threads(args.threads)
    args.holdout = args.holdout or (HOLDOUT_SAMPLES if args.sweep else 0)
    data = prepare(args.data, args.holdout, args.mislabel, args.plain)
    plan = Plan(data, args.model, args.epochs, args.threads, args.throttle)
    state = State(plan, args.fresh)
    finished = run(plan, methods, args.seeds, state)

    readings = [reading for reading in state.readings if reading.seed < args.seeds]
    table = rows(readings, names, data.samples, plan.epochs)
    if not table:
        print("nothing is finished yet", file=sys.stderr)
        raise SystemExit(130)
    judge = "a slice of the training data" if args.holdout else "the test data"
    shown_as = ", without crops and flips" if data.plain else ""
    lines = [
        f"command: python bench/selection.py {shlex.join(sys.argv[1:])}",
        f"{data.name}, {data.samples:,} training samples, {args.model}, {plan.epochs} epochs{shown_as}, "
        f"judged by {judge}",
        f"{platform.machine()}, {args.threads} thread(s), torch {torch.__version__}, gristmill {gristmill.__version__}",
        "" if finished else "interrupted: not every method has every seed",
        text(table),
    ]
    shown = "\n".join(line for line in lines if line)
    print("\n".join(json.dumps(row.values()) for row in table) if args.json else shown)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(shown + "\n")
    if args.svg is not None:
        title = f"{data.name}, {args.model}, {plan.epochs} epochs{shown_as}"
        args.svg.parent.mkdir(parents=True, exist_ok=True)
        args.svg.write_text(svg(table, title))
    if not finished:
        raise SystemExit(130)


if __name__ == "__main__":
    main()
