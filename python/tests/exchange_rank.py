"""One rank of the tests of the exchange: started by mpirun or torchrun with its jobs as JSON.

Each job makes a loader, iterates it and writes one line per batch, as ``gristmill bench load --batches-out`` does, to
``<out>.<rank>``. What a loader raises goes to the same place as a line with ``error``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gristmill
from gristmill.errors import GristmillError
from gristmill.peers import launcher_rank, peers_here

RANK, WORLD = launcher_rank()
TORCH = "TORCHELASTIC_RUN_ID" in os.environ
Loader: Any = gristmill.Loader
if TORCH:
    import torch.distributed as dist
    from gristmill.torch import Loader as Loader


class Traced(Loader):  # type: ignore[misc,valid-type]
    """A loader that writes down what it hands out."""

    trace: Any = None

    def _make(self, batch: Any) -> Any:
        line = {
            "epoch": self._epoch,
            "batch": batch.index,
            "ids": self._array(batch.ids()).tolist(),
            "labels": self._array(batch.labels()).tolist(),
            "fingerprint": batch.fingerprint,
        }
        print(json.dumps(line), file=self.trace, flush=True)
        return super()._make(batch)


def learn(loader: Any, batch: Any) -> None:
    """A model that has learned everything with an even id."""
    import numpy as np

    ids = np.asarray(batch.ids)
    p_true = np.where(ids % 2 == 0, 0.99, 0.3).astype(np.float32)
    loader.feedback_arrays(ids, p_true, 1 - p_true, -np.log(p_true))


def ensure(holds: bool, otherwise: str) -> None:
    if not holds:
        raise GristmillError(f"the transport does not conform: {otherwise}")


def conform(peers: Any) -> None:
    """The conformance suite of transports (``gristmill_node::exchange::testing``), for those of the package."""
    others = [peer for peer in range(WORLD) if peer != RANK]

    def words(rank: int, turn: int) -> bytes:
        return bytes([rank + 1]) * ((rank * 977 + turn * 31) % 5_000)

    def content(epoch: int, sizes: list[int], sender: int, to: int, tag: int) -> bytes:
        first = sender * 31 + to * 7 + tag * 3 + epoch * 11
        return bytes((first + at) % 256 for at in range(min(sizes[tag], 999))).ljust(sizes[tag] + sender * 3 + to, b"x")

    def messages(epoch: int, sizes: list[int], late: bool) -> None:
        tags = range(len(sizes))
        # The last tag first: they may overtake each other.
        going = [(to, tag, bytearray(content(epoch, sizes, RANK, to, tag))) for to in others for tag in reversed(tags)]
        coming = [(at, tag, bytearray(len(content(epoch, sizes, at, RANK, tag)))) for at in others for tag in tags]
        posted = [peers.post(going, [] if late else coming)]
        if late:
            peers.gather(b"all have sent")
            posted.append(peers.post([], coming))
        missing = {(peer, tag) for peer, tag, _ in coming}
        for part in posted:
            for peer, tag, message in part.came():
                ensure(message == content(epoch, sizes, peer, RANK, tag), f"message {tag} of rank {peer}")
                missing.remove((peer, tag))
        ensure(not missing, f"{missing} did not come")
        posted[0].left()
        peers.gather(b"quiet")

    for turn in range(6):
        if turn == RANK:
            time.sleep(0.03)
        said = peers.gather(words(RANK, turn))
        ensure(said == [words(rank, turn) for rank in range(WORLD)], f"gathering {turn} gave other words")
    ensure(peers.gather(b"") == [b""] * WORLD, "nobody said anything, but something was heard")
    for epoch in range(2):
        # The same tags in two epochs: only what lies between them tells the messages apart.
        messages(epoch, [1, 70_001, 8], False)
    messages(7, [9, 4_096], True)
    # More than any socket buffers, both ways at once, between all.
    messages(8, [3 << 20, 2 << 20], False)
    peers.close()


def run(job: dict[str, Any], out: Any) -> None:
    if job.get("conform"):
        conform(peers_here((RANK, WORLD), 30.0))
        print(json.dumps({"conforms": True}), file=out, flush=True)
        return
    if job.get("absent") == RANK:
        # It has better things to do, or hangs.
        time.sleep(job["absent_s"])
        if not job.get("late"):
            return
    arguments = {**job["arguments"], **job.get("only", {}).get(str(RANK), {})}
    with Traced(job["data"], **arguments) as loader:
        loader.trace = out
        state = Path(f"{job['out']}.{RANK}.state")
        if job.get("resume"):
            saved = json.loads(state.read_text())
            saved.update({key: bytes.fromhex(value) for key, value in saved.items() if key == "exchange"})
            loader.load_state_dict(saved)
        elif job.get("goes_on"):
            loader.set_epoch(loader.exchange["resumes_at"])
        if job.get("left_early"):
            # As many training scripts do: name the epoch, and leave the loop when something is found.
            for epoch in range(job["epochs"]):
                loader.set_epoch(epoch)
                for _ in loader:
                    if epoch == 0 and loader.state_dict()["batch"] == job["left_early"]:
                        break
            return
        while loader.epoch < job["epochs"]:
            for batch in loader:
                if "selection" in arguments:
                    learn(loader, batch)
                place = [RANK, loader.epoch, loader.state_dict()["batch"]]
                if place == job.get("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if place[1:] == job.get("save"):
                    found = loader.state_dict()
                    texts = {key: value.hex() for key, value in found.items() if isinstance(value, bytes)}
                    state.write_text(json.dumps({**found, **texts}))
                    return
            print(json.dumps({"report": loader.report().exchange}), file=out, flush=True)


def main() -> None:
    if TORCH:
        dist.init_process_group("gloo")
    # Whether torchrun has started this rank again after one of them died.
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    for found in json.loads(Path(sys.argv[1]).read_text()):
        job = {**found, **found.get("restarted", {})} if restarted else found
        with Path(f"{job['out']}.{RANK}").open("w") as out:
            try:
                run(job, out)
            except GristmillError as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out, flush=True)
    if TORCH:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
