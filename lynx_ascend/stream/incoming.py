"""One transfer's state on D: what may come, what came, what is missing. Pure; the receive thread owns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream.frames import FrameHeader
from lynx_ascend.stream.types import Kind, PayloadLimits, PieceKey, TransferId, TransferStats


class Verdict(Enum):
    """What to do with a payload that has arrived."""

    DELIVER = "deliver"
    NACK = "nack"
    FAIL = "fail"


@dataclass(slots=True)
class IncomingState:
    """Checks every frame against the grant and the limits. Raises ProtocolError for what P may not send."""

    tid: TransferId
    bytes_max: int
    limits: PayloadLimits
    stats: TransferStats = field(default_factory=TransferStats)
    pieces: int | None = None
    residuals: int | None = None
    received: int = 0
    _arrived: dict[Kind, set[PieceKey]] = field(default_factory=lambda: {kind: set() for kind in Kind})
    _nacked: set[tuple[Kind, PieceKey]] = field(default_factory=set)

    def accepted(self, pieces: int) -> None:
        if self.pieces is not None and self.pieces != pieces:
            raise ProtocolError(f"the number of pieces changed from {self.pieces} to {pieces}")
        self.pieces = pieces

    def finished(self, anchors: int, residuals: int) -> None:
        self.accepted(anchors)
        self.residuals = residuals

    def admit(self, header: FrameHeader) -> None:
        """Called before memory is allocated for the payload."""
        kind, key = header.kind, header.key
        allowed, arrived = self.limits.max_bytes(kind, key), self._arrived[kind]
        if header.length > allowed:
            raise ProtocolError(
                f"{kind.name.lower()} of {header.length} bytes for {key}, at most {allowed} allowed"
            )
        if key in arrived:
            raise ProtocolError(f"{kind.name.lower()} {key} came twice")
        if self.received + header.length > self.bytes_max:
            raise ProtocolError(f"more than the {self.bytes_max} bytes granted")
        # The counts come by the control socket and may still be on their way.
        if kind is Kind.ANCHOR and self.pieces is not None and len(arrived) >= self.pieces:
            raise ProtocolError(f"more than the {self.pieces} anchors announced")
        if kind is Kind.RESIDUAL and self.residuals is not None and len(arrived) >= self.residuals:
            raise ProtocolError(f"more than the {self.residuals} residuals announced")

    def landed(self, header: FrameHeader, intact: bool, now: float) -> Verdict:
        """The payload is here. `now` is wall-clock time for the statistics."""
        kind, key = header.kind, header.key
        if not intact:
            if (kind, key) in self._nacked:
                return Verdict.FAIL
            self._nacked.add((kind, key))
            self.stats.resends += 1
            return Verdict.NACK
        arrived = self._arrived[kind]
        arrived.add(key)
        self.received += header.length
        stats = self.stats
        if kind is Kind.ANCHOR:
            stats.anchor_bytes += header.length
            stats.anchor_pieces += 1
        else:
            stats.residual_bytes += header.length
            stats.residual_pieces += 1
        if len(arrived) in (self.pieces, self.residuals):
            self.note_time(now)
        return Verdict.DELIVER

    def note_time(self, now: float) -> None:
        """Fill in the completion times that have become true."""
        if self.stats.t_anchor_done == 0.0 and self.anchors_complete:
            self.stats.t_anchor_done = now
        if self.stats.t_residual_done == 0.0 and self.residuals_complete:
            self.stats.t_residual_done = now

    @property
    def anchors_complete(self) -> bool:
        return self.pieces is not None and len(self._arrived[Kind.ANCHOR]) == self.pieces

    @property
    def residuals_complete(self) -> bool:
        return self.residuals is not None and len(self._arrived[Kind.RESIDUAL]) == self.residuals

    @property
    def complete(self) -> bool:
        return self.anchors_complete and self.residuals_complete
