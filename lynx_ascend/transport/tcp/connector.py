"""Opens and proves the three sockets of a link on a thread of its own, under one deadline."""

from __future__ import annotations

import errno
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable

from lynx_ascend.stream.messages import Welcome
from lynx_ascend.transport.tcp.config import ClientConfig
from lynx_ascend.transport.tcp.handshake_io import greet_server
from lynx_ascend.transport.tcp.sockets import close_quietly, tune


class Connector:
    """One attempt. When `done` turns true, `socks` or `error` is set; then `on_done` is called."""

    def __init__(self, config: ClientConfig, host: str, port: int, on_done: Callable[[], None]) -> None:
        self._config, self._host, self._port, self._on_done = config, host, port, on_done
        self._lock = threading.Lock()
        self._abandoned = False
        self.deadline = time.monotonic() + config.connect_timeout_s
        self.done = False
        self.socks: list[socket.socket] = []
        self.welcome: Welcome | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="lynx-connect", daemon=True)
        self._thread.start()

    def abandon(self) -> None:
        """The result is not wanted any more: its sockets are closed, now or when they come."""
        with self._lock:
            self._abandoned = True
            close_quietly(*self.socks)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _connect(self) -> socket.socket:
        """As `socket.create_connection`, but notices `abandon` within 0.1 s and refuses what is no address."""
        if not 0 < self._port < 65536:  # getaddrinfo would cut it to 16 bits
            raise OSError(f"port {self._port} is not in 1..65535")
        problem: OSError = OSError(f"no address for {self._host}")
        for family, kind, proto, _, address in socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        ):
            sock = socket.socket(family, kind, proto)
            try:
                sock.setblocking(False)
                code = sock.connect_ex(address)
                poller = select.poll()
                poller.register(sock, select.POLLOUT)
                while code == errno.EINPROGRESS and not poller.poll(100):
                    if self._abandoned:
                        raise ConnectionAbortedError("abandoned")
                    if time.monotonic() > self.deadline:
                        raise TimeoutError(f"no connection within {self._config.connect_timeout_s:g} s")
                code = (
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if code == errno.EINPROGRESS else code
                )
                if not code:
                    return sock
                raise OSError(code, os.strerror(code))
            except OSError as error:
                sock.close()
                problem = error
        raise problem

    def _run(self) -> None:
        link = secrets.token_bytes(16)
        try:
            for role in range(3):
                sock = self._connect()
                with self._lock:
                    self.socks.append(sock)
                    if self._abandoned:
                        raise ConnectionAbortedError("abandoned")
                tune(sock)
                self.welcome = greet_server(
                    sock, token=self._config.token, layout_hash=self._config.layout_hash, role=role,
                    link=link, deadline=self.deadline,
                )  # fmt: skip
        except Exception as error:  # the link must hear of any: a host name that IDNA refuses is a ValueError
            self.error = error
            with self._lock:
                close_quietly(*self.socks)
                self.socks = []
        self.done = True
        self._on_done()
