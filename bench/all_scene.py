"""The ground of a scenario of bench/all.py: its data, what slows it down, and what each configuration is told.

Numbers are those of `gristmill compare all`. A slow store is one whose every read waits for its first byte, and which
gives so many reads per second to all jobs and ranks together: a node in front of it is told all of that, and whoever
reads it without one (ranks, and jobs that have no cache) is told an equal part.

Deliberately not here: how a configuration is trained (bench/all_train.py), and several at a time
(bench/all_together.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pictures import RELEASE, ROOT, WORK, read_idx, write_idx

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIDE = 32
SCALE = (0.6, 1.0)
PHOTOS: list[Mapping[str, Any]] = [
    {"kind": "decode"},
    {"kind": "random-resized-crop", "size": SIDE, "scale": list(SCALE)},
    {"kind": "flip"},
    {"kind": "to-tensor"},
    {"kind": "normalise", "mean": MEAN, "std": STD},
]
JUDGED_PHOTOS: list[Mapping[str, Any]] = [
    {"kind": "decode"},
    {"kind": "resize", "size": 36},
    {"kind": "center-crop", "size": SIDE},
    {"kind": "to-tensor"},
    {"kind": "normalise", "mean": MEAN, "std": STD},
]
#: Of a small sample; in an idx file they stand one behind the other.
SAMPLE_BYTES, HEADER_BYTES = 784, 16
#: Each technique with the settings that make it.
TECHNIQUES: dict[str, dict[str, Any]] = {
    "selection": {"selection.kind": "weighted"},
    "cache": {"cache.size": "20%"},
    "split": {"split.policy": "best"},
    "exchange": {"exchange.fraction": "0.3"},
}
#: What is cached where nothing is to be: without any cache small containers are read into memory as a whole, which
#: would hide the store.
HARDLY_ANY = "1%"
#: What somebody sets who knows that the store is far away.
BY_HAND = {"store.reads_in_flight": 64, "loader.prefetch_batches": 8}


@dataclass(frozen=True)
class Scene:
    """A scenario on this machine: where the data is, and what slows it down."""

    letter: str
    train: Path
    judged: Path
    recipe: Any
    judged_recipe: Any
    #: Samples per second of the pretended accelerator of each job or rank.
    accelerator: float
    batch: int
    latency_ms: int = 0
    link_bytes_per_s: int = 0
    #: Of all jobs and ranks together.
    requests_per_s: int = 0
    jobs: int = 1
    ranks: int = 1

    @property
    def photos(self) -> bool:
        """Whether the samples are JPEG files."""
        return self.train.is_dir()

    @property
    def about(self) -> str:
        """What slows it down, in words."""
        whose = {(2, 1): "two jobs; ", (1, 4): "four ranks; "}.get((self.jobs, self.ranks), "")
        slow = "the data is near"
        if self.link_bytes_per_s:
            mbit = self.link_bytes_per_s * 8 / 1e6
            slow = f"a link of {mbit:g} Mbit/s, {self.latency_ms} ms there and back, paced on both sides"
        elif self.latency_ms:
            slow = f"the store takes {self.latency_ms} ms to the first byte"
        if self.requests_per_s:
            slow += f" and gives {self.requests_per_s:,} reads per second in all"
        each = " each" if whose else ""
        return f"{whose}{slow}; an accelerator of {self.accelerator:,g} samples/s{each}; batches of {self.batch}{each}"

    def shares_node(self, configuration: str) -> bool:
        """Whether jobs read through one node: where there is a cache, which they then share."""
        return self.jobs > 1 and configuration in ("cache", "hand", "all")


def scene(letter: str, link_bytes_per_s: int, round_trip_ms: int, latency_ms: int, accelerator: float | None) -> Scene:
    """Makes the data of a scenario, once."""
    rate = accelerator or (4_000 if letter == "c" else 8_000)
    if letter == "a":
        train, judged = _photos()
        return Scene(letter, train, judged, PHOTOS, JUDGED_PHOTOS, rate, 64, round_trip_ms, link_bytes_per_s)
    train, judged = _small()
    of = Scene(letter, train, judged, "mnist", "mnist", rate, 64, latency_ms=latency_ms if letter == "b" else 0)
    shared = replace(of, latency_ms=2, requests_per_s=3_000)
    return {"d": replace(shared, jobs=2), "e": replace(shared, ranks=4)}.get(letter, of)


def _photos() -> list[Path]:
    """Folders of photos to train and to judge with, made of the shipped ones."""
    folders = {name: WORK / f"all-pasted-4000-{name}" for name in ("train", "val")}
    made = ((4_000, 1, "4000-train"), (1_000, 2, "1000-test"))
    for (name, folder), (count, seed, part) in zip(folders.items(), made, strict=True):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([RELEASE / "cut-photos", folder, str(count), str(seed), "100", part], check=True)
            print(f"{name}: {count} pictures made of the shipped ones", file=sys.stderr, flush=True)
            # Else the system writes them out during the first training.
            os.sync()
    return list(folders.values())


def _small() -> list[Path]:
    """Small samples to train and to judge with: the shipped ones, not packed."""
    shipped = ROOT / "data" / "shippable"
    folder = WORK / "all-small"
    if not folder.exists():
        growing = folder.with_suffix(".growing")
        growing.mkdir(parents=True, exist_ok=True)
        for stem, part in (("4000-train", "train"), ("1000-test", "t10k")):
            for kind in ("images-idx3", "labels-idx1"):
                array = read_idx(shipped / f"fashion-mnist-{stem}-{kind}-ubyte.gz")
                write_idx(growing / f"{part}-{kind}-ubyte", array)
        growing.rename(folder)
        os.sync()
    return [folder / f"{part}-images-idx3-ubyte" for part in ("train", "t10k")]


@contextlib.contextmanager
def node(of: Scene, memory: str = "100%", slow: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A node in front of the data, in a process of its own; its URL. `slow` is what its store is told."""
    command = [str(RELEASE / "gristmill"), "serve", str(of.train), "--json", "--name", "data", "--memory", memory]
    command += ["--listen", "127.0.0.1:0", "--cores", "2"]
    command += [word for key, value in (slow or {}).items() for word in ("--set", f"{key}={value}")]
    # It ends with its standard input, so that it does not outlive this program whatever ends that.
    command.append("--while-stdin")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            said = process.stdout.readline()
            if not said:
                raise SystemExit("the node did not start; what it says is above")
            yield str(json.loads(said)["tcp"])
        finally:
            process.terminate()


