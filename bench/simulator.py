"""How near is a simulated epoch to a measured one?

    make bench-simulator                                          # some minutes, into bench/results/simulator.txt
    python3 bench/simulator.py --binary target/debug/gristmill    # needs nothing but Python

Four ranks are run for real (`gristmill bench load --ranks 4`, threads of one process that step together), with slices
and an exchange and without, over links and from stores of several speeds. Each run is then simulated from a profile of
the same data (`gristmill profile --save`, `gristmill simulate --profile`). The data are JPEGs cut from the shipped
photos. On a machine that has other work to do, what decodes takes longer than predicted: a profile counts cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "bench" / "work" / "simulator"
RANKS = 4
EPOCHS = 5
#: What a simulated epoch may be off.
GOAL = 0.15


@dataclass(frozen=True)
class Case:
    """One run: what both sides are told, and what each is told in its own words."""

    name: str
    recipe: str
    batch: int
    step_ms: int
    store: list[str] = field(default_factory=list)
    real: list[str] = field(default_factory=list)
    simulated: list[str] = field(default_factory=list)
    #: So many that an epoch takes some tenths of a second: how it begins and ends is not modelled.
    photos: int = 400


def partial(fraction: str, link: str | None = None, hold: str = "memory") -> dict[str, Any]:
    """An exchange, as both sides call it."""
    speed = ["--link", link] if link else []
    where = ["--hold", str(WORK / "slices")] if hold == "disk" else []
    return {
        "real": ["--exchange", fraction, *speed, *where],
        "simulated": ["--fraction", fraction, *speed, "--hold", hold],
    }


CASES = [
    Case("partial, 20 ms step, 1 Gbit/s", "none", 10, 20, **partial("0.3", "1Gbit")),
    Case("partial, slices on disk", "none", 5, 50, **partial("0.3", "1Gbit", "disk")),
    Case("partial, link of 4 Mbit/s", "none", 10, 20, **partial("0.9", "4Mbit")),
    Case("partial, decoding hidden", "imagenet-train", 5, 100, **partial("0.3", "1Gbit")),
    Case("partial, decoding is the bottleneck", "imagenet-train", 10, 5, photos=2_000, **partial("0.3")),
    Case(
        "global, store of 4 MB/s",
        "none",
        10,
        20,
        ["--latency-ms", "5", "--bytes-per-s", "4MB"],
        [],
        ["--shuffle", "global"],
    ),
    Case("global, store 20 ms away", "none", 10, 20, ["--latency-ms", "20"], [], ["--shuffle", "global"]),
    Case(
        "global, decoding from 8 MB/s",
        "imagenet-train",
        10,
        20,
        ["--latency-ms", "5", "--bytes-per-s", "8MB"],
        [],
        ["--shuffle", "global"],
    ),
]


def run(binary: Path, *args: str) -> list[dict[str, Any]]:
    """The JSON objects that a command prints."""
    environment = {**os.environ, "GRISTMILL_CATALOG_FOLDER": str(WORK / "catalogs")}
    done = subprocess.run([str(binary), *args, "--json"], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"gristmill {' '.join(args)} failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(binary: Path, case: Case) -> tuple[float, float]:
    """Seconds of an epoch, measured (the median) and simulated."""
    photos = str(WORK / f"photos-{case.photos}")
    common = ["--recipe", case.recipe, "--batch", str(case.batch), "--threads", "1", "--step-ms", str(case.step_ms)]
    saved = str(WORK / "profile.json")
    run(binary, "profile", photos, *common, *case.store, "--seconds", "3", "--save", saved)
    rows = run(
        binary,
        "bench",
        "load",
        photos,
        *common,
        *case.store,
        "--ranks",
        str(RANKS),
        "--epochs",
        str(EPOCHS),
        *case.real,
    )
    measured = [float(row["wall_ms"]) / 1e3 for row in rows if row.get("total")]
    shape = ["--ranks", str(RANKS), "--ranks-per-node", str(RANKS), "--epochs", "2"]
    total = run(binary, "simulate", "--profile", saved, *shape, *case.simulated)[-1]
    return statistics.median(measured), float(total["epoch_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "target" / "release" / "gristmill")
    parser.add_argument("--cutter", type=Path, default=None, help="cut-photos [default: beside the binary]")
    parser.add_argument("--out", type=Path, default=None, help="also write the table here")
    args = parser.parse_args()
    binary = args.binary.resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    cutter = args.cutter or binary.parent / "cut-photos"
    for count in sorted({case.photos for case in CASES}):
        folder = WORK / f"photos-{count}"
        if not folder.exists():
            subprocess.run([str(cutter), str(folder), str(count), "1"], check=True)
    load = os.getloadavg()[0]
    lines = [
        f"{RANKS} ranks in one process, {os.cpu_count()} cores, load {load:.1f}, median of {EPOCHS} epochs",
        f"{'':<38} {'measured':>10} {'simulated':>10} {'off':>8}",
    ]
    print("\n".join(lines), flush=True)
    worst = 0.0
    for case in CASES:
        measured, simulated = compare(binary, case)
        off = simulated / measured - 1.0
        worst = max(worst, abs(off))
        lines.append(f"{case.name:<38} {measured:>8.3f} s {simulated:>8.3f} s {off:>+7.1%}")
        print(lines[-1], flush=True)
    lines.append(f"at most {worst:.1%} off; the goal is {GOAL:.0%}")
    print(lines[-1])
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
