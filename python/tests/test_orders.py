"""The orders of many ranks that exchange samples, as experiments take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from gristmill import ConfigError
from gristmill._gristmill import ExchangeSimulation

LABELS = [id % 3 for id in range(60)]


def epochs(count: int, **options: object) -> tuple[list[npt.NDArray[np.uint32]], int]:
    """The orders of some epochs on 6 ranks with batches of 5, and how many samples moved."""
    ranks = ExchangeSimulation(LABELS, 6, 5, 1, **options)  # type: ignore[arg-type]
    orders, moved = [], 0
    for epoch in range(count):
        assert ranks.epoch == epoch
        orders.append(np.frombuffer(ranks.order(np.ones(60, np.float32).tobytes()), np.uint32))
        moved += ranks.commit()
    return orders, moved


def classes(order: npt.NDArray[np.uint32]) -> list[int]:
    """How many classes each rank meets in each of its batches."""
    return [len({LABELS[id] for id in part}) for part in order.reshape(-1, 5)]


def test_every_epoch_has_every_sample_once_on_the_rank_that_holds_it() -> None:
    local, moved = epochs(3, fraction=0.0, partition="sorted")
    assert moved == 0
    assert all(sorted(order) == list(range(60)) for order in local)
    assert all(classes(order) == [1] * 12 for order in local)
    assert not np.array_equal(local[0], local[1])
    held = [{id for part in order.reshape(2, 6, 5)[:, rank] for id in part} for rank in range(6) for order in local]
    assert len({frozenset(ids) for ids in held}) == 6, "what a rank holds stays with it"


def test_an_exchange_mixes_and_choosing_by_class_mixes_sooner() -> None:
    for choose in ("uniform", "class", "importance", "balanced"):
        orders, moved = epochs(4, fraction=0.5, partition="sorted", choose=choose)
        assert moved == 4 * 30
        assert sum(count > 1 for count in classes(orders[-1])) > 8
        again, _ = epochs(4, fraction=0.5, partition="sorted", choose=choose)
        assert all(np.array_equal(a, b) for a, b in zip(orders, again, strict=True))
    spread = {}
    for choose in ("uniform", "class"):
        ranks = ExchangeSimulation(LABELS, 6, 5, 1, fraction=0.5, partition="sorted", choose=choose)
        for _ in range(3):
            ranks.order(b"")
            ranks.commit()
        apart = ranks.divergence()
        assert apart is not None
        spread[choose] = apart[0]
    assert spread["class"] < spread["uniform"]


def test_without_a_fraction_every_epoch_is_one_global_shuffle() -> None:
    orders, moved = epochs(2, fraction=None)
    assert moved == 0
    assert all(sorted(order) == list(range(60)) for order in orders)
    assert ExchangeSimulation(LABELS, 6, 5, 1, fraction=None).divergence() is None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"fraction": 1.5}, "from 0"),
        ({"fraction": float("nan")}, "from 0"),
        ({"fraction": 0.3, "choose": "clas"}, "uniform, importance, class, balanced"),
        ({"fraction": 0.3, "partition": "odd"}, "even, sorted"),
        ({"fraction": 0.3, "form": "round"}, "derangement, plain"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        ExchangeSimulation(LABELS, 6, 5, 1, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ranks"):
        ExchangeSimulation(LABELS, 61, 1, 1, fraction=0.3)
    with pytest.raises(ConfigError, match="scores"):
        ExchangeSimulation(LABELS, 6, 5, 1, fraction=0.3, choose="importance").order(b"")
