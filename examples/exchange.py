"""Ranks that hold a slice each and swap a fraction of it in every epoch, under torchrun or under mpirun.

    gunzip -k data/shippable/fashion-mnist-4000-train-*.gz
    torchrun --nproc-per-node 4 examples/exchange.py data/shippable/fashion-mnist-4000-train-images-idx3-ubyte
    mpirun -n 4 python examples/exchange.py data/shippable/fashion-mnist-4000-train-images-idx3-ubyte

Every rank reads the store once, for its own slice, and never again: afterwards samples travel from rank to rank while
the model is trained. Under torchrun they travel over the process group, under mpirun over MPI (``pip install mpi4py``);
the loader finds out which, and so do the gradients here. With ``--hold FOLDER`` (a fast local disk) the slices outlive
the run: a run that was killed is simply started again, and goes on with the epoch that was not finished.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from gristmill.torch import Loader
from torch import nn


def over_process_group() -> tuple[int, Callable[[torch.Tensor], None]]:
    """This process's rank, and what sums a tensor over all ranks, with torch.distributed."""
    dist.init_process_group("gloo")

    def sum_over_ranks(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    return dist.get_rank(), sum_over_ranks


def over_mpi() -> tuple[int, Callable[[torch.Tensor], None]]:
    """The same with MPI."""
    from mpi4py import MPI

    world: Any = MPI.COMM_WORLD

    def sum_over_ranks(tensor: torch.Tensor) -> None:
        world.Allreduce(MPI.IN_PLACE, tensor.numpy())

    return world.Get_rank(), sum_over_ranks


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model on 28 x 28 pictures with slices and an exchange.")
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=25, help="per rank")
    parser.add_argument("--exchange", default="0.3", help="the fraction that is swapped, or auto")
    parser.add_argument("--hold", default=None, help="folder for the slices; in memory without it")
    args = parser.parse_args()

    # torchrun says where to meet; mpirun does not, because MPI knows.
    rank, sum_over_ranks = over_process_group() if "TORCHELASTIC_RUN_ID" in os.environ else over_mpi()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = Loader(
        args.data, recipe="mnist", batch_size=args.batch_size, num_workers=1, exchange=args.exchange, hold=args.hold
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, len(loader.classes)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # The last number counts the samples, the one before it the right ones, so that one message has everything.
    size = sum(parameter.numel() for parameter in model.parameters())
    flat = torch.zeros(size + 2)
    for _ in range(args.epochs):
        epoch, right, seen = loader.epoch, 0.0, 0.0
        for batch in loader:
            logits = model(batch.images)
            optimizer.zero_grad()
            # Summed over this rank's samples, and divided by those of all ranks: the mean of the global batch.
            nn.functional.cross_entropy(logits, batch.labels, reduction="sum").backward()
            gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            torch.cat([gradient.flatten() for gradient in gradients], out=flat[:size])
            flat[size] = (logits.argmax(1) == batch.labels).sum()
            flat[size + 1] = len(batch.labels)
            sum_over_ranks(flat)
            right, seen = right + flat[size].item(), seen + flat[size + 1].item()
            mean = flat[:size] / flat[size + 1]
            for gradient, part in zip(gradients, mean.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {int(seen)} samples over all ranks, {right / seen:.1%} right while training")
            print(loader.report())
    loader.close()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
