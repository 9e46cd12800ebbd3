"""Strangers at the door: refusals that say why, limits before authentication, garbage on every socket."""

import os
import socket
import struct
import threading
import time

import pytest

from lynx_ascend.errors import AuthenticationError, ConfigError, PeerUnavailableError, ProtocolError
from lynx_ascend.stream import Faults, Kind, PieceKey, TransferId
from lynx_ascend.stream import messages as m
from lynx_ascend.stream.frames import FrameHeader, encode_header
from lynx_ascend.stream.handshake import preamble, read_preamble
from lynx_ascend.transport.tcp import ServerConfig, TransferServer
from lynx_ascend.transport.tcp.handshake_io import greet_client, greet_server
from lynx_ascend.transport.tcp.sockets import recv_exact

pytestmark = pytest.mark.timeout(30)
SOON = 5.0


def dial(server):
    return socket.create_connection(server.address, timeout=SOON)


def closed(sock):
    """True when the peer has closed the connection (it may have said something before)."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def refused(lab, client, server):
    sink = lab.subscribe(client, server, TransferId("0" * 32, server.generation))[1]
    error = sink.wait()
    assert isinstance(error, PeerUnavailableError)
    return error


def test_wrong_token(lab):
    server = lab.server(token="right")
    for token in ("wrong", None):
        error = refused(lab, lab.client(token=token), server)
        assert isinstance(error.__cause__, AuthenticationError)
    out = lab.offer(server, lab.make_pieces(1))
    assert lab.subscribe(lab.client(token="right"), server, out.tid)[1].wait() is None


def test_token_on_one_side_only(lab):
    assert isinstance(refused(lab, lab.client(token="mine"), lab.server()).__cause__, AuthenticationError)


def test_wrong_layout_names_both(lab):
    error = refused(lab, lab.client(layout_hash="layout-b"), lab.server())
    assert isinstance(error.__cause__, ProtocolError)
    assert "'layout-b'" in str(error)
    assert "'layout-a'" in str(error)


def test_wrong_version_names_both(lab):
    server = lab.server()
    with dial(server) as sock:
        sock.sendall(preamble(9))
        assert read_preamble(recv_exact(sock, 8, time.monotonic() + SOON)) == m.PROTOCOL_VERSION
        (message,) = m.MessageReader().feed(sock.recv(4096))
        assert message.code == "version"
        assert "speaks 9" in message.reason
        assert f"speaks {m.PROTOCOL_VERSION}" in message.reason
        assert closed(sock)


def test_open_bind_needs_a_token():
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(ConfigError, match="token"):
            TransferServer(ServerConfig(layout_hash="x", staging_bytes=1, host=host))


@pytest.mark.parametrize(
    "setting",
    [{"staging_bytes": 0}, {"link_mbps": 0}, {"token": ""}, {"port": 70000}, {"layout_hash": "x" * 129}],
)
def test_settings_are_checked(setting):
    with pytest.raises(ConfigError):
        ServerConfig(**{"layout_hash": "x", "staging_bytes": 1, **setting})


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        preamble() + struct.pack("<I", m.MAX_PREAUTH + 1),
        preamble() + struct.pack("<I", 0xFFFFFFFF),
        preamble() + struct.pack("<I", 0),
        preamble() + m.pack(m.Proof(bytes(32))),
        preamble() + m.pack(m.Subscribe(bytes(16), 1, 1)),
        preamble() + struct.pack("<I", 64) + b"\x91" * 64,
        os.urandom(256),
    ],
)
def test_garbage_before_authentication(lab, data):
    server = lab.server()
    with dial(server) as sock:
        sock.sendall(data)
        assert closed(sock)
    lab.until(lambda: server.stats()["refused_connections"] == 1)


def test_silence_before_authentication_is_cut_off_and_limited(lab):
    server = lab.server(handshake_timeout_s=0.4, max_unauthenticated=2)
    socks = [dial(server) for _ in range(4)]
    started = time.monotonic()
    for sock in socks:
        assert closed(sock)
        sock.close()
    assert time.monotonic() - started < 2.0
    assert server.stats()["refused_connections"] == 4
    out = lab.offer(server, lab.make_pieces(1))
    assert lab.subscribe(lab.client(), server, out.tid)[1].wait() is None


def test_a_link_that_never_completes_is_dropped(lab):
    server = lab.server(handshake_timeout_s=0.15)
    with dial(server) as sock:
        greet_server(
            sock, token=None, layout_hash=lab.LAYOUT, role=0, link=bytes(16), deadline=time.monotonic() + SOON
        )
        assert closed(sock)


def proven_link(lab, server):
    socks = []
    for role in range(3):
        sock = dial(server)
        greet_server(
            sock,
            token=None,
            layout_hash=lab.LAYOUT,
            role=role,
            link=b"L" * 16,
            deadline=time.monotonic() + SOON,
        )
        socks.append(sock)
    return socks


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", m.MAX_CONTROL + 1),
        m.pack(m.Accepted(bytes(16), 1, 1, 1)),
        m.pack(m.Hello("x", 0, bytes(16), bytes(32))),
        m.pack(m.Ack(1, 5)),
        struct.pack("<I", 100) + os.urandom(100),
    ],
)
def test_a_proven_peer_that_breaks_the_rules_loses_its_link(lab, data):
    server = lab.server()
    out = lab.offer(server, lab.make_pieces(1), faults=Faults(stall="anchor"))
    socks = proven_link(lab, server)
    socks[0].sendall(m.pack(m.Subscribe(bytes.fromhex(out.tid.id), server.generation, 1 << 20)))
    lab.until(lambda: out.state == "subscribed")
    socks[0].sendall(data)
    for sock in socks:
        assert closed(sock)
        sock.close()
    assert out.wait_done(1.0)
    assert server.staged_bytes == 0


def test_late_messages_are_dropped_and_counted(lab):
    server = lab.server()
    socks = proven_link(lab, server)
    ghost = bytes(16)
    for message in (m.Cancel(ghost, 1, ""), m.Nack(ghost, 1, (1, 0, 0, 0, 0, 0, 0)), m.Released(ghost, 1)):
        socks[0].sendall(m.pack(message))
    lab.until(lambda: server.stats().get("late_messages") == 3)
    for sock in socks:
        sock.close()
    lab.until(lambda: server.stats()["links"] == 0)


class FakePrefill:
    """Completes the handshake of one link, then does as `act(control, anchor, residual)` says."""

    def __init__(self, lab, act):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(SOON)
        self.address = self.listener.getsockname()
        self.generation = 7
        self._lab, self._act = lab, act
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        socks = {}
        for _ in range(3):
            sock, _ = self.listener.accept()
            hello = greet_client(
                sock, token=None, layout_hash=self._lab.LAYOUT, generation=7, lease_s=30.0,
                deadline=time.monotonic() + SOON,
            )  # fmt: skip
            socks[hello.role] = sock
        self._act(socks[0], socks[1], socks[2])
        for sock in socks.values():
            sock.settimeout(SOON)
            closed(sock)
            sock.close()
        self.listener.close()


def frame(layer=0, kind=Kind.ANCHOR, payload=b"abc", length=None, transfer=bytes(16)):
    key = PieceKey(layer, 0, 0, 1, 0, 1)
    return encode_header(FrameHeader(kind, 0, transfer, 7, key, length or len(payload), 0)) + payload


def run_against(lab, act):
    client = lab.client()
    fake = FakePrefill(lab, act)
    sink = lab.subscribe(client, fake, TransferId("0" * 32, 7))[1]
    error = sink.wait()
    client.close()
    fake.thread.join(SOON)
    assert not fake.thread.is_alive()
    assert sink.ends == ["failed"]
    return error


@pytest.mark.parametrize(
    "act",
    [
        lambda control, anchor, residual: anchor.sendall(os.urandom(500)),
        lambda control, anchor, residual: control.sendall(os.urandom(500)),
        lambda control, anchor, residual: residual.sendall(frame()),
        lambda control, anchor, residual: control.sendall(m.pack(m.Subscribe(bytes(16), 7, 1))),
    ],
)
def test_garbage_from_the_prefill_side(lab, act):
    assert isinstance(run_against(lab, act).__cause__, ProtocolError)


def test_a_length_above_the_limit_is_refused_before_memory_is_taken(lab):
    def act(control, anchor, residual):
        wait_for_subscribe(control)
        anchor.sendall(frame(length=0xFFFFFFFF))

    assert "at most" in str(run_against(lab, act))


def test_more_bytes_than_granted(lab):
    def act(control, anchor, residual):
        wait_for_subscribe(control)
        anchor.sendall(frame(length=2 << 20))

    assert "granted" in str(run_against(lab, act))


def wait_for_subscribe(control):
    control.settimeout(SOON)
    reader = m.MessageReader()
    while not any(isinstance(message, m.Subscribe) for message in reader.feed(control.recv(4096))):
        pass
