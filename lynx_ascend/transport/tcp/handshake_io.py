"""The handshake of one socket, both sides, under one deadline. The rules are in stream/handshake.py."""

from __future__ import annotations

import secrets
import socket
from typing import TypeVar

from lynx_ascend.errors import AuthenticationError, ProtocolError
from lynx_ascend.stream import handshake as rules
from lynx_ascend.stream.messages import (
    MAX_PREAUTH,
    Challenge,
    Hello,
    Message,
    Proof,
    Refused,
    Welcome,
    body_length,
    clip,
    pack,
    unpack,
)
from lynx_ascend.transport.tcp.sockets import recv_exact, send_all

_M = TypeVar("_M", bound=Message)


def _receive(sock: socket.socket, want: type[_M], deadline: float) -> _M:
    body = recv_exact(sock, body_length(recv_exact(sock, 4, deadline), MAX_PREAUTH), deadline)
    message = unpack(body)
    if isinstance(message, Refused):
        error = AuthenticationError if message.code == "token" else ProtocolError
        raise error(f"refused by the prefill side: {message.reason}")
    if not isinstance(message, want):
        raise ProtocolError(f"expected {want.__name__}, got {type(message).__name__}")
    return message


def greet_client(
    sock: socket.socket,
    *,
    token: str | None,
    layout_hash: str,
    generation: int,
    lease_s: float,
    deadline: float,
) -> Hello:
    """P's side. Returns D's Hello once D has proved itself, else ProtocolError or AuthenticationError."""

    def refuse(code: str, reason: str, error: type[ProtocolError] = ProtocolError) -> ProtocolError:
        send_all(sock, pack(Refused(code, clip(reason))), deadline)
        return error(reason)

    version = rules.read_preamble(recv_exact(sock, rules.PREAMBLE_BYTES, deadline))
    send_all(sock, rules.preamble(), deadline)
    if problem := rules.version_refusal(version):
        raise refuse("version", problem)
    hello = _receive(sock, Hello, deadline)
    if problem := rules.layout_refusal(hello.layout_hash, layout_hash):
        raise refuse("layout", problem)
    nonce = secrets.token_bytes(32)
    send_all(sock, pack(Challenge(layout_hash, nonce)), deadline)
    proof = _receive(sock, Proof, deadline)
    if not rules.proof_fits(proof.mac, "client", token, hello, nonce):
        raise refuse("token", "the decode side does not know this prefill side's token", AuthenticationError)
    mac = rules.prove("server", token, hello, nonce)
    send_all(sock, pack(Welcome(mac, generation, min(int(lease_s * 1000), 0xFFFFFFFF))), deadline)
    return hello


def greet_server(
    sock: socket.socket, *, token: str | None, layout_hash: str, role: int, link: bytes, deadline: float
) -> Welcome:
    """D's side. Returns P's Welcome once P has proved itself too."""
    hello = Hello(layout_hash, role, link, secrets.token_bytes(32))
    send_all(sock, rules.preamble() + pack(hello), deadline)
    version = rules.read_preamble(recv_exact(sock, rules.PREAMBLE_BYTES, deadline))
    if problem := rules.version_refusal(rules.PROTOCOL_VERSION, version):
        raise ProtocolError(problem)
    challenge = _receive(sock, Challenge, deadline)
    if problem := rules.layout_refusal(layout_hash, challenge.layout_hash):
        raise ProtocolError(problem)
    send_all(sock, pack(Proof(rules.prove("client", token, hello, challenge.nonce))), deadline)
    welcome = _receive(sock, Welcome, deadline)
    if not rules.proof_fits(welcome.mac, "server", token, hello, challenge.nonce):
        raise AuthenticationError("the prefill side does not know this decode side's token")
    return welcome
