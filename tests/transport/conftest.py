"""Both ends over loopback, a sink that records, and the checks that nothing is left behind."""

import os
import threading
import time

import numpy as np
import pytest

from lynx_ascend.errors import ProtocolError
from lynx_ascend.stream import Faults, Piece, PieceKey, TransferId
from lynx_ascend.transport.tcp import ClientConfig, ServerConfig, TransferClient, TransferServer

LAYOUT = "layout-a"
STAGING = 64 << 20


class Limits:
    """Layers up to 4096, 4 MiB a payload."""

    def max_bytes(self, kind, key):
        if key.layer >= 4096:
            raise ProtocolError(f"layer {key.layer} out of range")
        return 4 << 20


class Sink:
    """Records every call; `outcome` is set by the first terminal one."""

    def __init__(self):
        self.anchors, self.residuals, self.ends = {}, {}, []
        self.stats = self.error = None
        self.outcome = threading.Event()
        self.on_piece = lambda kind, key: None

    def on_anchor(self, key, payload):
        assert key not in self.anchors
        assert not self.ends
        self.anchors[key] = payload
        self.on_piece("anchor", key)

    def on_residual(self, key, payload):
        assert key not in self.residuals
        assert not self.ends
        self.residuals[key] = payload
        self.on_piece("residual", key)

    def on_complete(self, stats):
        self.stats = stats
        self.ends.append("complete")
        self.outcome.set()

    def on_failed(self, error):
        self.error = error
        self.ends.append("failed")
        self.outcome.set()

    def wait(self, timeout_s=10.0):
        assert self.outcome.wait(timeout_s), "no outcome"
        return self.error


def make_pieces(count, size=10_000, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Piece(
            PieceKey(n, 0, 0, 1, 0, 1),
            rng.integers(0, 256, size, dtype=np.uint8),
            rng.integers(0, 256, size + 1, dtype=np.uint8),
        )
        for n in range(count)
    ]


def until(condition, timeout_s=5.0):
    """Poll a condition that another thread makes true."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "condition did not come true"
        time.sleep(0.002)  # between two looks: there is nothing common to all conditions to wait on


class Lab:
    """Builds servers and clients, runs transfers, closes everything."""

    Sink, Limits, until, make_pieces = Sink, Limits, staticmethod(until), staticmethod(make_pieces)
    LAYOUT = LAYOUT

    def __init__(self):
        self._open = []

    def server(self, **settings):
        config = ServerConfig(**{"layout_hash": LAYOUT, "staging_bytes": STAGING, **settings})
        server = TransferServer(config)
        server.start()
        self._open.append(server)
        return server

    def client(self, **settings):
        config = ClientConfig(
            **{"layout_hash": LAYOUT, "limits": Limits(), "staging_bytes": STAGING, **settings}
        )
        client = TransferClient(config)
        self._open.append(client)
        return client

    def pair(self, **settings):
        return self.server(**settings), self.client()

    def offer(self, server, pieces, *, faults=None, count=None, put=True, finish=True):
        size = sum(
            len(piece.anchor) + len(piece.residual if piece.residual is not None else b"") for piece in pieces
        )
        out = server.offer(
            TransferId.new_id(), pieces=count or len(pieces), bytes_max=max(size, 1), faults=faults
        )
        if put:
            for piece in pieces:
                out.put(piece, 5.0)
            if finish:
                out.finish()
        return out

    def subscribe(self, client, server, tid, *, sink=None, bytes_max=1 << 20, deadline_s=10.0):
        sink = sink or Sink()
        handle = client.subscribe(*server.address, tid, sink, bytes_max=bytes_max, deadline_s=deadline_s)
        return handle, sink

    def half_way(self, server, client, count=3):
        """A subscribed transfer whose anchors have come and whose residuals never will."""
        out = self.offer(server, make_pieces(count), faults=Faults(stall="residual"))
        handle, sink = self.subscribe(client, server, out.tid)
        until(lambda: len(sink.anchors) == count)
        return out, handle, sink

    def same(self, sink, pieces):
        assert sink.error is None, sink.error
        assert {key: value.tobytes() for key, value in sink.anchors.items()} == {
            piece.key: piece.anchor.tobytes() for piece in pieces
        }
        assert {key: value.tobytes() for key, value in sink.residuals.items()} == {
            piece.key: piece.residual.tobytes() for piece in pieces if piece.residual is not None
        }

    def close(self):
        for end in reversed(self._open):
            end.close()
        for end in self._open:
            assert end.staged_bytes == 0
            assert end.active_transfers == 0
        self._open.clear()


def open_fds():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def lab():
    """Everything closed, all threads joined, no descriptor left, after every test."""
    fds = open_fds()
    laboratory = Lab()
    yield laboratory
    laboratory.close()
    until(lambda: not [t.name for t in threading.enumerate() if t.name.startswith("lynx-")], 3.0)
    until(lambda: open_fds() <= fds, 3.0)
