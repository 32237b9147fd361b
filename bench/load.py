"""CPU time per image: Gristmill's loader, the bare libraries, and Pillow, on the same files in one run.

    make bench-load                      # the ImageNet sample of GRISTMILL_DATA, else cut from the shipped photos
    .venv/bin/python bench/load.py DIR   # your own folder of JPEGs

Repeats are interleaved and medians reported, because machines are noisy; the ratios are what to look at. Written to
bench/results/load.txt.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from pictures import CATALOGS, RELEASE, ROOT, jpegs, pictures
from PIL import Image

REPEATS = 5


def pillow_ms(files: list[Path], seed: int) -> float:
    """Decode, random-resized crop to 224, flip and normalise, as a DataLoader with Pillow does; CPU ms per image."""
    rng = random.Random(seed)
    mean = np.array([0.485, 0.456, 0.406], np.float32)
    std = np.array([0.229, 0.224, 0.225], np.float32)
    start = time.process_time()
    for file in files:
        image = Image.open(file).convert("RGB")
        width, height = image.size
        for _ in range(10):
            area = width * height * rng.uniform(0.08, 1.0)
            aspect = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w = h = min(width, height)
        x, y = rng.randint(0, width - w), rng.randint(0, height - h)
        image = image.crop((x, y, x + w, y + h)).resize((224, 224), Image.Resampling.BILINEAR)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = (np.asarray(image, np.float32) / 255 - mean) / std
        np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return (time.process_time() - start) * 1e3 / len(files)


def run_json(command: list[str | Path]) -> dict[str, Any]:
    """The last JSON line a command prints."""
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return result


def bare(folder: Path, at_once: int) -> dict[str, float]:
    """CPU ms per image of the libraries called directly, by this many processes at once."""
    command = [RELEASE / "examples" / "direct", folder]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(at_once)]
    results = [json.loads(process.communicate()[0].strip().splitlines()[-1]) for process in running]
    parts = ("decode", "resize", "normalise", "libraries")
    return {part: statistics.mean(result[f"{part}_ms"] for result in results) for part in parts}


def main() -> None:
    folder, name = (Path(sys.argv[1]), sys.argv[1]) if len(sys.argv) > 1 else pictures()
    files = jpegs(folder)
    grist: list[str | Path] = [
        RELEASE / "gristmill",
        "bench",
        "load",
        folder,
        "--recipe",
        "imagenet-train",
        "--batch",
        "64",
    ]
    rows: dict[str, list[float]] = {k: [] for k in ("loader, 2 threads", "loader, 1 thread", "pillow")}
    rates: dict[str, list[float]] = {"loader, 2 threads": [], "loader, 1 thread": []}
    bare_ms: dict[str, list[float]] = {}
    env = ["--set", f"catalog.folder={CATALOGS}", "--json", "--epochs", "6"]
    for repeat in range(REPEATS):
        for threads in ("2", "1"):
            key = f"loader, {threads} thread{'s' if threads == '2' else ''}"
            total = run_json([*grist, "--threads", threads, "--seed", str(repeat), *env])
            rows[key].append(total["cpu_ms_per_sample"])
            rates[key].append(total["samples_per_s"])
        # Two at once and one alone, since two busy threads share a core's inside on many machines.
        for at_once in (2, 1):
            for part, ms in bare(folder, at_once).items():
                bare_ms.setdefault(f"{part}, {at_once} at once", []).append(ms)
        rows["pillow"].append(pillow_ms(files, repeat))
        print(f"repeat {repeat + 1} of {REPEATS} done", file=sys.stderr)

    mid = {k: statistics.median(v) for k, v in {**rows, **bare_ms}.items()}
    lines = [
        f"CPU ms per image, imagenet-train recipe, {name}, warm page cache",
        f"command: make bench-load     "
        f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        f"medians of {REPEATS} interleaved repeats [least .. most]; Pillow {PIL.__version__} in one thread",
        "",
    ]
    for key, values in {**rows, **bare_ms}.items():
        rate = f"   {statistics.median(rates[key]):7.0f} images/s" if key in rates else ""
        lines.append(f"  {key:<30} {mid[key]:6.3f}  [{min(values):.3f} .. {max(values):.3f}]{rate}")
    lines += [
        "",
        "  loader / bare libraries (crop decode + resize + normalise, called directly):",
        f"    2 threads / 2 at once   {mid['loader, 2 threads'] / mid['libraries, 2 at once']:.2f}",
        f"    1 thread  / 1 alone     {mid['loader, 1 thread'] / mid['libraries, 1 at once']:.2f}",
        f"  Pillow / loader, 1 thread   {mid['pillow'] / mid['loader, 1 thread']:.2f}",
    ]
    text = "\n".join(lines) + "\n"
    (ROOT / "bench" / "results").mkdir(parents=True, exist_ok=True)
    (ROOT / "bench" / "results" / "load.txt").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
