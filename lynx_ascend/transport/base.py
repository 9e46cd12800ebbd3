"""The small interface of a transport. The TCP transport implements it; a collective one can join.

Nothing here knows of sockets or process groups. P holds a `TransferSource`, D a `TransferReceiver`.
"""

from __future__ import annotations

from typing import Any, Protocol

from lynx_ascend.stream.types import Faults, Piece, TransferId, TransferSink


class OutgoingHandle(Protocol):
    """One offered transfer on P. Thread-safe; used by the encode thread."""

    @property
    def tid(self) -> TransferId: ...

    @property
    def done(self) -> bool:
        """True once nothing of the transfer is staged any more, for whatever reason."""
        ...

    @property
    def state(self) -> str:
        """offered, subscribed, anchor_sent, residual_sent, released, cancelled, expired or failed."""
        ...

    def put(self, piece: Piece, timeout_s: float) -> None:
        """Stage a piece and send it as soon as D has subscribed. Waits while staging is full.

        Room goes to whoever asks when it is there, not to the oldest transfer: put from one thread, in the order of
        the offers, so that no younger transfer can be in an older one's way.

        DeadlineError when there was no room in time; TransferError when it has ended or does not fit.
        """
        ...

    def finish(self) -> None:
        """No more pieces. With a count other than the one offered the transfer fails: TransferError."""
        ...

    def fail(self, reason: str) -> None:
        """Encoding failed: D is told and staging freed. No effect on an ended transfer."""
        ...


class TransferSource(Protocol):
    """P's end."""

    @property
    def generation(self) -> int:
        """This life's epoch, a u32 above 0; handles of another one are stale."""
        ...

    @property
    def staged_bytes(self) -> int: ...

    @property
    def active_transfers(self) -> int: ...

    def start(self) -> None:
        """Let decode peers in."""
        ...

    def offer(self, id: str, *, pieces: int, bytes_max: int, faults: Faults | None = None) -> OutgoingHandle:
        """Announce a transfer of exactly `pieces` pieces and at most `bytes_max` payload bytes.

        TransferError when the id is in use, too many are open or the source is closed; ProtocolError for a bad id.
        """
        ...

    def stats(self) -> dict[str, Any]:
        """Counters since start; `anchor_wire_bytes` and `residual_wire_bytes` are what went out, of each class."""
        ...

    def close(self) -> None:
        """End every transfer, so that no `put` waits any more, and every thread, within a bound. Idempotent."""
        ...


class IncomingHandle(Protocol):
    """One transfer on D. Thread-safe, non-blocking."""

    def cancel(self, reason: str) -> None:
        """P is told, D's reservation returned. Once it returns, no further sink call starts."""
        ...

    def release(self, nbytes: int) -> None:
        """The consumer has freed so many payload bytes."""
        ...

    def close(self) -> None:
        """Cancel if still live and return what is still reserved. Idempotent."""
        ...


class TransferReceiver(Protocol):
    """D's end."""

    @property
    def staged_bytes(self) -> int: ...

    @property
    def active_transfers(self) -> int: ...

    def subscribe(
        self, host: str, port: int, tid: TransferId, sink: TransferSink, *, bytes_max: int, deadline_s: float
    ) -> IncomingHandle:
        """Ask P for a transfer of at most `bytes_max` payload bytes, complete within `deadline_s` seconds.

        Returns at once, also where P cannot be reached; waits its turn while D's staging is full. The outcome comes
        through `sink`, once, unless it is cancelled first. `on_failed` gets a DeadlineError, a PeerUnavailableError
        (no connection, refused, link lost), a StaleTransferError (P has a new generation, or no such transfer) or
        another TransferError. Raises TransferError only when the receiver is closed or has this transfer already.
        """
        ...

    def discard(self, host: str, port: int, tid: TransferId) -> None:
        """Tell P that nobody will fetch a transfer."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counters since start, and what is held now."""
        ...

    def close(self) -> None:
        """Fail what is open and end every thread, within a bound. Idempotent."""
        ...
