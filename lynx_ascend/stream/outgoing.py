"""One transfer's state on P: what is staged, what is ready, what D has. Pure; the owner's lock guards it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from lynx_ascend.errors import TransferError
from lynx_ascend.stream.frames import FLAG_RESEND, FrameHeader, encode_header
from lynx_ascend.stream.send_frame import SendFrame
from lynx_ascend.stream.types import Faults, Kind, PieceKey, TransferId, id_bytes


class SendState(StrEnum):
    """P's view of a transfer. The last four are ends: nothing is staged any more."""

    OFFERED = "offered"
    SUBSCRIBED = "subscribed"
    ANCHOR_SENT = "anchor_sent"
    RESIDUAL_SENT = "residual_sent"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"


ENDS = frozenset({SendState.RELEASED, SendState.CANCELLED, SendState.EXPIRED, SendState.FAILED})


@dataclass(slots=True)
class StagedPayload:
    """A payload held until D acknowledges it, with its ready-made frame header."""

    data: np.ndarray
    crc: int
    header: bytes = b""
    nacks: int = 0
    resend_pending: bool = False


@dataclass(slots=True, eq=False)
class OutgoingState:
    """See the module. `order` is the age rank: lower is older and goes first."""

    tid: TransferId
    pieces: int
    bytes_max: int
    order: int
    faults: Faults | None = None
    state: SendState = SendState.OFFERED
    reason: str = ""
    link: Any = None
    finished: bool = False
    put_pieces: int = 0
    put_residuals: int = 0
    put_bytes: int = 0
    staged_bytes: int = 0
    credit: int = 0
    spent: int = 0
    sent: dict[Kind, int] = field(default_factory=lambda: {Kind.ANCHOR: 0, Kind.RESIDUAL: 0})
    t_subscribed: float = math.inf
    t_anchors_sent: float = math.inf
    ready: dict[Kind, deque[PieceKey]] = field(default_factory=lambda: {kind: deque() for kind in Kind})
    staged: dict[tuple[Kind, PieceKey], StagedPayload] = field(default_factory=dict)
    seen: set[PieceKey] = field(default_factory=set)
    raw_id: bytes = b""
    _corrupt_key: PieceKey | None = None
    _corrupted: int = 0

    def __post_init__(self) -> None:
        self.raw_id = id_bytes(self.tid.id)

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    def check_room(self, key: PieceKey, nbytes: int) -> None:
        """TransferError when one more piece does not fit what was offered."""
        if self.finished or self.put_pieces >= self.pieces:
            raise TransferError(f"a piece more than the {self.pieces} offered", self.tid.id)
        if key in self.seen:
            raise TransferError(f"{key} was put twice", self.tid.id)
        if self.put_bytes + nbytes > self.bytes_max:
            raise TransferError(f"more than the {self.bytes_max} bytes offered", self.tid.id)

    def stage(self, key: PieceKey, anchor: StagedPayload, residual: StagedPayload | None) -> None:
        """Add a piece whose room was checked."""
        self.seen.add(key)
        self.put_pieces += 1
        for kind, payload in ((Kind.ANCHOR, anchor), (Kind.RESIDUAL, residual)):
            if payload is None:
                continue
            self.put_residuals += kind is Kind.RESIDUAL
            self.put_bytes += payload.data.size
            self.staged_bytes += payload.data.size
            payload.header = self._header(kind, key, payload, 0)
            self.staged[kind, key] = payload
            self.ready[kind].append(key)

    def subscribe(self, link: Any, credit: int, now: float) -> None:
        self.state, self.link, self.credit, self.t_subscribed = SendState.SUBSCRIBED, link, credit, now

    def gate(self, kind: Kind) -> float:
        """The time from which the class may be sent; only injected faults make it later than now."""
        faults = self.faults
        if faults is None:
            return 0.0
        if faults.stall == kind.name.lower():
            return math.inf
        if kind is Kind.ANCHOR:
            return self.t_subscribed + faults.anchor_delay_s if faults.anchor_delay_s else 0.0
        return self.t_anchors_sent + faults.residual_delay_s if faults.residual_delay_s else 0.0

    def next_frame(self, kind: Kind) -> SendFrame | None:
        """Take the next ready payload of the class. TransferError when D's credit does not cover it."""
        queue = self.ready[kind]
        if not queue:
            return None
        key = queue.popleft()
        payload = self.staged[kind, key]
        header = payload.header
        if payload.nacks:
            header = self._header(kind, key, payload, FLAG_RESEND)
        else:
            if self.spent + payload.data.size > self.credit:
                raise TransferError(
                    f"needs more than the {self.credit} bytes granted by the peer", self.tid.id
                )
            self.spent += payload.data.size
        if self.faults is None:
            return SendFrame(self, kind, key, header, payload.data)
        frame = SendFrame(self, kind, key, header, self._damage(self.faults, kind, key, payload.data))
        frame.drop_link = self.faults.drop_link == kind.name.lower()
        return frame

    def _header(self, kind: Kind, key: PieceKey, payload: StagedPayload, flags: int) -> bytes:
        return encode_header(
            FrameHeader(kind, flags, self.raw_id, self.tid.generation, key, payload.data.size, payload.crc)
        )

    def _damage(self, faults: Faults, kind: Kind, key: PieceKey, data: np.ndarray) -> np.ndarray:
        if faults.corrupt != kind.name.lower() or self._corrupted >= faults.corrupt_times or not data.size:
            return data
        if self._corrupt_key is None:
            self._corrupt_key = key
        if key != self._corrupt_key:
            return data
        self._corrupted += 1
        damaged = data.copy()
        damaged[damaged.size // 2] ^= 0x40
        return damaged

    def frame_sent(self, frame: SendFrame, now: float) -> None:
        """All bytes of the frame are in the socket; it stays staged until D has answered."""
        frame.abandon()
        payload = self.staged.get((frame.kind, frame.key))
        if payload is None or payload.nacks:
            return
        self.sent[frame.kind] += 1
        if frame.kind is Kind.ANCHOR and self.sent[Kind.ANCHOR] == self.pieces:
            self.state, self.t_anchors_sent = SendState.ANCHOR_SENT, now
        self.settle()

    def settle(self) -> None:
        """Move on to RESIDUAL_SENT when nothing is left to send."""
        if (
            self.state is SendState.ANCHOR_SENT
            and self.finished
            and self.sent[Kind.RESIDUAL] == self.put_residuals
        ):
            self.state = SendState.RESIDUAL_SENT

    def acked(self, kind: Kind, key: PieceKey) -> int:
        """D has the frame's payload, or has named it in a Nack; returns the bytes freed."""
        payload = self.staged.get((kind, key))
        if payload is None:
            return 0
        if payload.resend_pending:
            payload.resend_pending = False
            return 0
        del self.staged[kind, key]
        self.staged_bytes -= payload.data.size
        return payload.data.size

    def nacked(self, kind: Kind, key: PieceKey) -> bool:
        """D got a damaged payload. True: it is queued again (first). False: that was its second chance."""
        payload = self.staged.get((kind, key))
        if payload is None or payload.resend_pending or key in self.ready[kind]:
            return True
        payload.nacks += 1
        if payload.nacks > 1:
            return False
        payload.resend_pending = True
        self.ready[kind].appendleft(key)
        return True

    def end(self, state: SendState, reason: str) -> int:
        """Drop everything staged; returns the bytes freed. Only the first end counts."""
        if self.ended:
            return 0
        self.state, self.reason, self.link = state, reason, None
        freed, self.staged_bytes = self.staged_bytes, 0
        self.staged.clear()
        self.seen.clear()
        for queue in self.ready.values():
            queue.clear()
        return freed
