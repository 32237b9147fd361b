"""The page of a loader, and how it is steered: what the arguments stand for.

:class:`Shown` is the part of a loader that a browser looks at. It is not made by users.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Iterable
from os import PathLike
from typing import Any

from gristmill import _gristmill
from gristmill.errors import ConfigError

__all__ = ["Shown", "page_settings", "steer_settings", "warn"]

#: Where a page is when it is asked for without an address.
LISTEN = "127.0.0.1:7078"


def page_settings(page: bool | str | None) -> dict[str, str]:
    """The setting that ``page`` stands for; none leaves it to the config."""
    if page is None:
        return {}
    if isinstance(page, bool):
        return {"page.listen": LISTEN if page else ""}
    if not isinstance(page, str):
        raise ConfigError(f"page is {page!r}; it must be True, or an address and a port such as {LISTEN!r}")
    return {"page.listen": page}


def steer_settings(steer: str | bool | None, pin: str | Iterable[str] | None) -> dict[str, str]:
    """The settings that ``steer`` and ``pin`` stand for; none leaves them to the config."""
    settings = {}
    if isinstance(steer, bool):
        steer = "on" if steer else "off"
    if steer is not None:
        if not isinstance(steer, str):
            raise ConfigError(f"steer is {steer!r}; it must be 'on' or 'off'")
        settings["steer.mode"] = steer
    if pin is not None:
        names = [pin] if isinstance(pin, str) else list(pin)
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"pin is {pin!r}; it must be 'auto', 'none', 'all', or a list of knobs")
        settings["steer.pin"] = ",".join(names) or "none"
    return settings


def report_path(report: str | PathLike[str] | None) -> str | None:
    """Where the page is to be written at the end."""
    if report is None:
        return None
    if not isinstance(report, (str, os.PathLike)):
        raise ConfigError(f"report is {report!r}; it must be the path of a file that ends in .html")
    path = os.fspath(report)
    if not isinstance(path, str) or not path.endswith(".html"):
        raise ConfigError(f"report is {path!r}; the page is a file that ends in .html")
    # Written at the end, when the program may be in another folder.
    return os.path.abspath(path)


def warn(text: str) -> None:
    """Warns with the line of the user's that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gristmill":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def _finish(page: _gristmill.Page) -> None:
    if trouble := page.finish():
        warn(trouble)


class Shown:
    """A loader that a browser may look at."""

    _page: _gristmill.Page | None = None
    _page_ends: weakref.finalize[Any, Any] | None = None

    def _show(self, engine: _gristmill.Engine, report: str | None, epochs: int | None) -> None:
        """Opens the page that was asked for. What keeps it from being shown is a warning: training goes on."""
        page = engine.page(report, epochs or 0)
        if page is None:
            return
        for note in page.notes:
            warn(note)
        self._page = page
        # Few programs close their loader: what is written at the end is written when Python ends, too.
        self._page_ends = weakref.finalize(self, _finish, page)

    def _unshow(self) -> None:
        if self._page_ends is not None:
            self._page_ends()

    @property
    def page_url(self) -> str | None:
        """Where a browser finds the page of this loader; None if there is none."""
        return self._page.url if self._page is not None else None

    def tested(self, accuracy: float) -> None:
        """Tells the page which share of the test data was right after the last epoch, 0 to 1. Nothing else uses it."""
        share = float(accuracy)
        if not 0 <= share <= 1:
            raise ConfigError(f"accuracy is {accuracy!r}; it must be a share from 0 to 1")
        if self._page is not None:
            self._page.tested(share)
