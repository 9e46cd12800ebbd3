"""Aborts from either end in every state: staging is free in under a second, the sink hears nothing more."""

import random
import threading
import time

import pytest

from lynx_ascend.errors import TransferError
from lynx_ascend.stream import Faults, TransferId

pytestmark = pytest.mark.timeout(30)


def quiet(lab, server, client, out, sink, calls):
    lab.until(lambda: server.staged_bytes == 0, 1.0)
    assert client.staged_bytes == 0
    assert client.active_transfers == 0
    assert out.state == "cancelled"
    assert "abort" in out.reason
    time.sleep(0.05)  # many times what a frame under way needs over loopback: a late call would have come
    assert (len(sink.anchors), len(sink.residuals), sink.ends) == calls


@pytest.mark.parametrize("stall", ["anchor", "residual"])
def test_cancel_after_subscription(lab, stall):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(3), faults=Faults(stall=stall))
    handle, sink = lab.subscribe(client, server, out.tid)
    lab.until(lambda: out.state == ("anchor_sent" if stall == "residual" else "subscribed"))
    lab.until(lambda: len(sink.anchors) == (3 if stall == "residual" else 0))
    handle.cancel("abort")
    handle.cancel("abort again")
    quiet(lab, server, client, out, sink, (len(sink.anchors), len(sink.residuals), []))


def test_cancel_before_the_connection_is_up(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(3))
    handle, sink = lab.subscribe(client, server, out.tid)
    handle.cancel("abort")
    assert client.staged_bytes == 0
    assert out.wait_done(1.0), "turned down before admission: P is told all the same"
    assert (out.state, out.reason) == ("cancelled", "abort")
    assert sink.ends == []
    assert sink.anchors == {}


def test_discard_frees_what_nobody_will_fetch(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(3))
    stale = TransferId(out.tid.id, out.tid.generation ^ 1)
    client.discard(*server.address, stale)
    client.discard(*server.address, TransferId(TransferId.new_id(), out.tid.generation))
    lab.until(lambda: server.stats().get("late_messages") == 2)
    assert out.state == "offered"
    client.discard(*server.address, out.tid)
    client.discard(*server.address, out.tid)
    assert out.wait_done(1.0)
    assert (out.state, server.staged_bytes, client.active_transfers) == ("cancelled", 0, 0)
    assert client.stats()["connects"] == 1


def test_discard_ends_a_transfer_that_is_still_encoded(lab):
    server, client = lab.pair()
    pieces = lab.make_pieces(3)
    out = lab.offer(server, pieces, put=False)
    client.discard(*server.address, out.tid)
    assert out.wait_done(1.0)
    with pytest.raises(TransferError, match="has ended"):
        out.put(pieces[0], 1.0)


def test_discard_does_not_touch_a_subscribed_transfer(lab):
    server, client = lab.pair()
    pieces = lab.make_pieces(3)
    out = lab.offer(server, pieces, put=False)
    _, sink = lab.subscribe(client, server, out.tid)
    client.discard(*server.address, out.tid)
    lab.until(lambda: out.state == "subscribed")
    stranger = lab.client()
    stranger.discard(*server.address, out.tid)
    lab.until(lambda: server.stats().get("late_messages") == 1)
    for piece in pieces:
        out.put(piece, 1.0)
    out.finish()
    assert sink.wait() is None
    lab.same(sink, pieces)


def test_discard_at_a_peer_that_is_gone_or_after_close_does_no_harm(lab):
    server, client = lab.pair()
    address, tid = server.address, lab.offer(server, lab.make_pieces(1)).tid
    server.close()
    client.discard(*address, tid)
    lab.until(lambda: client.stats().get("connect_failures") == 1)
    lab.until(lambda: client.stats()["links"] == 0)
    client.close()
    client.discard(*address, tid)


def test_cancel_while_waiting_for_staging(lab):
    server, client = lab.server(), lab.client(staging_bytes=100)
    first, second = (
        lab.offer(server, lab.make_pieces(1, size=20)),
        lab.offer(server, lab.make_pieces(1, size=20)),
    )
    holder, sink = lab.subscribe(client, server, first.tid, bytes_max=100)
    assert sink.wait() is None
    waiter, silent = lab.subscribe(client, server, second.tid, bytes_max=100)
    waiter.cancel("abort")
    assert second.wait_done(1.0)
    holder.close()
    assert client.staged_bytes == 0
    assert waiter.state == "cancelled"
    assert silent.ends == []


def test_cancel_in_the_middle_of_a_frame_keeps_the_link_in_step(lab):
    server = lab.server(link_mbps=80.0)
    client = lab.client()
    big, small = lab.make_pieces(1, size=3 << 20), lab.make_pieces(3)
    out, after = lab.offer(server, big), lab.offer(server, small)
    handle, sink = lab.subscribe(client, server, out.tid, bytes_max=8 << 20)
    lab.until(lambda: server.stats().get("anchor_wire_bytes", 0) > 100_000)
    handle.cancel("abort")
    lab.until(lambda: out.done, 1.0)
    assert out.staged_bytes == 0
    _, good = lab.subscribe(client, server, after.tid)
    assert good.wait() is None
    lab.same(good, small)
    assert sink.anchors == {}
    assert client.stats()["connects"] == 1


