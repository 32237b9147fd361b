"""What ranks as processes wait for the exchange when all of their messages go over one slow link.

    make bench-exchange-link                                                  # as root, into bench/results
    python3 bench/exchange_link.py --binary target/release/gristmill --out -  # MPI alone needs nothing but Python

Four ranks run in a network namespace of their own, whose only interface is a loopback that carries 1 Gbit/s
(`tc tbf`) for all of them together; a cluster would give each rank that much. Under `mpirun` they are
`gristmill bench load`, and MPI is told to use TCP, so that nothing goes through shared memory; under `torchrun` they
are this script again, with the loader of the package and gloo. A step is 20 ms, in which a rank does nothing; then all
ranks meet, over the same link. Each run stands beside one in which nothing moves (fraction 0): messages of the
exchange may hold up those of the training, which nobody counts as waiting for the exchange. The same is run over a link
that is too slow for the exchange, to show that the limit is real.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "bench" / "work" / "exchange-link"
RANKS, BATCH, STEP_MS, EPOCHS = 4, 8, 20, 5
FRACTION = "0.3"
#: What waiting for the exchange may take of an epoch.
GOAL = 0.02
#: Copies of the sample, so that an epoch has some dozens of steps.
COPIES = 8


@dataclass(frozen=True)
class Epoch:
    """One epoch of all ranks."""

    wall_s: float
    #: The mean of the ranks.
    waited_s: float
    exchanged_mb: float

    @property
    def share(self) -> float:
        return self.waited_s / self.wall_s


@contextmanager
def slow_link(rate: str) -> Iterator[list[str]]:
    """A network of its own whose loopback carries so much; what to put before a command to run it there."""
    name = f"gristlink{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
        limit = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        subprocess.run([*inside, "tc", "qdisc", "add", "dev", "lo", *limit], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def bytes_sent(inside: list[str]) -> int:
    """What went over the link so far, with everything around the samples."""
    found = subprocess.run([*inside, "tc", "-s", "-j", "qdisc", "show", "dev", "lo"], capture_output=True, check=True)
    return int(json.loads(found.stdout)[0]["bytes"])


def environment() -> dict[str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def rows(command: list[str]) -> list[dict[str, Any]]:
    """What a command printed, line by line."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def over_mpi(inside: list[str], binary: Path, data: Path, hold: str, fraction: str) -> list[Epoch]:
    """Processes of the command line under mpirun, over TCP."""
    tcp = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    tcp += ["--mca", "oob_tcp_if_include", "lo", "--oversubscribe", "--bind-to", "none"]
    load = [str(binary), "bench", "load", str(data), "--recipe", "none", "--exchange", fraction, "--hold", hold]
    load += ["--batch", str(BATCH), "--step-ms", str(STEP_MS), "--epochs", str(EPOCHS), "--threads", "1", "--json"]
    found = rows([*inside, "mpirun", "-n", str(RANKS), *tcp, *load])
    totals = [row for row in found if row.get("total")]
    return [Epoch(row["wall_ms"] / 1e3, row["wait_exchange_ms"] / 1e3, row["exchanged_bytes"] / 1e6) for row in totals]


def over_gloo(inside: list[str], data: Path, hold: str, fraction: str) -> list[Epoch]:
    """This script as ranks under torchrun."""
    meet = ["--nnodes=1", "--master-addr=127.0.0.1", "--master-port=29431"]
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", *meet]
    found = rows([*inside, *launch, __file__, "--rank-of", str(data), "--hold", hold, "--fraction", fraction])
    by_epoch = [[row for row in found if row["epoch"] == epoch] for epoch in range(EPOCHS)]
    return [
        Epoch(
            max(row["wall_s"] for row in ranks),
            statistics.mean(row["wait_ms"] for row in ranks) / 1e3,
            sum(row["bytes_sent"] for row in ranks) / 1e6,
        )
        for ranks in by_epoch
    ]


