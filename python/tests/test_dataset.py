"""Gristmill under an existing DataLoader: forked and spawned workers, samplers, ranks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import gristmill
import pytest
import torch
from gristmill.torch import Dataset, Loader, Sampler
from torch.utils.data import DataLoader


def everything(loader: DataLoader[object]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels.clone()) for images, labels in loader]


def test_a_dataset_is_a_dataset(photos: Path) -> None:
    dataset = Dataset(photos, recipe="imagenet-eval")
    assert len(dataset) == 120
    image, label = dataset[0]
    assert image.shape == (3, 224, 224)
    assert dataset.classes[label] == sorted(os.listdir(photos))[0]
    assert torch.equal(dataset[-1][0], dataset[119][0])
    with pytest.raises(IndexError, match="120"):
        dataset[120]
    with pytest.raises(TypeError):
        dataset[1:3]  # type: ignore[index]
    pair = dataset.__getitems__([5, 3])
    assert torch.equal(pair[1][0], dataset[3][0])
    assert pickle.loads(pickle.dumps(dataset))[7][1] == dataset[7][1]


@pytest.mark.parametrize(("workers", "context"), [(0, None), (4, "fork"), (2, "spawn")])
def test_workers_give_the_same_data(photos: Path, workers: int, context: str | None) -> None:
    dataset = Dataset(photos, recipe="imagenet-train", seed=2)
    dataset[0]  # used in the parent first, as people do
    loader = DataLoader(
        dataset, batch_size=16, num_workers=workers, multiprocessing_context=context, timeout=60 if workers else 0
    )
    here = [dataset.__getitems__(list(range(i, min(i + 16, 120)))) for i in range(0, 120, 16)]
    for (images, labels), expect in zip(everything(loader), here, strict=True):
        assert torch.equal(images, torch.stack([image for image, _ in expect]))
        assert labels.tolist() == [label for _, label in expect]


def test_a_remote_store_in_forked_workers(photos: Path) -> None:
    # A throttled store needs a reactor, which no child inherits: each worker opens its own.
    dataset = Dataset(photos, recipe="imagenet-eval", settings={"store.throttle_latency_ms": 1})
    expect = dataset[1][0]
    loader = DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="fork", timeout=60)
    images, _ = next(iter(loader))
    assert torch.equal(images[1], expect)


def test_forking_while_a_loader_runs(photos: Path) -> None:
    running = iter(Loader(photos, recipe="imagenet-train", batch_size=4))
    next(running)
    dataset = Dataset(photos, recipe="imagenet-eval")
    assert len(everything(DataLoader(dataset, batch_size=30, num_workers=2, timeout=60))) == 4
    assert sum(1 for _ in running) == 29


def test_the_sampler_gives_the_engines_order(photos: Path) -> None:
    dataset = Dataset(photos, recipe="imagenet-train", seed=6)
    sampler = Sampler(dataset, batch_size=16, seed=6)
    loader = DataLoader(dataset, batch_sampler=sampler)
    own = Loader(photos, recipe="imagenet-train", batch_size=16, seed=6)
    assert len(loader) == len(own)
    for _epoch in range(2):
        for (images, labels), batch in zip(everything(loader), own, strict=True):
            assert torch.equal(labels, batch.labels)
            assert torch.equal(images, batch.images)


def test_a_sampler_resumes(photos: Path) -> None:
    def new() -> Sampler:
        return Sampler(120, batch_size=16, seed=1, rank=0, world_size=1)

    whole = list(new())
    assert sorted(i for batch in whole for i in batch) == list(range(120))
    sampler = new()
    batches = iter(sampler)
    first = [next(batches) for _ in range(3)]
    again = new()
    again.load_state_dict(sampler.state_dict())
    again.set_epoch(0)
    assert first + list(again) == whole
    ahead = new()
    ahead.load_state_dict(sampler.state_dict(batches_trained=1))
    assert first[:1] + list(ahead) == whole
    with pytest.raises(gristmill.ConfigError, match="saved with"):
        Sampler(120, batch_size=8, seed=1).load_state_dict(sampler.state_dict())


def test_a_sampler_behind_workers_resumes_where_training_was(photos: Path) -> None:
    dataset = Dataset(photos, recipe="imagenet-train", seed=1)

    def loader() -> tuple[Sampler, DataLoader[object]]:
        sampler = Sampler(dataset, batch_size=16, seed=1)
        return sampler, DataLoader(dataset, batch_sampler=sampler, num_workers=2, timeout=60)

    _, whole = loader()
    labels = [batch[1].tolist() for _ in range(2) for batch in whole]
    sampler, running = loader()
    for trained, _batch in enumerate(running, 1):
        if trained == 7:  # of 8, so the workers have asked for all of them
            break
    again, rest = loader()
    again.load_state_dict(sampler.state_dict(batches_trained=7))
    assert [batch[1].tolist() for _ in range(2) for batch in rest] == labels[7:]


def test_transforms_of_ones_own(photos: Path) -> None:
    from torchvision.transforms import v2

    dataset = Dataset(
        photos, recipe="imagenet-eval", transform=v2.RandomErasing(p=1.0), target_transform=lambda y: y + 100
    )
    image, label = dataset[0]
    assert label == 100
    assert (image == 0).any()
    raw = Dataset(photos, transform=len)
    assert raw[0][0] == sorted(photos.rglob("*.jpg"))[0].stat().st_size


def test_two_ranks_under_torchrun(photos: Path, tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        textwrap.dedent("""
        import json, sys
        import torch.distributed as dist
        from gristmill.torch import Loader
        dist.init_process_group("gloo")
        loader = Loader(sys.argv[1], recipe="imagenet-train", batch_size=7, uneven=sys.argv[3])
        ids = [batch.ids.tolist() for batch in loader]
        with open(f"{sys.argv[2]}/{sys.argv[3]}-{dist.get_rank()}.json", "w") as out:
            json.dump(ids, out)
        dist.barrier()
        dist.destroy_process_group()
        """)
    )
    import json
    import shutil

    odd = tmp_path / "odd"
    shutil.copytree(photos, odd)
    next(odd.rglob("*.jpg")).unlink()  # 119 samples do not divide by 2
    for uneven in ("drop", "pad"):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node",
                "2",
                "--standalone",
                script,
                odd,
                tmp_path,
                uneven,
            ],
            check=True,
            timeout=120,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
        shares = [json.loads((tmp_path / f"{uneven}-{rank}.json").read_text()) for rank in range(2)]
        assert len(shares[0]) == len(shares[1])
        ids = [i for share in shares for batch in share for i in batch]
        assert len(ids) == (118 if uneven == "drop" else 120)
        assert len(set(ids)) == (118 if uneven == "drop" else 119)
