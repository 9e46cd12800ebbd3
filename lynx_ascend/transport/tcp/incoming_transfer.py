"""D's handle of one transfer: reservation, end, and the gate through which every sink call goes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from lynx_ascend.errors import TransferError
from lynx_ascend.stream.frames import FrameHeader
from lynx_ascend.stream.incoming import IncomingState
from lynx_ascend.stream.types import Kind, PayloadLimits, TransferId, TransferSink, id_bytes

if TYPE_CHECKING:
    from lynx_ascend.transport.tcp.client import ClientCore
    from lynx_ascend.transport.tcp.client_link import ClientLink

log = logging.getLogger(__name__)


class IncomingTransfer:
    """See `base.IncomingHandle`. Thread-safe; nothing here blocks except `wait_idle`.

    The reservation of `bytes_max` counts as staged from the grant on. It shrinks by `release`, loses its
    unused part at completion, and goes back whole at `cancel`, `close` or failure.
    """

    def __init__(
        self,
        core: ClientCore,
        link: ClientLink,
        tid: TransferId,
        sink: TransferSink,
        limits: PayloadLimits,
        bytes_max: int,
        deadline: float,
    ) -> None:
        self.tid, self.bytes_max, self.deadline = tid, bytes_max, deadline
        self.protocol = IncomingState(tid, bytes_max, limits)
        self.key = (id_bytes(tid.id), tid.generation)
        self.link = link
        self.granted = False
        self.subscribed = False
        self.retried = False
        self.end = ""
        self._core, self._sink = core, sink
        self._caller = 0
        self._waiters = 0

    @property
    def state(self) -> str:
        """waiting, granted, subscribed; or complete, failed, cancelled."""
        return self.end or ("subscribed" if self.subscribed else "granted" if self.granted else "waiting")

    @property
    def done(self) -> bool:
        return bool(self.end)

    @property
    def answered(self) -> bool:
        """P has said or sent something about this transfer."""
        return self.protocol.pieces is not None or self.protocol.stats.t_first_byte > 0.0

    def cancel(self, reason: str) -> None:
        """Idempotent, non-blocking. After it returns no sink call starts; one in progress may still finish.

        P is told at once. The reservation is returned in every state.
        """
        with self._core.lock:
            if not self.end:
                self.end = "cancelled"
                self._core.counts["cancelled"] += 1
                self.link.forget(self, reason)
            self._core.drop_reservation(self)

    def close(self) -> None:
        self.cancel("closed by the decode side")

    def release(self, nbytes: int) -> None:
        """The consumer has freed `nbytes` of delivered payload."""
        with self._core.lock:
            self._core.shrink_reservation(self, nbytes)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no sink call is in progress; True at once on the calling thread itself."""
        me = threading.get_ident()
        with self._core.changed:
            self._waiters += 1
            try:
                return self._core.changed.wait_for(lambda: self._caller in (0, me), timeout_s)
            finally:
                self._waiters -= 1

    # -- used by the receive thread

    def deliver(self, header: FrameHeader, payload: np.ndarray) -> bool:
        """Give one payload to the sink unless all is over. A sink that raises fails its transfer."""
        with self._core.lock:
            if self.end:
                return False
            self._caller = threading.get_ident()
        try:
            if header.kind is Kind.ANCHOR:
                self._sink.on_anchor(header.key, payload)
            else:
                self._sink.on_residual(header.key, payload)
        except Exception as error:
            self._called()
            log.exception("transfer %s: the sink raised", self.tid.id)
            failure = TransferError(f"the sink raised {error!r}", self.tid.id)
            failure.__cause__ = error
            self.fail(failure)
            return False
        self._called()
        return True

    def complete(self) -> None:
        """The last payload was delivered."""
        with self._core.lock:
            if self.end:
                return
            self.end = "complete"
            self._core.counts["complete"] += 1
            self._core.shrink_reservation(self, self.bytes_max - self.protocol.received)
            self._caller = threading.get_ident()
        self._finish(lambda sink: sink.on_complete(self.protocol.stats))

    def fail(self, error: TransferError) -> None:
        """End with an error; P is told, so that it frees its staging too."""
        with self._core.lock:
            if self.end:
                return
            self.end = "failed"
            self._core.counts["failed"] += 1
            self.link.forget(self, f"failed on the decode side: {error}")
            self._core.drop_reservation(self)
            self._caller = threading.get_ident()
        self._finish(lambda sink: sink.on_failed(error))

    def _finish(self, call: Callable[[TransferSink], None]) -> None:
        try:
            call(self._sink)
        except Exception:
            log.exception("transfer %s: the sink raised", self.tid.id)
        self._called()

    def _called(self) -> None:
        # `wait_idle` counts itself before it looks, so either it sees the 0 or this sees the waiter.
        self._caller = 0
        if self._waiters:
            with self._core.changed:
                self._core.changed.notify_all()

    def note_subscribed(self) -> None:
        self.subscribed = True
        self.protocol.stats.t_subscribed = time.time()
