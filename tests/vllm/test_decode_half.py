"""D's scheduler half: which handles are taken, and what becomes of a load."""

from __future__ import annotations

from types import SimpleNamespace as Space

import pytest

from lynx_ascend.vllm.decode_half import DecodeHalf
from lynx_ascend.vllm.metadata import LynxWorkerMetadata
from lynx_ascend.vllm.settings import LynxSettings

PROMPT = list(range(100))


class Blocks:
    def get_block_ids(self):
        return ([4, 5, 6, 7],)


@pytest.fixture
def half():
    return DecodeHalf(LynxSettings(allowed_hosts=("127.0.0.1",)), 1, 1000)


@pytest.fixture
def ask(make_request, make_handle):
    return lambda req_id="a", **changes: make_request(req_id, PROMPT, make_handle(PROMPT, **changes))


def opened(half, request, external=100):
    load = half.admit(request)
    half.blocks_allocated(request, Blocks(), external)
    half.take_meta()
    return load


def test_a_good_handle_is_taken_and_loaded_once(half, ask):
    request = ask()
    load = half.admit(request)
    assert load is half.load_of("a")
    assert half.matched_tokens(request, 0) == half.matched_tokens(request, 0) == (100, True)
    assert half.matched_tokens(request, 64) == (36, True)
    half.blocks_allocated(request, Blocks(), 36)
    half.blocks_allocated(request, Blocks(), 36)
    (receive,) = half.take_meta().receives
    assert (receive.req_id, receive.start, receive.end, receive.block_ids) == ("a", 64, 100, [4, 5, 6, 7])
    assert half.matched_tokens(request, 0) == (0, False)
    assert half.take_meta().receives == []


def test_a_prompt_in_the_local_cache_is_discarded_on_p(half, ask):
    request = ask()
    load = half.admit(request)
    assert half.matched_tokens(request, 100) == (0, False)
    half.blocks_allocated(request, Blocks(), 0)
    meta = half.take_meta()
    assert (meta.discards, meta.receives, load.live) == ([load.handle], [], False)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_digest": "0" * 16},
        {"prompt_tokens": 99},
        {"remote_host": "10.0.0.1"},
        {"first_token": 1000},
        {"codec": "zip"},
        {"generation": -1},
    ],
    ids=str,
)
def test_handles_that_cannot_be_right_are_served_plainly(half, ask, change):
    request = ask(**change)
    assert half.admit(request) is None
    assert half.matched_tokens(request, 0) == (0, False)
    half.blocks_allocated(request, Blocks(), 0)
    half.finished("a")
    meta = half.take_meta()
    assert (meta.receives, meta.discards, meta.cancels) == ([], [], [])
    assert half.admit(ask("b", first_token=999)) is not None


def test_a_transfer_is_claimed_until_its_request_is_over(half, make_request, make_handle):
    handle = make_handle(PROMPT)
    assert half.admit(make_request("a", PROMPT, handle)) is not None
    assert half.admit(make_request("b", PROMPT, handle)) is None
    half.finished("b")
    assert half.admit(make_request("c", PROMPT, handle)) is None
    half.finished("a")
    assert half.admit(make_request("d", PROMPT, handle)) is not None


def test_requests_without_a_handle_are_none_of_its_business(half, make_request):
    assert half.admit(make_request("a", PROMPT)) is None
    half.cancel("a")
    assert half.finished("a") is None


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_load_is_ready_when_all_ranks_are(ask, ranks):
    half = DecodeHalf(LynxSettings(), ranks, 1000)
    opened(half, ask())
    for rank in range(ranks):
        assert half.ready == set()
        half.on_worker_report(LynxWorkerMetadata({"a": 1}, {}, {"a": {f"t_{rank}": 1.0}}))
    assert half.ready == {"a"}
    assert set(half.load_of("a").facts) == {f"t_{rank}" for rank in range(ranks)}


def test_a_failure_on_one_rank_is_a_failure(ask):
    half = DecodeHalf(LynxSettings(), 2, 1000)
    load = opened(half, ask())
    half.on_worker_report(LynxWorkerMetadata({"a": 1}, {"a": "lost"}))
    half.on_worker_report(LynxWorkerMetadata({"a": 1}))
    assert (half.failed, half.ready, load.failure) == ({"a"}, set(), "lost")
    half.cancel("a")
    assert (half.failed, half.take_meta().cancels) == (set(), ["a"])


def test_commit_ends_the_load(half, ask):
    load = opened(half, ask())
    half.on_worker_report(LynxWorkerMetadata({"a": 1}))
    half.commit("a")
    assert (half.ready, load.live, half.take_meta().commits) == (set(), False, ["a"])
    half.cancel("a")
    assert half.finished("a") is load
    meta = half.take_meta()
    assert (meta.cancels, meta.discards) == ([], [])


def test_cancel_before_the_blocks_exist_discards_once(half, ask):
    request = ask()
    half.admit(request)
    half.cancel("a")
    half.cancel("a")
    half.finished("a")
    meta = half.take_meta()
    assert (len(meta.discards), meta.cancels) == (1, [])
    assert half.matched_tokens(request, 0) == (0, False)


def test_finished_cancels_what_is_live(half, ask):
    opened(half, ask())
    half.finished("a")
    half.finished("a")
    assert half.take_meta().cancels == ["a"]
    assert half.load_of("a") is None


def test_reports_about_ended_loads_are_ignored(half, ask):
    load = opened(half, ask())
    half.cancel("a")
    half.on_worker_report(LynxWorkerMetadata({"a": 1, "z": 1}, {"a": "late", "z": "who"}, {"z": {"t": 1.0}}))
    assert (half.ready, half.failed, load.failure) == (set(), set(), None)


def test_first_tokens_are_told_for_new_requests_only(half, ask):
    half.admit(ask("a", first_token=7)).first_token = 7
    half.admit(ask("b"))
    assert half.first_tokens([Space(req_id="a"), Space(req_id="b"), Space(req_id="c")]) == {"a": 7}
