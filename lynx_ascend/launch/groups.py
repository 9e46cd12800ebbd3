"""Process groups: a child with all that it started."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def members(group: int) -> list[int]:
    """Living processes of the group; zombies, which nobody may ever collect, are not counted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # "pid (name) state ppid pgrp ...": the name may hold spaces and parentheses.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(entry.name))
    return found


def signal_all(group: int, number: int) -> None:
    """Sends a signal to every member, if there is one."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def kill(group: int, wait_s: float = 5.0) -> bool:
    """SIGKILL to every member; True once none is left, False if some still are after `wait_s` seconds."""
    end = time.monotonic() + wait_s
    while members(group):
        signal_all(group, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        # Not our own children, so there is no `wait`; what they forked meanwhile is seen by looking again.
        time.sleep(0.02)
    return True
