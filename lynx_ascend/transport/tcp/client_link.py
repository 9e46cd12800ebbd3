"""One prefill peer on D: a thread that connects when needed, receives, and watches every deadline."""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from lynx_ascend.errors import (
    DeadlineError,
    LynxError,
    PeerUnavailableError,
    ProtocolError,
    TransferError,
)
from lynx_ascend.stream import messages as m
from lynx_ascend.stream.breaker import CircuitBreaker
from lynx_ascend.transport.tcp.connector import Connector
from lynx_ascend.transport.tcp.receiver import Receiver
from lynx_ascend.transport.tcp.sockets import close_quietly
from lynx_ascend.transport.tcp.wakeup import Wakeup

if TYPE_CHECKING:
    from lynx_ascend.transport.tcp.client import ClientCore
    from lynx_ascend.transport.tcp.incoming_transfer import IncomingTransfer

log = logging.getLogger(__name__)
_IDLE_POLL_S = 1.0
_OUTBOX_MAX = 4 << 20
_WAITING_MAX = 1024
_CANCELS_MAX = 1024


class ClientLink:
    """Lives while it has transfers or an idle connection; a lost connection fails its transfers."""

    def __init__(self, core: ClientCore, host: str, port: int) -> None:
        self.transfers: dict[tuple[bytes, int], IncomingTransfer] = {}
        self._core, self._host, self._port = core, host, port
        self._config = core.config
        self._doomed: list[tuple[IncomingTransfer, TransferError]] = []
        self._to_subscribe: list[IncomingTransfer] = []
        self._cancels: list[m.Cancel] = []
        self._outbox = bytearray()
        self._wake = Wakeup()
        self._wake_pending = False
        self._closing = False
        self._connector: Connector | None = None
        self._socks: list[socket.socket] = []
        self._receiver: Receiver | None = None
        self._poller = select.poll()
        self._poller.register(self._wake.fileno(), select.POLLIN)
        self._next_deadline = math.inf
        self._heard = self._beat = 0.0
        self._beat_s = core.config.heartbeat_s
        self._beats = 0
        self._idle_since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="lynx-receive", daemon=True)

    # -- called under the core's lock, from any thread

    def add(self, transfer: IncomingTransfer) -> None:
        if transfer.key in self.transfers:
            raise TransferError("is subscribed already", transfer.tid.id)
        self.transfers[transfer.key] = transfer
        self._next_deadline = min(self._next_deadline, transfer.deadline)
        self.wake()

    def granted(self, transfer: IncomingTransfer) -> None:
        self._to_subscribe.append(transfer)
        self.wake()

    def doom(self, transfer: IncomingTransfer, error: TransferError) -> None:
        """Fail the transfer from the receive thread."""
        self._doomed.append((transfer, error))
        self.wake()

    def forget(self, transfer: IncomingTransfer, reason: str) -> None:
        """The transfer has ended here: P is told, even of one that was not subscribed yet."""
        if self.transfers.pop(transfer.key, None) is None:
            return
        if transfer.subscribed:
            self.send(m.Cancel(*transfer.key, m.clip(reason)))
        else:
            self.turn_down(transfer.key, reason)

    def turn_down(self, key: tuple[bytes, int], reason: str) -> None:
        """Tell P, as soon as there is a connection, that a transfer it may hold is not wanted."""
        if key not in self.transfers and not self._closing and len(self._cancels) < _CANCELS_MAX:
            self._cancels.append(m.Cancel(*key, m.clip(reason)))
            self.wake()

    def send(self, message: m.Message) -> None:
        if self._socks:
            self._outbox += m.pack(message)
            self.wake()

    def wake(self) -> None:
        # The thread itself looks at everything before it polls again.
        if not self._wake_pending and threading.get_ident() != self._thread.ident:
            self._wake_pending = True
            self._wake.set()

    # -- life

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._core.lock:
            self._closing = True
            self.wake()

    def join(self, timeout_s: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    timeout_s = self._turn()
                    if timeout_s is None:
                        break
                    self._poll(timeout_s)
                except (OSError, LynxError) as error:
                    # A link that went away while idle is noticed at its next use: that user gets a new one.
                    self._link_down(error, retry=isinstance(error, OSError))
        finally:
            with self._core.lock:
                if self._core.links.get((self._host, self._port)) is self:
                    del self._core.links[self._host, self._port]
            if self._closing:
                self._link_down(PeerUnavailableError("the transfer client was closed"))
            elif self.transfers:
                self._link_down(PeerUnavailableError("the receive thread ended"))
            self._disconnect()
            self._wake.close()
            with self._core.lock:
                self._core.threads.discard(self)

    def _turn(self) -> float | None:
        """Everything that is due; returns the seconds poll may sleep, None when the link is not needed."""
        now = time.monotonic()
        with self._core.lock:
            due, self._doomed = self._doomed, []
            if now >= self._next_deadline:
                for transfer in self.transfers.values():
                    if now >= transfer.deadline:
                        what = f"not complete at its deadline ({transfer.state})"
                        due.append((transfer, DeadlineError(what, transfer.tid.id)))
                late = {id(transfer) for transfer, _ in due}
                self._next_deadline = min(
                    (t.deadline for t in self.transfers.values() if id(t) not in late), default=math.inf
                )
        for transfer, failure in due:
            transfer.fail(failure)
        if self._socks:
            return self._connected_turn(now)
        if self._connector is not None:
            if not self._connector.done and now < self._connector.deadline:
                return self._sleep(self._connector.deadline - now, now)
            self._connection_made(self._connector, now)
            return 0.0
        with self._core.lock:
            if not self.transfers and not self._cancels:
                # Nobody needs the peer: the thread ends; the next subscriber starts a new one.
                self._core.links.pop((self._host, self._port), None)
                return None
            breaker = self._core.breakers.setdefault(
                (self._host, self._port),
                CircuitBreaker(self._config.breaker_threshold, self._config.breaker_open_s),
            )
            allowed = breaker.allows(now)
        if not allowed:
            self._link_down(
                PeerUnavailableError(
                    f"{breaker.failures} connections in a row failed; the circuit breaker is open"
                )
            )
            return 0.0
        self._connector = Connector(self._config, self._host, self._port, self.wake)
        return self._sleep(self._config.connect_timeout_s, now)

    def _connection_made(self, connector: Connector, now: float) -> None:
        self._connector = None
        breaker = self._core.breakers[self._host, self._port]
        if connector.done and connector.error is None and connector.welcome is not None:
            with self._core.lock:
                breaker.record_success()
                self._core.counts["connects"] += 1
                self._socks = connector.socks
                self._outbox.clear()
                self._heard = self._idle_since = now
                self._beat = 0.0
                self._beat_s = min(self._config.heartbeat_s, connector.welcome.lease_ms / 3000)
            self._receiver = Receiver(self, self._core, self._socks)
            for sock in self._socks:
                sock.setblocking(False)
                self._poller.register(sock, select.POLLIN)
            log.info("transfer link to %s:%d over tcp is up", self._host, self._port)
            return
        error = connector.error or TimeoutError(f"no connection within {self._config.connect_timeout_s:g} s")
        connector.abandon()
        with self._core.lock:
            breaker.record_failure(now)
            self._core.counts["connect_failures"] += 1
        self._link_down(error)

    def _connected_turn(self, now: float) -> float | None:
        if now - self._heard > self._config.progress_timeout_s:
            self._poll(0.0)  # this thread may have been the one that slept
        if now - self._heard > self._config.progress_timeout_s:
            raise DeadlineError(f"silent for {self._config.progress_timeout_s:g} s")
        with self._core.lock:
            for transfer in self._to_subscribe:
                if not transfer.end:
                    transfer.note_subscribed()
                    self.send(m.Subscribe(*transfer.key, transfer.bytes_max))
            self._to_subscribe.clear()
            for cancel in self._cancels:
                self.send(cancel)
            self._cancels.clear()
            if self.transfers:
                self._idle_since = now
            elif now - self._idle_since > self._config.link_idle_s:
                self._core.links.pop((self._host, self._port), None)
                return None
            if now - self._beat >= self._beat_s:
                waiting = [t.key[0] for t in self.transfers.values() if not t.subscribed][:_WAITING_MAX]
                self._beats += 1
                self.send(m.Heartbeat(self._beats, waiting))
                self._beat = now
            if len(self._outbox) > _OUTBOX_MAX:
                raise ProtocolError("the peer does not read its control messages")
            self._flush()
        return self._sleep(self._beat + self._beat_s - now, now)

    def _sleep(self, most: float, now: float) -> float:
        return max(0.0, min(most, self._next_deadline - now, _IDLE_POLL_S))

    def _flush(self) -> None:
        if self._outbox:
            with contextlib.suppress(BlockingIOError):
                del self._outbox[: self._socks[0].send(self._outbox[: 256 << 10])]
            self._poller.modify(self._socks[0], select.POLLIN | (select.POLLOUT if self._outbox else 0))

    def _poll(self, timeout_s: float) -> None:
        ready = {fd for fd, _ in self._poller.poll(timeout_s * 1000)}
        if self._wake.fileno() in ready:
            with self._core.lock:
                self._wake_pending = False
                self._wake.clear()
        if self._receiver is not None and self._receiver.receive(ready):
            self._heard = time.monotonic()

    # -- ends

    def _link_down(self, error: Exception, *, retry: bool = False) -> None:
        """Close the sockets and fail every transfer of the link, each with an error of its own.

        `retry` spares those that P has not answered yet, once each.
        """
        self._disconnect()
        with self._core.lock:
            spared = [t for t in self.transfers.values() if retry and not t.retried and not t.answered]
            failed = [t for t in self.transfers.values() if t not in spared]
            for transfer in spared:
                transfer.retried = True
                if transfer.subscribed:
                    transfer.subscribed = False
                    self._to_subscribe.append(transfer)
        kind = DeadlineError if isinstance(error, DeadlineError) else PeerUnavailableError
        where = f"prefill side {self._host}:{self._port}: {error or type(error).__name__}"
        for transfer in failed:
            failure = kind(where, transfer.tid.id)
            failure.__cause__ = error
            transfer.fail(failure)
        with self._core.lock:
            self._cancels.clear()  # nobody to tell; P's lease ends what it still holds

    def _disconnect(self) -> None:
        if self._connector is not None:
            self._connector.abandon()
            self._connector.join(0.2)
            self._connector = None
            self._core.breakers[self._host, self._port].record_abandoned()
        with self._core.lock:
            socks, self._socks = self._socks, []
            self._receiver = None
            self._outbox.clear()
            self._to_subscribe = [t for t in self._to_subscribe if not t.end]
        for sock in socks:
            self._poller.unregister(sock)
        close_quietly(*socks)
