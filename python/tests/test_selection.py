"""Selection through the real front: loss and feedback, resume, ranks, bad input."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SHIPPED
from gristmill import _gristmill
from gristmill.errors import ConfigError
from gristmill.learning import learned_columns
from gristmill.torch import Dataset, Loader, Sampler
from torch.utils.data import DataLoader

WAYS = ("bucket", "online", "active-bias", "biggest-loser", "proxy", "iis", "infobatch", "weighted")


def loader(data: str, **arguments: Any) -> Loader:
    return Loader(data, recipe="mnist", batch_size=100, seed=3, **arguments)


def fake_logits(ids: torch.Tensor, labels: torch.Tensor, epoch: int) -> torch.Tensor:
    """A model that learns: the own label's logit grows with the epoch, by the difficulty of the sample."""
    logits = torch.zeros(len(ids), 10)
    difficulty = (ids * 2_654_435_761 % 65_536) / 65_536.0
    logits[torch.arange(len(ids)), labels] = 6 - 8 * difficulty + epoch
    return logits


def train(loader: Loader, epochs: range) -> list[list[int]]:
    seen = []
    for epoch in epochs:
        ids: list[int] = []
        for batch in loader:
            ids += batch.ids.tolist()
            loader.loss(fake_logits(batch.ids, batch.labels, epoch), batch)
        seen.append(ids)
    return seen


def test_who_tells_nothing_is_told(idx: str) -> None:
    load = loader(idx, selection="weighted", epochs=4)
    next(iter(load))  # a look at a batch is no epoch
    with pytest.warns(RuntimeWarning, match=r"selection='weighted' was told nothing.*loader\.loss"):
        list(load)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(load)
        train(loader(idx, selection="weighted", epochs=4), range(2))
        list(loader(idx))
        losers = loader(idx, selection="biggest-loser")
        for batch in losers:
            losers.keep(batch, torch.ones(len(batch.ids)))
    dataset = Dataset(idx, recipe="mnist")
    sampler = Sampler(dataset, batch_size=100, selection="weighted", epochs=4)
    list(sampler)
    with pytest.warns(RuntimeWarning, match="told nothing"):
        list(sampler)


def test_progress_ends_at_one_however_many_batches_epochs_have(idx: str) -> None:
    load = loader(idx, selection={"kind": "weighted", "batch_least": 1}, epochs=6)
    assert load.progress == 0
    seen = []
    for epoch in range(6):
        for batch in load:
            seen.append(load.progress)
            load.loss(fake_logits(batch.ids, batch.labels, epoch), batch)
    assert seen == sorted(seen)
    assert seen[-1] == load.progress == 1
    assert len(seen) < 6 * len(loader(idx)), "epochs got shorter"
    with pytest.raises(ConfigError, match="epochs="):
        _ = loader(idx).progress


def test_the_folder_above_is_noticed(tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / part / "cat").mkdir(parents=True)
        (tmp_path / part / "cat" / "a.jpg").write_bytes(b"not looked at")
    with pytest.warns(RuntimeWarning, match="train and val, parts of a data set"):
        Loader(tmp_path, settings={"catalog.folder": str(tmp_path / "catalogs")})


def test_what_is_no_logits_or_no_batch_is_named(idx: str) -> None:
    load = loader(idx, selection="weighted")
    batch = next(iter(load))
    logits = fake_logits(batch.ids, batch.labels, 0)
    for wrong, word in (
        ((logits, batch.labels), "a Tensor and a Tensor"),
        (((logits, logits), batch), "a tuple and a Batch"),
        ((batch, logits), "a Batch and a Tensor"),
        ((logits[:, 0], batch), r"this batch needs \(100, 10\)"),
    ):
        with pytest.raises(ConfigError, match=word):
            load.loss(*wrong)
    for call in (load.keep, lambda batch, each: load.feedback(batch, per_sample_loss=each)):
        for wrong_loss, word in (
            ([0.1] * 100, "a Batch and a list were given.*per_sample_loss, a tensor"),
            (torch.ones(3), r"shape \(3,\) for 100 samples"),
        ):
            with pytest.raises(ConfigError, match=word):
                call(batch, wrong_loss)  # type: ignore[operator]
    for typed, meant in (("wieghted", "weighted"), ("off", "uniform")):
        with pytest.raises(ConfigError, match=f"did you mean {meant}"):
            loader(idx, selection=typed)


