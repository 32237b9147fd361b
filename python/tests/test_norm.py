"""Batch norm by the weights of samples, and telling whether a model has any."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gristmill.norm import BatchWeights, Shares, _Normalise, mixes_samples, weigh  # noqa: E402
from gristmill.torch import Loader  # noqa: E402
from torch import nn  # noqa: E402

SHAPES = [((7, 3), nn.BatchNorm1d), ((5, 3, 6), nn.BatchNorm1d), ((6, 3, 4, 5), nn.BatchNorm2d)]


def weighed(kind: Any, weights: Any, features: int = 3, **options: Any) -> Any:
    norm, said = kind(features, **options), BatchWeights()
    assert weigh(norm, said) == 1
    said.note(torch.tensor(weights))
    return norm


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_a_weight_of_two_is_as_good_as_coming_twice(shape: Any, kind: Any) -> None:
    weights = [1.0, 2, 3, 1, 2, 1, 1][: shape[0]]
    norm, plain = weighed(kind, weights), kind(3)
    values = torch.randn(shape)
    often = torch.tensor(weights).long()
    out = norm(values)
    torch.testing.assert_close(out.repeat_interleave(often, 0), plain(values.repeat_interleave(often, 0)))
    torch.testing.assert_close(norm.running_mean, plain.running_mean)
    # What the batch was drawn from: as many samples say so as there are, not as many as their weights add up to.
    many = int(often.sum()) * values[0, 0].numel()
    drawn = torch.tensor(weights) / sum(weights)
    left = 1 - drawn.square().sum() / values[0, 0].numel()
    wanted = 0.9 + (plain.running_var - 0.9) * (many - 1) / many / left
    torch.testing.assert_close(norm.running_var, wanted)
    norm.eval()
    torch.testing.assert_close(norm(values), nn.functional.batch_norm(values, norm.running_mean, norm.running_var))


@pytest.mark.parametrize("noted", [[1.0], None])
def test_a_last_batch_of_one_sample_goes_by_what_was_seen_before(noted: Any) -> None:
    norm = weighed(nn.BatchNorm1d, [1.0, 2, 1])
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(torch.randn(1, 3))  # batches of one from the beginning are the program's own
    for _ in range(3):
        norm(torch.randn(3, 3) + 5)
    if noted is None:
        norm.batch_weights = BatchWeights()
    else:
        norm.batch_weights.note(torch.tensor(noted))
    before, one = copy.deepcopy(norm.state_dict()), torch.randn(1, 3, requires_grad=True)
    out = norm(one)
    out.sum().backward()
    torch.testing.assert_close(out, copy.deepcopy(norm).eval()(one))
    assert one.grad is not None
    assert one.grad.abs().min() > 0
    assert all(torch.equal(value, norm.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize("mean", [0, 2_000])
@pytest.mark.parametrize(
    ("shape", "kind", "layout"),
    [
        ((6, 3, 4, 5), nn.BatchNorm2d, torch.channels_last),
        ((6, 3, 2, 4, 5), nn.BatchNorm3d, torch.channels_last_3d),
        ((6, 3, 2, 4, 5), nn.BatchNorm3d, torch.contiguous_format),
    ],
)
def test_values_may_lie_in_memory_as_they_like(shape: Any, kind: Any, layout: Any, mean: int) -> None:
    weights = [1.0, 2, 3, 1, 2, 1]
    values = torch.randn(shape) + mean
    found = []
    for way in (layout, torch.contiguous_format):
        norm, given = weighed(kind, weights), values.to(memory_format=way).requires_grad_()
        out = norm(given)
        out.square().sum().backward()
        assert given.grad is not None
        found.append((out.detach(), given.grad, norm.weight.grad, norm.running_var))
        assert out.is_contiguous(memory_format=way)
    for ours, usual in zip(*found, strict=True):
        torch.testing.assert_close(ours, usual, rtol=0.01, atol=0.01)


def test_nothing_is_nothing() -> None:
    norm = weighed(nn.BatchNorm1d, [1.0, 2])
    assert norm(torch.zeros(2, 3, 0)).shape == (2, 3, 0)


def layouts(values: torch.Tensor) -> list[torch.Tensor]:
    """The same values with the places of a channel side by side, the channels of a place, and neither."""
    if values.ndim != 4:
        return [values]
    last = values.contiguous(memory_format=torch.channels_last)
    return [values, last, torch.stack([values, values], -1)[..., 0]]


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_gradients_are_the_slopes(shape: Any, kind: Any) -> None:
    shares = torch.rand(shape[0]).double()
    counts = Shares(shares / shares.sum(), torch.device("cpu"))
    inputs = [torch.randn(shape).double(), torch.rand(3).double(), torch.rand(3).double()]
    for one in layouts(inputs[0]):
        inputs = [one, *inputs[1:]]
        assert torch.autograd.gradcheck(
            lambda *x: _Normalise.apply(x[0], counts, *x[1:], 1e-5)[0], [each.requires_grad_() for each in inputs]
        )


def test_mixed_precision_loses_nothing() -> None:
    for values in layouts(torch.randn(6, 3, 8, 8) + 2_000):
        norm, plain = (weighed(nn.BatchNorm2d, [1.0, 2, 3, 1, 2, 1]) for _ in range(2))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = norm(values)
        torch.testing.assert_close(mixed, plain(values), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(norm.running_var, plain.running_var, rtol=1e-4, atol=1e-4)


def test_large_means_and_half_precision_lose_nothing() -> None:
    weights = [1.0, 2, 3, 1, 2, 1]
    often = torch.tensor(weights).long()
    for mean, deviation in ((100, 1), (2_000, 1), (30, 0.01)):
        values = torch.randn(6, 3, 8, 8) * deviation + mean
        norm, exact = weighed(nn.BatchNorm2d, weights), nn.BatchNorm2d(3).double()
        wanted = exact(values.double().repeat_interleave(often, 0)).float()
        for one in layouts(values):
            torch.testing.assert_close(norm(one).repeat_interleave(often, 0), wanted, rtol=0.02, atol=0.02)
    # Of many values, too: their sum is long.
    values, weights = torch.randn(128, 4, 32, 32) + 1_000, [1.0, 3.0] * 64
    often = torch.tensor(weights).long()
    wanted = nn.BatchNorm2d(4).double()(values.double().repeat_interleave(often, 0)).float()
    for one in layouts(values):
        is_now = weighed(nn.BatchNorm2d, weights, features=4)(one).repeat_interleave(often, 0)
        torch.testing.assert_close(is_now, wanted, rtol=0.005, atol=0.005)
    weights = [1.0, 2, 3, 1, 2, 1]
    values, grad = torch.randn(64, 8, 14, 14), torch.randn(64, 8, 14, 14)
    shares = torch.rand(64)
    counts = Shares(shares / shares.sum(), torch.device("cpu"))
    found = {}
    for kind, size in ((torch.float16, 100.0), (torch.float16, 1e-4), (torch.float32, 1.0)):
        inputs = values.to(torch.float16).to(kind).requires_grad_()
        scale, shift = torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True)
        _Normalise.apply(inputs, counts, scale, shift, 1e-5)[0].backward((grad * size).to(kind))
        assert inputs.grad is not None
        assert scale.grad is not None
        found[kind, size] = inputs.grad.float() / size, scale.grad / size
    for small in (100.0, 1e-4):
        for a, b in zip(found[torch.float16, small], found[torch.float32, 1.0], strict=True):
            assert float((a - b).abs().max() / b.abs().max()) < 0.01
    model = nn.Sequential(nn.Conv2d(8, 3, 1), nn.BatchNorm2d(3)).bfloat16()
    said = BatchWeights()
    weigh(model, said)
    said.note(torch.rand(64))
    model(values.bfloat16()).float().square().sum().backward()
    bare = weighed(nn.BatchNorm1d, weights, affine=False)
    assert bare(torch.randn(6, 3).double()).dtype == torch.float64


def test_equal_weights_another_batch_and_no_weights_are_plain_batch_norm() -> None:
    values = torch.randn(4, 3)
    for weights in ([2.0, 2, 2, 2], [1.0, 5, 1], [3.0]):
        norm, plain = weighed(nn.BatchNorm1d, weights), nn.BatchNorm1d(3)
        torch.testing.assert_close(norm(values), plain(values), rtol=0, atol=0)


def test_what_else_a_batch_norm_can_be() -> None:
    values = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    bare = weighed(nn.BatchNorm2d, [1.0, 2, 1, 1], affine=False, track_running_stats=False)
    assert bare(values).shape == values.shape
    even = weighed(nn.BatchNorm2d, [1.0, 2, 1, 1], momentum=None)
    even(values), even(values)
    assert int(even.num_batches_tracked) == 2
    half = weighed(nn.BatchNorm2d, [1.0, 2, 1, 1])(values.bfloat16())
    assert half.dtype == torch.bfloat16
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm2d(3)))
    names = list(model.state_dict())
    said = BatchWeights()
    assert weigh(model, said) == 2
    assert weigh(model, said) == 2
    said.note(torch.tensor([1.0, 2, 1, 1]))
    assert isinstance(model[1], nn.BatchNorm2d)
    assert list(model.state_dict()) == names
    weighted = model(values)
    torch.testing.assert_close(copy.deepcopy(model)(values), weighted, msg="a copy is trained by the same loader")
    said.clear()
    unweighted = model(values)
    assert not torch.allclose(weighted, unweighted)
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(values), unweighted)
    with pytest.raises(ValueError, match="4D"):
        weighed(nn.BatchNorm2d, [1.0, 2, 1, 1])(torch.randn(4, 3))


class Own(torch.autograd.Function):
    """Something that does not show what is in it."""

    @staticmethod
    def forward(ctx: Any, values: Any) -> Any:
        return values * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        return grad * 2


def test_whether_a_model_mixes_samples_is_seen_from_its_graph() -> None:
    values = torch.randn(4, 3)
    plain = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3))
    assert mixes_samples(plain(values)) is False
    normed = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert mixes_samples(normed(values)) is True
    said = BatchWeights()
    weigh(normed, said)
    said.note(torch.tensor([1.0, 2, 1, 1]))
    assert mixes_samples(normed(values)) is True
    assert mixes_samples(Own.apply(plain(values))) is None, "it may hide anything"
    normed.eval()
    assert mixes_samples(normed(values)) is False, "frozen, it goes by what it has learned"
    assert mixes_samples(plain(values).detach()) is None


def reasons(data: str, model: Any, weigh_it: bool) -> tuple[list[str], list[str]]:
    """The reasons of three epochs, and what was warned of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loader = Loader(data, recipe="mnist", batch_size=50, selection={"kind": "weighted", "wrong_max": 1}, seed=0)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
        if weigh_it:
            assert loader.weigh(model) is model
        told = []
        for _ in range(3):
            for batch in loader:
                optimiser.zero_grad()
                loader.loss(model(batch.images), batch).backward()
                optimiser.step()
            told.append(loader.selection["reason"])
        loader.close()
    return told, [str(one.message) for one in warned]


