"""The bulk frame: a fixed little-endian header, then the payload. No serializer, no sockets.

FRAME_VERSION history
    1  first: magic, version, kind, flags, transfer, generation, key, length, payload CRC, header CRC.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.types import Buffer, Kind, PieceKey

MAGIC = b"LYNF"
FRAME_VERSION = 1
FLAG_RESEND = 1
_FLAGS_KNOWN = FLAG_RESEND

_BODY = struct.Struct("<4sBBH16sIHHIIHHII")
_CRC = struct.Struct("<I")
_WHOLE = struct.Struct(_BODY.format + "I")
HEADER_BYTES = _WHOLE.size
MAX_PAYLOAD = (1 << 32) - 1
_KINDS = {int(kind): kind for kind in Kind}
_CRC_STEP = 1 << 20  # the CRC call keeps the interpreter lock: give it back about every 0.15 ms


class FrameHeader(NamedTuple):
    """The header's fields. `transfer` is the raw 16-byte id, `crc` the CRC32C of the payload."""

    kind: Kind
    flags: int
    transfer: bytes
    generation: int
    key: PieceKey
    length: int
    crc: int


def as_bytes_view(buffer: Buffer) -> np.ndarray:
    """A 1-d uint8 array over a C-contiguous buffer, without a copy; ProtocolError when that cannot be."""
    try:
        view = memoryview(buffer)
        if view.nbytes == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(view.cast("B"), np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise ProtocolError(f"a payload must be a C-contiguous buffer: {error}") from error


def crc32c(data: np.ndarray, start: int = 0) -> int:
    """CRC32C of a uint8 array, continuing from `start`."""
    if data.size <= _CRC_STEP:
        return google_crc32c.extend(start, data) if data.size else start
    for at in range(0, data.size, _CRC_STEP):
        start = google_crc32c.extend(start, data[at : at + _CRC_STEP])
    return start


def encode_header(header: FrameHeader) -> bytes:
    """The HEADER_BYTES of a frame; ProtocolError when a field does not fit its width."""
    key = header.key
    try:
        body = _BODY.pack(
            MAGIC, FRAME_VERSION, header.kind, header.flags, header.transfer, header.generation, key.layer,
            key.plane, key.first_page, key.pages, key.first_head, key.heads, header.length, header.crc,
        )  # fmt: skip
    except struct.error as error:
        raise ProtocolError(f"frame field out of range: {error} in {header}") from error
    if len(header.transfer) != 16:  # struct would pad or cut it without a word
        raise ProtocolError(f"transfer id must be 16 bytes, got {len(header.transfer)}")
    return body + _CRC.pack(google_crc32c.value(body))


def decode_header(data: Any) -> FrameHeader:
    """Parse HEADER_BYTES bytes. ProtocolError on any deviation; allocates nothing of the stated length."""
    raw = bytes(data)
    if len(raw) != HEADER_BYTES:
        raise ProtocolError(f"frame header must be {HEADER_BYTES} bytes, got {len(raw)}")
    magic, version, kind, flags, transfer, generation, *place, length, crc, own_crc = _WHOLE.unpack(raw)
    if magic != MAGIC:
        raise ProtocolError(f"bad frame magic {magic!r}")
    if version != FRAME_VERSION:
        raise ProtocolError(f"frame version {version}, this side speaks {FRAME_VERSION}")
    if own_crc != google_crc32c.value(raw[: _BODY.size]):
        raise ProtocolError("frame header checksum mismatch")
    if kind not in _KINDS:
        raise ProtocolError(f"unknown frame kind {kind}")
    if flags & ~_FLAGS_KNOWN:
        raise ProtocolError(f"unknown frame flags {flags:#x}")
    return FrameHeader(_KINDS[kind], flags, transfer, generation, PieceKey._make(place), length, crc)
