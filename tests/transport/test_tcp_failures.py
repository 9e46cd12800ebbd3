"""What goes wrong on the way: every case has one outcome on each end, and nothing stays staged."""

import socket
import time

import pytest

from lynx_ascend.errors import (
    DeadlineError,
    PeerUnavailableError,
    StaleTransferError,
    TransferError,
)
from lynx_ascend.stream import Faults, TransferId

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("kind", ["anchor", "residual"])
def test_one_damaged_payload_heals(lab, kind):
    server, client = lab.pair()
    pieces = lab.make_pieces(5)
    out = lab.offer(server, pieces, faults=Faults(corrupt=kind))
    _, sink = lab.subscribe(client, server, out.tid)
    assert sink.wait() is None
    lab.same(sink, pieces)
    assert sink.stats.resends == 1
    assert out.wait_done(2.0)
    assert out.state == "released"
    lab.until(lambda: server.staged_bytes == 0)


@pytest.mark.parametrize("kind", ["anchor", "residual"])
def test_damaged_twice_fails_by_name_on_both_ends(lab, kind):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(5), faults=Faults(corrupt=kind, corrupt_times=2))
    _, sink = lab.subscribe(client, server, out.tid)
    error = sink.wait()
    assert isinstance(error, TransferError)
    assert "damaged twice" in str(error)
    assert error.transfer_id == out.tid.id
    assert out.wait_done(2.0)
    assert out.state in ("failed", "cancelled")
    assert "damaged twice" in out.reason
    lab.until(lambda: server.staged_bytes == client.staged_bytes == 0)


@pytest.mark.parametrize("kind", ["anchor", "residual"])
def test_stall_ends_at_the_deadline(lab, kind):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(3), faults=Faults(stall=kind))
    _, sink = lab.subscribe(client, server, out.tid, deadline_s=0.4)
    assert isinstance(sink.wait(), DeadlineError)
    assert sink.ends == ["failed"]
    assert len(sink.anchors) == (3 if kind == "residual" else 0)
    assert out.wait_done(1.0)
    lab.until(lambda: server.staged_bytes == client.staged_bytes == 0)


@pytest.mark.parametrize("kind", ["anchor", "residual"])
def test_dropped_link(lab, kind):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(3), faults=Faults(drop_link=kind))
    _, sink = lab.subscribe(client, server, out.tid)
    assert isinstance(sink.wait(), PeerUnavailableError)
    assert sink.ends == ["failed"]
    assert out.wait_done(1.0)
    assert out.state == "failed"
    again = lab.offer(server, lab.make_pieces(2))
    assert lab.subscribe(client, server, again.tid)[1].wait() is None


def test_delays_are_kept(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(2), faults=Faults(anchor_delay_s=0.2, residual_delay_s=0.3))
    _, sink = lab.subscribe(client, server, out.tid)
    assert sink.wait() is None
    assert sink.stats.t_first_byte - sink.stats.t_subscribed >= 0.15
    assert sink.stats.t_residual_done - sink.stats.t_anchor_done >= 0.25


def test_prefill_side_killed_between_anchor_and_residual(lab):
    server, client = lab.pair()
    _, _, sink = lab.half_way(server, client)
    server.close()
    error = sink.wait()
    assert isinstance(error, TransferError)
    assert sink.ends == ["failed"]
    lab.until(lambda: server.staged_bytes == client.staged_bytes == 0)


def test_prefill_side_fails_the_transfer(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(2), count=4, finish=False)
    _, sink = lab.subscribe(client, server, out.tid)
    lab.until(lambda: len(sink.residuals) == 2)
    out.fail("encoder out of memory")
    assert "encoder out of memory" in str(sink.wait())
    out.fail("again")
    assert out.reason == "encoder out of memory"
    lab.until(lambda: server.staged_bytes == 0)


def test_prefill_side_restarts_at_the_same_address(lab):
    server, client = lab.pair()
    port = server.address[1]
    _, _, sink = lab.half_way(server, client, count=1)
    server.close()
    assert sink.wait() is not None
    reborn = lab.server(port=port)
    assert reborn.generation != server.generation
    fresh = lab.offer(reborn, lab.make_pieces(2))
    _, stale = lab.subscribe(client, reborn, TransferId(fresh.tid.id, server.generation))
    error = stale.wait()
    assert isinstance(error, StaleTransferError)
    assert str(server.generation) in str(error)
    assert lab.subscribe(client, reborn, fresh.tid)[1].wait() is None


def test_unknown_id_and_a_released_one(lab):
    server, client = lab.pair()
    _, sink = lab.subscribe(client, server, TransferId("f" * 32, server.generation))
    assert isinstance(sink.wait(), StaleTransferError)
    out = lab.offer(server, lab.make_pieces(1))
    assert lab.subscribe(client, server, out.tid)[1].wait() is None
    assert out.wait_done(2.0)
    _, sink = lab.subscribe(client, server, out.tid)
    assert "released" in str(sink.wait())


def test_lease_of_an_offer_that_nobody_wants(lab):
    server = lab.server(lease_s=0.3)
    out = lab.offer(server, lab.make_pieces(3))
    assert server.staged_bytes > 0
    assert out.wait_done(2.0)
    assert out.state == "expired"
    lab.until(lambda: server.staged_bytes == 0)


