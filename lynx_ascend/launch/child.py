"""One child process in a group of its own, with its output in a file, in memory and, if wanted, on the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from lynx_ascend.errors import LynxError
from lynx_ascend.launch import groups
from lynx_ascend.launch.plan import Launch

TAIL_LINES = 40
LINE_BYTES = 1 << 16
# By its path and without site packages: 20 ms, not the import of this package.
LEASH = (sys.executable, "-I", "-S", str(Path(__file__).with_name("leash.py")))


class LaunchError(LynxError):
    """A process could not be started, died, or was not ready in time. The message ends with its last lines."""


class Child:
    """Runs a `Launch` from construction until `stop()`. `pid` is also the id of its process group."""

    def __init__(self, launch: Launch, log: Path, on_line: Callable[[str, str], None] | None = None) -> None:
        self.launch, self.name, self.log = launch, launch.name, log
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"log of {self.name}", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error:
            raise LaunchError(f"{self.name} could not be started: {self._error}")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # the constructor raises otherwise
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def tail(self) -> str:
        """Its last lines."""
        return "\n".join(self._lines)

    def _run(self) -> None:
        # The parent-death signal of the kernel is tied to the thread that started the child: this one, which lives
        # as long as the child's output is open.
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("wb") as file:
                self._process = subprocess.Popen(
                    [*LEASH, str(os.getpid()), *self.launch.command],
                    env=os.environ | self.launch.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._started.set()
                assert self._process.stdout is not None  # because of stdout=PIPE
                while line := self._process.stdout.readline(LINE_BYTES):
                    file.write(line)
                    file.flush()
                    text = line.decode(errors="replace").rstrip()
                    self._lines.append(text)
                    if self._on_line:
                        self._on_line(self.name, text)
                self._process.wait()
        except OSError as error:
            self._error = error
        finally:
            self._started.set()

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to the whole group after `grace_s` seconds. Nothing of the group is left."""
        self.terminate()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.kill()  # what it started may outlive it
        self._thread.join(5)

    def terminate(self) -> None:
        """Asks it to end, without waiting. It ends its own children."""
        if self.returncode is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to it and all that it started."""
        if not groups.kill(self.pid):
            raise LaunchError(f"{self.name}: processes {groups.members(self.pid)} do not die")
        self.process.wait()
