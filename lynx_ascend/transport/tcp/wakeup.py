"""How another thread makes a link's poll return."""

from __future__ import annotations

import contextlib
import os
import threading


class Wakeup:
    """A pipe that makes a poll loop return. `set` never blocks and may be called from any thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._closed = False
        self._lock = threading.Lock()  # a late `set` must not write to a reused descriptor

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._write, b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._read, 4096)) == 4096:
                pass

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._read)
                os.close(self._write)
