"""A circuit breaker for one peer. Pure: the caller gives the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CircuitBreaker:
    """Opens for `open_s` seconds after `threshold` failures in a row, then lets one probe through."""

    threshold: int = 3
    open_s: float = 5.0
    failures: int = 0
    open_until: float = 0.0
    probing: bool = False

    def allows(self, now: float) -> bool:
        """True when an attempt may start. In the half-open state only the first caller gets True."""
        if self.failures < self.threshold:
            return True
        if now < self.open_until or self.probing:
            return False
        self.probing = True
        return True

    def record_success(self) -> None:
        self.failures, self.open_until, self.probing = 0, 0.0, False

    def record_failure(self, now: float) -> None:
        self.failures += 1
        self.probing = False
        if self.failures >= self.threshold:
            self.open_until = now + self.open_s

    def record_abandoned(self) -> None:
        """The attempt ended without a verdict about the peer (its transfers were cancelled)."""
        self.probing = False
