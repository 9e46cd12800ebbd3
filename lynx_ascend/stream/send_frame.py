"""A frame on its way into a socket: which of its bytes go next, and what becomes of it when it is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lynx_ascend.stream.frames import HEADER_BYTES
from lynx_ascend.stream.types import Kind, PieceKey

if TYPE_CHECKING:
    from lynx_ascend.stream.outgoing import OutgoingState

_ZEROS = memoryview(bytes(64 << 10))


class SendFrame:
    """Once its first byte may be out, all its bytes must follow."""

    __slots__ = ("_header", "_payload", "drop_link", "key", "kind", "owner", "sent", "total")

    def __init__(self, owner: OutgoingState, kind: Kind, key: PieceKey, header: bytes, payload: Any) -> None:
        self.owner, self.kind, self.key = owner, kind, key
        self.total = HEADER_BYTES + len(payload)
        self.sent = 0
        self.drop_link = False
        self._header = header
        self._payload: memoryview | None = memoryview(payload)

    def views(self, cap: int) -> list[Any]:
        """At most `cap` of the bytes still to send, as buffers for sendmsg."""
        out: list[Any] = []
        at, end = self.sent, min(self.total, self.sent + cap)
        if at < HEADER_BYTES:
            out.append(self._header[at:end] if at or end < HEADER_BYTES else self._header)
            at = min(end, HEADER_BYTES)
        if at < end and self._payload is not None:
            out.append(self._payload[at - HEADER_BYTES : end - HEADER_BYTES])
        elif at < end:
            while at < end:
                step = min(end - at, len(_ZEROS))
                out.append(_ZEROS[:step])
                at += step
        return out

    def abandon(self) -> None:
        """Let go of the staged bytes; zeros fill the frame up, which D has been told to ignore."""
        self._payload = None
