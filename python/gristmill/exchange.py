"""The exchange between ranks: each holds a slice of the data set and swaps a fraction of it in every epoch.

The engine decides who sends what to whom and keeps the samples; :mod:`gristmill.peers` is the way to the other ranks.
Here the two are joined: what is due when a batch is handed out is sent while the batch is trained on. A thread does
that, because reading, sending and storing samples takes time that training should not wait for. When an epoch is over,
all ranks wait until each has everything; only then what was sent is let go.

Users say ``exchange=0.3`` to a loader; nothing here is made by them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TypeVar

from gristmill import _gristmill
from gristmill.errors import ConfigError, GristmillError
from gristmill.peers import Peers, Posted, late, peers_here

__all__ = ["PATIENCE_S", "Exchange", "Speaker", "exchange_settings", "patience_of", "refuse"]

T = TypeVar("T")
#: How long a rank waits for another, unless the settings say otherwise.
PATIENCE_S = 60.0


def exchange_settings(exchange: float | str | None, hold: str | PathLike[str] | None) -> dict[str, str]:
    """The settings that ``exchange`` and ``hold`` stand for; none leaves them to the config."""
    settings: dict[str, str] = {}
    if isinstance(exchange, str):
        settings["exchange.fraction"] = exchange
    elif isinstance(exchange, (int, float)) and not isinstance(exchange, bool):
        settings["exchange.fraction"] = repr(float(exchange))
    elif exchange is not None:
        raise ConfigError(f"exchange is {exchange!r}; it must be a fraction from 0 to 1, or 'auto'")
    if hold is not None:
        if not isinstance(hold, (str, os.PathLike)):
            raise ConfigError(f"hold is {hold!r}; it must be a folder, or 'memory'")
        settings["exchange.hold"] = os.fspath(hold)
    return settings


def patience_of(settings: Sequence[tuple[str, str]], config: str | PathLike[str] | None) -> float | None:
    """How long ranks wait for each other, for a rank whose engine could not be made; none if it would not exchange."""
    patience_ms = _gristmill.exchange_patience_ms(settings, config)
    if patience_ms is not None:
        return patience_ms / 1e3
    # Settings that cannot be read may still say that there is an exchange.
    given = dict(settings)
    if given.get("exchange.fraction", "off") == "off":
        return None
    try:
        return float(given.get("exchange.patience_ms", PATIENCE_S * 1e3)) / 1e3
    except ValueError:
        return PATIENCE_S


def refuse(error: GristmillError, rank_world: tuple[int, int], patience_s: float) -> None:
    """Tells the other ranks that this one cannot begin, so that none waits for it."""
    try:
        peers = peers_here(rank_world, patience_s)
    except GristmillError:
        # There is no way to tell anybody; what is wrong here is the better thing to say.
        return
    speaker = Speaker(peers)
    try:
        # If that fails too, what is wrong here is still the better thing to say.
        with contextlib.suppress(GristmillError):
            speaker.gather(_gristmill.refusal(rank_world[0], str(error)), patience_s)
    finally:
        speaker.stop()


class Speaker:
    """The thread that talks to the other ranks, and the limit of how long it may be waited for."""

    def __init__(self, peers: Peers, outstanding: Callable[[], list[tuple[int, int]]] = list) -> None:
        self._peers = peers
        self._outstanding = outstanding
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._moved = time.monotonic()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="gristmill-exchange", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._busy = True
            try:
                if self._error is None:
                    job()
            except BaseException as error:
                # Who lost patience has said why, and stopped what then failed.
                self._error = self._error or error
            self._busy = False
            self.moved()

    def moved(self) -> None:
        """Something came: who waits may wait on."""
        self._moved = time.monotonic()

    def check(self) -> None:
        """Raises what went wrong on the thread."""
        if self._error is not None:
            raise self._error

    def begin(self, job: Callable[[], None]) -> None:
        """Gives it something to do and does not wait."""
        self.check()
        self._jobs.put(job)

    def call(self, job: Callable[[], T], patience_s: float) -> T:
        """Gives it something to do and waits for the answer, as long as there is progress."""
        answer: list[T] = []
        done = threading.Event()

        def run() -> None:
            try:
                answer.append(job())
            finally:
                done.set()

        self.begin(run)
        self.moved()
        # Waiting in slices, so that Ctrl-C works.
        while not done.wait(0.05):
            self.check()
            if time.monotonic() - self._moved > patience_s:
                self._error = self._late(patience_s)
                self._peers.stop()
        while not answer:
            self.check()
            time.sleep(0.001)
        return answer[0]

    def gather(self, mine: bytes, patience_s: float) -> list[bytes]:
        """Everybody's words in the order of ranks. All ranks call it together."""
        return self.call(lambda: self._peers.gather(mine), patience_s)

    def _late(self, patience_s: float) -> GristmillError:
        return late(sorted(self._peers.missing or {peer for peer, _ in self._outstanding()}), patience_s)

    def stop(self) -> None:
        """Ends the thread, and what it may be doing."""
        self._error = self._error or GristmillError("the exchange was stopped")
        self._jobs.put(None)
        self._thread.join(0.1)
        if self._busy:
            self._peers.stop()
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._peers.close()

    def ends_with(self, owner: object) -> Speaker:
        """The same; it is stopped when its owner is gone, or when the interpreter ends: threads of a library that
        are still at work then would end the process with an abort."""
        weakref.finalize(owner, self.stop)
        return self


