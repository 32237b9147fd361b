"""The way to the other ranks of a job: over torch.distributed, or over MPI.

Whichever the launcher brought is used: the process group of the training (``torchrun``), beside which an own one with
gloo is made, since the training's may be NCCL; or MPI (``mpirun`` and mpi4py) where there is no process group.

Both move the same messages, from a known rank to a known rank with a known length. Their calls may block, so they are
called on a thread of the exchange and never on that of the training (:mod:`gristmill.exchange`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Protocol

from gristmill.errors import ConfigError, GristmillError

__all__ = ["Message", "MpiPeers", "Peers", "Posted", "TorchPeers", "late", "launcher_rank", "mpi_is_here", "peers_here"]

#: A message: the other rank, its number, and the bytes (to be read from, or to be filled).
Message = tuple[int, int, bytearray]

#: The most that one rank may say when all gather what each says.
_WORDS_BYTES_MAX = 1 << 30
#: Waiting has its limit where somebody waits for it; this is only so that nothing waits for ever.
_LONG = timedelta(days=7)
#: Numbers the times at which the ranks of a process group made loaders: all of them make theirs in the same order.
_MEETINGS = itertools.count()
#: What MPI calls the message that says that a rank is there.
_HERE_TAG = 31_417
#: Pairs of rank and number of ranks, as launchers put them into the environment.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def launcher_rank() -> tuple[int, int]:
    """Rank and number of ranks as torchrun or mpirun says; a single rank without them."""
    for rank, world in _LAUNCHERS:
        if rank not in os.environ and world not in os.environ:
            continue
        try:
            return int(os.environ.get(rank, "0")), int(os.environ.get(world, "1"))
        except ValueError:
            raise ConfigError(
                f"{rank}={os.environ.get(rank)!r} and {world}={os.environ.get(world)!r} must be whole numbers"
            ) from None
    return 0, 1


def _launched_by_mpi() -> bool:
    """Whether this process is one of several that mpirun (or what a cluster has instead) started."""
    return any(os.environ.get(world, "1") not in ("", "0", "1") for _, world in _LAUNCHERS[1:])


def mpi_is_here() -> bool:
    """Whether ranks can talk over MPI."""
    return _launched_by_mpi() and importlib.util.find_spec("mpi4py") is not None


class Posted(Protocol):
    """Messages that are on their way."""

    def left(self) -> None:
        """Waits until those to others have left."""

    def came(self) -> Iterator[Message]:
        """Waits for those from others, and gives them as they come."""


class Peers(Protocol):
    """The other ranks. Called on one thread; every call may block until :meth:`stop`."""

    rank: int
    world: int
    #: Ranks that the gathering under way waits for, as far as is known.
    missing: set[int]

    def gather(self, mine: bytes) -> list[bytes]:
        """Everybody's words in the order of ranks. All ranks call it together."""

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Posted:
        """Puts messages on their way, in both directions, and does not wait."""

    def stop(self) -> None:
        """Ends a call that is under way on another thread, with an error. Nothing can be asked for after it."""

    def close(self) -> None:
        """Gives back what it took; called when no call is under way."""


def peers_here(rank_world: tuple[int, int], patience_s: float) -> Peers:
    """The way to the other ranks that the launcher brought."""
    rank, world = rank_world
    peers: Peers
    if world < 2:
        raise ConfigError(
            "exchange needs at least 2 ranks, and this is the only one (run it with torchrun or mpirun, or leave "
            "exchange away)"
        )
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        peers = TorchPeers(patience_s)
    elif mpi_is_here():
        peers = MpiPeers(patience_s)
    elif _launched_by_mpi():
        raise ConfigError("exchange under mpirun needs mpi4py (pip install mpi4py)")
    else:
        raise ConfigError(
            f"exchange over {world} ranks needs a way to them: call torch.distributed.init_process_group first, or run "
            "under mpirun with mpi4py"
        )
    if (peers.rank, peers.world) != (rank, world):
        raise ConfigError(
            f"this loader is rank {rank} of {world}, but the process is rank {peers.rank} of {peers.world}: the "
            "exchange is between processes"
        )
    return peers


def _others(peers: Peers) -> list[int]:
    """All ranks but this one, each rank beginning with another, so that they do not all call the same one first."""
    return [(peers.rank + step) % peers.world for step in range(1, peers.world)]


def _length(peer: int, head: bytes | bytearray) -> int:
    length = int.from_bytes(head, "little")
    if length > _WORDS_BYTES_MAX:
        raise GristmillError(f"rank {peer} says {length} bytes at once; {_WORDS_BYTES_MAX} are the most")
    return length


def late(ranks: Sequence[int], patience_s: float) -> GristmillError:
    """What is said when ranks do not come."""
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "another rank"
    return GristmillError(
        f"{who} did not come within {patience_s:.0f} s (look at why it ended or hangs; exchange.patience_ms is how "
        "long the others wait)"
    )


