"""Kill it at any moment and run it again: it goes on with the very next batch.

    python examples/resume.py data/shippable/fashion-mnist-4000-train-images-idx3-ubyte.gz --checkpoint run.pt
    # Ctrl-C or kill -9, then the same line again

Model, optimizer and loader are saved together, in one file that is replaced in one step, so they always agree. At its
end it prints a digest of the order in which the samples came: the same with and without kills.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import torch
from gristmill.torch import Loader
from torch import nn


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes the whole state beside ``path``, then puts it in its place: a kill leaves the old or the new, no half."""
    beside = path.with_suffix(".writing")
    with beside.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a linear model; may be killed and run again.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=Path("run.pt"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="batches between two checkpoints")
    parser.add_argument("--workers", type=int, help="threads; may differ from run to run")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="per batch, to have time to kill it")
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = Loader(args.data, recipe="mnist", batch_size=100, seed=7, num_workers=args.workers)
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, len(loader.classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    order = ""
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        order = state["order"]
        print(f"goes on in epoch {loader.epoch}, after batch {state['loader']['batch']} of {len(loader)}")

    while loader.epoch < args.epochs:
        epoch = loader.epoch
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch.images), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            order = hashlib.sha256(order.encode() + batch.ids.numpy().tobytes()).hexdigest()
            # This batch is trained on, and the loader's state says so.
            where = loader.state_dict()
            if where["batch"] % args.every == 0:
                parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": where}
                save(args.checkpoint, {**parts, "order": order})
            time.sleep(args.pause_ms / 1e3)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"order {order[:16]}, weights {sum(float(p.detach().double().sum()) for p in model.parameters()):.12f}")


if __name__ == "__main__":
    main()
