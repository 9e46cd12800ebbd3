"""The signals that ask a command to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_stop(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Calls `handler` on SIGINT, SIGTERM and (unless nohup has it ignored) SIGHUP; the handlers before come back."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
