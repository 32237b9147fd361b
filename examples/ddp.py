"""Data-parallel training with plain DDP: every rank gets its own share, and all get equally many batches.

    torchrun --nproc-per-node 2 examples/ddp.py data/shippable/fashion-mnist-4000-train-images-idx3-ubyte.gz

The loader takes rank and world size from the process group, so it is created as on one rank. No DistributedSampler,
no set_epoch: epochs follow each other by themselves. When the samples do not divide, the last ones are filled up by
repeating a few (``uneven="pad"``) or left out (``uneven="drop"``); either way no rank waits for another for ever.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from gristmill.torch import Loader
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gathered(own: list[int]) -> list[list[int]]:
    """The list of every rank, on every rank."""
    lists: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(lists, own)
    return lists


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a linear model on 28 x 28 pictures with several ranks.")
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--uneven", choices=["pad", "drop"], default="pad")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    try:
        torch.manual_seed(0)
        loader = Loader(args.data, recipe="mnist", batch_size=args.batch_size, num_workers=1, uneven=args.uneven)
        model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, len(loader.classes))))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            ids: list[int] = []
            batches = 0
            for batch in loader:
                loss = nn.functional.cross_entropy(model(batch.images), batch.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ids += batch.ids.tolist()
                batches += 1
            shares = gathered(ids)
            counts = [count for (count,) in gathered([batches])]
            together = [i for share in shares for i in share]
            distinct = len(set(together))
            assert len(set(counts)) == 1, f"ranks had {counts} batches"
            if dist.get_rank() == 0:
                sizes = " + ".join(str(len(share)) for share in shares)
                print(
                    f"epoch {epoch}: {sizes} samples in {counts[0]} batches each, {distinct} of {loader.num_samples} "
                    f"distinct, {len(together) - distinct} repeated to fill up, loss {loss.item():.3f}"
                )
        loader.close()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