def test_cancel_from_inside_a_sink_call(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(5))
    sink, ready, handles = lab.Sink(), threading.Event(), []

    def on_piece(kind, key):
        assert ready.wait(5.0)
        handles[0].cancel("abort")
        assert handles[0].wait_idle(1.0), "the caller does not wait for itself"

    sink.on_piece = on_piece
    handles.append(lab.subscribe(client, server, out.tid, sink=sink)[0])
    ready.set()
    lab.until(lambda: out.done)
    quiet(lab, server, client, out, sink, (1, 0, []))


def test_wait_idle_waits_for_the_call_in_progress(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(1))
    sink, inside, go = lab.Sink(), threading.Event(), threading.Event()
    sink.on_piece = lambda kind, key: (inside.set(), go.wait(5.0))
    handle, _ = lab.subscribe(client, server, out.tid, sink=sink)
    assert inside.wait(5.0)
    handle.cancel("abort")
    assert not handle.wait_idle(0.05)
    go.set()
    assert handle.wait_idle(2.0)


def test_cancel_after_the_end_changes_nothing(lab):
    server, client = lab.pair()
    out = lab.offer(server, lab.make_pieces(1))
    handle, sink = lab.subscribe(client, server, out.tid)
    assert sink.wait() is None
    assert out.wait_done(2.0)
    handle.cancel("late")
    assert (handle.state, out.state, sink.ends) == ("complete", "released", ["complete"])
    assert client.staged_bytes == 0


@pytest.mark.parametrize("when", ["offered", "subscribed", "anchor_sent"])
def test_prefill_side_gives_up_in_each_state(lab, when):
    server, client = lab.pair()
    stall = "residual" if when == "anchor_sent" else "anchor"
    out = lab.offer(server, lab.make_pieces(2), faults=Faults(stall=stall))
    if when == "offered":
        out.fail("aborted")
    _, sink = lab.subscribe(client, server, out.tid)
    if when != "offered":
        lab.until(lambda: out.state == when)
        out.fail("aborted")
    assert "aborted" in str(sink.wait())
    assert sink.ends == ["failed"]
    assert server.staged_bytes == 0


def close_ended(runs):
    for handle, sink in runs:
        if sink.ends:
            handle.close()


def test_random_aborts_leave_nothing(lab):
    rng = random.Random(7)
    server, client = lab.server(staging_bytes=400_000), lab.client(staging_bytes=300_000)
    pieces = lab.make_pieces(4, size=8_000)
    faults = [
        None,
        Faults(corrupt="anchor"),
        Faults(corrupt="residual", corrupt_times=2),
        Faults(stall="residual"),
    ]
    runs = []

    def encode(out):
        try:
            for piece in pieces:
                out.put(piece, 5.0)
                if rng.random() < 0.05:
                    out.fail("abort on P")
            out.finish()
        except TransferError:
            pass

    def prefill(outs):
        for out in outs:
            encode(out)

    outs = [
        server.offer(TransferId.new_id(), pieces=4, bytes_max=64_004, faults=rng.choice(faults))
        for _ in range(50)
    ]
    encoder = threading.Thread(target=prefill, args=(outs,))
    encoder.start()
    for out in outs:
        runs.append(lab.subscribe(client, server, out.tid, bytes_max=64_004, deadline_s=2.0))
        if rng.random() < 0.4:
            handle = rng.choice(runs)[0]
            threading.Timer(rng.random() * 0.02, handle.cancel, ["abort on D"]).start()
        time.sleep(rng.random() * 0.01)  # spread out, so that aborts meet every state of the others
        close_ended(runs)
    lab.until(lambda: (close_ended(runs), all(handle.done for handle, _ in runs))[1], 10.0)
    encoder.join(10.0)
    assert not encoder.is_alive()
    for handle, sink in runs:
        assert handle.done
        assert handle.wait_idle(1.0)
        assert sink.ends == {"complete": ["complete"], "failed": ["failed"], "cancelled": []}[handle.state]
        if handle.state == "complete":
            lab.same(sink, pieces)
        handle.close()
    assert {handle.state for handle, _ in runs} == {"complete", "failed", "cancelled"}
    lab.until(lambda: client.staged_bytes == 0 and client.active_transfers == 0)
    for out in outs:
        out.fail("the end")
    lab.until(lambda: server.staged_bytes == 0 and server.active_transfers == 0)
    last = lab.offer(server, pieces)
    assert lab.subscribe(client, server, last.tid, bytes_max=64_004)[1].wait() is None


def test_cancel_of_another_ones_transfer_is_ignored(lab):
    server = lab.server()
    out, _, sink = lab.half_way(server, lab.client())
    handle, _ = lab.subscribe(lab.client(), server, out.tid)
    handle.cancel("not mine")
    lab.until(lambda: server.stats().get("late_messages", 0) + server.stats().get("refused_busy", 0) > 0)
    assert out.state == "anchor_sent"
    assert sink.ends == []


def test_cancel_towards_a_dead_peer_leaves_no_thread(lab):
    server, client = lab.pair()
    tid = TransferId("0" * 32, server.generation)
    server.close()
    for _ in range(3):
        lab.subscribe(client, server, tid)[0].cancel("abort")
    lab.until(lambda: client.stats()["links"] == 0)
