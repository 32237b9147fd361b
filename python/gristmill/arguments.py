"""What the arguments of the loaders stand for: settings, recipes, whole numbers.

Deliberately not here: what selection, exchange, page and steering take; those stand beside what they do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, TypedDict

from gristmill.errors import ConfigError
from gristmill.page import warn

#: What folders of a data set are called that hold its parts, and not classes.
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class LoaderArguments(TypedDict, total=False):
    """What every loader takes by name; :class:`Loader` says what each means."""

    recipe: str | PathLike[str] | Mapping[str, Any] | list[Mapping[str, Any]] | None
    batch_size: int
    shuffle: bool
    drop_last: bool
    num_workers: int | None
    prefetch_factor: int | None
    seed: int
    rank: int | None
    world_size: int | None
    uneven: str
    on_bad: str
    selection: str | Mapping[str, Any] | None
    families: str
    epochs: int | None
    cache: str | int | None
    split: str | None
    exchange: float | str | None
    hold: str | PathLike[str] | None
    steer: str | None
    pin: str | Iterable[str] | None
    page: bool | str | None
    report: str | PathLike[str] | None
    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[list[tuple[Any, Any]]], Any] | None
    config: str | PathLike[str] | None
    settings: Mapping[str, Any] | None
    rebuild: bool


def recipe_text(recipe: str | PathLike[str] | Mapping[str, Any] | list[Mapping[str, Any]] | None) -> str | None:
    """A recipe as the engine takes it: a preset's name, a file's path, or ops as JSON."""
    if recipe is None:
        return None
    if isinstance(recipe, Mapping):
        return json.dumps(recipe)
    if isinstance(recipe, list):
        return json.dumps({"op": recipe})
    if isinstance(recipe, (str, os.PathLike)):
        return os.fspath(recipe)
    raise ConfigError(f"recipe is a {type(recipe).__name__}; it must be a name, a path, or a list of ops")


def whole(name: str, value: Any, least: int) -> int:
    """A whole number that is at least ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number")
    number = value.__index__()
    if number < least:
        raise ConfigError(f"{name} is {number}; it must be at least {least}")
    return int(number)


def cache_settings(cache: str | int | None) -> dict[str, str]:
    """The setting that ``cache`` stands for; none leaves it to the config."""
    if cache is None:
        return {}
    return {"cache.size": cache if isinstance(cache, str) else str(whole("cache", cache, 1))}


def split_settings(split: str | None) -> dict[str, str]:
    """The setting that ``split`` stands for; none leaves it to the config."""
    if split is None:
        return {}
    if not isinstance(split, str):
        raise ConfigError(f"split is {split!r}; it must be a name such as 'auto' or 'none'")
    return {"split.policy": split}


def check_classes(classes: list[str], source: str | PathLike[str]) -> None:
    """Warns if classes are the parts of a data set: then the folder above was given."""
    if len(classes) > 1 and PARTS.issuperset(name.lower() for name in classes):
        named = " and ".join(classes)
        warn(f"the classes of {os.fspath(source)} are {named}, parts of a data set: give one of these folders")
