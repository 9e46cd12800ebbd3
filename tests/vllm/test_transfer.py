"""From P's pages over a real transport into D's pages: values, order, ends."""

from __future__ import annotations

import threading
import uuid

import pytest
import torch

from lynx_ascend.codec import codec_names
from lynx_ascend.stream.types import PieceKey
from lynx_ascend.vllm.metadata import Encode, Offer, Receive

LENGTHS = (1, 31, 32, 33, 255, 256, 257, 700)


class Run:
    """P's and D's workers, and everything that D reported."""

    def __init__(self, lab, p_caches, d_caches, p_settings=None, d_settings=None):
        self.lab = lab
        self.p, self.d = lab.table(p_caches, **(p_settings or {})), lab.table(d_caches, **(d_settings or {}))
        self.recorders = lab.record(self.d)
        self.encoder, self.receiver = (
            lab.encoder(self.p, **(p_settings or {})),
            lab.receiver(self.d, **(d_settings or {})),
        )
        self.finished, self.sent = [], []
        self.ready, self.failed, self.facts = {}, {}, {}

    def offer(self, tokens, codec, faults=None, *, encode=True):
        """P offers and encodes a prompt; returns (handle, P's blocks)."""
        blocks, req_id = self.lab.blocks(tokens), uuid.uuid4().hex
        handle = self.lab.handle(self.encoder.port, tokens, codec)
        self.encoder.offer(Offer(req_id, handle.transfer_id, tokens, codec, faults))
        if encode:
            self.encoder.encode(Encode(req_id, blocks))
        return handle, blocks, req_id

    def receive(self, handle, *, drafts=False, start=0, req_id="d", first_block=3):
        blocks = self.lab.blocks(handle.prompt_tokens, first_block)
        self.receiver.receive(Receive(req_id, handle, drafts, start, handle.prompt_tokens, blocks))
        return blocks

    def poll(self):
        self.finished += sorted(self.receiver.take_finished())
        self.sent += sorted(self.encoder.take_finished())
        if (report := self.receiver.take_report()) is not None:
            self.ready.update(report.ready)
            self.failed.update(report.failed)
            self.facts.update(report.facts)

    def until(self, condition):
        self.lab.until(lambda: (self.poll(), condition())[1])

    def writes(self):
        return [write for recorder in self.recorders for write in recorder.writes]

    def nothing_staged(self):
        self.lab.until(
            lambda: (
                not self.encoder.server.staged_bytes
                and not self.encoder.server.active_transfers
                and not self.receiver.client.staged_bytes
                and not self.receiver.client.active_transfers
            )
        )


@pytest.fixture
def run(lab):
    return Run(lab, lab.caches(), lab.caches(fill=-1.0), {"piece_kb": 10})


def same(left, right):
    return all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("codec", codec_names())
