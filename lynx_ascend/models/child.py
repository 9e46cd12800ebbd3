"""Runs a child process to its end: with a deadline, with its output in a file, and never left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lynx_ascend.errors import ModelError

TICK_S = 0.1
TAIL_LINES = 8


def run_child(
    command: Sequence[str],
    task: str,
    *,
    log: Path,
    deadline_s: float,
    env: Mapping[str, str],
    hint: str,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Returns when `command` has ended with status 0; `on_tick` is called ten times a second and once at its end.

    task: what it does, as in "could not `task`". env: added to our own. Raises `ModelError` with `hint` and the end of
    `log` if it fails, or if it takes more than `deadline_s`.
    """
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    end = time.monotonic() + deadline_s
    try:
        while not _ended(child):
            if time.monotonic() > end:
                raise ModelError(f"could not {task} within {deadline_s / 60:g} minutes:\n{_tail(log)}")
            on_tick()
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    on_tick()
    if child.returncode:
        raise ModelError(f"could not {task} ({hint}):\n{_tail(log)}")


def _ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(TICK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
