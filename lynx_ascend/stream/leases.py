"""Leases: how long P keeps staging for a peer that gives no sign of life. Pure: the caller gives the time."""

from __future__ import annotations

from collections.abc import Hashable


class LeaseTable:
    """Expiry times by holder. Renewing an unknown holder does nothing, so late heartbeats are harmless."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._ends: dict[Hashable, float] = {}

    def open(self, holder: Hashable, now: float) -> None:
        self._ends[holder] = now + self.lease_s

    def renew(self, holder: Hashable, now: float) -> None:
        if holder in self._ends:
            self._ends[holder] = now + self.lease_s

    def close(self, holder: Hashable) -> None:
        self._ends.pop(holder, None)

    def expired(self, now: float) -> list[Hashable]:
        """Holders whose time is up; they stay in the table until closed."""
        return [holder for holder, end in self._ends.items() if now >= end]

    def __len__(self) -> int:
        return len(self._ends)
