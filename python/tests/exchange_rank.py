"""One rank of the tests of the exchange: started by mpirun or torchrun with its jobs as JSON.

Each job makes a loader, iterates it and writes one line per batch, as ``gristmill bench load --batches-out`` does, to
``<out>.<rank>``. What a loader raises goes to the same place as a line with ``error``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import gristmill
from gristmill.errors import GristmillError
from gristmill.peers import launcher_rank

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


def run(job: dict[str, Any], out: Any) -> None:
    arguments = {**job["arguments"], **job.get("only", {}).get(str(RANK), {})}
    with Traced(job["data"], **arguments) as loader:
        loader.trace = out
        state = Path(f"{job['out']}.{RANK}.state")
        if job.get("resume"):
            saved = json.loads(state.read_text())
            saved.update(
                {key: bytes.fromhex(value) for key, value in saved.items() if key in ("exchange", "selection")}
            )
            loader.load_state_dict(saved)
        elif job.get("goes_on"):
            loader.set_epoch(loader.exchange["resumes_at"])
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
            print(json.dumps({"report": loader.report().values["exchange"]}), file=out, flush=True)


def main() -> None:
    if TORCH:
        dist.init_process_group("gloo")
    for job in json.loads(Path(sys.argv[1]).read_text()):
        if TORCH and job.get("attempt", 0) != int(os.environ["TORCHELASTIC_RESTART_COUNT"]):
            continue
        with Path(f"{job['out']}.{RANK}").open("w") as out:
            try:
                run(job, out)
            except GristmillError as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out, flush=True)
    if TORCH:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
