"""One training of bench/all.py: a scenario, a configuration, a seed, on PyTorch.

`plain` is torch's own DataLoader over the same files: each worker reads one sample at a time (waiting for the latency
of the store, or for its turn on the link, which all workers share) and prepares it with Pillow and torchvision.
Everything else goes through gristmill.torch.Loader: a technique alone with as many threads and reads as plain has
workers, `all` with nothing said but the techniques, steered. A step on the pretended accelerator lasts at least as long
as it would there; what the network takes of that is counted in. Only training is timed, judging is not.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gristmill.torch import Loader
from pictures import RELEASE, ROOT, WORK, jpegs, read_idx, write_idx
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

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
CLASSES = 10
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
#: Each technique with the settings that make it.
TECHNIQUES: dict[str, dict[str, Any]] = {
    "selection": {"selection.kind": "weighted"},
    "cache": {"cache.size": "20%"},
    "split": {"split.policy": "best"},
}


@dataclass(frozen=True)
class Scene:
    """A scenario on this machine: where the data is, and what slows it down."""

    letter: str
    train: Path
    judged: Path
    recipe: Any
    judged_recipe: Any
    accelerator: float
    batch: int
    latency_ms: int = 0
    link_bytes_per_s: int = 0

    @property
    def photos(self) -> bool:
        """Whether the samples are JPEG files."""
        return self.train.is_dir()


@dataclass
class Outcome:
    """What one training came to, epoch by epoch."""

    scenario: str
    configuration: str
    seed: int
    elapsed_s: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)
    bytes_read: int = 0
    decisions: list[dict[str, Any]] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def scene(letter: str, link_bytes_per_s: int, round_trip_ms: int, latency_ms: int, accelerator: float | None) -> Scene:
    """Makes the data of a scenario, once."""
    if letter == "a":
        folders = {name: WORK / f"all-pasted-4000-{name}" for name in ("train", "val")}
        made = ((4_000, 1, "4000-train"), (1_000, 2, "1000-test"))
        for (name, folder), (count, seed, part) in zip(folders.items(), made, strict=True):
            if not folder.exists():
                folder.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run([RELEASE / "cut-photos", folder, str(count), str(seed), "100", part], check=True)
                print(f"{name}: {count} pictures made of the shipped ones", flush=True)
        rate = accelerator or 4_000
        train, judged = folders["train"], folders["val"]
        return Scene(letter, train, judged, PHOTOS, JUDGED_PHOTOS, rate, 32, round_trip_ms, link_bytes_per_s)
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
    train, judged = folder / "train-images-idx3-ubyte", folder / "t10k-images-idx3-ubyte"
    latency = latency_ms if letter == "b" else 0
    rate = accelerator or (8_000 if letter == "b" else 4_000)
    return Scene(letter, train, judged, "mnist", "mnist", rate, 64, latency_ms=latency)


class Files(Dataset[tuple[torch.Tensor, int]]):
    """The samples as a plain program reads them: one at a time, each as slow as the store or the link is."""

    def __init__(self, of: Scene) -> None:
        self.scene = of
        self.free_at = multiprocessing.Value("d", 0.0)
        if of.photos:
            self.files = jpegs(of.train)
            names = sorted({file.parent.name for file in self.files})
            self.labels = [names.index(file.parent.name) for file in self.files]
            self.prepare = transforms.Compose(
                [
                    transforms.RandomResizedCrop(SIDE, SCALE),
                    transforms.RandomHorizontalFlip(),
                    transforms.ToTensor(),
                    transforms.Normalize(MEAN, STD),
                ]
            )
        else:
            labels = of.train.with_name(of.train.name.replace("images-idx3", "labels-idx1"))
            self.labels = [int(label) for label in read_idx(labels)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.scene.photos:
            path = self.files[index]
            self._carry(path.stat().st_size)
            with Image.open(path) as picture:
                return self.prepare(picture.convert("RGB")), self.labels[index]
        time.sleep(self.scene.latency_ms / 1e3)
        with self.scene.train.open("rb") as file:
            file.seek(16 + 784 * index)
            pixels = torch.frombuffer(bytearray(file.read(784)), dtype=torch.uint8)
        return (pixels.reshape(1, 28, 28).float() / 255 - 0.1307) / 0.3081, self.labels[index]

    def _carry(self, count: int) -> None:
        """Waits for these bytes' turn on the link that all workers share."""
        if self.scene.link_bytes_per_s == 0:
            return
        with self.free_at.get_lock():
            start = max(time.monotonic(), self.free_at.value)
            self.free_at.value = end = start + count / self.scene.link_bytes_per_s
        time.sleep(max(0.0, end + self.scene.latency_ms / 1e3 - time.monotonic()))


