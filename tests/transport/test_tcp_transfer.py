"""A transfer from offer to release, in every order of events that is legal."""

import socket
import threading
import time

import numpy as np
import pytest

from lynx_ascend.errors import DeadlineError, TransferError
from lynx_ascend.stream import Faults, Piece, PieceKey, TransferId

pytestmark = pytest.mark.timeout(30)


def test_all_bytes_arrive_and_all_staging_is_freed(lab):
    server, client = lab.pair()
    pieces = lab.make_pieces(20)
    out = lab.offer(server, pieces)
    handle, sink = lab.subscribe(client, server, out.tid)
    assert sink.wait() is None
    lab.same(sink, pieces)
    assert sink.ends == ["complete"]
    stats = sink.stats
    assert (stats.anchor_bytes, stats.residual_bytes) == (200_000, 200_020)
    assert stats.t_subscribed <= stats.t_first_byte <= stats.t_anchor_done <= stats.t_residual_done
    assert out.wait_done(2.0)
    assert out.state == "released"
    lab.until(lambda: server.staged_bytes == 0)
    assert client.staged_bytes == 400_020
    handle.release(400_000)
    assert client.staged_bytes == 20
    handle.close()
    assert client.staged_bytes == 0


def test_early_subscription_streams_while_p_still_encodes(lab):
    server, client = lab.pair()
    pieces = lab.make_pieces(4)
    out = lab.offer(server, pieces, put=False)
    _, sink = lab.subscribe(client, server, out.tid)
    lab.until(lambda: out.state == "subscribed")
    for count, piece in enumerate(pieces, 1):
        out.put(piece, 1.0)
        lab.until(lambda count=count: len(sink.residuals) == count)
    assert not sink.outcome.is_set()
    assert out.state == "anchor_sent"
    out.finish()
    assert sink.wait() is None
    lab.same(sink, pieces)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda raw: np.frombuffer(raw, np.uint8)])
def test_payloads_of_any_buffer_type(lab, make):
    server, client = lab.pair()
    out = server.offer(TransferId.new_id(), pieces=3, bytes_max=100)
    out.put(Piece(PieceKey(0, 0, 0, 1, 0, 1), make(b"anchor"), make(b"rest")), 1.0)
    out.put(Piece(PieceKey(1, 0, 0, 1, 0, 1), make(b"anchor"), b""), 1.0)
    out.put(Piece(PieceKey(2, 0, 0, 1, 0, 1), b""), 1.0)
    out.finish()
    _, sink = lab.subscribe(client, server, out.tid)
    assert sink.wait() is None
    assert [payload.tobytes() for payload in sink.anchors.values()] == [b"anchor", b"anchor", b""]
    assert [payload.tobytes() for payload in sink.residuals.values()] == [b"rest"]
    assert all(payload.flags.writeable for payload in sink.anchors.values())


def test_no_residuals_at_all(lab):
    server, client = lab.pair()
    pieces = [piece.__class__(piece.key, piece.anchor) for piece in lab.make_pieces(3)]
    _, sink = lab.subscribe(client, server, lab.offer(server, pieces).tid)
    assert sink.wait() is None
    lab.same(sink, pieces)


def test_a_transfer_larger_than_ps_staging_flows_through_it(lab):
    server = lab.server(staging_bytes=50_000)
    client = lab.client()
    pieces = lab.make_pieces(20)
    out = lab.offer(server, pieces, put=False)
    _, sink = lab.subscribe(client, server, out.tid)
    for piece in pieces:
        out.put(piece, 5.0)
    out.finish()
    assert sink.wait() is None
    lab.same(sink, pieces)
    assert server.stats()["staged_bytes_peak"] <= 50_000


def test_put_waits_for_staging_and_says_so_at_its_deadline(lab):
    server = lab.server(staging_bytes=25_000)
    first, second, _ = lab.make_pieces(3)
    out = server.offer(TransferId.new_id(), pieces=3, bytes_max=1 << 20)
    out.put(first, 1.0)
    started = time.monotonic()
    with pytest.raises(DeadlineError, match="staging"):
        out.put(second, 0.2)
    assert time.monotonic() - started >= 0.2
    with pytest.raises(TransferError, match="exceeds the staging"):
        out.put(Piece(PieceKey(9, 0, 0, 1, 0, 1), bytes(25_001)), 0.2)
    threading.Timer(0.1, out.fail, ["test"]).start()
    with pytest.raises(TransferError, match="test"):
        out.put(second, 5.0)