class TorchPeers:
    """Over a process group of its own, with gloo. Its threads move the bytes."""

    def __init__(self, patience_s: float) -> None:
        import torch
        import torch.distributed as dist

        self._torch: Any = torch
        self._dist: Any = dist
        self.rank: int = dist.get_rank()
        self.world: int = dist.get_world_size()
        self.missing: set[int] = set()
        try:
            self._meet(dist.distributed_c10d._get_default_store(), patience_s)
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=patience_s))
        except RuntimeError as error:
            why = str(error).partition(". ")[0].partition("\n")[0]
            raise GristmillError(f"the ranks could not connect to each other: one of them is gone ({why})") from error

    def _meet(self, store: Any, patience_s: float) -> None:
        """Waits until all ranks make their loader. Making a group would wait too, but could not say who is missing."""
        # Ranks that torchrun has started again may find the store as those before them left it.
        place = f"gristmill/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_MEETINGS)}"
        until = time.monotonic() + patience_s
        store.set(f"{place}/{self.rank}", "here")
        here = store.add(f"{place}/here", 1)
        pause = 1e-3
        while here < self.world or store.check([f"{place}/given up"]):
            if store.check([f"{place}/given up"]):
                # Everybody says the same, also who comes too late.
                raise GristmillError(store.get(f"{place}/given up").decode())
            if time.monotonic() > until:
                missing = [rank for rank in range(self.world) if not store.check([f"{place}/{rank}"])]
                if not missing:
                    return
                error = late(missing, patience_s)
                store.set(f"{place}/given up", str(error))
                raise error
            time.sleep(pause)
            pause = min(pause * 2, 0.1)
            here = store.add(f"{place}/here", 0)

    def _tensor(self, memory: bytearray) -> Any:
        return self._torch.frombuffer(memory, dtype=self._torch.uint8) if memory else self._torch.empty(0)

    def _send(self, peer: int, tag: int, memory: bytearray) -> Any:
        return self._dist.isend(self._tensor(memory), peer, group=self._group, tag=tag)

    def _receive(self, peer: int, tag: int, memory: bytearray) -> Any:
        return self._dist.irecv(self._tensor(memory), peer, group=self._group, tag=tag)

    def _wait(self, peer: int, work: Any) -> None:
        # Works of gloo say that they are complete only when they are waited for, so they cannot be polled; and a wait
        # that times out closes all connections. The limit is therefore watched by who waits for this thread.
        try:
            work.wait(_LONG)
        except Exception as error:
            why = str(error).partition(". ")[0].partition("\n")[0]
            raise GristmillError(f"rank {peer} is gone ({why})") from error

    def gather(self, mine: bytes) -> list[bytes]:
        others = _others(self)
        head, body = bytearray(len(mine).to_bytes(8, "little")), bytearray(mine)
        heads = {peer: bytearray(8) for peer in others}
        receives = {peer: self._receive(peer, 0, heads[peer]) for peer in others}
        sends = [(peer, self._send(peer, tag, words)) for peer in others for tag, words in ((0, head), (1, body))]
        said: list[bytes] = [mine] * self.world
        for peer in others:
            # Of the others it is not known whether they have come.
            self.missing = {peer}
            self._wait(peer, receives[peer])
            words = bytearray(_length(peer, heads[peer]))
            self._wait(peer, self._receive(peer, 1, words))
            said[peer] = bytes(words)
        self.missing = set()
        for peer, work in sends:
            self._wait(peer, work)
        return said

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Posted:
        # Numbers 0 and 1 are those of the gatherings.
        coming = [(message, self._receive(message[0], message[1] + 2, message[2])) for message in receives]
        going = [(message[0], self._send(message[0], message[1] + 2, message[2])) for message in sends]
        return _TorchPosted(self, going, coming)

    def stop(self) -> None:
        # A wait that times out closes all connections, and that ends the wait of the other thread: no other way does.
        waiting = self._receive((self.rank + 1) % self.world, 2**31 - 1, bytearray(1))
        with contextlib.suppress(Exception):
            waiting.wait(timedelta(milliseconds=1))

    def close(self) -> None:
        # The training may have ended all process groups before.
        with contextlib.suppress(Exception):
            self._dist.destroy_process_group(self._group)


class _TorchPosted:
    def __init__(self, peers: TorchPeers, going: list[tuple[int, Any]], coming: list[tuple[Message, Any]]) -> None:
        self._peers = peers
        self._going = going
        self._coming = coming

    def left(self) -> None:
        for peer, work in self._going:
            self._peers._wait(peer, work)
        self._going = []

    def came(self) -> Iterator[Message]:
        for message, work in self._coming:
            self._peers._wait(message[0], work)
            yield message
        self._coming = []


