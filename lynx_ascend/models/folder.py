"""Folders of the cache: made whole or not at all, by one process at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def make_folder(target: Path, make: Callable[[Path], Path], is_ready: Callable[[], bool]) -> None:
    """Puts at `target` the folder that `make` makes in the working folder it is given.

    Nothing is made if `is_ready` says so once the lock is held: another process was first. What was at `target` is
    replaced. If `make` raises, `target` stays as it was and nothing is left beside it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f".{target.name}.lock"):
        if is_ready():
            return
        for left in target.parent.glob(f".{target.name}-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        # In the same folder, hence on the same file system: the rename below is atomic.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
            made = make(Path(work))
            if target.exists():
                target.rename(Path(work) / "old")
            made.rename(target)
