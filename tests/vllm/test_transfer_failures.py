"""Loads on D that are cancelled or fail: nothing is written afterwards, everything is reported once."""

from __future__ import annotations

import threading

import pytest

from lynx_ascend.stream.types import PieceKey

from .transfer_run import Run, same


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
            for first, pages in ((0, 2), (1, 1)):
                shape = plane.shape(first * 256, 512)
                yield plane, PieceKey(plane.layer, plane.index, first, pages, 0, plane.heads), shape

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
