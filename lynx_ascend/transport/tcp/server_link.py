"""One decode peer on P: a thread that owns three sockets and sends anchors strictly before residuals."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from lynx_ascend.errors import LynxError, ProtocolError, TransferError
from lynx_ascend.stream import messages as m
from lynx_ascend.stream.outgoing import OutgoingState, SendState
from lynx_ascend.stream.rate import TokenBucket
from lynx_ascend.stream.send_frame import SendFrame
from lynx_ascend.stream.send_queue import SendQueue
from lynx_ascend.stream.types import Kind
from lynx_ascend.transport.tcp.config import ServerConfig
from lynx_ascend.transport.tcp.registry import TransferRegistry
from lynx_ascend.transport.tcp.sockets import close_quietly
from lynx_ascend.transport.tcp.wakeup import Wakeup

log = logging.getLogger(__name__)
_BATCH_FRAMES = 64
_ANCHOR_BATCH = 4 << 20
_OUTBOX_MAX = 4 << 20
_IDLE_POLL_S = 1.0


class ServerLink:
    """Created with three proven sockets; `start` runs it until either end closes or breaks the rules."""

    def __init__(
        self,
        config: ServerConfig,
        registry: TransferRegistry,
        bucket: TokenBucket,
        socks: tuple[socket.socket, socket.socket, socket.socket],
        on_closed: Callable[[ServerLink], None],
    ) -> None:
        self.queue = SendQueue()
        self._config, self._registry, self._bucket = config, registry, bucket
        self._control = socks[0]
        self._bulk = {Kind.ANCHOR: socks[1], Kind.RESIDUAL: socks[2]}
        self._on_closed = on_closed
        self._flight: dict[Kind, deque[SendFrame]] = {kind: deque() for kind in Kind}
        self._unacked: dict[Kind, deque[SendFrame]] = {kind: deque() for kind in Kind}
        self._acked = dict.fromkeys(Kind, 0)
        self._sent_bytes = dict.fromkeys(Kind, 0)
        self._blocked: dict[Kind, float] = {}
        self._outbox = bytearray()
        self._reader = m.MessageReader()
        self._wake = Wakeup()
        self._wake_pending = False
        self._closing = ""
        self._poller = select.poll()
        self._masks: dict[int, int] = {}
        self._heard = time.monotonic()
        self._renewed = 0.0
        self._thread = threading.Thread(target=self._run, name="lynx-send", daemon=True)

    # -- called by the registry under its lock

    def send(self, message: m.Message) -> None:
        self._outbox += m.pack(message)
        if len(self._outbox) > _OUTBOX_MAX:
            self._closing = self._closing or "the peer does not read its control messages"

    def acked(self, kind: Kind, frames: int) -> list[SendFrame]:
        """The frames that a cumulative Ack newly covers. ProtocolError for more than were sent."""
        new = frames - self._acked[kind]
        unacked = self._unacked[kind]
        if not 0 <= new <= len(unacked):
            raise ProtocolError(f"acknowledges {frames} frames of {self._acked[kind] + len(unacked)}")
        self._acked[kind] = frames
        return [unacked.popleft() for _ in range(new)]

    def wake(self) -> None:
        # The thread itself looks at everything before it polls again.
        if not self._wake_pending and threading.get_ident() != self._thread.ident:
            self._wake_pending = True
            self._wake.set()

    def abandon(self, transfer: OutgoingState) -> None:
        for flight in self._flight.values():
            for frame in flight:
                if frame.owner is transfer:
                    frame.abandon()

    # -- life

    def start(self) -> None:
        self._thread.start()

    def close(self, reason: str) -> None:
        """Ask the thread to end; does not wait."""
        with self._registry.lock:
            self._closing = self._closing or reason
            self.wake()

    def join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        reason = "closed"
        try:
            for sock in (self._control, *self._bulk.values()):
                sock.setblocking(False)
            self._poller.register(self._wake.fileno(), select.POLLIN)
            while not self._closing:
                self._poll(self._turn())
            reason = self._closing
            self._flush()
        except (OSError, LynxError) as error:
            reason = str(error) or type(error).__name__
            if isinstance(error, ProtocolError):
                log.warning("transfer link closed: %s", reason)
        finally:
            self.count()
            self._registry.link_closed(self, reason)
            close_quietly(self._control, *self._bulk.values())
            self._wake.close()
            self._on_closed(self)

    def count(self) -> None:
        with self._registry.lock:
            for kind, nbytes in self._sent_bytes.items():
                self._registry.counts[f"{kind.name.lower()}_wire_bytes"] += nbytes
                self._sent_bytes[kind] = 0

    # -- one turn: control first, then at most one slice of bulk

    def _turn(self) -> float:
        """Do what can be done now; returns the seconds poll may sleep."""
        self._flush()
        now = time.monotonic()
        with self._registry.lock:
            pause = self._bucket.wait_s(now)
            kind, views = (None, []) if pause else self._choose(now)
            gate = self.queue.wait_s(now) if kind is None else 0.0
        if kind is None:
            if now - min(self._blocked.values(), default=now) > self._config.io_timeout_s:
                raise TimeoutError(f"the peer took no bytes for {self._config.io_timeout_s:g} s")
            if now - self._heard > self._config.lease_s:
                self._poll(0.0)  # this thread may have been the one that slept
            if now - self._heard > self._config.lease_s:
                raise TimeoutError(f"no sign of the decode side for {self._config.lease_s:g} s")
            return min(_IDLE_POLL_S, gate, pause or _IDLE_POLL_S)
        try:
            sent = self._bulk[kind].sendmsg(views)
        except BlockingIOError:
            sent = 0
        with self._registry.lock:
            self._bucket.spend(sent)
            if sent:
                self._advance(kind, sent)
            else:
                self._blocked[kind] = now
        return 0.0

    def _choose(self, now: float) -> tuple[Kind | None, list[Any]]:
        """The next bytes to send. While an anchor is ready, blocked or not, no residual byte is chosen."""
        for kind, most in ((Kind.ANCHOR, _ANCHOR_BATCH), (Kind.RESIDUAL, self._config.residual_window)):
            cap = self._bucket.slice_bytes(most)
            flight = self._flight[kind]
            room = cap - sum(frame.total - frame.sent for frame in flight)
            while room > 0 and len(flight) < _BATCH_FRAMES:
                frame = self._next_frame(kind, now)
                if frame is None:
                    break
                flight.append(frame)
                room -= frame.total
            if not flight:
                continue
            if kind in self._blocked:
                return None, []
            views: list[Any] = []
            for frame in flight:
                views += frame.views(cap)
                cap -= frame.total - frame.sent
                if cap <= 0:
                    break
            return kind, views
        return None, []

    def _next_frame(self, kind: Kind, now: float) -> SendFrame | None:
        while True:
            try:
                frame = self.queue.next(kind, now)
            except TransferError as error:
                state = self._registry.transfers[bytes.fromhex(error.transfer_id or "")]
                self._registry.end(state, SendState.FAILED, str(error), tell="credit")
                continue
            if frame is not None and frame.drop_link:
                raise ConnectionAbortedError("link dropped by an injected fault")
            return frame

    def _advance(self, kind: Kind, sent: int) -> None:
        flight, unacked = self._flight[kind], self._unacked[kind]
        self._sent_bytes[kind] += sent
        now = time.monotonic()
        while sent:
            frame = flight[0]
            left = frame.total - frame.sent
            if sent < left:
                frame.sent += sent
                return
            sent -= left
            frame.sent = frame.total
            unacked.append(flight.popleft())
            frame.owner.frame_sent(frame, now)

    def _flush(self) -> None:
        with self._registry.lock:
            if self._outbox:
                with contextlib.suppress(BlockingIOError):
                    del self._outbox[: self._control.send(self._outbox[: 256 << 10])]

    # -- events

    def _watch(self, sock: socket.socket, mask: int) -> None:
        fd = sock.fileno()
        if self._masks.get(fd) != mask:
            self._masks[fd] = mask
            self._poller.register(fd, mask)

    def _poll(self, timeout_s: float) -> None:
        self._watch(self._control, select.POLLIN | (select.POLLOUT if self._outbox else 0))
        for kind, sock in self._bulk.items():
            self._watch(sock, select.POLLIN | (select.POLLOUT if kind in self._blocked else 0))
        for fd, events in self._poller.poll(max(0.0, timeout_s) * 1000):
            if fd == self._wake.fileno():
                with self._registry.lock:
                    self._wake_pending = False
                    self._wake.clear()
            elif fd == self._control.fileno():
                if events & ~select.POLLOUT:
                    self._read_control()
            else:
                if events & ~select.POLLOUT:
                    raise ConnectionResetError("the peer closed a bulk socket")
                self._blocked = {k: at for k, at in self._blocked.items() if self._bulk[k].fileno() != fd}

    def _read_control(self) -> None:
        try:
            chunk = self._control.recv(64 << 10)
        except BlockingIOError:
            return
        if not chunk:
            raise ConnectionResetError("the peer closed the link")
        self._heard = time.monotonic()
        if self._heard - self._renewed > self._config.lease_s / 16:
            self._renewed = self._heard
            self._registry.renew(self, self._heard)
        for message in self._reader.feed(chunk):
            self._registry.handle(self, message)
