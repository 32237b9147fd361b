"""A thousand real samples against torchvision, and the examples of the docstrings."""

from __future__ import annotations

import doctest
import io
import tarfile

import gristmill.errors
import gristmill.loader
import gristmill.report
import gristmill.torch
import numpy as np
import pytest
import torch
from conftest import ROOT, external
from gristmill.torch import Loader
from PIL import Image
from torchvision import transforms

EVAL = [
    {"kind": "decode"},
    {"kind": "resize", "size": 256},
    {"kind": "center-crop", "size": 224},
    {"kind": "to-tensor", "dtype": "u8"},
]


@pytest.mark.parametrize("name", ["imagenette-224", "imagenet-sample"])
def test_real_samples_against_torchvision(name: str) -> None:
    folder = external(name)
    if folder is None:
        pytest.skip(f"{name} is not there (set GRISTMILL_DATA)")
    reference = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])
    loader = Loader(folder / "images.tar", recipe=EVAL, batch_size=64, shuffle=False)
    raw = Loader(folder / "images.tar", batch_size=64, shuffle=False)
    worst = seen = 0
    for batch, source in zip(loader, raw, strict=True):
        assert torch.equal(batch.ids, source.ids)
        for image, data in zip(batch.images, source.images, strict=True):
            expect = np.asarray(reference(Image.open(io.BytesIO(data)).convert("RGB")), np.int16)
            worst = max(worst, int(np.abs(image.numpy().astype(np.int16) - expect).max()))
            seen += 1
    with tarfile.open(folder / "images.tar") as archive:
        assert seen == sum(member.isfile() for member in archive.getmembers())
    assert worst <= 1


def test_the_readmes_quick_start_runs_as_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text()
    code = text.split("## From Python")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(ROOT)
    exec(compile(code, "README.md", "exec"), {})
    assert "4,000 samples in 40 batches" in capsys.readouterr().out


@pytest.mark.parametrize("module", [gristmill.errors, gristmill.loader, gristmill.report, gristmill.torch])
def test_examples_in_docstrings_run(module: object, idx: str) -> None:
    results = doctest.testmod(module, globs={**vars(module), "DATA": idx})  # type: ignore[arg-type]
    assert results.failed == 0
    assert results.attempted > 0