class MpiPeers:
    """Over MPI, on a communicator of its own. Polled, since Open MPI spins in its blocking calls."""

    def __init__(self, patience_s: float) -> None:
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._stopped = False
        self.missing: set[int] = set()
        if not MPI.Is_initialized() or MPI.Is_finalized():
            raise ConfigError("MPI does not run in this process (mpi4py.rc.initialize is off?)")
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise ConfigError("the exchange needs an MPI that several threads may call (MPI_THREAD_MULTIPLE)")
        self.rank: int = MPI.COMM_WORLD.Get_rank()
        self.world: int = MPI.COMM_WORLD.Get_size()
        until = time.monotonic() + patience_s
        self._meet(MPI.COMM_WORLD, until, patience_s)
        self._comm, request = MPI.COMM_WORLD.Idup()
        if not self._poll(request.Test, until):
            raise late([], patience_s)

    def _meet(self, comm: Any, until: float, patience_s: float) -> None:
        """Waits until all ranks make their loader. Making a communicator would wait as well, but could not say who is
        missing."""
        others = _others(self)
        words = bytearray(1)
        heard = {peer: bytearray(1) for peer in others}
        sends = [comm.Isend(self._bytes(words), peer, _HERE_TAG) for peer in others]
        receives = {peer: comm.Irecv(self._bytes(heard[peer]), peer, _HERE_TAG) for peer in others}

        def all_here() -> bool:
            for peer in [peer for peer, request in receives.items() if request.Test()]:
                del receives[peer]
            return not receives and self._mpi.Request.Testall(sends)

        if not self._poll(all_here, until):
            missing = sorted(receives)
            for request in receives.values():
                request.Cancel()
            raise late(missing, patience_s)

    def _poll(self, done: Callable[[], bool], until: float | None = None) -> bool:
        """Asks again and again, ever more seldom; False when the time is over."""
        pause = 2e-5
        while not done():
            if self._stopped or (until is not None and time.monotonic() > until):
                return False
            time.sleep(pause)
            pause = min(pause * 2, 2e-3)
        return True

    def _wait(self, done: Callable[[], bool]) -> None:
        if not self._poll(done):
            raise GristmillError("the exchange was stopped")

    def _bytes(self, memory: bytearray) -> Any:
        return [memory, self._mpi.BYTE]

    def gather(self, mine: bytes) -> list[bytes]:
        comm, others = self._comm, _others(self)
        self.missing = set(others)
        head, body = bytearray(len(mine).to_bytes(8, "little")), bytearray(mine)
        coming = {peer: bytearray(8) for peer in others}
        requests = {peer: comm.Irecv(self._bytes(coming[peer]), peer, 0) for peer in others}
        sends = [comm.Isend(self._bytes(words), peer, tag) for peer in others for tag, words in ((0, head), (1, body))]
        said: list[bytes] = [mine] * self.world
        headless = set(others)

        def all_said() -> bool:
            for peer in [peer for peer in self.missing if requests[peer].Test()]:
                if peer in headless:
                    headless.discard(peer)
                    coming[peer] = bytearray(_length(peer, coming[peer]))
                    requests[peer] = comm.Irecv(self._bytes(coming[peer]), peer, 1)
                else:
                    said[peer] = bytes(coming[peer])
                    self.missing.discard(peer)
            return not self.missing

        self._wait(all_said)
        self._wait(lambda: self._mpi.Request.Testall(sends))
        return said

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> Posted:
        # MPI promises tags up to 32,767. They wrap: messages with the same tag between two ranks keep their order.
        def tag(message: Message) -> int:
            return 2 + message[1] % 32_000

        coming = [self._comm.Irecv(self._bytes(message[2]), message[0], tag(message)) for message in receives]
        going = [self._comm.Isend(self._bytes(message[2]), message[0], tag(message)) for message in sends]
        return _MpiPosted(self, going, coming, receives)

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        # All ranks would have to free the communicator together, and these may not be together any more. There are
        # thousands of them, and a job makes few loaders.
        self._stopped = True


class _MpiPosted:
    def __init__(self, peers: MpiPeers, going: list[Any], coming: list[Any], receives: Sequence[Message]) -> None:
        self._peers = peers
        self._going = going
        self._coming = coming
        self._receives = receives

    def left(self) -> None:
        self._peers._wait(lambda: self._peers._mpi.Request.Testall(self._going))

    def came(self) -> Iterator[Message]:
        came: list[int] = []
        missing = len(self._receives)

        def some_came() -> bool:
            came[:] = self._peers._mpi.Request.Testsome(self._coming) or []
            return bool(came)

        while missing > 0:
            self._peers._wait(some_came)
            missing -= len(came)
            yield from (self._receives[at] for at in came)
