"""P's handle of one transfer: what the encode thread sees of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lynx_ascend.stream.outgoing import OutgoingState, SendState
from lynx_ascend.stream.types import Piece, TransferId

if TYPE_CHECKING:
    from lynx_ascend.transport.tcp.registry import TransferRegistry


class OutgoingTransfer:
    """See `base.OutgoingHandle` for the contract. Thread-safe."""

    __slots__ = ("_registry", "_state")

    def __init__(self, registry: TransferRegistry, state: OutgoingState) -> None:
        self._registry = registry
        self._state = state

    @property
    def tid(self) -> TransferId:
        return self._state.tid

    @property
    def state(self) -> str:
        return self._state.state.value

    @property
    def reason(self) -> str:
        """Why the transfer ended; empty while it lives."""
        return self._state.reason

    @property
    def done(self) -> bool:
        return self._state.ended

    @property
    def staged_bytes(self) -> int:
        return self._state.staged_bytes

    def put(self, piece: Piece, timeout_s: float) -> None:
        self._registry.put(self._state, piece, timeout_s)

    def finish(self) -> None:
        self._registry.finish(self._state)

    def fail(self, reason: str) -> None:
        self._registry.end(self._state, SendState.FAILED, reason, tell="failed")

    def wait_done(self, timeout_s: float) -> bool:
        """Wait for the end; False at the timeout."""
        with self._registry.changed:
            return self._registry.changed.wait_for(lambda: self._state.ended, timeout_s)
