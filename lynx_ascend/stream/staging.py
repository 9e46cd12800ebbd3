"""Counted staging memory: a plain budget for P, a first-come-first-served one for D. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class StagingBudget:
    """Counts bytes against `total`. P's encoder waits on the owner's condition until `fits`."""

    total: int
    used: int = 0
    peak: int = 0

    def fits(self, nbytes: int) -> bool:
        return self.used + nbytes <= self.total

    def take(self, nbytes: int) -> None:
        self.used += nbytes
        self.peak = max(self.peak, self.used)

    def give(self, nbytes: int) -> None:
        self.used -= nbytes


class FifoBudget:
    """Grants reservations strictly in order of request: small ones never starve a large one."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._waiting: OrderedDict[Hashable, int] = OrderedDict()
        self._held: dict[Hashable, int] = {}

    def request(self, ticket: Hashable, nbytes: int) -> list[Hashable]:
        """Queue a reservation of at most `total`; returns the tickets that this call granted."""
        self._waiting[ticket] = nbytes
        return self._grant()

    def shrink(self, ticket: Hashable, nbytes: int) -> list[Hashable]:
        """Give back part of a reservation; more than is held gives back what is held. Returns new grants."""
        held = self._held.get(ticket, 0)
        part = min(held, max(0, nbytes))
        if part:
            self.used -= part
            self._held[ticket] = held - part
        return self._grant()

    def drop(self, ticket: Hashable) -> list[Hashable]:
        """End a reservation or a wait, idempotent. Returns new grants."""
        self._waiting.pop(ticket, None)
        self.used -= self._held.pop(ticket, 0)
        return self._grant()

    def clear(self) -> None:
        """Forget every reservation and every wait."""
        self.used = 0
        self._waiting.clear()
        self._held.clear()

    def held(self, ticket: Hashable) -> int:
        return self._held.get(ticket, 0)

    def _grant(self) -> list[Hashable]:
        granted = []
        while self._waiting:
            ticket, nbytes = next(iter(self._waiting.items()))
            if self.used + nbytes > self.total:
                break
            del self._waiting[ticket]
            self._held[ticket] = nbytes
            self.used += nbytes
            granted.append(ticket)
        return granted
