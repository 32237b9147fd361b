"""The same work through Gristmill and through the loaders people use today, side by side.

    make bench-peers
    .venv/bin/python bench/peers.py --repeats 5 --systems gristmill,dataloader-pil,dali

JPEG files to normalised 224 x 224 batches, and 60,000 samples of 784 bytes from memory. Every measurement runs in a
process of its own; bench/peer_systems.py says how it is taken. Systems take turns, so that a busy minute hits all of
them, and a ratio is taken within each turn; medians are reported, with [least .. most]. Written to
bench/results/peers.txt.

What is not installed is left out and named. DALI and ffcv are not among the development requirements (1 GB and more):

    .venv/bin/pip install nvidia-dali-cuda120        # its CPU operators need no GPU and no driver
    apt-get install --no-install-recommends libopencv-dev pkg-config
    .venv/bin/pip install ffcv==1.0.2 --no-build-isolation
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peer_systems import PICTURES, SMALL, installed
from pictures import ROOT, class_folders, pictures, small_samples

PICTURES_LEAST = 2_000
SMALL_PASSES = 20
RESULTS = ROOT / "bench" / "results" / "peers.txt"
PACKAGES = ("gristmill", "torch", "torchvision", "pillow", "nvidia-dali-cuda120", "ffcv")

Readings = dict[str, list[dict[str, float]]]


def measure(system: str, data: Path, passes: int, seed: int) -> dict[str, float]:
    """One measurement in a process of its own."""
    program = str(Path(__file__).with_name("peer_systems.py"))
    command = [sys.executable, program, system, str(data), str(passes), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{system} failed:\n{done.stderr.strip()}")
    reading: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return reading


def spread(values: list[float], digits: int) -> str:
    """The median, with the least and the most."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f} .. {max(values):.{digits}f}]"


def table(readings: Readings, unit: str, scale: float, digits: int, references: dict[str, list[str]]) -> list[str]:
    """A row per system: CPU per sample, rate, and how many times better than each reference that was measured."""
    present = {name: [r for r in against if r in readings] for name, against in references.items()}
    width = max(map(len, readings)) + 2
    lines = [f"  {'system':<{width}}{f'CPU {unit} per sample':<26}samples per second"]
    for name, rows in readings.items():
        cpu = [row["cpu_us"] * scale for row in rows]
        rate = f"{statistics.median(row['per_s'] for row in rows):>12,.0f}"
        lines.append(f"  {name:<{width}}{spread(cpu, digits):<26}{rate}")
    wide = 2 * width + len(" against ")
    lines += ["", f"  {'ratio, by turns':<{wide}}{'less CPU, times':<24}higher rate, times"]
    for name, against in present.items():
        for reference in against if name in readings else ():
            pairs = list(zip(readings[name], readings[reference], strict=True))
            cpu = [theirs["cpu_us"] / own["cpu_us"] for own, theirs in pairs]
            rates = [own["per_s"] / theirs["per_s"] for own, theirs in pairs]
            lines.append(f"  {f'{name} against {reference}':<{wide}}{spread(cpu, 2):<24}{spread(rates, 2)}")
    return lines


def busy_s() -> float:
    """CPU seconds that the whole machine has worked since it started."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """CPU seconds of the measurements so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + time.process_time()


def versions() -> str:
    """What was compared, as installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    everything = {**PICTURES, **SMALL}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="turns (default 5)")
    parser.add_argument("--passes", type=int, default=1, help="timed passes over 2,000 or more pictures (default 1)")
    parser.add_argument("--systems", default=",".join(everything), help=f"any of {', '.join(everything)}")
    args = parser.parse_args()
    asked = args.systems.split(",")
    if unknown := [name for name in asked if name not in everything]:
        parser.error(f"unknown system {unknown[0]}; there are {', '.join(everything)}")
    if args.repeats < 1 or args.passes < 1:
        parser.error("--repeats and --passes must be at least 1")
    absent = {name: everything[name] for name in asked if not installed(everything[name][1])}
    for name, (_, module, how) in absent.items():
        print(f"{name} is left out: {module} is not installed ({how})", file=sys.stderr)
    here = [name for name in everything if name in asked and name not in absent]

    picture_folder, picture_name = pictures()
    data = dict.fromkeys(PICTURES, class_folders(picture_folder, PICTURES_LEAST))
    small_file, small_name = small_samples()
    data.update(dict.fromkeys(SMALL, small_file))
    readings: Readings = {name: [] for name in here}
    start, busy, own = time.perf_counter(), busy_s(), own_s()
    for repeat in range(args.repeats):
        # Every other turn runs backwards, so that nobody always follows the same neighbour.
        for name in here if repeat % 2 == 0 else reversed(here):
            passes = SMALL_PASSES if name in SMALL else args.passes
            readings[name].append(measure(name, data[name], passes, repeat))
            print(f"turn {repeat + 1} of {args.repeats}: {name} {readings[name][-1]}", file=sys.stderr)
    wall = time.perf_counter() - start
    others = max(0.0, busy_s() - busy - (own_s() - own)) / wall

    lines = [
        f"command: {' '.join(['bench/peers.py', *sys.argv[1:]])}",
        f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
        f"other programs kept {others:.2f} cores busy meanwhile",
        f"versions: {versions()}",
        f"medians of {args.repeats} interleaved turns [least .. most], warm page cache, OMP_NUM_THREADS=1",
    ]
    lines += [f"left out, not installed: {name} ({how})" for name, (_, _, how) in absent.items()]
    if big := {name: rows for name, rows in readings.items() if name in PICTURES}:
        lines += [
            "",
            f"{picture_name}, each as many times as gives {PICTURES_LEAST:,} or more, timed passes: {args.passes};",
            "decode, random-resized crop 224, flip, normalise; batch 64; 2 threads or worker processes",
            "",
            *table(big, "ms", 1e-3, 3, {name: ["dataloader-pil", "dali"] for name in big if name == "gristmill"}),
        ]
    if small := {name: rows for name, rows in readings.items() if name in SMALL}:
        pairs = {f"small-gristmill-{kind}": [f"small-dataloader-{kind}"] for kind in ("u8", "f32")}
        lines += [
            "",
            f"{small_name}, {SMALL_PASSES} timed passes, shuffled, batch 256; Gristmill with 2 threads,",
            "DataLoader with __getitems__ (whole batches) and 0 workers, over tensors in memory",
            "",
            *table(small, "us", 1.0, 3, pairs),
        ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
