"""The loader from Python: data, order, resume, errors, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import gristmill
import numpy as np
import pytest
import torch
from conftest import external
from gristmill.torch import Loader


def ids_of(loader: Loader) -> list[list[int]]:
    return [batch.ids.tolist() for batch in loader]


def test_batches_have_what_a_training_needs(photos: Path) -> None:
    loader = Loader(photos, recipe="imagenet-train", batch_size=32, num_workers=2)
    assert len(loader) == 4
    assert len(loader.classes) == 10
    seen: list[int] = []
    for batch in loader:
        images, labels = batch
        assert images.shape[1:] == (3, 224, 224)
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert batch[0] is images
        assert batch.weights.tolist() == [1.0] * len(labels)
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(120))
    assert "waited" in str(loader.report())
    assert "<table>" in loader.report()._repr_html_()


def test_tensors_share_the_engines_memory(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=100)
    running = loader._engine.epoch(0, 0)
    batch = running.next()
    assert batch is not None
    memory = batch.images()
    assert memory is not None
    address = memory.address
    tensor = torch.from_dlpack(memory)
    assert tensor.data_ptr() == address
    assert address % 64 == 0
    kept = tensor.clone()
    del batch, memory
    running.close()
    del running
    list(loader)  # a whole epoch that would use the memory again if it were free
    assert torch.equal(tensor, kept)


def test_numpy_users_need_no_torch(idx: str) -> None:
    code = f"""
        import sys, gristmill, numpy
        loader = gristmill.Loader({idx!r}, recipe="mnist", batch_size=100, seed=3)
        images, labels = next(iter(loader))
        assert images.shape == (100, 1, 28, 28) and images.dtype == numpy.float32 and labels.dtype == numpy.int64
        assert "torch" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_raw_bytes_transform_and_collate(photos: Path) -> None:
    files = sorted(p.read_bytes() for p in photos.rglob("*.jpg"))
    batches = list(Loader(photos, batch_size=50))
    assert sorted(sample for batch in batches for sample in batch.images) == files
    doubled = next(iter(Loader(photos, recipe="imagenet-eval", batch_size=4, shuffle=False, transform=lambda x: x * 2)))
    plain = next(iter(Loader(photos, recipe="imagenet-eval", batch_size=4, shuffle=False)))
    assert torch.equal(doubled.images, plain.images * 2)
    collated = next(iter(Loader(photos, batch_size=4, collate_fn=lambda rows: [(len(x), int(y)) for x, y in rows])))
    assert len(collated) == 4
    assert all(size > 0 for size, _ in collated)


def test_the_eval_recipe_is_torchvisions(photos: Path) -> None:
    from PIL import Image
    from torchvision import transforms

    tar = external("imagenette-224")
    del tar  # the comparison on 1,000 real samples is test_parity.py
    reference = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])
    recipe = [
        {"kind": "decode"},
        {"kind": "resize", "size": 256},
        {"kind": "center-crop", "size": 224},
        {"kind": "to-tensor", "dtype": "u8"},
    ]
    paths = [p for folder in sorted(photos.iterdir()) for p in sorted(folder.iterdir())]
    worst = 0
    for batch in Loader(photos, recipe=recipe, batch_size=40, shuffle=False):
        for image, i in zip(batch.images, batch.ids.tolist(), strict=True):
            expect = reference(Image.open(paths[i]).convert("RGB"))
            worst = max(worst, int((image.int() - expect.int()).abs().max()))
    assert worst <= 1


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_order_does_not_depend_on_threads(idx: str, threads: int) -> None:
    assert ids_of(Loader(idx, recipe="mnist", num_workers=threads, seed=4)) == ids_of(
        Loader(idx, recipe="mnist", seed=4)
    )


def test_epochs_differ_and_can_be_named(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=100)
    first, second = ids_of(loader), ids_of(loader)
    assert first != second
    assert loader.epoch == 2
    loader.set_epoch(0)
    assert ids_of(loader) == first
    next(iter(loader))  # left early: the next iteration is the next epoch, as with a DataLoader
    loader.set_epoch(1)
    assert ids_of(loader) == second