def test_weighted_skips_and_the_survivors_carry_the_weight(idx: str) -> None:
    load = loader(idx, selection="weighted", epochs=20)
    counts = [len(ids) for ids in train(load, range(6))]
    assert counts[0] == load.num_samples
    assert max(counts[1:]) < 0.8 * load.num_samples, counts
    batch = next(iter(load))
    assert batch.weights.dtype == torch.float32
    assert batch.weights.dtype == torch.float32
    assert batch.weights.max() > 1.2 * batch.weights.min()
    assert len(batch.ids) < 100, "fewer samples make smaller batches, not fewer"
    logits = fake_logits(batch.ids, batch.labels, 1).requires_grad_()
    each = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none")
    assert torch.allclose(load.loss(logits, batch), (each * batch.weights).mean())
    report = load.report()
    assert report.values["selection"]["kept"] < load.num_samples
    assert "weighted" in str(report)
    assert load.selection["kind"] == "weighted"
    whole = loader(idx, selection={"kind": "weighted", "batch_least": 1}, epochs=20)
    train(whole, range(3))
    assert len(whole) < load.num_samples / 100, "unless batches are to stay whole"


def test_a_plain_loader_has_the_same_loss_and_no_selection(idx: str) -> None:
    load = loader(idx)
    batch = next(iter(load))
    logits = fake_logits(batch.ids, batch.labels, 0)
    assert torch.allclose(load.loss(logits, batch), torch.nn.functional.cross_entropy(logits, batch.labels))
    short, ignored = copy.copy(batch), copy.copy(batch)
    short.labels, ignored.labels = batch.labels.int(), batch.labels - 100
    assert torch.allclose(load.loss(logits, short), load.loss(logits, batch)), "labels of any integer kind"
    with pytest.raises(ConfigError, match="labels go from -100"):
        load.loss(logits, ignored)
    assert load.selection == {}
    assert load.keep(batch, torch.zeros(100)).all()
    load.feedback(batch, logits)  # nothing to tell, and no error: a training loop need not know


@pytest.mark.parametrize("way", WAYS)
def test_resume_anywhere_gives_the_same_rest(idx: str, way: str) -> None:
    whole = loader(idx, selection=way, epochs=8)
    expected = train(whole, range(8))
    first = loader(idx, selection=way, epochs=8)
    train(first, range(4))
    seen: list[int] = []
    for count, batch in enumerate(first):
        seen += batch.ids.tolist()
        first.loss(fake_logits(batch.ids, batch.labels, 4), batch)
        if count == 1:
            break
    second = loader(idx, selection=way, epochs=8)
    second.load_state_dict(first.state_dict())
    rest = train(second, range(4, 8))
    assert seen + rest[0] == expected[4]
    assert rest[1:] == expected[5:]


def test_batches_of_another_size_are_not_entered_in_the_middle(idx: str) -> None:
    first = loader(idx, selection="weighted", epochs=8)
    train(first, range(4))
    between = first.state_dict()
    next(iter(first))
    inside = first.state_dict()

    def one_of_four() -> Loader:
        return Loader(idx, recipe="mnist", batch_size=25, seed=3, selection="weighted", epochs=8, rank=0, world_size=4)

    four = one_of_four()
    fresh = four.state_dict()
    with pytest.raises(
        ConfigError, match=r"batches of \d+ samples, but for 4 the selection cuts .* save between epochs"
    ):
        four.load_state_dict(inside)
    assert four.state_dict() == fresh, "nothing was taken over"
    four.load_state_dict(between)
    assert (four.epoch, four.state_dict()["batch"]) == (4, 0)
    # Without a selection batches are what they always are.
    plain = loader(idx)
    next(iter(plain))
    other = Loader(idx, recipe="mnist", batch_size=25, seed=3, rank=0, world_size=4)
    other.load_state_dict(plain.state_dict())
    assert other.state_dict()["batch"] == 1


def test_a_sampler_selects_as_the_loader_does(idx: str) -> None:
    expected = train(loader(idx, selection="weighted", epochs=8), range(5))
    dataset = Dataset(idx, recipe="mnist")
    sampler = Sampler(dataset, batch_size=100, seed=3, selection="weighted", epochs=8)
    for epoch in range(5):
        ids: list[int] = []
        for index, (_, labels) in enumerate(DataLoader(dataset, batch_sampler=sampler)):
            batch = sampler.batch(index, labels)
            ids += batch.ids.tolist()
            sampler.loss(fake_logits(batch.ids, labels, epoch), batch)
        assert ids == expected[epoch]
    state = sampler.state_dict()
    other = Sampler(dataset, batch_size=100, seed=3, selection="weighted", epochs=8)
    other.load_state_dict(state)
    assert list(other) == list(sampler)