def test_pages_hold_what_the_codec_decodes(lab, run, codec):
    for tokens in LENGTHS:
        lab.fill(run.p, lab.blocks(tokens), tokens)
        handle, p_blocks, req_id = run.offer(tokens, codec)
        d_blocks = run.receive(handle, req_id=req_id)
        run.until(lambda req_id=req_id: req_id in run.ready and req_id in run.finished and req_id in run.sent)
        expected = lab.decoded(run.p, codec, p_blocks, tokens, full=True)
        assert same(lab.read(run.d, d_blocks, 0, tokens), expected), tokens
        assert run.receiver.client.staged_bytes == 0, "let go piece by piece, not only at the commit"
        run.receiver.commit(req_id)
    run.nothing_staged()
    assert len(run.finished) == len(set(run.finished)) == len(LENGTHS)
    assert not run.failed
    assert run.receiver.stats()["loads"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_caches(lab, dtype):
    run = Run(lab, lab.caches("cpu", dtype=dtype), lab.caches("cpu", dtype=dtype, fill=-1.0))
    lab.fill(run.p, lab.blocks(300), 300)
    handle, p_blocks, _ = run.offer(300, "lynx")
    d_blocks = run.receive(handle, drafts=True)
    run.until(lambda: run.ready)
    assert same(lab.read(run.d, d_blocks, 0, 300), lab.decoded(run.p, "lynx", p_blocks, 300, full=True))


@pytest.mark.parametrize("codec", ["lynx", "lynx-int8", "int8"])
def test_pages_with_nan_travel_raw(lab, run, codec):
    lab.fill(run.p, lab.blocks(300), 300, nan_at=280)
    handle, p_blocks, _ = run.offer(300, codec)
    d_blocks = run.receive(handle, drafts=codec == "lynx")
    run.until(lambda: run.ready)
    got = lab.read(run.d, d_blocks, 0, 300)
    assert all(plane[280].isnan().all() and plane[:280].isfinite().all() for plane in got)
    assert same(got, lab.decoded(run.p, codec, p_blocks, 300, full=True))
    run.receiver.commit("d")
    run.nothing_staged()


def test_a_drafting_load_is_usable_on_its_anchor_and_refined_later(lab, run):
    tokens = 300
    lab.fill(run.p, lab.blocks(tokens), tokens)
    handle, p_blocks, _ = run.offer(tokens, "lynx", {"residual_delay_s": 0.5})
    d_blocks = run.receive(handle, drafts=True)
    run.until(lambda: run.finished)
    assert not run.ready
    assert same(
        lab.read(run.d, d_blocks, 0, tokens), lab.decoded(run.p, "lynx", p_blocks, tokens, full=False)
    )
    run.until(lambda: run.ready)
    assert same(lab.read(run.d, d_blocks, 0, tokens), lab.decoded(run.p, "lynx", p_blocks, tokens, full=True))
    assert run.finished == ["d"]
    facts = run.facts["d"]
    assert facts["t_anchor_applied"] <= facts["t_full_applied"]
    assert facts["anchor_bytes"] > 0
    assert facts["residual_bytes"] > 0


def test_a_waiting_load_is_written_once_and_reported_when_complete(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, _, _ = run.offer(300, "lynx-int8", {"residual_delay_s": 0.3})
    run.receive(handle)
    run.until(lambda: run.finished)
    assert run.ready == {"d": 1}
    assert sorted(run.writes()) == sorted([("k", 0, 256), ("k", 256, 44), ("v", 0, 256), ("v", 256, 44)] * 2)


@pytest.mark.parametrize("start", [32, 256, 288, 299])
@pytest.mark.parametrize("codec", ["lynx", "bf16"])
def test_tokens_of_the_local_prefix_are_never_written(lab, run, start, codec):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, p_blocks, _ = run.offer(300, codec)
    d_blocks = run.receive(handle, drafts=codec == "lynx", start=start)
    run.until(lambda: run.ready)
    assert min(first for _, first, _ in run.writes()) == start
    assert all((plane == -1.0).all() for plane in lab.read(run.d, d_blocks, 0, start))
    expected = [plane[start:] for plane in lab.decoded(run.p, codec, p_blocks, 300, full=True)]
    assert same(lab.read(run.d, d_blocks, start, 300), expected)


def test_nothing_is_written_outside_the_blocks_of_the_load(lab, run):
    lab.fill(run.p, lab.blocks(257), 257)
    handle, _, _ = run.offer(257, "lynx")
    d_blocks = run.receive(handle, drafts=True)
    run.until(lambda: run.ready)
    others = [block for block in range(32) if block not in d_blocks]
    assert all((plane == -1.0).all() for plane in lab.read(run.d, others, 0, len(others) * lab.BLOCK))
    # Tokens behind the prompt in its last block belong to the decode engine.
    assert all((plane == -1.0).all() for plane in lab.read(run.d, d_blocks, 257, len(d_blocks) * lab.BLOCK))


@pytest.mark.parametrize("stall", ["anchor", "residual"])
def test_cancel_while_waiting_for_bytes(lab, run, stall):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, _, _ = run.offer(300, "lynx", {"stall": stall})
    run.receive(handle, drafts=True)
    if stall == "residual":
        run.until(lambda: run.finished)
    run.receiver.cancel("d")
    writes = len(run.writes())
    run.until(lambda: run.finished == ["d"])
    run.nothing_staged()
    run.receiver.cancel("d")
    run.poll()
    assert run.finished == ["d"]
    assert not run.ready
    assert not run.failed
    assert len(run.writes()) == writes


def test_cancel_waits_for_the_write_in_progress_and_ends_all_others(lab, run):
    lab.fill(run.p, lab.blocks(700), 700)
    inside, go = threading.Event(), threading.Event()
    for recorder in run.recorders:
        recorder.before = lambda: (inside.set(), go.wait(10.0))
    handle, _, _ = run.offer(700, "lynx")
    run.receive(handle, drafts=True)
    assert inside.wait(10.0)
    canceller = threading.Thread(target=run.receiver.cancel, args=("d",))
    canceller.start()
    canceller.join(0.1)
    assert canceller.is_alive(), "blocks would be reused while they are written"
    go.set()
    canceller.join(10.0)
    assert not canceller.is_alive()
    done = len(run.writes())
    assert done == 1
    run.until(lambda: run.finished == ["d"])
    run.nothing_staged()
    assert len(run.writes()) == done


def test_cancel_after_the_load_is_complete(lab, run):
    lab.fill(run.p, lab.blocks(100), 100)
    handle, _, _ = run.offer(100, "lynx")
    run.receive(handle, drafts=True)
    run.until(lambda: run.ready and run.finished)
    run.receiver.cancel("d")
    run.poll()
    assert run.finished == ["d"]
    run.nothing_staged()


@pytest.mark.parametrize(("drafts", "corrupt"), [(True, "anchor"), (False, "anchor"), (True, "residual")])
def test_a_piece_damaged_twice_fails_the_load(lab, run, drafts, corrupt):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, _, _ = run.offer(300, "lynx", {"corrupt": corrupt, "corrupt_times": 2})
    run.receive(handle, drafts=drafts)
    run.until(lambda: run.failed)
    run.until(lambda: run.finished)
    assert "checksum" in run.failed["d"]
    run.nothing_staged()
    run.poll()
    assert run.finished == ["d"]
    assert not run.ready
    assert run.receiver.stats()["loads"] == 0
    assert run.receiver.stats()["failed_loads"] == 1


def test_a_piece_damaged_once_is_sent_again(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, p_blocks, _ = run.offer(300, "lynx", {"corrupt": "anchor"})
    d_blocks = run.receive(handle, drafts=True)
    run.until(lambda: run.ready)
    assert same(lab.read(run.d, d_blocks, 0, 300), lab.decoded(run.p, "lynx", p_blocks, 300, full=True))


@pytest.mark.parametrize("problem", ["unknown", "generation", "no listener", "bad port"])
def test_a_handle_that_leads_nowhere_fails_the_load(lab, run, free_port, problem):
    from dataclasses import replace

    handle = lab.handle(run.encoder.port, 100, "lynx")
    if problem == "generation":
        handle = replace(run.offer(100, "lynx", encode=False)[0], generation=8)
    elif problem == "no listener":
        handle = replace(handle, port=free_port())
    elif problem == "bad port":
        handle = replace(handle, port=65536)
    run.receive(handle, drafts=True)
    run.until(lambda: run.failed and run.finished)
    assert run.finished == ["d"]
    assert run.writes() == []
    assert run.receiver.client.staged_bytes == 0


def test_a_transfer_that_is_subscribed_already_fails_its_second_load_only(lab, run):
    lab.fill(run.p, lab.blocks(100), 100)
    handle, _, _ = run.offer(100, "lynx", {"residual_delay_s": 0.3})
    run.receive(handle, drafts=True, req_id="first")
    run.receive(handle, drafts=True, req_id="second", first_block=10)
    run.until(lambda: "second" in run.failed and "second" in run.finished)
    run.until(lambda: "first" in run.ready)
    assert sorted(run.finished) == ["first", "second"]


def test_a_deadline_fails_the_load(lab):
    run = Run(lab, lab.caches(), lab.caches(), None, {"deadline_s": 0.3})
    lab.fill(run.p, lab.blocks(100), 100)
    handle, _, _ = run.offer(100, "lynx", {"stall": "residual"})
    run.receive(handle)
    run.until(lambda: run.failed and run.finished)
    assert "deadline" in run.failed["d"]
    run.nothing_staged()


def test_an_error_while_writing_fails_the_load(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)

    def broken():
        raise RuntimeError("no such block")

    run.recorders[0].before = broken
    handle, _, _ = run.offer(300, "lynx")
    run.receive(handle, drafts=True)
    run.until(lambda: run.failed and run.finished)
    run.nothing_staged()


def test_overlapping_pieces_do_not_pass_for_missing_pages(lab, run, monkeypatch):
    """Three pages by count, but the third never comes: the load must not be taken for complete."""

    def overlapping(codec, tokens):
        for plane in run.p.planes:
            yield plane, PieceKey(plane.layer, plane.index, 0, 2, 0, plane.heads), 0, 512
            yield plane, PieceKey(plane.layer, plane.index, 1, 1, 0, plane.heads), 256, 512

    monkeypatch.setattr(run.p, "pieces", overlapping)
    lab.fill(run.p, lab.blocks(700), 700)
    handle, _, _ = run.offer(700, "lynx")
    run.receive(handle)
    run.until(lambda: run.failed and run.finished)
    assert "overlaps" in run.failed["d"]
    assert not run.ready
    run.nothing_staged()


def test_commit_refuses_a_load_that_is_not_complete(lab, run):
    from lynx_ascend.errors import TransferError

    lab.fill(run.p, lab.blocks(100), 100)
    handle, _, _ = run.offer(100, "lynx", {"stall": "residual"})
    run.receive(handle, drafts=True)
    run.until(lambda: run.finished)
    with pytest.raises(TransferError, match="before its residual"):
        run.receiver.commit("d")
    with pytest.raises(TransferError):
        run.receiver.commit("nobody")


def test_discard_frees_the_prefill_side(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, _, req_id = run.offer(300, "lynx")
    run.until(lambda: req_id in run.sent)
    assert run.encoder.server.staged_bytes > 0
    run.receiver.discard(handle)
    run.nothing_staged()
    assert run.encoder.server.stats().get("anchor_bytes", 0) == 0


def test_discard_before_the_prefill_side_has_encoded(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, p_blocks, req_id = run.offer(300, "lynx", encode=False)
    run.receiver.discard(handle)
    lab.until(lambda: run.encoder.server.active_transfers == 0)
    run.encoder.encode(Encode(req_id, p_blocks))
    run.until(lambda: run.sent == [req_id])
    run.nothing_staged()


def test_discard_of_a_dead_peer_or_twice_does_no_harm(lab, run, free_port):
    run.receiver.discard(lab.handle(free_port(), 100, "lynx"))
    handle, _, _ = run.offer(100, "lynx", encode=False)
    run.receiver.discard(handle)
    run.receiver.discard(handle)
    lab.until(lambda: run.encoder.server.active_transfers == 0)
    lab.until(lambda: run.receiver.client.active_transfers == 0)


def test_the_prefill_side_gives_up_an_aborted_request(lab, run):
    handle, _, req_id = run.offer(300, "lynx", encode=False)
    run.receive(handle, drafts=True)
    run.encoder.cancel(req_id)
    run.encoder.cancel(req_id)
    run.until(lambda: run.failed and run.finished)
    assert "aborted" in run.failed["d"]
    run.nothing_staged()


def test_blocks_are_given_back_when_the_decode_side_left_before_encoding(lab, run):
    lab.fill(run.p, lab.blocks(300), 300)
    handle, p_blocks, req_id = run.offer(300, "lynx", encode=False)
    run.receive(handle, drafts=True)
    lab.until(lambda: run.encoder.server.stats()["links"] == 1)
    run.receiver.cancel("d")
    lab.until(lambda: run.encoder.server.active_transfers == 0)
    run.encoder.encode(Encode(req_id, p_blocks))
    run.until(lambda: run.sent == [req_id])
    run.nothing_staged()


def test_an_offer_that_is_refused_gives_the_blocks_back(lab, run):
    handle, p_blocks, _ = run.offer(100, "lynx", encode=False)
    run.encoder.offer(Offer("again", handle.transfer_id, 100, "lynx", None))
    run.encoder.offer(Offer("faulty", uuid.uuid4().hex, 100, "lynx", {"no_such_fault": 1}))
    run.encoder.encode(Encode("again", p_blocks))
    run.encoder.encode(Encode("faulty", p_blocks))
    run.until(lambda: sorted(run.sent) == ["again", "faulty"])


def test_blocks_are_given_back_when_staging_stays_full(lab):
    run = Run(
        lab, lab.caches(dim=128, heads=4), lab.caches(dim=128, heads=4), {"staging_mb": 1, "lease_s": 0.3}
    )
    lab.fill(run.p, lab.blocks(700), 700)
    _, _, req_id = run.offer(700, "lynx")
    run.until(lambda: run.sent == [req_id])
    run.nothing_staged()


def test_both_sides_count_the_bytes_that_moved(lab, run):
    lab.fill(run.p, lab.blocks(700), 700)
    handle, _, _ = run.offer(700, "lynx")
    run.receive(handle)
    run.until(lambda: run.ready)
    moved = run.facts["d"]["anchor_bytes"] + run.facts["d"]["residual_bytes"]
    assert run.receiver.stats()["received_bytes"] == moved > 0
    # On the wire a payload carries a header.
    assert moved < run.encoder.stats()["sent_bytes"] < 1.2 * moved


def test_many_loads_at_once(lab):
    run = Run(lab, lab.caches(blocks=200), lab.caches(blocks=200), {"piece_kb": 10})
    lab.fill(run.p, lab.blocks(300), 300)
    reference = lab.decoded(run.p, "lynx", lab.blocks(300), 300, full=True)
    blocks = {}
    for n in range(12):
        handle, _, _ = run.offer(300, "lynx", {"residual_delay_s": 0.02 * (n % 4)})
        blocks[str(n)] = run.receive(handle, drafts=n % 3 > 0, req_id=str(n), first_block=1 + 10 * n)
        if n % 5 == 4:
            run.receiver.cancel(str(n))
    run.until(lambda: len(run.finished) == 12 and len(run.ready) == 10)
    assert sorted(run.finished) == sorted(str(n) for n in range(12))
    for req_id in run.ready:
        assert same(lab.read(run.d, blocks[req_id], 0, 300), reference)
        run.receiver.commit(req_id)
    run.nothing_staged()
