"""The nouns of a progressive transfer. Knows nothing of sockets, threads or engines."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Protocol, get_args

from lynx_ascend.errors import ProtocolError, TransferError

FaultClass = Literal["", "anchor", "residual"]
Buffer = Any
"""Anything with the buffer protocol that is C-contiguous: bytes, memoryview, numpy uint8 array."""


class Kind(IntEnum):
    """The two payload classes. An anchor always goes before a residual that is ready at the same time."""

    ANCHOR = 1
    RESIDUAL = 2


@dataclass(frozen=True, slots=True)
class TransferId:
    """Names one transfer of one life of a prefill worker.

    `id` is 32 lower-case hex digits; `generation` is the worker's epoch, a u32 drawn at server start.
    """

    id: str
    generation: int

    def __post_init__(self) -> None:
        id_bytes(self.id)
        if not 0 <= self.generation < 1 << 32:
            raise ProtocolError(f"generation {self.generation} is not a u32")

    @staticmethod
    def new_id() -> str:
        """A fresh random transfer id (32 hex digits)."""
        return secrets.token_hex(16)


def id_bytes(text: str) -> bytes:
    """The 16 bytes of a 32-hex-digit id; ProtocolError when it is anything else."""
    try:
        raw = bytes.fromhex(text)
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != 16 or len(text) != 32:
        raise ProtocolError(f"transfer id must be 32 hex digits, got {text!r:.80}")
    return raw


class PieceKey(NamedTuple):
    """Where a piece belongs: one plane (K, V, ...) of one layer, a run of pages, a run of heads.

    layer, plane, first_head and heads are u16; first_page and pages are u32.
    """

    layer: int
    plane: int
    first_page: int
    pages: int
    first_head: int
    heads: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One encoded piece. The buffers must not be written to before the transfer has ended on P."""

    key: PieceKey
    anchor: Buffer
    residual: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that P injects into one transfer, for tests and chaos runs only. They may come from a request, so a
    value of a wrong type or range is refused: TransferError, which names the fault.

    residual_delay_s: no residual is ready until so long after the last anchor was sent.
    anchor_delay_s: no anchor is ready until so long after the subscription.
    corrupt, corrupt_times: flip one byte on the wire of the class's first payload, so many times.
    stall: never send that class. drop_link: close the link when the first piece of the class would go.
    """

    residual_delay_s: float = 0.0
    anchor_delay_s: float = 0.0
    corrupt: FaultClass = ""
    corrupt_times: int = 1
    stall: FaultClass = ""
    drop_link: FaultClass = ""

    def __post_init__(self) -> None:
        for name in ("residual_delay_s", "anchor_delay_s"):
            value: Any = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < math.inf:
                raise TransferError(f"fault {name} must be a number of seconds, got {value!r:.80}")
        for name in ("corrupt", "stall", "drop_link"):
            value = getattr(self, name)
            if value not in get_args(FaultClass):
                raise TransferError(f"fault {name} must be 'anchor', 'residual' or '', got {value!r:.80}")
        if type(self.corrupt_times) is not int or self.corrupt_times < 0:
            raise TransferError(f"fault corrupt_times must be a count, got {self.corrupt_times!r:.80}")


@dataclass(slots=True)
class TransferStats:
    """What D saw. Sizes are payload bytes; times are `time.time()` seconds, 0.0 for what has not happened."""

    anchor_bytes: int = 0
    residual_bytes: int = 0
    anchor_pieces: int = 0
    residual_pieces: int = 0
    resends: int = 0
    t_subscribed: float = 0.0
    t_first_byte: float = 0.0
    t_anchor_done: float = 0.0
    t_residual_done: float = 0.0


class PayloadLimits(Protocol):
    """What the receiver's model geometry allows. Asked before a byte is allocated."""

    def max_bytes(self, kind: Kind, key: PieceKey) -> int:
        """Most payload bytes of this piece; ProtocolError when the key is out of range."""
        ...


class TransferSink(Protocol):
    """Where a transfer's events go on D.

    Called on receive threads, one call at a time per transfer; must return quickly. After exactly one of
    `on_complete` and `on_failed`, or after `cancel`, nothing more is called.
    """

    def on_anchor(self, key: PieceKey, payload: Any) -> None:
        """`payload`: 1-d numpy uint8 array that now belongs to the consumer."""
        ...

    def on_residual(self, key: PieceKey, payload: Any) -> None:
        """As `on_anchor`. May come before the last anchor of the same transfer."""
        ...

    def on_complete(self, stats: TransferStats) -> None:
        """Every piece has been delivered."""
        ...

    def on_failed(self, error: Any) -> None:
        """`error`: a TransferError; its `__cause__` is the ProtocolError or OSError behind it, if any."""
        ...
