"""Anchors strictly before residuals across the requests of a link, and the emulated link rate."""

import time

import pytest

from lynx_ascend.stream import Kind
from lynx_ascend.transport.tcp.server_link import ServerLink

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def choices(monkeypatch):
    """Every choice of a sender thread, with whether an anchor was ready at that moment (under the lock)."""
    seen = []
    original = ServerLink._choose

    def spy(link, now):
        kind, views = original(link, now)
        anchor_ready = bool(link.queue._pending[Kind.ANCHOR] or link._flight[Kind.ANCHOR])
        if kind is not None:
            seen.append((kind, sum(len(view) for view in views), anchor_ready))
        return kind, views

    monkeypatch.setattr(ServerLink, "_choose", spy)
    return seen


def test_a_late_anchor_overtakes_a_residual_in_the_middle_of_its_frame(lab, choices):
    server, client = lab.server(link_mbps=160.0), lab.client()
    old, young = lab.make_pieces(1, size=2 << 20), lab.make_pieces(4, size=100_000)
    first = lab.offer(server, old)
    _, sink_old = lab.subscribe(client, server, first.tid, bytes_max=8 << 20)
    lab.until(lambda: server.stats().get("residual_wire_bytes", 0) > 100_000)
    second = lab.offer(server, young)
    _, sink_young = lab.subscribe(client, server, second.tid, bytes_max=2 << 20)
    assert sink_young.wait() is None
    assert sink_old.wait() is None
    lab.same(sink_old, old)
    lab.same(sink_young, young)
    assert sink_young.stats.t_anchor_done < sink_old.stats.t_residual_done
    assert sink_old.stats.t_residual_done < sink_young.stats.t_residual_done, "the older residual first"
    assert not any(anchor_ready for kind, _, anchor_ready in choices if kind is Kind.RESIDUAL)
    # residual, then anchors, then residual again: the frame was interrupted
    kinds = [kind for kind, _, _ in choices]
    cut = kinds.index(Kind.RESIDUAL)
    assert Kind.ANCHOR in kinds[cut:]


def test_residual_goes_in_windows(lab, choices):
    server, client = lab.server(residual_window=32 << 10), lab.client()
    pieces = lab.make_pieces(4, size=500_000)
    _, sink = lab.subscribe(client, server, lab.offer(server, pieces).tid, bytes_max=8 << 20)
    assert sink.wait() is None
    assert max(size for kind, size, _ in choices if kind is Kind.RESIDUAL) <= 32 << 10


def test_many_transfers_in_strict_order(lab, choices):
    server, client = lab.pair()
    sets = [lab.make_pieces(6, size=30_000, seed=seed) for seed in range(8)]
    outs = [lab.offer(server, pieces, put=False) for pieces in sets]
    sinks = [lab.subscribe(client, server, out.tid)[1] for out in outs]
    for n in range(6):
        for out, pieces in zip(outs, sets, strict=True):
            out.put(pieces[n], 5.0)
    for out in outs:
        out.finish()
    for sink, pieces in zip(sinks, sets, strict=True):
        assert sink.wait() is None
        lab.same(sink, pieces)
    assert not any(anchor_ready for kind, _, anchor_ready in choices if kind is Kind.RESIDUAL)


def test_link_rate_is_an_upper_bound(lab):
    server, client = lab.server(link_mbps=80.0), lab.client()
    pieces = lab.make_pieces(5, size=400_000)
    out = lab.offer(server, pieces)
    started = time.monotonic()
    _, sink = lab.subscribe(client, server, out.tid, bytes_max=8 << 20)
    assert sink.wait() is None
    # 4 MB at 10 MB/s, less the burst of 20 ms; how much longer it takes is the machine's affair.
    assert time.monotonic() - started >= 0.36


def test_link_rate_is_shared_by_two_decode_sides(lab):
    server = lab.server(link_mbps=80.0)
    runs = []
    started = time.monotonic()
    for _ in range(2):
        out = lab.offer(server, lab.make_pieces(5, size=200_000))
        runs.append(lab.subscribe(lab.client(), server, out.tid, bytes_max=8 << 20)[1])
    for sink in runs:
        assert sink.wait() is None
    assert time.monotonic() - started >= 0.36
