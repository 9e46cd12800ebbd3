"""Becomes the command it is given, after asking the kernel for SIGTERM when the supervisor dies.

`python leash.py SUPERVISOR_PID COMMAND...`. A program of its own, since code between fork and
exec (`preexec_fn`) can deadlock in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    supervisor, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor:  # it died before we asked
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