def _close(engine: _gristmill.Exchange, speaker: Speaker) -> None:
    """Ends the thread. An exchange under way is not concluded; one that is, is written down."""
    engine.rest()
    speaker.stop()


class Exchange:
    """One rank's exchange: the engine's part and the way to the other ranks."""

    def __init__(self, engine: _gristmill.Exchange, rank_world: tuple[int, int]) -> None:
        self._engine = engine
        #: The next round that is to be moved, and how many there are: one per batch.
        self._round = self._rounds = 0
        self._patience_s = engine.patience_ms / 1e3
        self._peers = peers_here(rank_world, self._patience_s)
        self._speaker = Speaker(self._peers, engine.outstanding)
        #: Ends it; so does the end of the interpreter.
        self.close = weakref.finalize(self, _close, engine, self._speaker)
        engine.agree(self.gather(engine.pledge()))

    @property
    def engine(self) -> _gristmill.Exchange:
        """The engine's part."""
        return self._engine

    def gather(self, mine: bytes) -> list[bytes]:
        """Everybody's words in the order of ranks. All ranks call it together."""
        return self._speaker.gather(mine, self._patience_s)

    def fill(self, epoch: int) -> None:
        """Gets what this rank's slice lacks when an epoch begins.

        That may take long, and longer on one rank than on another. So the ranks tell each other again and again that
        they are still at it, and only one that says nothing is taken for lost.
        """
        outcome: list[str] = []

        def work() -> None:
            try:
                self._engine.fill(epoch)
                outcome.append("")
            except Exception as error:
                outcome.append(str(error))

        thread = threading.Thread(target=work, name="gristmill-fill", daemon=True)
        thread.start()
        while True:
            thread.join(self._patience_s / 4)
            said = self.gather(json.dumps(outcome).encode())
            told: list[list[str]] = [json.loads(words) for words in said]
            for rank, words in enumerate(told):
                if words and words[0]:
                    raise GristmillError(f"rank {rank} could not fill its slice: {words[0]}")
            if all(told):
                return

    def begin(self, batches: int) -> None:
        """The engine has begun an epoch of so many batches: do all ranks mean the same one?"""
        self._round, self._rounds = 0, batches
        self._engine.begun(self.gather(self._engine.vow()))

    def refuse(self, epoch: int, error: GristmillError) -> None:
        """Tells the other ranks that this one cannot begin an epoch, so that none waits for it."""
        with contextlib.suppress(GristmillError):
            self._engine.begun(self.gather(self._engine.refuse(epoch, str(error))))

    def handed(self, batch: int) -> None:
        """A batch was handed out: what is due with it goes on its way."""
        self._speaker.begin(lambda: self._move(batch))

    def _move(self, batch: int) -> None:
        # Round by round, and each as a whole: all ranks go through the same ones, so none can wait for another that
        # waits for it.
        while self._round <= batch:
            posted: list[Posted] = []
            more = True
            while more:
                sends, receives, more = self._engine.due(self._round)
                expected = [(peer, tag, bytearray(size)) for peer, tag, size in receives]
                posted.append(self._peers.post(sends, expected))
            for messages in posted:
                for peer, tag, message in messages.came():
                    self._engine.take(peer, tag, message)
                    self._speaker.moved()
            for messages in posted:
                messages.left()
                self._speaker.moved()
            self._round += 1
            self._engine.ease()

    def finish(self) -> None:
        """The epoch is over: waits until every rank has everything, and lets go of what was sent."""
        if self._engine.running is None:
            return
        began = time.monotonic()
        self._speaker.call(lambda: self._move(self._rounds - 1), self._patience_s)
        self._engine.conclude(self.gather(self._engine.settle()))
        self._engine.waited((time.monotonic() - began) * 1e3)
        self._engine.sweep_later()
