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

Seeds take turns, each over all methods; --workers 2 trains two at a time. Every finished training is kept in
bench/work, so that the same command goes on where it was stopped (another build of the engine begins anew by itself,
--fresh in any case); Ctrl-C prints what there is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gristmill
import torch
from gristmill.errors import ConfigError
from models import MODELS
from pictures import WORK
from selection_data import HOLDOUT_SAMPLES, prepare
from selection_report import BASE, rows, svg, text
from selection_run import Epochs, Job, run
from selection_train import Plan, Reading, Selection, opened

HERE = Path(__file__).parent
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


def build(package: Path = Path(gristmill.__file__).parent) -> str:
    """Which engine and which training code this is: readings of two of them are not put into one table."""
    own = [HERE / f"{name}.py" for name in ("models", "selection_data", "selection_train")]
    code = [*package.glob("*.py"), *package.glob("_gristmill*.so"), *own]
    digest = hashlib.sha256(f"{torch.__version__} {METHODS}".encode())
    for path in sorted(code, key=lambda path: path.name):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:8]


def check(plan: Plan, method: Method) -> None:
    """Ends the program if this method cannot be trained, before hours are spent on others."""
    try:
        # Families have no options, and finding them reads everything.
        opened(plan, method.selection, "off", 0, plan.epochs).close()
    except ConfigError as error:
        raise SystemExit(f"{method.name}: {error}") from None


class State:
    """Finished trainings, kept as lines of a file that belongs to one set-up."""

    def __init__(self, plan: Plan, workers: int, fresh: bool) -> None:
        # What a reading depends on, apart from its method and seed; the data's place does not matter.
        parts = {
            "data": str(plan.data.train.name),
            "samples": plan.data.samples,
            "epochs": plan.epochs,
            "model": plan.model,
            "training": {key: value for key, value in asdict(plan.training).items() if key not in ("make", "proxy")},
            "threads": plan.threads,
            "throttle": plan.throttle_bytes_per_s,
            "build": build(),
            **({"plain": True} if plan.data.plain else {}),
            **({"workers": workers} if workers > 1 else {}),
        }
        self.build = parts["build"]
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
        if build() != self.build:
            # A training starts with what lies there then.
            raise SystemExit(f"the engine or the training code has changed meanwhile: {reading.method} is not kept")
        self.readings.append(reading)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(reading.values()) + "\n")


def weighted_before(names: list[str]) -> str:
    """The `weighted`, perhaps with options, whose cost `fewer` is cut to: the first one before it."""
    for name in names[: names.index(FEWER)]:
        if name.partition(":")[0] == "weighted":
            return name
    raise SystemExit("fewer needs weighted before it: its epochs are cut to what weighted cost")


def epochs_of(plan: Plan, methods: list[Method]) -> Epochs:
    """How many epochs a training has: all, but of `fewer` as many as cost what `weighted` cost with this seed."""
    names = [method.name for method in methods]
    weighted = weighted_before(names) if FEWER in names else None

    def of(job: Job, readings: Sequence[Reading]) -> int | None:
        if job.method != FEWER:
            return plan.epochs
        found = next((r for r in readings if (r.method, r.seed) == (weighted, job.seed)), None)
        return max(1, min(plan.epochs, round(found.trained / plan.data.samples))) if found else None

    return of


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder, or mnist, fashion-mnist, cifar10")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", help=f"separated by commas (default: {','.join(METHODS)})")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of the loader (default 1)")
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time, a process each (default 1)")
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
    parser.add_argument("--fresh", action="store_true", help="forget kept trainings")
    parser.add_argument("--json", action="store_true", help="print a JSON line per method instead of the table")
    parser.add_argument("--out", type=Path, help="write command, machine and table to this file too")
    parser.add_argument("--svg", type=Path, help="draw accuracy against speed-up into this file")
    args = parser.parse_args()
    for name in ("epochs", "seeds", "threads", "workers"):
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
    args.holdout = args.holdout or (HOLDOUT_SAMPLES if args.sweep else 0)
    data = prepare(args.data, args.holdout, args.mislabel, args.plain)
    plan = Plan(data, args.model, args.epochs, args.threads, args.throttle)
    for method in methods:
        check(plan, method)
    state = State(plan, args.workers, args.fresh)
    jobs = [
        Job(method.name, method.selection, method.families, seed)
        for seed in range(args.seeds)
        for method in methods
        if state.find(method.name, seed) is None
    ]
    finished = run(plan, jobs, args.workers, state.readings, epochs_of(plan, methods), state.add)

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
        f"{platform.machine()}, {args.threads} thread(s), {args.workers} training(s) at a time, "
        f"torch {torch.__version__}, gristmill {gristmill.__version__} (build {state.build})",
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
