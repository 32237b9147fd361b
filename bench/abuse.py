"""A node among strangers: connections that say nothing, and bytes that mean nothing, while a real client reads on.

Starts `gristmill serve` with a token, reads epochs through it with `gristmill bench load` for a base line, then once
more beside 10,000 connections that never speak, and once more while eight sockets send random bytes (behind a proper
greeting, behind none, and as messages of absurd length). Prints what the client got, what the node took, and who was
turned away.

    python bench/abuse.py --binary target/release/gristmill --seconds 60
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import secrets
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def read(binary: Path, url: str, env: dict[str, str], seed: int) -> tuple[float, str]:
    """One epoch through the node: samples per second, and a digest of what came."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        run = [
            str(binary), "bench", "load", url, "--epochs", "1", "--seed", str(seed), "--recipe", "none", "--batch", "4",
            "--batches-out", out.name, "--json",
        ]  # fmt: skip
        done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the client failed: {done.stderr.strip()}")
        rates = [json.loads(line).get("samples_per_s") for line in done.stdout.splitlines()]
        return max(rate for rate in rates if rate), Path(out.name).read_text()


class Strangers:
    """Sockets that send what nobody can mean."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address, self.over = address, threading.Event()
        self.sent, self.refused, self.kept = 0, 0, 0
        self.threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(8)]

    def __enter__(self) -> Strangers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(10)

    def _work(self, number: int) -> None:
        draw = random.Random(number)
        while not self.over.is_set():
            try:
                with socket.create_connection(self.address, timeout=2) as peer:
                    kind = draw.randrange(3)
                    if kind == 0:
                        peer.recv(64)  # the greeting
                    elif kind == 1:
                        peer.sendall(struct.pack("<I", 0xFFFF_FFF0))
                    for _ in range(draw.randrange(1, 20)):
                        data = draw.randbytes(draw.randrange(1, 65_536))
                        peer.sendall(data)
                        self.sent += len(data)
                    while peer.recv(4096):
                        pass  # why it is turned away
                    self.refused += 1
            except TimeoutError:
                self.kept += 1
            except OSError:
                self.refused += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/gristmill")
    parser.add_argument("--data", default=str(ROOT / "data/shippable/cc0-photos.tar"), help="what is served")
    parser.add_argument("--idle", type=int, default=10_000, help="connections that say nothing")
    parser.add_argument("--seconds", type=float, default=60, help="how long random bytes are sent")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = min(args.idle, hard - 200)
    if idle < args.idle:
        print(f"only {idle} connections: this process may open {hard} files")
    env = os.environ | {"GRISTMILL_TOKEN": secrets.token_hex(16)}
    node = subprocess.Popen(
        [str(args.binary), "serve", args.data, "--json", "--listen", "127.0.0.1:0", "--memory", "100%"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert node.stdout is not None
        url = json.loads(node.stdout.readline())["tcp"]
        host, port = url.split("//")[1].split("/")[0].rsplit(":", 1)
        address = (host, int(port))
        read(args.binary, url, env, 0)  # warms the node
        base, expected = read(args.binary, url, env, 1)
        print(f"alone: {base:.0f} samples/s, the node takes {rss_mib(node.pid):.0f} MiB")

        silent: list[socket.socket] = []
        turned_away = 0
        for _ in range(idle):
            try:
                silent.append(socket.create_connection(address, timeout=2))
            except OSError:
                turned_away += 1
        peak = rss_mib(node.pid)
        rate, came = read(args.binary, url, env, 1)
        same = "the same bytes" if came == expected else "OTHER BYTES"
        print(
            f"beside {len(silent)} silent connections ({turned_away} turned away at once): "
            f"{rate:.0f} samples/s, {same}, the node takes {peak:.0f} MiB"
        )
        time.sleep(7)  # longer than a handshake may take
        left = 0
        for peer in silent:
            peer.setblocking(False)
            try:
                while peer.recv(4096):
                    pass
            except BlockingIOError:
                left += 1
            except OSError:
                pass
            peer.close()
        print(f"7 s later {left} of them are still open")

        with Strangers(address) as strangers:
            end, rates, ok, most = time.monotonic() + args.seconds, [], True, 0.0
            while time.monotonic() < end:
                rate, came = read(args.binary, url, env, 1)
                rates.append(rate)
                ok &= came == expected
                most = max(most, rss_mib(node.pid))
        same = "the same bytes" if ok else "OTHER BYTES"
        rates.sort()
        print(
            f"beside {strangers.sent / 1e6:.0f} MB of random bytes in {args.seconds:.0f} s "
            f"({strangers.refused} connections turned away, {strangers.kept} kept): "
            f"{rates[len(rates) // 2]:.0f} samples/s in the median of {len(rates)} epochs, {same}, "
            f"the node takes {most:.0f} MiB at most"
        )
        print("the node is alive" if node.poll() is None else f"THE NODE ENDED with {node.returncode}")
    finally:
        node.terminate()
        node.wait(30)


if __name__ == "__main__":
    main()