def test_staging_full_of_what_nobody_fetches_holds_an_older_transfer_up_for_its_put_only(lab):
    server, client = lab.server(staging_bytes=45_000), lab.client()
    pieces = lab.make_pieces(2)
    old, young = (lab.offer(server, pieces, put=False) for _ in range(2))
    _, sink = lab.subscribe(client, server, old.tid)
    lab.until(lambda: old.state == "subscribed")
    for piece in pieces:
        young.put(piece, 1.0)
    with pytest.raises(DeadlineError, match="no staging") as failure:
        old.put(pieces[0], 0.2)
    assert failure.value.transfer_id == old.tid.id
    client.discard(*server.address, young.tid)
    for piece in pieces:
        old.put(piece, 1.0)
    old.finish()
    assert sink.wait() is None
    lab.same(sink, pieces)


def test_counts_are_kept(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(2), count=3, finish=False)
    _, sink = lab.subscribe(client, server, out.tid)
    with pytest.raises(TransferError, match="2 of 3"):
        out.finish()
    assert isinstance(sink.wait(), TransferError)
    assert out.state == "failed"
    with pytest.raises(TransferError, match="ended"):
        out.put(lab.make_pieces(3)[2], 1.0)


def test_the_same_id_twice(lab):
    server = lab.server()
    out = lab.offer(server, lab.make_pieces(1))
    with pytest.raises(TransferError, match="offered already"):
        server.offer(out.tid.id, pieces=1, bytes_max=1)


def test_subscribe_does_not_block_on_a_dead_address(lab):
    client = lab.client(connect_timeout_s=0.4)
    sink = lab.Sink()
    started = time.monotonic()
    # TEST-NET-1: nothing answers there.
    client.subscribe("192.0.2.1", 9, TransferId("0" * 32, 1), sink, bytes_max=1, deadline_s=5.0)
    assert time.monotonic() - started < 0.3
    assert sink.wait(5.0) is not None
    assert sink.ends == ["failed"]


def test_two_decode_sides_on_one_prefill_side(lab):
    server = lab.server()
    clients = [lab.client(), lab.client()]
    sets = [lab.make_pieces(10, seed=seed) for seed in range(2)]
    outs = [lab.offer(server, pieces) for pieces in sets]
    sinks = [lab.subscribe(client, server, out.tid)[1] for client, out in zip(clients, outs, strict=True)]
    for sink, pieces in zip(sinks, sets, strict=True):
        assert sink.wait() is None
        lab.same(sink, pieces)
    assert server.stats()["links"] == 2


def test_second_subscriber_of_one_transfer_is_refused(lab):
    server = lab.server()
    out = lab.offer(server, lab.make_pieces(1), faults=Faults(stall="anchor"))
    _, first = lab.subscribe(lab.client(), server, out.tid)
    lab.until(lambda: out.state == "subscribed")
    _, second = lab.subscribe(lab.client(), server, out.tid)
    assert "busy" in str(second.wait())
    assert not first.ends


def test_decode_side_staging_waits_in_order_and_does_not_fail(lab):
    server = lab.server()
    client = lab.client(staging_bytes=250_000)
    pieces = lab.make_pieces(10)
    outs = [lab.offer(server, pieces) for _ in range(4)]
    runs = [lab.subscribe(client, server, out.tid, bytes_max=200_020) for out in outs]
    order = []
    for handle, sink in runs:
        assert sink.wait() is None
        order.append([other.outcome.is_set() for _, other in runs])
        assert client.staged_bytes <= 250_000
        handle.close()
    assert order[0] == [True, False, False, False]
    lab.until(lambda: server.staged_bytes == 0)


