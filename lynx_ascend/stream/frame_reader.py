"""Cuts a bulk byte stream into frames, reading straight into the payloads' own memory. No sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lynx_ascend.stream.frames import HEADER_BYTES, FrameHeader, crc32c, decode_header

_SCRATCH_BYTES = 64 << 10
_READ_BYTES = 512 << 10  # a read is checksummed at once and should still be in the core's own cache


class LandedFrame(NamedTuple):
    """A frame whose last byte has come. `payload` is None when nobody wanted it."""

    header: FrameHeader
    payload: np.ndarray | None
    intact: bool


class FrameReader:
    """`views()` says where the next bytes go, `filled(n)` that n of them are there.

    `allocate` is asked once per header and answers with an array of exactly `header.length` bytes, or None to
    skip the payload. The views end with the next header's room, so that small frames cost one read each.
    """

    __slots__ = ("_allocate", "_at", "_crc", "_head", "_head_at", "_header", "_payload", "_room", "_scratch")

    def __init__(self, allocate: Callable[[FrameHeader], np.ndarray | None]) -> None:
        self._allocate = allocate
        self._head = memoryview(bytearray(HEADER_BYTES))
        self._head_at = 0
        self._header: FrameHeader | None = None
        self._payload: np.ndarray | None = None
        self._room: memoryview | None = None
        self._at = 0
        self._crc = 0
        self._scratch: memoryview | None = None

    @property
    def in_frame(self) -> bool:
        """True between a frame's first and last byte."""
        return self._header is not None or self._head_at > 0

    def views(self) -> list[memoryview]:
        """Writable buffers for one scattered read, never empty."""
        if self._header is None:
            return [self._head[self._head_at :]]
        if self._room is not None:
            room = self._room[self._at : self._at + _READ_BYTES]
            return [room, self._head] if self._at + len(room) == self._header.length else [room]
        if self._scratch is None:
            self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        left = self._header.length - self._at
        return [self._scratch[:left], self._head] if left <= _SCRATCH_BYTES else [self._scratch]

    def filled(self, nbytes: int) -> list[LandedFrame]:
        """Account for `nbytes` read into `views()`. ProtocolError from a bad header ends the stream."""
        landed: list[LandedFrame] = []
        if self._header is not None:
            take = min(nbytes, self._header.length - self._at)
            if self._payload is not None:
                # Checked as it comes, while the bytes are still in the cache.
                self._crc = crc32c(self._payload[self._at : self._at + take], self._crc)
            self._at += take
            nbytes -= take
            if self._at == self._header.length:
                landed.append(self._land())
        self._head_at += nbytes
        if self._header is None and self._head_at == HEADER_BYTES:
            self._begin(decode_header(self._head))
            if self._header is not None and self._header.length == 0:
                landed.append(self._land())
        return landed

    def _begin(self, header: FrameHeader) -> None:
        payload: Any = self._allocate(header)
        self._payload = payload
        self._room = None if payload is None else memoryview(payload)
        self._header, self._head_at, self._at, self._crc = header, 0, 0, 0

    def _land(self) -> LandedFrame:
        assert self._header is not None
        frame = LandedFrame(
            self._header, self._payload, self._payload is None or self._crc == self._header.crc
        )
        self._header = self._payload = self._room = None
        return frame