def test_lease_of_a_decode_side_that_fell_silent(lab):
    server = lab.server(lease_s=0.4)
    client = lab.client(heartbeat_s=60.0)
    out, handle, sink = lab.half_way(server, client)
    # The client lowers its interval to a third of the lease; a longer one stands for a hung process.
    handle.link._beat_s = 60.0
    assert out.wait_done(3.0)
    assert out.state in ("expired", "failed")
    lab.until(lambda: server.staged_bytes == 0)
    assert isinstance(sink.wait(), TransferError)


def test_heartbeats_keep_a_slow_transfer_alive(lab):
    server, client = lab.pair(lease_s=0.3)
    out = lab.offer(server, lab.make_pieces(2), faults=Faults(residual_delay_s=1.0))
    assert lab.subscribe(client, server, out.tid)[1].wait() is None


@pytest.mark.parametrize(
    ("host", "port", "cause"),
    [
        ("127.0.0.1", 65536, "port 65536 is not in 1..65535"),
        ("127.0.0.1", 0, "port 0 is not in 1..65535"),
        ("127.0.0.1", 1 << 70, "is not in 1..65535"),
        ("a" * 64, 80, "idna"),
        ("a..b", 80, "idna"),
        ("\ud800", 80, "idna"),
    ],
)
def test_what_is_no_address_fails_at_once_and_by_name(lab, host, port, cause):
    client, sink = lab.client(connect_timeout_s=30.0), lab.Sink()
    client.subscribe(host, port, TransferId("0" * 32, 1), sink, bytes_max=1, deadline_s=30.0)
    error = sink.wait(2.0)
    assert isinstance(error, PeerUnavailableError)
    assert f"prefill side {host}:{port}: " in str(error)
    assert cause in str(error)
    client.discard(host, port, TransferId("0" * 32, 1))
    lab.until(lambda: client.stats()["links"] == 0)


def test_silent_prefill_side(lab):
    """A peer that accepts and then says nothing."""
    client = lab.client(connect_timeout_s=0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink = lab.Sink()
        client.subscribe(
            *listener.getsockname(), TransferId("0" * 32, 1), sink, bytes_max=10, deadline_s=10.0
        )
        assert isinstance(sink.wait(3.0), PeerUnavailableError)


def test_prefill_side_falls_silent_after_the_handshake(lab, monkeypatch):
    server, client = lab.server(), lab.client(progress_timeout_s=0.5, heartbeat_s=0.1)
    out, _, sink = lab.half_way(server, client, count=1)
    (link,) = server._links
    # It reads nothing and so answers nothing; the pause keeps its poll loop, always ready now, from spinning.
    monkeypatch.setattr(link, "_read_control", lambda: time.sleep(0.02))
    error = sink.wait(3.0)
    assert isinstance(error, DeadlineError)
    assert "silent" in str(error)
    monkeypatch.undo()
    assert out.wait_done(2.0)


def test_circuit_breaker(lab):
    client = lab.client(breaker_threshold=2, breaker_open_s=0.4)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()

    def attempt(tid):
        sink = lab.Sink()
        client.subscribe(*address, tid, sink, bytes_max=1 << 20, deadline_s=5.0)
        return sink.wait()

    tid = TransferId("0" * 32, 1)
    for _ in range(2):
        assert isinstance(attempt(tid), PeerUnavailableError)
    assert "breaker" in str(attempt(tid))
    server = lab.server(port=address[1])
    out = lab.offer(server, lab.make_pieces(1))
    assert "breaker" in str(attempt(out.tid))
    reopens = client._core.breakers[address].open_until
    assert reopens <= time.monotonic() + 0.4
    lab.until(lambda: time.monotonic() >= reopens)
    assert attempt(out.tid) is None, "the probe closes the breaker"


def test_a_sink_that_raises_fails_its_transfer_only(lab):
    server, client = lab.pair()
    bad = lab.Sink()
    bad.on_piece = lambda kind, key: 1 / 0
    outs = [lab.offer(server, lab.make_pieces(3)) for _ in range(2)]
    lab.subscribe(client, server, outs[0].tid, sink=bad)
    _, good = lab.subscribe(client, server, outs[1].tid)
    assert "ZeroDivisionError" in str(bad.wait())
    assert bad.ends == ["failed"]
    assert good.wait() is None


def test_key_out_of_range_fails_that_transfer_only(lab):
    server, client = lab.pair()
    pieces = [piece.__class__(piece.key._replace(layer=5000), piece.anchor) for piece in lab.make_pieces(1)]
    _, sink = lab.subscribe(client, server, lab.offer(server, pieces).tid)
    _, good = lab.subscribe(client, server, lab.offer(server, lab.make_pieces(1)).tid)
    assert "out of range" in str(sink.wait())
    assert good.wait() is None


def test_client_closed_with_open_transfers(lab):
    server, client = lab.pair()
    out, _, sink = lab.half_way(server, client)
    client.close()
    assert isinstance(sink.wait(1.0), PeerUnavailableError)
    assert out.wait_done(1.0)
    lab.until(lambda: server.staged_bytes == client.staged_bytes == 0)
    with pytest.raises(TransferError, match="closed"):
        lab.subscribe(client, server, out.tid)


def test_an_idle_link_to_a_dead_peer_is_replaced_at_its_next_use(lab):
    server, client = lab.pair()
    assert lab.subscribe(client, server, lab.offer(server, lab.make_pieces(1)).tid)[1].wait() is None
    port = server.address[1]
    server.close()
    reborn = lab.server(port=port)
    # No wait here: the client may or may not have seen the old link's end.
    assert lab.subscribe(client, reborn, lab.offer(reborn, lab.make_pieces(1)).tid)[1].wait() is None