@contextlib.contextmanager
def node(of: Scene) -> Iterator[str]:
    """A node in front of the data of scenario a, in a process of its own; its URL."""
    command = [str(RELEASE / "gristmill"), "serve", str(of.train), "--json", "--name", "data", "--memory", "100%"]
    command += ["--listen", "127.0.0.1:0", "--cores", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise SystemExit("the node did not start")
            yield str(json.loads(said)["tcp"])
        finally:
            process.terminate()


def settings(of: Scene, configuration: str, workers: int) -> dict[str, Any]:
    """What the loader of a configuration is told, beside its recipe."""
    slow: dict[str, Any] = {"store.throttle_latency_ms": of.latency_ms} if of.latency_ms else {}
    if of.link_bytes_per_s:
        slow |= {"store.throttle_bytes_per_s": of.link_bytes_per_s, "split.same_machine": "true"}
    if of.letter == "b":
        # Without any cache small containers are read into memory as a whole, which would hide the store.
        slow["cache.size"] = "1%"
    if configuration == "all":
        there = [name for name in TECHNIQUES if name != "split"]
        both = {key: value for name in there for key, value in TECHNIQUES[name].items()}
        return {**slow, **both, "steer.mode": "on", "steer.pin": "none"}
    naive = {"store.reads_in_flight": workers, "steer.mode": "off"}
    return {**slow, **naive, **TECHNIQUES[configuration]}


class Learner:
    """A small network, its optimiser, and the accelerator that it pretends to run on."""

    def __init__(self, of: Scene, seed: int, epochs: int) -> None:
        torch.manual_seed(seed)
        inputs = 3 * SIDE * SIDE if of.photos else 784
        self.model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, 64, bias=False),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 32, bias=False),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, CLASSES),
        )
        self.optimiser = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
        self.epochs = epochs
        self.accelerator = of.accelerator

    def step(self, images: torch.Tensor, epoch: int, loss_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """One step, which lasts as long as the accelerator takes."""
        begun = time.perf_counter()
        for group in self.optimiser.param_groups:
            group["lr"] = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        loss = loss_of(self.model(images))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        time.sleep(max(0.0, len(images) / self.accelerator - (time.perf_counter() - begun)))

    @torch.no_grad()
    def accuracy(self, of: Scene) -> float:
        """Which part of the judged samples it names rightly."""
        self.model.eval()
        quiet = {"steer.mode": "off"}
        with Loader(of.judged, recipe=of.judged_recipe, batch_size=500, shuffle=False, settings=quiet) as loader:
            right = sum(int((self.model(images).argmax(1) == labels).sum()) for images, labels in loader)
            self.model.train()
            return right / loader.num_samples


def train(of: Scene, configuration: str, seed: int, epochs: int, workers: int) -> Outcome:
    """Trains once and says what came of it."""
    outcome = Outcome(of.letter, configuration, seed)
    learner = Learner(of, seed, epochs)
    with contextlib.ExitStack() as stack:
        epoch_of = plain(of, learner, workers, outcome) if configuration == "plain" else None
        if epoch_of is None:
            source = stack.enter_context(node(of)) if of.link_bytes_per_s else str(of.train)
            own = settings(of, configuration, workers)
            loader = Loader(
                source,
                recipe=of.recipe,
                batch_size=of.batch,
                seed=seed,
                epochs=epochs,
                num_workers=None if configuration == "all" else workers,
                settings=own,
            )
            stack.enter_context(closing(loader))
            loader.weigh(learner.model)
            epoch_of = steered(loader, learner, outcome)
        elapsed = 0.0
        for epoch in range(epochs):
            begun = time.perf_counter()
            outcome.trained.append(epoch_of(epoch))
            elapsed += time.perf_counter() - begun
            outcome.elapsed_s.append(elapsed)
            outcome.accuracies.append(learner.accuracy(of))
    return outcome


def plain(of: Scene, learner: Learner, workers: int, outcome: Outcome) -> Callable[[int], int]:
    """Epochs of torch's own DataLoader."""
    files = Files(of)
    chance = torch.Generator().manual_seed(outcome.seed)
    # More workers than cores are right here: they wait, and do not compute.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    loader = DataLoader(files, of.batch, shuffle=True, num_workers=workers, persistent_workers=True, generator=chance)
    total = sum(file.stat().st_size for file in files.files) if of.photos else 784 * len(files)

    def epoch_of(epoch: int) -> int:
        trained = 0
        for images, labels in loader:
            learner.step(images, epoch, partial(nn.functional.cross_entropy, target=labels))
            trained += len(labels)
        outcome.bytes_read += total
        return trained

    return epoch_of


def steered(loader: Loader, learner: Learner, outcome: Outcome) -> Callable[[int], int]:
    """Epochs of Gristmill's loader."""

    def epoch_of(epoch: int) -> int:
        trained = 0
        for batch in loader:
            learner.step(batch.images, epoch, partial(loader.loss, batch=batch))
            trained += len(batch.labels)
        report = loader.report()
        outcome.bytes_read += int(report.split.get("bytes") or report.values["bytes"])
        outcome.decisions += [{"seed": outcome.seed, **told} for told in report.values.get("decisions", [])]
        return trained

    return epoch_of
