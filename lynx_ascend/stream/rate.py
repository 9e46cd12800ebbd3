"""A token bucket that stands for one network card, for demos and tests. Pure: the caller gives the time."""

from __future__ import annotations


class TokenBucket:
    """Lets `mbps` megabits a second through on average; None lets everything through.

    At most `burst_s` seconds' worth accumulates while idle, enough to make up for late wake-ups.
    Not thread-safe: the owner's lock guards it.
    """

    __slots__ = ("_at", "_burst", "_bytes_per_s", "_tokens")

    def __init__(self, mbps: float | None, now: float, burst_s: float = 0.02) -> None:
        self._bytes_per_s = mbps * 125_000.0 if mbps else None
        self._burst = max((self._bytes_per_s or 0.0) * burst_s, 4096.0)
        self._tokens = 0.0
        self._at = now

    def slice_bytes(self, window: int) -> int:
        """Most bytes of one send: the window, or about 2 ms of the rate when that is less."""
        if self._bytes_per_s is None:
            return window
        return max(2048, min(window, int(self._bytes_per_s * 0.002)))

    def wait_s(self, now: float) -> float:
        """Seconds until the next send may start; 0 when it may start now."""
        if self._bytes_per_s is None:
            return 0.0
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._bytes_per_s)
        self._at = now
        return 0.0 if self._tokens >= 0 else -self._tokens / self._bytes_per_s

    def spend(self, nbytes: int) -> None:
        """Charge bytes that went out; the balance may go below zero, which delays the next send."""
        if self._bytes_per_s is not None:
            self._tokens -= nbytes