def rank_of(data: str, hold: str, fraction: str) -> None:
    """One rank under torchrun."""
    import torch.distributed as dist
    from gristmill.torch import Loader

    dist.init_process_group("gloo")
    with Loader(data, batch_size=BATCH, num_workers=1, exchange=fraction, hold=hold) as loader:
        for epoch in range(EPOCHS):
            dist.barrier()
            began = time.monotonic()
            for _ in loader:
                time.sleep(STEP_MS / 1e3)
                dist.barrier()
            wall_s = time.monotonic() - began
            swap = loader.report().exchange
            if swap is None:
                raise SystemExit("there was no exchange")
            line = {"epoch": epoch, "wall_s": wall_s, "wait_ms": swap["wait_ms"], "bytes_sent": swap["bytes_sent"]}
            # One write, so that lines of ranks do not mix.
            os.write(1, (json.dumps(line) + "\n").encode())
    dist.destroy_process_group()


def sample(data: str) -> Path:
    """Real JPEGs of 110 KB on average, several times over."""
    folder = WORK / "data"
    if folder.exists():
        return folder
    tar = Path(data) / "imagenet-sample" / "images.tar"
    if not tar.exists():
        sys.exit(f"{tar} is not there: set GRISTMILL_DATA, or give --data")
    for copy in range(COPIES):
        with tarfile.open(tar) as found:
            found.extractall(folder / f"c{copy}", filter="data")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description="What the exchange costs over one link for all ranks.")
    parser.add_argument("--binary", type=Path, help="gristmill, built for MPI; without it only torchrun")
    parser.add_argument("--torch", action="store_true", help="under torchrun too")
    parser.add_argument("--data", type=Path, help="a data set; the ImageNet sample below GRISTMILL_DATA without it")
    parser.add_argument("--rates", default="1gbit,200mbit", help="speeds of the link, as tc writes them")
    parser.add_argument("--out", default="bench/results/exchange-link.txt", help="where the table goes; - prints only")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--fraction", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        rank_of(args.rank_of, args.hold, args.fraction)
        return
    data = args.data or sample(os.environ.get("GRISTMILL_DATA", str(ROOT / "../shared/data")))
    slices = WORK / "slices"
    WORK.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{RANKS} ranks as processes, one link for all of them; batches of {BATCH} per rank, a step of {STEP_MS} ms, "
        f"fraction {FRACTION}, JPEGs of 110 kB; on the link with all that is around the samples",
        f"{'link':>8}  {'over':<14} {'slices':<7} {'epochs (s)':<30} {'waited for the exchange (%)':<30} "
        f"{'nothing moves (s)':<18} exchanged, on the link (MB per epoch)",
    ]
    print("\n".join(lines), flush=True)
    for rate in args.rates.split(","):
        for name in (["mpirun, tcp"] if args.binary else []) + (["torchrun, gloo"] if args.torch else []):
            for place in ("memory", "disk"):
                runs = []
                for fraction in ("0", FRACTION):
                    shutil.rmtree(slices, ignore_errors=True)
                    hold = str(slices) if place == "disk" else "memory"
                    with slow_link(rate) as inside:
                        if name.startswith("mpirun"):
                            runs.append(over_mpi(inside, args.binary.resolve(), data, hold, fraction))
                        else:
                            runs.append(over_gloo(inside, data, hold, fraction))
                        carried = bytes_sent(inside) / 1e6 / EPOCHS
                still, run = runs
                walls = " ".join(f"{epoch.wall_s:.3f}" for epoch in run)
                shares = " ".join(f"{epoch.share * 100:.2f}" for epoch in run)
                alone = f"{statistics.median(epoch.wall_s for epoch in still):.3f}"
                moved = f"{run[-1].exchanged_mb:.1f}, {carried:.1f}"
                lines.append(f"{rate:>8}  {name:<14} {place:<7} {walls:<30} {shares:<30} {alone:<18} {moved}")
                print(lines[-1], flush=True)
    lines.append(f"The goal is at most {GOAL:.0%} at 1gbit.")
    shutil.rmtree(slices, ignore_errors=True)
    if args.out != "-":
        Path(args.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
