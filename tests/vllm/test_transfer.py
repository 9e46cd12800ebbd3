"""From P's pages over a real transport into D's pages: which values, written when."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.codec import servable_codecs

from .transfer_run import Run, same

LENGTHS = (1, 31, 32, 33, 255, 256, 257, 700)


@pytest.mark.parametrize("codec", servable_codecs())
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