def throttle(of: Scene, parts: int = 1) -> dict[str, Any]:
    """What a store is told to be as slow as that of the scenario; so many read it without a node in front of it."""
    slow: dict[str, Any] = {"store.throttle_latency_ms": of.latency_ms} if of.latency_ms else {}
    if of.requests_per_s:
        slow["store.throttle_requests_per_s"] = of.requests_per_s // parts
    if of.link_bytes_per_s:
        slow |= {"store.throttle_bytes_per_s": of.link_bytes_per_s, "split.same_machine": "true"}
    return slow


def settings(of: Scene, configuration: str, workers: int) -> dict[str, Any]:
    """What the loader of a configuration is told, beside its recipe."""
    # The node that jobs share has the store and the cache behind it.
    shared = of.shares_node(configuration)
    own = {} if shared else throttle(of, of.jobs * of.ranks)
    if of.latency_ms and not of.photos and not shared:
        own["cache.size"] = HARDLY_ANY
    used = [configuration]
    if configuration in ("hand", "all"):
        # A rank that holds its slice reads nothing twice.
        used = ["selection", "exchange" if of.ranks > 1 else "cache"]
    for technique in used:
        if not (technique == "cache" and shared):
            own |= TECHNIQUES[technique]
    if "exchange" in used:
        own.pop("cache.size")
    if configuration == "hand":
        return {**own, "steer.mode": "off", **BY_HAND}
    if configuration == "all":
        found = {"exchange.fraction": "auto"} if of.ranks > 1 else {}
        return {**own, **found, "steer.mode": "on", "steer.pin": "none"}
    # As much ahead as torch's DataLoader has by itself.
    naive = {"store.reads_in_flight": workers, "loader.prefetch_batches": 2 * workers}
    return {**own, **naive, "steer.mode": "off"}