def test_a_loader_is_bolder_without_batch_norm_and_says_what_to_do_with_it(idx: str) -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    told, warned = reasons(idx, plain, False)
    assert "no batch norm" in told[1]
    assert not warned
    normed = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))
    told, warned = reasons(idx, copy.deepcopy(normed), False)
    assert "no batch norm" not in told[1]
    assert len(warned) == 1
    assert "loader.weigh(model)" in warned[0]
    loader = Loader(idx, recipe="mnist", batch_size=50, selection="weighted")
    with pytest.warns(RuntimeWarning, match="SyncBatchNorm: not weighed"):
        loader.weigh(nn.SyncBatchNorm(10))
    loader.close()
    told, warned = reasons(idx, normed, True)
    assert "no batch norm" not in told[1]
    assert not warned


def steps(loader: Loader, model: Any, epochs: int) -> list[int]:
    """Trains, and says how many samples each epoch had."""
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2)
    kept = []
    for _ in range(epochs):
        for batch in loader:
            optimiser.zero_grad()
            loader.loss(model(batch.images), batch).backward()
            optimiser.step()
        kept.append(int(loader.selection["kept"]))
    return kept


def test_batch_norm_goes_by_the_weights_of_the_batch_that_was_handed_over(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=50, selection="weighted", seed=0)
    norm = nn.BatchNorm1d(784, momentum=1.0)  # what it remembers is the last batch
    model = loader.weigh(nn.Sequential(nn.Flatten(), norm, nn.Linear(784, 10)))
    steps(loader, model, 3)
    for batch in loader:
        model(batch.images)
        pixels = batch.images.flatten(1)
        weighted = (batch.weights[:, None] * pixels).sum(0) / batch.weights.sum()
        assert not torch.allclose(weighted, pixels.mean(0), atol=1e-4), "or nothing is shown here"
        torch.testing.assert_close(norm.running_mean, weighted, rtol=1e-4, atol=1e-5)
        again = batch.images.clone()
    model(again)
    torch.testing.assert_close(norm.running_mean, again.flatten(1).mean(0), rtol=1e-4, atol=1e-5)
    loader.close()