def test_a_sampler_resumed_inside_of_an_epoch_knows_its_batches(idx: str) -> None:
    dataset = Dataset(idx, recipe="mnist")
    sampler = Sampler(dataset, batch_size=100, seed=3, selection="weighted", epochs=8)
    ids = iter(sampler)
    first = [next(ids) for _ in range(3)]
    other = Sampler(dataset, batch_size=100, seed=3, selection="weighted", epochs=8)
    other.load_state_dict(sampler.state_dict())
    for index, batch in enumerate(other):
        assert other.batch(index, torch.zeros(len(batch), dtype=torch.long)).ids.tolist() == batch
        assert batch not in first


@pytest.mark.parametrize("way", WAYS)
def test_small_data_with_whole_batches_only_still_has_batches(photos: Path, way: str) -> None:
    load = Loader(
        photos,
        recipe=[{"kind": "decode"}, {"kind": "resize", "size": [8, 8]}, {"kind": "to-tensor"}],
        batch_size=100,
        drop_last=True,
        selection=way,
        epochs=8,
    )
    for _ in range(8):
        count = 0
        for batch in load:
            count += 1
            load.feedback(batch, per_sample_loss=torch.full((len(batch.ids),), 0.01))
        assert count > 0


def test_an_epoch_that_would_be_empty_is_told(photos: Path) -> None:
    def begun(**arguments: Any) -> Any:
        return iter(Loader(photos, batch_size=1_000, drop_last=True, **arguments))

    with pytest.warns(RuntimeWarning, match=r"no batch: 120 samples for 1 ranks do not fill one of batch_size=1000"):
        assert list(begun()) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(next(begun(selection="weighted", epochs=4)).labels) == 120


def test_proxy_phase_is_known_before_the_epoch(idx: str) -> None:
    load = loader(idx, selection={"kind": "proxy", "warmup": 2}, epochs=4)
    phases = []
    for _ in range(4):
        phases.append(load.proxy_phase)
        for batch in load:
            load.feedback(batch, per_sample_loss=torch.rand(len(batch.ids)))
    assert phases == [True, True, False, False]


@pytest.mark.parametrize("families", ["remove", "repeat", "auto"])
def test_families_by_one_word(families: str) -> None:
    load = loader(str(SHIPPED / "fashion-mnist-4000-train-images-idx3-ubyte.gz"), families=families)
    ids = [i for batch in load for i in batch.ids.tolist()]
    facts = load.selection
    changed = facts["stand_ins"] if families == "repeat" else facts["removed"]
    assert changed > 0, facts
    assert len(set(ids)) == facts["samples"] - changed
    assert load.report().values["selection"]["removed"] == facts["removed"]


def test_feedback_by_loss_alone_and_keep(idx: str) -> None:
    load = loader(idx, selection={"kind": "biggest-loser", "power": 1, "history": 100}, epochs=4)
    for epoch in range(2):
        kept = 0
        for batch in load:
            each = torch.rand(len(batch.ids))
            kept += int(load.keep(batch, each).sum())
            load.feedback(batch, per_sample_loss=each)
        assert kept == load.num_samples if epoch == 0 else 0.3 < kept / load.num_samples < 0.7


def test_bad_input_is_told(idx: str) -> None:
    for selection, words in (
        ("buckets", "bucket"),
        ({"kind": "bucket", "relaks": 1}, "relax"),
        ({"kind": "uniform", "relax": 1}, "relax"),
        ({"kind": "bucket", "stagnation": 0}, "whole number from 1"),
        ({"kind": "proxy", "share": 0}, "above 0"),
        ({"kind": "proxy", "share": 1.5}, "share"),
        ({"relax": 1}, "kind"),
        (7, "name"),
    ):
        with pytest.raises(ConfigError, match=words):
            loader(idx, selection=selection)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="epochs is 0"):
        loader(idx, selection="weighted", epochs=0)
    load = loader(idx, selection="weighted")
    batch = next(iter(load))
    with pytest.raises(ConfigError, match="shape"):
        load.loss(torch.zeros(5, 10), batch)
    with pytest.raises(ConfigError, match="5 columns"):
        load.loss(torch.zeros(100, 5), batch)
    with pytest.raises(ConfigError, match="one of them"):
        load.feedback(batch)
    with pytest.raises(ConfigError, match="sample 1000000"):
        load.feedback_arrays([1_000_000], [0.5], [0.1], [1.0])
    with pytest.raises(ConfigError, match="2 ids but 1"):
        load.feedback_arrays([0, 1], [0.5], [0.1, 0.1], [1.0, 1.0])
    load.loss(torch.full((100, 10), float("nan")), batch)
    assert len(list(load)) == 10, "an epoch whose trainer said nothing of use is full"
    assert load.selection["unknown"] == 100
    state = load.state_dict()
    with pytest.raises(ConfigError, match="another"):
        loader(idx, selection="bucket").load_state_dict(state)
    with pytest.raises(ConfigError, match="selection"):
        loader(idx).load_state_dict(state)


