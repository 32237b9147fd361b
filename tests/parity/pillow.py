"""Compares Gristmill's pixels with Pillow's.

usage: pillow.py PIXELS   (the built example `pixels` of gristmill-ops; needs Pillow and NumPy)

Makes pictures of every kind with Pillow, takes the shipped photos and, when present, the ImageNet sample below
$GRISTMILL_DATA, and checks: decoding is identical, decoding only a crop is identical to cutting it from the whole,
resized pixels differ by at most 1 of 255. Exit code 0 when all hold, 1 otherwise.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GRISTMILL_DATA", ROOT.parent / "shared" / "data"))
TENSOR = {"kind": "to-tensor", "dtype": "u8", "layout": "nhwc"}


def recipe(*ops):
    return {"op": [{"kind": "decode"}, *ops, TENSOR]}


def texture(rng, rows, columns, channels=3):
    """Smooth colour with edges and grain: every frequency is present, as in a photo."""
    y, x = np.mgrid[0:rows, 0:columns].astype(float)
    planes = []
    for _ in range(channels):
        a, b, c = rng.uniform(0.01, 0.4, 3)
        plane = 128 + 70 * np.sin(a * x + b * y) + 50 * np.sign(np.sin(c * (x - y))) + rng.normal(0, 12, x.shape)
        planes.append(plane)
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def made_jpegs(rng):
    sizes = [(1, 1), (1, 40), (40, 1), (7, 9), (16, 16), (17, 33), (64, 48), (99, 131), (200, 301), (375, 500)]
    for rows, columns in sizes:
        pixels = texture(rng, rows, columns)
        # Pillow writes no other subsampling; 4:1:1 and 4:4:0 are covered by the crate's own tests.
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                for quality in (30, 95):
                    data = io.BytesIO()
                    options = {"quality": quality, "progressive": progressive}
                    Image.fromarray(pixels).save(data, "JPEG", subsampling=subsampling, **options)
                    yield f"made-{rows}x{columns}-{subsampling.replace(':', '')}-{quality}-{progressive}.jpg", data
        for name, image in [
            ("grey", Image.fromarray(pixels[..., 0])),
            ("cmyk", Image.fromarray(texture(rng, rows, columns, 4), "CMYK")),
        ]:
            for progressive in (False, True):
                data = io.BytesIO()
                image.save(data, "JPEG", quality=85, progressive=progressive)
                yield f"made-{rows}x{columns}-{name}-{progressive}.jpg", data
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "JPEG", quality=85, keep_rgb=True)
        yield f"made-{rows}x{columns}-keeprgb.jpg", data
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "JPEG", quality=85, restart_marker_rows=1)
        yield f"made-{rows}x{columns}-restart.jpg", data


def png(colour, bits, rows, columns, packed, chunks=(), interlace=0):
    """A PNG written by hand, for the kinds that Pillow reads but does not write."""
    import struct
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", columns, rows, bits, colour, 0, 0, interlace)
    body = b"".join(b"\0" + row for row in packed)
    extra = b"".join(chunk(kind, data) for kind, data in chunks)
    end = chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + end)


def adam7(pixels):
    """The rows of the seven passes of an interlaced picture with whole bytes per pixel."""
    for y, x, dy, dx in [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]:
        part = pixels[y::dy, x::dx]
        if part.size:
            yield from (row.tobytes() for row in part)


def made_pngs(rng):
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
    for rows, columns in [(1, 1), (5, 13), (33, 70)]:
        for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
            for bits in depths:
                row_bytes = (columns * samples[colour] * bits + 7) // 8
                packed = [rng.bytes(row_bytes) for _ in range(rows)]
                palette = [(b"PLTE", rng.bytes(3 * 2**bits))] if colour == 3 else []
                name = f"made-{rows}x{columns}-colour{colour}-{bits}bit"
                yield f"{name}.png", png(colour, bits, rows, columns, packed, palette)
                if colour == 3:
                    trns = [*palette, (b"tRNS", rng.bytes(2**bits))]
                    yield f"{name}-trns.png", png(colour, bits, rows, columns, packed, trns)
                elif colour == 0:
                    yield f"{name}-trns.png", png(colour, bits, rows, columns, packed, [(b"tRNS", b"\0\1")])
                elif colour == 2:
                    trns = [(b"tRNS", b"\0\1\0\2\0\3")]
                    yield f"{name}-trns.png", png(colour, bits, rows, columns, packed, trns)
        for colour, channels in {0: 1, 2: 3, 6: 4}.items():
            pixels = texture(rng, rows, columns, channels)
            yield (
                f"made-{rows}x{columns}-interlaced{colour}.png",
                png(colour, 8, rows, columns, adam7(pixels), interlace=1),
            )


def photos(folder, archive, limit=None):
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if member.isfile()]
        for member in members[:limit]:
            data = io.BytesIO(tar.extractfile(member).read())
            if data.getvalue()[:2] == b"\xff\xd8":
                yield f"{folder}-{Path(member.name).name}", data


class Jobs:
    """What to run and how to judge it."""

    def __init__(self, folder):
        self.folder, self.jobs, self.judges = folder, [], []

    def add(self, name, file, image, recipe, sample, judge):
        out = self.folder / f"{len(self.jobs)}.raw"
        size = [image.shape[0], image.shape[1]]
        self.jobs.append({"file": str(file), "recipe": recipe, "size": size, "sample": sample, "out": str(out)})
        self.judges.append((name, out, judge))

    def run(self, program):
        lines = "\n".join(json.dumps(job) for job in self.jobs)
        done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(self.jobs), f"{len(answers)} answers to {len(self.jobs)} jobs"
        for (name, out, judge), answer in zip(self.judges, answers, strict=True):
            if "error" in answer:
                yield name, answer["error"]
            else:
                ours = np.fromfile(out, np.uint8).reshape(answer["shape"])
                yield name, judge(ours, answer["box"])
                out.unlink()


def largest(a, b):
    return int(np.abs(a.astype(int) - b.astype(int)).max()) if a.size else 0


def identical(expected):
    def judge(ours, _):
        return None if np.array_equal(ours, expected) else f"differs by up to {largest(ours, expected)}"

    return judge


def identical_crop(image):
    def judge(ours, box):
        x, y, width, height = box
        return identical(image[y : y + height, x : x + width])(ours, box)

    return judge


compared = {"values": 0, "off": 0}


def close(expected):
    def judge(ours, _):
        compared["values"] += ours.size
        compared["off"] += int((ours != expected).sum())
        return None if largest(ours, expected) <= 1 else f"differs by up to {largest(ours, expected)}"

    return judge


def close_crop(image, rows, columns):
    def judge(ours, box):
        x, y, width, height = box
        part = Image.fromarray(image[y : y + height, x : x + width])
        return close(np.asarray(part.resize((columns, rows), Image.Resampling.BILINEAR)))(ours, box)

    return judge


def evaluation(image, side, crop):
    """Resize the shorter side, then crop the middle, as torchvision does it."""
    rows, columns = image.shape[:2]
    short, long = min(rows, columns), max(rows, columns)
    longer = int(side * long / short)
    size = (side, longer) if columns <= rows else (longer, side)
    resized = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))
    top, left = (round((length - crop) / 2.0) for length in resized.shape[:2])
    return resized[top : top + crop, left : left + crop]


def jobs_for(jobs, name, file, image, rng):
    rows, columns = image.shape[:2]
    whole = {"kind": "center-crop", "size": [rows, columns]}
    jobs.add(f"{name}: decode", file, image, recipe(whole), 0, identical(image))
    grey = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    jobs.add(f"{name}: grey", file, image, recipe(whole, {"kind": "grey"}), 0, identical(grey))
    for sample in range(4):
        size = [int(rng.integers(1, rows + 1)), int(rng.integers(1, columns + 1))]
        crop = {"kind": "random-crop", "size": size}
        jobs.add(f"{name}: crop {size}", file, image, recipe(crop), sample, identical_crop(image))
    if min(rows, columns) < 2:
        return
    for sample in range(3):
        size = [int(rng.integers(1, 260)), int(rng.integers(1, 260))] if sample else [224, 224]
        crop = {"kind": "random-resized-crop", "size": size}
        jobs.add(f"{name}: resized crop {size}", file, image, recipe(crop), sample, close_crop(image, *size))
    both = [{"kind": "resize", "size": 256}, {"kind": "center-crop", "size": 224}]
    jobs.add(f"{name}: evaluation", file, image, recipe(*both), 0, close(evaluation(image, 256, 224)))
    exact = [{"kind": "resize", "size": [50, 61]}]
    expected = np.asarray(Image.fromarray(image).resize((61, 50), Image.Resampling.BILINEAR))
    jobs.add(f"{name}: resize", file, image, recipe(*exact), 0, close(expected))
    expected = np.asarray(Image.fromarray(grey[..., 0]).resize((61, 50), Image.Resampling.BILINEAR))[..., None]
    jobs.add(f"{name}: grey resize", file, image, recipe({"kind": "grey"}, *exact), 0, close(expected))


def main():
    program = sys.argv[1]
    rng = np.random.default_rng(0)
    sources = [made_jpegs(rng), made_pngs(rng), photos("photo", ROOT / "data" / "shippable" / "cc0-photos.tar")]
    sample = DATA / "imagenet-sample" / "images.tar"
    if sample.exists():
        sources.append(photos("imagenet", sample))
    else:
        print(f"without the ImageNet sample: {sample} is absent (set GRISTMILL_DATA)")
    passed, failures, files = 0, [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for source in sources:
            jobs = Jobs(folder)
            for name, data in source:
                file = folder / name
                file.write_bytes(data.getvalue())
                jobs_for(jobs, name, file, np.asarray(Image.open(data).convert("RGB")), rng)
                files += 1
            for name, failure in jobs.run(program):
                if failure:
                    failures.append(f"{name}: {failure}")
                else:
                    passed += 1
    for failure in failures[:50]:
        print(f"FAILED {failure}")
    print(f"resized: {compared['off']:,} of {compared['values']:,} values are not Pillow's")
    print(f"{passed} passed, {len(failures)} failed ({files} files)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
