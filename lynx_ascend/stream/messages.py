"""The typed control messages (msgpack arrays) and their length-prefixed codec. No sockets.

PROTOCOL_VERSION history
    1  first: hello, welcome, proof, refused; subscribe, cancel, nack, ack, released, heartbeat; accepted,
       finished, failed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated

import msgspec

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.types import PieceKey

PROTOCOL_VERSION = 1
MAX_CONTROL = 64 << 10
MAX_PREAUTH = 1 << 10
REASON_CHARS = 400

_LENGTH = struct.Struct("<I")
Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
U16 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
U32 = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 48) - 1)]
Reason = Annotated[str, msgspec.Meta(max_length=REASON_CHARS)]
WireKey = tuple[Annotated[int, msgspec.Meta(ge=1, le=2)], U16, U16, U32, U32, U16, U16]
"""(kind, layer, plane, first_page, pages, first_head, heads)"""


class Message(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base of all control messages."""


class Hello(Message):
    """D's first message. `role`: 0 control, 1 anchor, 2 residual; `link` groups the three sockets."""

    layout_hash: Annotated[str, msgspec.Meta(max_length=128)]
    role: Annotated[int, msgspec.Meta(ge=0, le=2)]
    link: Id
    nonce: Nonce


class Challenge(Message):
    """P's answer when version and layout fit."""

    layout_hash: Annotated[str, msgspec.Meta(max_length=128)]
    nonce: Nonce


class Proof(Message):
    """D's HMAC over both nonces."""

    mac: Nonce


class Welcome(Message):
    """P's own HMAC and its facts. `lease_ms`: how long P keeps a transfer without a sign of D."""

    mac: Nonce
    generation: U32
    lease_ms: U32


class Refused(Message):
    """P closes the connection; `code` is version, layout or token."""

    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Reason


class Subscribe(Message):
    """D is ready for the transfer and grants P `credit` payload bytes."""

    transfer: Id
    generation: U32
    credit: Count


class Cancel(Message):
    """D does not want the transfer any more."""

    transfer: Id
    generation: U32
    reason: Reason


class Nack(Message):
    """The named payload failed its checksum at D."""

    transfer: Id
    generation: U32
    key: WireKey


class Ack(Message):
    """So many frames in all have come through the link's socket of this class; a bad one was named by a Nack
    before. P may drop what the others carried.
    """

    kind: Annotated[int, msgspec.Meta(ge=1, le=2)]
    frames: Count


class Released(Message):
    """D has everything: P drops the transfer."""

    transfer: Id
    generation: U32


class Heartbeat(Message):
    """D is alive; `waiting`: transfers it wants but has no staging for yet. P echoes an empty list."""

    seq: Count
    waiting: Annotated[list[Id], msgspec.Meta(max_length=1024)]


class Accepted(Message):
    """P knows the transfer; `pieces` anchors will come."""

    transfer: Id
    generation: U32
    pieces: Count
    bytes_max: Count


class Finished(Message):
    """P has put every piece of the transfer; this many payloads of each class make it whole."""

    transfer: Id
    generation: U32
    anchors: Count
    residuals: Count


class Failed(Message):
    """P gives the transfer up. `code`: stale, unknown, busy, credit, checksum, expired or failed."""

    transfer: Id
    generation: U32
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Reason


AnyMessage = (
    Hello | Challenge | Proof | Welcome | Refused | Subscribe | Cancel | Nack | Ack | Released | Heartbeat
    | Accepted | Finished | Failed
)  # fmt: skip
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def clip(text: str) -> str:
    """A reason cut to what the wire carries."""
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 3] + "..."


def wire_key(kind: int, key: PieceKey) -> WireKey:
    return (int(kind), *key)


def pack(message: Message) -> bytes:
    """Length prefix and body."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Message:
    """Decode one body; ProtocolError when it is not a known, well-formed message."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed control message: {error}") from error


def body_length(prefix: bytes, limit: int = MAX_CONTROL) -> int:
    """The body length in a 4-byte prefix; ProtocolError when it is 0 or above `limit`."""
    (length,) = _LENGTH.unpack(prefix)
    if not 0 < length <= limit:
        raise ProtocolError(f"control message of {length} bytes, allowed are 1 to {limit}")
    return length


class MessageReader:
    """Cuts a byte stream into messages; never holds more than one message and one chunk."""

    __slots__ = ("_data", "_limit")

    def __init__(self, limit: int = MAX_CONTROL) -> None:
        self._data = bytearray()
        self._limit = limit

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Messages completed by `chunk`. Exhaust the iterator before the next call."""
        self._data += chunk
        at = 0
        while len(self._data) - at >= 4:
            length = body_length(bytes(self._data[at : at + 4]), self._limit)
            if len(self._data) - at - 4 < length:
                break
            body = bytes(self._data[at + 4 : at + 4 + length])
            at += 4 + length
            yield unpack(body)
        del self._data[:at]