RANK = """
import json, sys, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[2])
from test_selection import fake_logits
from gristmill.torch import Loader
dist.init_process_group("gloo")
load = Loader(sys.argv[1], recipe="mnist", batch_size=50, seed=3, selection="weighted", epochs=8)
kept = []
for epoch in range(5):
    ids = []
    for batch in load:
        ids += batch.ids.tolist()
        load.loss(fake_logits(batch.ids, batch.labels, epoch), batch)
    parts = [None, None]
    dist.all_gather_object(parts, ids)
    kept.append(sorted(set(parts[0] + parts[1])))
    # Between epochs all ranks know the same: a state saved by one of them is that of all.
    states = [None, None]
    dist.all_gather_object(states, load.state_dict()["selection"])
    assert states[0] == states[1], epoch
if dist.get_rank() == 0:
    print("KEPT" + json.dumps(kept))
dist.destroy_process_group()
"""


def test_two_ranks_select_the_same_as_one(idx: str, tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run(
        [*command, str(script), idx, str(Path(__file__).parent)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kept = json.loads(done.stdout.split("KEPT")[1].splitlines()[0])
    assert kept == [sorted(ids) for ids in train(loader(idx, selection="weighted", epochs=8), range(5))]


def test_ranks_without_a_process_group_are_told(idx: str) -> None:
    load = loader(idx, selection="weighted", rank=0, world_size=2)
    list(load)
    with pytest.raises(Exception, match="process group"):
        list(load)


@pytest.mark.parametrize("classes", [1, 2, 10, 1_000])
@pytest.mark.parametrize("entropy", [False, True])
def test_what_is_learned_is_the_same_on_a_processor_and_on_a_device(classes: int, entropy: bool) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = 5 * torch.randn(64, classes, generator=generator)
    logits[0] = 0.0  # all alike: the rival is as likely as the own label
    logits[1, 0] = 200.0  # as good as certain
    labels = torch.randint(classes, (64,), generator=generator)
    labels[1] = 0
    log_p = torch.log_softmax(logits, 1)
    each = -log_p.gather(1, labels[:, None])[:, 0]
    native = _gristmill.learned(log_p.numpy().tobytes(), labels.numpy().tobytes(), classes, entropy)
    rows = torch.frombuffer(bytearray(native), dtype=torch.float32).reshape(-1, 64)
    torch.testing.assert_close(rows, learned_columns(log_p, each, entropy), rtol=1e-5, atol=1e-6)


def test_what_is_no_number_is_not_hidden_and_wrong_labels_are_refused() -> None:
    log_p = torch.log_softmax(torch.tensor([[0.0, float("nan")], [1.0, 2.0]]), 1)
    rows = _gristmill.learned(log_p.numpy().tobytes(), torch.tensor([0, 1]).numpy().tobytes(), 2, False)
    values = torch.frombuffer(bytearray(rows), dtype=torch.float32).reshape(3, 2)
    assert values[:, 0].isnan().all()
    assert values[:, 1].isfinite().all()
    for labels, word in ((torch.tensor([0, 2]), "not below"), (torch.tensor([0]), "do not go")):
        with pytest.raises(ConfigError, match=word):
            _gristmill.learned(log_p.numpy().tobytes(), labels.numpy().tobytes(), 2, False)


def test_the_example_on_cifar10_trains_less_than_everything(tmp_path: Path) -> None:
    numbers = torch.Generator().manual_seed(1)
    for name, count in (("data_batch_1", 1_000), ("test_batch", 200)):
        labels = torch.arange(count) % 10
        # A grey of its own for every class, and noise: easy to learn.
        pixels = 20 * labels[:, None] + torch.randint(0, 60, (count, 3_072), generator=numbers)
        rows = torch.cat([labels[:, None], pixels], 1).to(torch.uint8)
        (tmp_path / f"{name}.bin").write_bytes(rows.numpy().tobytes())
    command = [sys.executable, str(SHIPPED.parents[1] / "examples" / "cifar10.py"), str(tmp_path), "--width", "4"]
    run = [*command, "--epochs", "8", "--batch-size", "50", "--selection", "weighted"]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    epochs = [line.split() for line in ran.stdout.splitlines() if line.startswith("epoch ") and "accuracy" in line]
    trained = [int(words[4].rstrip("%,")) for words in epochs]
    assert len(trained) == 8
    assert trained[0] == 100 > min(trained), ran.stdout
    assert float(epochs[-1][6].rstrip("%")) > 60, ran.stdout
