"""P's front door: accepts, authenticates under limits, and joins three sockets to a link."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable

from lynx_ascend.errors import LynxError
from lynx_ascend.transport.tcp.config import ServerConfig
from lynx_ascend.transport.tcp.handshake_io import greet_client
from lynx_ascend.transport.tcp.sockets import close_quietly, tune
from lynx_ascend.transport.tcp.wakeup import Wakeup

log = logging.getLogger(__name__)
LinkSockets = tuple[socket.socket, socket.socket, socket.socket]


class Acceptor:
    """Owns the listening socket and every socket that does not belong to a link yet.

    `on_link` gets the (control, anchor, residual) sockets of a complete link and returns False to refuse it;
    `on_tick` is called several times a second (leases).
    """

    def __init__(
        self,
        config: ServerConfig,
        generation: int,
        on_link: Callable[[LinkSockets], bool],
        on_tick: Callable[[float], None],
    ) -> None:
        self._config, self._generation, self._on_link, self._on_tick = config, generation, on_link, on_tick
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, threading.Thread] = {}
        self._partial: dict[bytes, tuple[float, dict[int, socket.socket]]] = {}
        self._closing = False
        self._wake = Wakeup()
        self.refused = 0
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        self._listener = socket.create_server((config.host, config.port), family=family, backlog=64)
        self._listener.setblocking(False)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._run, name="lynx-accept", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, deadline: float) -> None:
        """Close every socket held here and join the threads until `deadline` (monotonic)."""
        with self._lock:
            self._closing = True
            threads = list(self._unproven.values())
            close_quietly(*self._unproven)
            for _, socks in self._partial.values():
                close_quietly(*socks.values())
            self._partial.clear()
        self._wake.set()
        for thread in (self._thread, *threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        close_quietly(self._listener)
        self._wake.close()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wake.fileno(), select.POLLIN)
        tick_s = min(0.25, self._config.lease_s / 4)
        while not self._closing:
            for fd, _ in poller.poll(tick_s * 1000):
                if fd == self._listener.fileno():
                    self._accept()
            now = time.monotonic()
            self._on_tick(now)
            self._drop_partial(now)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        with self._lock:
            if self._closing or len(self._unproven) >= self._config.max_unauthenticated:
                self.refused += 1
                close_quietly(sock)
                return
            thread = threading.Thread(target=self._prove, args=(sock,), name="lynx-greet", daemon=True)
            self._unproven[sock] = thread
            thread.start()

    def _prove(self, sock: socket.socket) -> None:
        config = self._config
        hello = None
        try:
            tune(sock)
            hello = greet_client(
                sock, token=config.token, layout_hash=config.layout_hash, generation=self._generation,
                lease_s=config.lease_s, deadline=time.monotonic() + config.handshake_timeout_s,
            )  # fmt: skip
        except (OSError, LynxError) as error:
            log.warning("transfer connection refused: %s", error)
        complete: LinkSockets | None = None
        with self._lock:
            self._unproven.pop(sock, None)
            if hello is None or self._closing or not self._join(hello.link, hello.role, sock):
                self.refused += 1
                close_quietly(sock)
                return
            socks = self._partial[hello.link][1]
            if len(socks) == 3:
                del self._partial[hello.link]
                complete = (socks[0], socks[1], socks[2])
        if complete is not None:
            tune(complete[2], send_buffer=config.residual_window)
            if not self._on_link(complete):
                close_quietly(*complete)

    def _join(self, link: bytes, role: int, sock: socket.socket) -> bool:
        if link not in self._partial:
            if len(self._partial) >= self._config.max_links:
                return False
            self._partial[link] = (time.monotonic() + 3 * self._config.handshake_timeout_s, {})
        socks = self._partial[link][1]
        if role in socks:
            return False
        socks[role] = sock
        return True

    def _drop_partial(self, now: float) -> None:
        with self._lock:
            for link in [link for link, (until, _) in self._partial.items() if now > until]:
                close_quietly(*self._partial.pop(link)[1].values())