def test_an_old_iterator_says_so(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=100)
    assert str(loader.report()) == "nothing has been read yet"
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    with pytest.raises(gristmill.GristmillError, match="iterated anew"):
        list(old)
    assert loader.state_dict()["batch"] == 1
    assert len(list(new)) == 9
    assert loader.epoch == 2


def test_kill_and_resume_twice(photos: Path, tmp_path: Path) -> None:
    whole = [ids for _ in range(2) for ids in ids_of_epochs(photos)[_]]
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import json, os, sys, time
        from gristmill.torch import Loader
        source, state, trace, threads = sys.argv[1:]
        loader = Loader(source, recipe="imagenet-train", batch_size=7, seed=9, num_workers=int(threads))
        if os.path.exists(state):
            loader.load_state_dict(json.load(open(state)))
        while loader.epoch < 2:
            for batch in loader:
                with open(trace, "a") as out:
                    out.write(json.dumps(batch.ids.tolist()) + "\\n")
                with open(state + ".new", "w") as out:
                    json.dump(loader.state_dict(), out)
                os.replace(state + ".new", state)
                time.sleep(0.01)
        """)
    )
    state, trace = tmp_path / "state.json", tmp_path / "trace.jsonl"
    for threads, stop_at in (("1", 5), ("3", 14), ("2", 23), ("4", None)):
        child = subprocess.Popen([sys.executable, script, photos, state, trace, threads])
        deadline = time.monotonic() + 120
        while child.poll() is None and (stop_at is None or lines(trace) < stop_at):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        if stop_at is not None:
            child.send_signal(signal.SIGKILL)
        child.wait()
        # The last batch may have been written without its state: a resume then repeats exactly that one.
        done = json.loads(state.read_text())
        keep = done["epoch"] * 18 + done["batch"]
        rows = trace.read_text().splitlines(keepends=True)[:keep]
        trace.write_text("".join(rows))
    assert [json.loads(line) for line in trace.read_text().splitlines()] == whole


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def ids_of_epochs(photos: Path) -> list[list[list[int]]]:
    loader = Loader(photos, recipe="imagenet-train", batch_size=7, seed=9)
    return [ids_of(loader), ids_of(loader)]


def test_a_state_of_something_else_is_refused(idx: str, photos: Path) -> None:
    state = Loader(idx, recipe="mnist").state_dict()
    for other in (
        Loader(photos, recipe="imagenet-eval"),
        Loader(idx, recipe="mnist", seed=5),
        Loader(idx, batch_size=3),
    ):
        with pytest.raises(gristmill.ConfigError, match="saved with"):
            other.load_state_dict(state)
    with pytest.raises(gristmill.ConfigError, match="not from a Gristmill loader"):
        Loader(idx).load_state_dict({})


def test_ranks_share_an_epoch(idx: str) -> None:
    shares = [ids_of(Loader(idx, batch_size=32, rank=rank, world_size=3)) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1
    ids = [i for share in shares for batch in share for i in batch]
    assert set(ids) == set(range(1000))
    assert len(ids) == 1002  # padded to divide


def test_memory_does_not_grow(photos: Path) -> None:
    def resident() -> int:
        status = Path("/proc/self/status").read_text().split("VmRSS:")[1]
        return int(status.split()[0])

    loader = Loader(photos, recipe="imagenet-train", batch_size=30, num_workers=2)
    sizes = []
    for _ in range(50):
        for _batch in loader:
            pass
        gc.collect()
        sizes.append(resident())
    # One batch takes 18 MB; on a busy machine the pool may come to hold its last one late. A leak would be 25 of them.
    assert max(sizes[25:]) - max(sizes[10:25]) < 22_000, sizes


def test_nothing_is_left_behind(idx: str, photos: Path) -> None:
    shared = set(os.listdir("/dev/shm"))
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    with Loader(photos, recipe="imagenet-train", batch_size=10) as loader:
        next(iter(loader))
    with pytest.raises(gristmill.GristmillError, match="closed"):
        iter(loader)
    loader = Loader(photos, recipe="imagenet-train", batch_size=10)
    for _ in loader:
        break
    loader.close()
    deadline = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > before[1] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == before
    assert set(os.listdir("/dev/shm")) == shared


def test_ctrl_c_works_at_once(photos: Path, tmp_path: Path) -> None:
    code = f"""
        import signal
        import time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests were started
        from gristmill.torch import Loader
        loader = Loader({str(photos)!r}, recipe="imagenet-eval", settings={{"store.throttle_latency_ms": 60000}})
        print("ready", flush=True)
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            print("interrupted", time.time(), flush=True)
            loader.close()
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    time.sleep(0.5)
    sent = time.time()
    child.send_signal(signal.SIGINT)
    word, when = child.stdout.readline().split()
    assert word == "interrupted"
    assert float(when) - sent < 0.2
    assert child.wait(timeout=10) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": -3}, "at least 1"),
        ({"batch_size": "many"}, "whole number"),
        ({"num_workers": -1}, "num_workers"),
        ({"seed": -1}, "seed"),
        ({"recipe": "imagenet-trian"}, "did you mean"),
        ({"recipe": 7}, "recipe is a int"),
        ({"recipe": [{"kind": "decode"}, {"kind": "fly"}]}, "fly"),
        ({"rank": 3, "world_size": 2}, "rank"),
        ({"rank": 1}, "go together"),
        ({"uneven": "maybe"}, "drop or pad"),
        ({"on_bad": "ignore"}, "raise or skip"),
        ({"settings": {"loader.bach": 1}}, "did you mean"),
        ({"transform": 3}, "callable"),
    ],
)
def test_wrong_arguments_are_named(photos: Path, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(gristmill.ConfigError, match=words):
        Loader(photos, **{"recipe": "imagenet-eval", **arguments})  # type: ignore[arg-type]


def test_a_batch_larger_than_the_data_set(photos: Path) -> None:
    batches = list(Loader(photos, recipe="imagenet-eval", batch_size=100_000))
    assert [len(batch.labels) for batch in batches] == [120]


def test_missing_and_vanishing_data(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(gristmill.StoreError, match="nowhere") as caught:
        Loader(tmp_path / "nowhere")
    assert isinstance(caught.value, OSError)
    copy = tmp_path / "copy"
    for path in photos.rglob("*.jpg"):
        target = copy / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    loader = Loader(copy, recipe="imagenet-eval", batch_size=4, prefetch_factor=1)
    batches = iter(loader)
    next(batches)
    for path in copy.rglob("*.jpg"):
        path.unlink()
    with pytest.raises(gristmill.GristmillError, match="no such file"):
        for _ in batches:
            pass
    loader.close()


def test_bad_samples(photos: Path, tmp_path: Path) -> None:
    for i, path in enumerate(sorted(photos.rglob("*.jpg"))[:20]):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{i}.jpg").write_bytes(path.read_bytes())
    (tmp_path / "a" / "bad.jpg").write_bytes(b"no picture")
    with pytest.raises(gristmill.CorruptSampleError, match=r"a/bad\.jpg"):
        list(Loader(tmp_path, recipe="imagenet-eval", batch_size=4))
    batches = list(Loader(tmp_path, recipe="imagenet-eval", batch_size=4, on_bad="skip"))
    assert sum(len(batch.labels) for batch in batches) == 20
    assert [i for batch in batches for i, _ in batch.skipped] == [20]


def test_a_transform_that_raises(photos: Path) -> None:
    def fails(sample: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("my own mistake")

    loader = Loader(photos, recipe="imagenet-eval", transform=fails)
    with pytest.raises(RuntimeError, match="my own mistake"):
        next(iter(loader))
    loader.close()


def test_a_loader_in_a_forked_child_says_what_to_do(photos: Path) -> None:
    loader = Loader(photos, recipe="imagenet-eval", batch_size=4)
    batches = iter(loader)
    next(batches)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(batches)
            os.write(write, b"no error")
        except gristmill.GristmillError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    message = os.read(read, 1000).decode()
    os.waitpid(child, 0)
    assert "forked child" in message
    assert "Dataset" in message
    assert len(list(batches)) == 29


def test_numbers_are_numpys_too(idx: str) -> None:
    loader: gristmill.Loader[np.ndarray] = gristmill.Loader(idx, recipe="mnist", batch_size=10)  # type: ignore[type-arg]
    images, labels = next(iter(loader))
    images *= 2  # the memory is the consumer's to write to
    assert isinstance(images, np.ndarray)
    assert labels.min() >= 0