def test_waiting_for_staging_ends_at_the_deadline_and_renews_the_lease(lab):
    server = lab.server(lease_s=0.4)
    client = lab.client(staging_bytes=200_020, heartbeat_s=0.1)
    pieces = lab.make_pieces(10)
    first, second, third = (lab.offer(server, pieces) for _ in range(3))
    handle, sink = lab.subscribe(client, server, first.tid, bytes_max=200_020)
    assert sink.wait() is None
    _, late = lab.subscribe(client, server, second.tid, bytes_max=200_020, deadline_s=0.3)
    _, patient = lab.subscribe(client, server, third.tid, bytes_max=200_020, deadline_s=10)
    assert isinstance(late.wait(), DeadlineError)
    time.sleep(0.6)  # longer than the lease: without D's word the third would have expired
    assert third.state == "offered", "D waits and says so"
    assert second.state == "cancelled"
    handle.close()
    assert patient.wait() is None


def test_larger_than_the_whole_staging(lab):
    server, client = lab.server(), lab.client(staging_bytes=1000)
    out = lab.offer(server, lab.make_pieces(1))
    _, sink = lab.subscribe(client, server, out.tid, bytes_max=1001)
    assert "whole staging is 1000" in str(sink.wait())
    assert out.wait_done(1.0)
    assert client.staged_bytes == 0


def test_p_never_sends_more_than_granted(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(4))
    _, sink = lab.subscribe(client, server, out.tid, bytes_max=30_000)
    assert "granted" in str(sink.wait())
    assert sum(payload.size for payload in (*sink.anchors.values(), *sink.residuals.values())) <= 30_000
    assert out.state == "failed"


def test_small_transfers_share_one_link(lab):
    server, client = lab.pair()
    pieces = lab.make_pieces(2, size=200)
    outs = [lab.offer(server, pieces) for _ in range(300)]
    runs = [lab.subscribe(client, server, out.tid, bytes_max=1000) for out in outs]
    for handle, sink in runs:
        assert sink.wait() is None
        lab.same(sink, pieces)
        handle.close()
    assert server.stats()["links"] == 1
    assert client.stats()["connects"] == 1
    lab.until(lambda: server.staged_bytes == 0)


def test_an_idle_link_is_closed_and_comes_back(lab):
    server = lab.server()
    client = lab.client(link_idle_s=0.1, heartbeat_s=0.05)
    for _ in range(2):
        _, sink = lab.subscribe(client, server, lab.offer(server, lab.make_pieces(1)).tid)
        assert sink.wait() is None
        lab.until(lambda: client.stats()["links"] == 0 and server.stats()["links"] == 0)
    assert client.stats()["connects"] == 2


def test_a_subscription_may_come_before_its_offer(lab):
    server, client = lab.server(early_subscribe_s=0.5), lab.client()
    ids = [TransferId(TransferId.new_id(), server.generation) for _ in range(3)]
    runs = [lab.subscribe(client, server, tid) for tid in ids]
    lab.until(lambda: len(server._registry._early) == 3)
    runs[1][0].cancel("abort")
    pieces = lab.make_pieces(2)
    out = server.offer(ids[0].id, pieces=2, bytes_max=1 << 20)
    for piece in pieces:
        out.put(piece, 1.0)
    out.finish()
    assert runs[0][1].wait() is None
    assert "no such transfer" in str(runs[2][1].wait())
    assert server.offer(ids[1].id, pieces=1, bytes_max=1).state == "offered"


def test_close_does_not_wait_for_a_connection_under_way(lab):
    client = lab.client(connect_timeout_s=20.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # Nobody accepts: after these the queue is full and a connect hangs.
        fill = [socket.socket() for _ in range(4)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        sink = lab.Sink()
        address = listener.getsockname()
        client.subscribe(*address, TransferId("0" * 32, 1), sink, bytes_max=1, deadline_s=30.0)
        lab.until(lambda: any(thread.name == "lynx-connect" for thread in threading.enumerate()))
        started = time.monotonic()
        client.close()
        assert time.monotonic() - started < 2.0
        assert sink.wait(1.0) is not None
        for sock in fill:
            sock.close()


def test_negative_size(lab):
    server, client = lab.pair()
    _, sink = lab.subscribe(client, server, lab.offer(server, lab.make_pieces(1)).tid, bytes_max=-1)
    assert isinstance(sink.wait(), TransferError)