@pytest.mark.parametrize(
    ("weighs", "left_out", "whole"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_batches_stay_whole_in_a_long_run_if_all_batch_norm_goes_by_weights(
    idx: str, weighs: bool, left_out: bool, whole: bool
) -> None:
    selection = {"kind": "weighted", "wrong_max": 1}
    loader = Loader(idx, recipe="mnist", batch_size=50, selection=selection, epochs=10_000, seed=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if left_out:
            loader.weigh(nn.SyncBatchNorm(10))
        if weighs:
            loader.weigh(model)
        kept = steps(loader, model, 3)
    assert kept[2] < kept[0], "something is skipped"
    assert (len(next(iter(loader)).ids) == 50) is whole
    loader.close()


def test_batch_norm_that_was_weighed_is_there_whatever_the_graph_shows(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=50, selection="weighted", seed=0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16)).requires_grad_(False)
    steps(loader, loader.weigh(nn.Sequential(body, nn.Linear(16, 10))), 2)
    assert "no batch norm" not in loader.selection["reason"]
    loader.close()


def test_what_is_known_of_the_model_goes_with_a_saved_state(idx: str) -> None:
    loader = Loader(idx, recipe="mnist", batch_size=50, selection="weighted", seed=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    start, weights = loader.state_dict(), copy.deepcopy(model.state_dict())
    first = steps(loader, model, 3)
    loader.load_state_dict(start)
    model.load_state_dict(weights)
    assert steps(loader, model, 3) == first
    normed = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10))
    steps(loader, loader.weigh(normed), 2)
    assert "no batch norm" not in loader.selection["reason"], "another model is another matter"
    loader.close()
