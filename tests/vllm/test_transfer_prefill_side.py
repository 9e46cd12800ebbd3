"""Transfers that end on P: discarded, aborted, refused; its blocks and its staging are given back."""

from __future__ import annotations

import uuid

from lynx_ascend.vllm.metadata import Encode, Offer

from .transfer_run import Run


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
