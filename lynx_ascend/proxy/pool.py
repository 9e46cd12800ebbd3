"""Servers of one role, taken in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class RoundRobin:
    """`order()` gives every server once: this call's choice first, then its stand-ins."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(url.rstrip("/") for url in urls)
        self._next = 0

    def order(self) -> Iterator[str]:
        start, self._next = self._next, (self._next + 1) % len(self.urls)
        return iter(self.urls[start:] + self.urls[:start])
