"""Does a node keep to its memory limit at full load, hour after hour, with samples from 1 byte to 64 MB mixed?

    make bench-soak                                   # an hour
    .venv/bin/python bench/soak.py --minutes 5 --memory 256

Makes a data set of random bytes (kept in bench/work), serves it with `gristmill serve`, asks for it from several
processes at once, each in its own random order, and reads the server's resident memory every half second. The limit is
what samples may take (--memory), what answers in flight may take (serve.bytes_in_flight_max) and a fixed part for the
program itself, measured before the first request. Every answer is checked by its length and its first bytes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pictures import WORK

MIB = 1 << 20
IN_FLIGHT_MIB = 192
#: Sizes and how many samples of each: most bytes are in the large ones, most requests go to the small ones.
SIZES = [(1, 400), (100, 400), (3_000, 600), (110_000, 600), (1_000_000, 120), (8_000_000, 12), (64_000_000, 3)]


def make(folder: Path) -> None:
    """Writes the samples, each beginning with its own number."""
    ready = folder / "ready"
    if ready.exists():
        return
    rng = random.Random(1)
    number = 0
    (folder / "set" / "all").mkdir(parents=True, exist_ok=True)
    with (folder / "set" / "list.csv").open("w") as rows:
        rows.write("path,label\n")
        for size, count in SIZES:
            for _ in range(count):
                path = folder / "set" / "all" / f"{number:05}.jpg"
                path.write_bytes(rng.randbytes(size))
                rows.write(f"all/{number:05}.jpg,0\n")
                number += 1
    ready.touch()


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * 4_096


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url: str, folder: str, seed: int, until: float, told: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """Reads epoch after epoch through the node, and checks what comes."""
    import gristmill

    samples = wrong = epoch = 0
    settings = {"loader.memory_bytes_max": "1GiB", "loader.on_bad": "raise"}
    loader: gristmill.Loader[Any] = gristmill.Loader(url, batch_size=16, seed=seed, settings=settings)
    with loader:
        files = sorted(Path(folder, "set", "all").iterdir())
        while time.time() < until:
            loader.set_epoch(epoch)
            for batch in loader:
                for number, content in zip(batch.ids.tolist(), batch.images, strict=True):
                    with files[number].open("rb") as file:
                        head = file.read(64)
                    wrong += bytes(content[:64]) != head or len(content) != files[number].stat().st_size
                    samples += 1
                if time.time() >= until:
                    break
            epoch += 1
    told.put((samples, wrong))


def main() -> int:
    """Runs the soak and says whether the limit held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--memory", type=int, default=256, help="MiB that samples may take (default 256)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--binary", type=Path, default=Path("target/release/gristmill"))
    parser.add_argument("--out", type=Path, help="write the result to this file too")
    args = parser.parse_args()
    folder = WORK / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    print("making the samples (once)", file=sys.stderr)
    make(folder)
    command = [
        str(args.binary), "serve", str(folder / "set" / "list.csv"), "--json", "--listen", "127.0.0.1:0",
        "--memory", f"{args.memory}MiB", "--set", f"serve.bytes_in_flight_max={IN_FLIGHT_MIB}MiB",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["tcp"]
        base = resident(server.pid)
        until = time.time() + args.minutes * 60
        told: multiprocessing.Queue[tuple[int, int]] = multiprocessing.Queue()
        jobs = [
            multiprocessing.Process(target=ask, args=(url, str(folder), seed, until, told))
            for seed in range(args.processes)
        ]
        for job in jobs:
            job.start()
        readings = []
        while any(job.is_alive() for job in jobs):
            readings.append(resident(server.pid))
            if len(readings) % 120 == 0:
                print(f"{readings[-1] / MIB:.0f} MiB resident", file=sys.stderr)
            time.sleep(0.5)
        results = [told.get(timeout=10) for _ in jobs if not told.empty()]
        took_s = cpu_s(server.pid)
        server.terminate()
    limit = (args.memory + IN_FLIGHT_MIB) * MIB + base
    samples, wrong = sum(one for one, _ in results), sum(bad for _, bad in results)
    lines = [
        f"command: python bench/soak.py --minutes {args.minutes:g} --memory {args.memory} --processes {args.processes}",
        f"{samples} samples served to {len(results)} of {len(jobs)} processes, {wrong} of them wrong",
        f"{1e6 * took_s / max(1, samples):.0f} us of the node's CPU time for each",
        f"limit {limit / MIB:.0f} MiB ({args.memory} samples + {IN_FLIGHT_MIB} in flight + {base / MIB:.0f} at rest)",
        f"resident: most {max(readings) / MIB:.0f} MiB ({max(readings) / limit:.0%} of the limit), "
        f"median {statistics.median(readings) / MIB:.0f} MiB, last {readings[-1] / MIB:.0f} MiB",
    ]
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")
    held = max(readings) <= 1.05 * limit and wrong == 0 and len(results) == len(jobs)
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
