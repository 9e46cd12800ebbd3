"""Small socket tools: options, deadline reads for the handshake, the loopback test."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time

from lynx_ascend.errors import PeerUnavailableError


def tune(sock: socket.socket, *, send_buffer: int | None = None) -> None:
    """No Nagle delay; keep-alive; a small send buffer where bytes must stay recallable."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)


def is_loopback(host: str) -> bool:
    """True when binding to `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _arm(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    sock.settimeout(left)


def recv_exact(sock: socket.socket, nbytes: int, deadline: float) -> bytes:
    """Exactly `nbytes` before `deadline` (monotonic), else TimeoutError or PeerUnavailableError."""
    data = bytearray()
    while len(data) < nbytes:
        _arm(sock, deadline)
        chunk = sock.recv(nbytes - len(data))
        if not chunk:
            raise PeerUnavailableError("the peer closed the connection during the handshake")
        data += chunk
    return bytes(data)


def send_all(sock: socket.socket, data: bytes, deadline: float) -> None:
    _arm(sock, deadline)
    sock.sendall(data)


def close_quietly(*socks: socket.socket) -> None:
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            sock.close()
