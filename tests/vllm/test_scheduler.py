"""LynxScheduler around vLLM's own scheduler: drafts, verification, first tokens, and every way out."""

from __future__ import annotations

import contextlib

import pytest

from lynx_ascend.vllm.drafting import Phase

PROMPT = list(range(100, 200))


@pytest.fixture
def engine(make_engine):
    return make_engine()


@pytest.fixture
def ask(make_request, make_handle):
    """A request with a handle; `handle` changes the handle, the rest are sampling parameters."""

    def make(req_id, prompt=PROMPT, *, handle=None, salt=None, **sampling):
        return make_request(req_id, prompt, make_handle(prompt, **(handle or {})), salt=salt, **sampling)

    return make


def finish(engine, req_id, limit=200):
    """Step until the request has finished."""
    for _ in range(limit):
        if req_id in engine.finish:
            return
        engine.step()
    raise AssertionError(f"{req_id} does not finish")


@contextlib.contextmanager
def no_free_blocks(engine):
    """Waiting requests are promoted but not scheduled."""
    manager = engine.scheduler.kv_cache_manager
    allocate, manager.allocate_slots = manager.allocate_slots, lambda *args, **kwargs: None
    yield
    manager.allocate_slots = allocate


# -- drafts and verification


def test_drafts_stay_hidden_until_they_are_verified(engine, ask):
    request = ask("a", max_tokens=20)
    engine.load(request)
    for n in range(3):
        engine.step({"a": [10 + n]})
    assert engine.texts == {}
    assert engine.state("a").drafts == [10, 11, 12]
    engine.step({"a": [13]}, ready=["a"])
    output = engine.step({"a": [10, 11, 50]})
    assert output.scheduled_spec_decode_tokens == {"a": [10, 11, 12, 13]}
    assert output.num_scheduled_tokens == {"a": 5}
    assert output.scheduled_cached_reqs.num_computed_tokens == [len(PROMPT) - 1]
    assert output.kv_connector_metadata.commits == ["a"]
    assert engine.texts == {"a": [10, 11, 50]}
    assert engine.state("a") is None
    # The request goes on as any other: one token a step, computed up to the last one.
    output = engine.step({"a": [51]})
    assert output.num_scheduled_tokens == {"a": 1}
    assert output.kv_connector_metadata.commits == []
    assert engine.texts == {"a": [10, 11, 50, 51]}
    assert request.num_computed_tokens == request.num_tokens - 1
    finish(engine, "a")
    assert len(engine.texts["a"]) == 20
    assert engine.finish == {"a": "LENGTH"}
    engine.step()
    engine.check_empty()


@pytest.mark.parametrize("accepted", [0, 1, 7, 8])
def test_each_count_of_accepted_drafts(engine, ask, accepted):
    request = ask("a", max_tokens=64)
    engine.load(request)
    drafts = list(range(10, 18))
    for token in drafts[:-1]:
        engine.step({"a": [token]})
    engine.step({"a": drafts[-1:]}, ready=["a"])
    engine.step({"a": [*drafts[:accepted], 77]})
    assert engine.texts["a"] == [*drafts[:accepted], 77]
    assert list(request.all_token_ids) == [*PROMPT, *drafts[:accepted], 77]
    assert request.num_computed_tokens == len(PROMPT) + accepted
    assert len(request.block_hashes) == request.num_tokens // 32
    engine.abort("a")
    engine.step()
    engine.check_empty()


@pytest.mark.parametrize(("sampling", "parts"), [({}, 1), ({"stop": ["x"], "detokenize": True}, 4)])
def test_verified_tokens_come_one_by_one_where_stop_strings_are_looked_for(engine, ask, sampling, parts):
    engine.load(ask("a", max_tokens=4, **sampling))
    for token in (10, 11):
        engine.step({"a": [token]})
    engine.step({"a": [12]}, ready=["a"])
    engine.step({"a": [10, 11, 12, 50]})
    assert [one.new_token_ids for one in engine.outputs] == (
        [[10], [11], [12], [50]] if parts == 4 else [[10, 11, 12, 50]]
    )
    assert [one.finish_reason is not None for one in engine.outputs] == [False] * (parts - 1) + [True]
    engine.step()
    engine.check_empty()


@pytest.mark.parametrize("why", ["limit", "stop", "max_tokens", "model length"])
def test_a_request_parks(make_engine, ask, why):
    engine = make_engine(max_model_len=104 if why == "model length" else 512)
    request = ask(
        "a",
        handle={"max_draft": 4 if why == "limit" else 64},
        max_tokens=4 if why == "max_tokens" else 50,
        stop_token_ids=[13],
    )
    engine.load(request)
    for n in range(6):
        engine.step({"a": [10 + n if why == "stop" else 20 + n]})
    state = engine.state("a")
    assert state.parked
    assert state.drafts == ([10, 11, 12, 13] if why == "stop" else [20, 21, 22, 23])
    assert engine.last.num_scheduled_tokens == {}
    engine.step(ready=["a"])
    output = engine.step({"a": [*state.drafts, 30]})
    assert output.scheduled_spec_decode_tokens["a"] == state.drafts[: 3 if why == "model length" else 4]
    ends = {"limit": None, "stop": "STOP", "max_tokens": "LENGTH", "model length": "LENGTH"}
    assert engine.finish.get("a") == ends[why]
    assert engine.texts["a"] == (state.drafts if ends[why] else [*state.drafts, 30])
    engine.abort("a")
    engine.step()
    engine.check_empty()


def test_a_residual_that_comes_with_the_anchor_needs_no_verification(engine, ask):
    engine.scheduler.add_request(ask("a", max_tokens=3))
    engine.step(finished=["a"], ready=["a"])
    output = engine.step({"a": [10]})
    assert output.kv_connector_metadata.commits == ["a"]
    assert output.scheduled_spec_decode_tokens == {}
    assert engine.texts == {"a": [10]}
    finish(engine, "a")
    engine.step()
    engine.check_empty()


def test_a_residual_that_comes_between_promotion_and_the_first_draft(engine, ask):
    request = ask("a", max_tokens=3)
    engine.scheduler.add_request(request)
    engine.step(finished=["a"])
    with no_free_blocks(engine):
        engine.step(ready=["a"])
    assert request.status.name == "WAITING"
    output = engine.step({"a": [10]})
    assert output.kv_connector_metadata.commits == ["a"]
    assert output.scheduled_spec_decode_tokens == {}
    assert engine.texts == {"a": [10]}
    finish(engine, "a")
    engine.step()
    engine.check_empty()


def test_a_waiting_codec_does_not_draft(engine, ask):
    engine.load(ask("a", handle={"codec": "lynx-int8"}, max_tokens=2))
    assert engine.state("a") is None
    engine.step({"a": [10]})
    assert engine.texts == {"a": [10]}


@pytest.mark.parametrize(
    "sampling",
    [
        {"logit_bias": {5: 1.0}},
        {"min_p": 0.1, "temperature": 1.0},
        {"prompt_logprobs": 1},
    ],
)
def test_requests_whose_drafts_cannot_be_verified_wait(engine, ask, sampling):
    request = ask("a", **sampling)
    output = engine.load(request)
    assert not output.kv_connector_metadata.receives[0].drafts
    assert engine.state("a") is None


def test_verification_is_cut_to_the_token_budget(make_engine, ask):
    engine = make_engine(budget=128)
    for req_id in "ab":
        engine.load(ask(req_id, [ord(req_id)] * 100, max_tokens=100))
    for n in range(63):
        engine.step({"a": [n + 1], "b": [n + 1]})
    engine.step({"a": [64], "b": [64]}, ready=["a", "b"])
    drafts = list(range(1, 65))
    output = engine.step({"a": [*drafts, 70], "b": [*drafts[:62], 70]})
    scheduled = {r: len(d) for r, d in output.scheduled_spec_decode_tokens.items()}
    assert sorted(scheduled.values()) == [62, 64]
    assert sum(output.num_scheduled_tokens.values()) == 128
    cut = min(scheduled, key=scheduled.get)
    whole = max(scheduled, key=scheduled.get)
    assert engine.texts[whole] == [*drafts, 70] if whole == "a" else [*drafts[:62], 70]
    assert len(engine.texts[cut]) <= 65
    for req_id in "ab":
        engine.abort(req_id)
    engine.step()
    engine.check_empty()


def test_a_verification_that_finds_no_budget_waits_for_the_next_step(make_engine, ask):
    engine = make_engine(budget=65)
    for req_id in "ab":
        engine.load(ask(req_id, [ord(req_id)] * 60, max_tokens=100))
    for n in range(63):
        engine.step({"a": [n + 1], "b": [n + 1]})
    engine.step({"a": [64], "b": [64]}, ready=["a", "b"])
    drafts = list(range(1, 65))
    output = engine.step({"a": [*drafts, 70], "b": [*drafts, 70]})
    (first,) = output.num_scheduled_tokens
    second = "ab".replace(first, "")
    assert engine.texts == {first: [*drafts, 70]}
    assert engine.state(second).phase is Phase.VERIFY
    engine.step({first: [71], second: [1, 71]})
    engine.step({first: [71], second: [1, 71]})
    assert engine.state(second) is None
    assert engine.texts[second][:2] == [1, 71]
    for req_id in "ab":
        engine.abort(req_id)
    engine.step()
    engine.check_empty()


# -- P's first token


def test_the_first_token_is_emitted_before_any_kv_has_come(engine, ask):
    request = ask("a", handle={"first_token": 55}, max_tokens=10)
    engine.scheduler.add_request(request)
    engine.step()
    assert engine.texts == {"a": [55]}
    assert engine.finish == {}
    engine.step(finished=["a"])
    output = engine.step({"a": [60]})
    assert output.kv_connector_metadata.first_tokens == {"a": 55}
    assert output.num_scheduled_tokens == {"a": 1}
    engine.step({"a": [61]}, ready=["a"])
    engine.step({"a": [60, 62]})
    assert engine.texts == {"a": [55, 60, 62]}
    finish(engine, "a")
    assert len(engine.texts["a"]) == 10
    engine.step()
    engine.check_empty()


@pytest.mark.parametrize(
    ("sampling", "reason"), [({"max_tokens": 1}, "LENGTH"), ({"stop_token_ids": [55]}, "STOP")]
)
def test_a_first_token_that_ends_the_text(engine, ask, sampling, reason):
    engine.scheduler.add_request(ask("a", handle={"first_token": 55, "token_times": True}, **sampling))
    assert engine.scheduler.has_requests(), "a step must run, or the client hears nothing"
    output = engine.step()
    assert engine.texts == {"a": [55]}
    assert engine.finish == {"a": reason}
    assert len(engine.params["a"]["token_times"]["produced"]) == 1
    assert output.finished_req_ids == {"a"}
    assert len(output.kv_connector_metadata.discards) == 1
    assert not output.kv_connector_metadata.receives
    engine.check_empty()


def test_an_abort_before_the_first_step_says_nothing(engine, ask):
    engine.scheduler.add_request(ask("a", handle={"first_token": 55}))
    engine.abort("a")
    output = engine.step()
    assert engine.texts == {}
    assert len(output.kv_connector_metadata.discards) == 1
    engine.check_empty()


@pytest.mark.parametrize("sampling", [{"logprobs": 1}, {"min_tokens": 2}])
def test_a_first_token_that_only_this_engine_can_complete_is_not_taken(engine, ask, sampling):
    engine.load(ask("a", handle={"first_token": 55}, **sampling))
    assert engine.texts == {}
    assert engine.step({"a": [10]}).kv_connector_metadata.first_tokens == {}


def test_a_first_token_outside_the_vocabulary_is_refused(engine, ask):
    engine.scheduler.add_request(ask("a", handle={"first_token": 1000}, max_tokens=2))
    output = engine.step()
    assert engine.decode.load_of("a") is None
    assert output.num_scheduled_tokens == {"a": len(PROMPT)}
    assert 1000 not in engine.texts["a"]


# -- the prefix cache


def test_anchor_only_blocks_never_reach_the_prefix_cache(engine, ask):
    first, second = ask("a", max_tokens=100), ask("b", max_tokens=100)
    engine.load(first)
    for n in range(40):
        engine.step({"a": [n]})
    engine.scheduler.add_request(second)
    output = engine.step({"a": [40]})
    (receive,) = output.kv_connector_metadata.receives
    assert (receive.req_id, receive.start) == ("b", 0)
    own = engine.scheduler.kv_cache_manager.get_block_ids
    assert not set(own("a")[0]) & set(own("b")[0])


def test_verified_blocks_do(engine, ask):
    engine.load(ask("a", max_tokens=100))
    for n in range(40):
        engine.step({"a": [n + 1]}, ready=["a"] if n == 39 else [])
    engine.step({"a": [*range(1, 41), 50]})
    engine.scheduler.add_request(ask("b", [*PROMPT, *range(1, 41)], max_tokens=100))
    output = engine.step()
    (receive,) = output.kv_connector_metadata.receives
    assert (receive.start, receive.end) == (128, 140)
    assert len(receive.block_ids) == 5


def test_rejected_drafts_leave_no_hashes(engine, ask):
    engine.load(ask("a", max_tokens=100))
    for n in range(40):
        engine.step({"a": [n + 1]}, ready=["a"] if n == 39 else [])
    engine.step({"a": [500]})
    for n in range(40):
        engine.step({"a": [501 + n]})
    # The block behind the prompt is full again, with other tokens than the drafts that stood there.
    engine.scheduler.add_request(ask("b", [*PROMPT, *range(1, 41)], max_tokens=100))
    (receive,) = engine.step().kv_connector_metadata.receives
    assert receive.start == 96
    engine.scheduler.add_request(ask("c", [*PROMPT, *range(500, 540)], max_tokens=100))
    (receive,) = engine.step().kv_connector_metadata.receives
    assert receive.start == 128


@pytest.mark.parametrize(
    ("codec", "salt", "hit"),
    [
        ("lynx", None, 96),
        ("lynx-int8", None, 96),
        ("lynx-int4", None, 0),
        ("bf16", None, 0),
        (None, None, 0),
        ("lynx", "tenant", 0),
    ],
)
def test_codec_families_and_tenants_are_hashed_apart(engine, ask, make_request, codec, salt, hit):
    engine.load(ask("a", max_tokens=2))
    engine.step({"a": [10]}, ready=["a"])
    engine.step({"a": [10, 11]})
    assert engine.finish == {"a": "LENGTH"}
    other = ask("b", handle={"codec": codec}, salt=salt) if codec else make_request("b", PROMPT, max_tokens=2)
    engine.scheduler.add_request(other)
    output = engine.step()
    if codec:
        assert output.kv_connector_metadata.receives[0].start == hit
    else:
        assert output.num_scheduled_tokens == {"b": len(PROMPT)}


@pytest.mark.parametrize("first_token", [None, 55])
def test_a_prompt_that_the_prefix_cache_covers_is_answered(engine, ask, first_token):
    prompt = PROMPT[:96]
    for req_id in ("a", "b"):
        request = ask(req_id, prompt, handle={"first_token": first_token}, max_tokens=6)
        engine.scheduler.add_request(request)
        engine.step(finished=[req_id] if req_id == "a" else [])
        if req_id == "a":
            engine.step(ready=["a"])
        elif first_token is None:
            assert engine.last.kv_connector_metadata.receives[0].start == 64
            engine.step(finished=["b"], ready=["b"])
        else:
            assert engine.last.kv_connector_metadata.receives == []
            assert len(engine.last.kv_connector_metadata.discards) == 1
            assert engine.last.num_scheduled_tokens == {"b": 1}
        finish(engine, req_id, 20)
        assert len(engine.texts[req_id]) == 6
    engine.step()
    engine.check_empty()


# -- failures


def plain_from_start(engine, req_id, prompt_tokens):
    """The step that recomputes the prompt: all of it is scheduled."""
    assert engine.last.num_scheduled_tokens[req_id] == prompt_tokens


@pytest.mark.parametrize("codec", ["lynx", "lynx-int8"])
def test_a_load_that_fails_before_promotion(engine, ask, codec):
    engine.scheduler.add_request(ask("a", handle={"codec": codec}, max_tokens=3))
    engine.step()
    engine.step(failed=["a"], finished=["a"])
    engine.step({"a": [10]})
    plain_from_start(engine, "a", len(PROMPT))
    assert engine.texts == {"a": [10]}
    finish(engine, "a")
    engine.step()
    engine.check_empty()


def test_a_failure_that_is_known_before_the_blocks_are_quiet(engine, ask):
    """With several ranks the failure comes with the first, finished_recving with the last."""
    engine.scheduler.add_request(ask("a", max_tokens=3))
    engine.step()
    engine.step(failed=["a"])
    for _ in range(3):
        engine.step()
        assert engine.last.num_scheduled_tokens == {}
    engine.step(finished=["a"])
    engine.step()
    plain_from_start(engine, "a", len(PROMPT))
    finish(engine, "a")
    engine.step()
    engine.check_empty()


@pytest.mark.parametrize("first_token", [None, 55])
@pytest.mark.parametrize("parked", [False, True])
def test_a_load_that_fails_while_drafting(engine, ask, first_token, parked):
    request = ask("a", handle={"first_token": first_token, "max_draft": 3 if parked else 64}, max_tokens=9)
    engine.load(request)
    for n in range(5):
        engine.step({"a": [10 + n]})
    assert engine.state("a").parked == parked
    engine.step(failed=["a"])
    engine.step({"a": [20]})
    plain_from_start(engine, "a", request.num_prompt_tokens + (first_token is not None))
    assert engine.last.kv_connector_metadata.cancels == ["a"]
    assert engine.texts["a"] == ([20] if first_token is None else [55, 20])
    assert request.cache_salt is None
    finish(engine, "a")
    assert len(engine.texts["a"]) == 9
    engine.step()
    engine.check_empty()


def test_a_load_that_fails_while_drafting_behind_a_local_prefix(engine, ask):
    engine.load(ask("a", max_tokens=2))
    engine.step({"a": [10]}, ready=["a"])
    engine.step({"a": [10, 11]})
    request = ask("b", max_tokens=5)
    output = engine.load(request)
    assert output.kv_connector_metadata.receives[0].start == 96
    engine.step({"b": [10]}, failed=["b"])
    engine.step({"b": [20]})
    plain_from_start(engine, "b", 4)
    finish(engine, "b")
    engine.step()
    engine.check_empty()


def test_a_load_that_fails_when_promoted_but_not_scheduled(engine, ask):
    request = ask("a", max_tokens=20)
    engine.scheduler.add_request(request)
    engine.step(finished=["a"])
    with no_free_blocks(engine):
        engine.step(failed=["a"])
    assert request.status.name == "WAITING"
    assert request.num_computed_tokens > 0
    engine.step({"a": [10]})
    plain_from_start(engine, "a", len(PROMPT))
    assert engine.texts == {"a": [10]}
    finish(engine, "a")
    engine.step()
    engine.check_empty()


def test_text_computed_after_a_failure_is_not_hashed_with_a_codec(engine, ask, make_request):
    engine.load(ask("a", max_tokens=2))
    engine.step(failed=["a"])
    finish(engine, "a")
    engine.scheduler.add_request(make_request("b", PROMPT, max_tokens=2))
    assert engine.step().num_scheduled_tokens == {"b": len(PROMPT) - 96}


def test_reports_about_requests_that_are_gone_change_nothing(engine, ask):
    engine.load(ask("a"))
    engine.step()
    engine.abort("a")
    engine.step(ready=["a", "never"], failed=["a", "never"])
    engine.step()
    engine.check_empty()


# -- aborts and preemption


@pytest.mark.parametrize(
    "phase", ["waiting", "loading", "loaded", "drafting", "parked", "refined", "verified", "failed"]
)
def test_abort_in_each_phase(engine, ask, phase):
    order = ["waiting", "loading", "loaded", "drafting", "parked", "refined", "verified"]
    request = ask("a", handle={"max_draft": 3, "first_token": 55}, max_tokens=30)
    engine.scheduler.add_request(request)
    reached = order.index(phase) if phase in order else 3
    if reached >= 1:
        engine.step(finished=["a"] if reached >= 2 else [])
    if reached >= 3:
        engine.step(failed=["a"] if phase == "failed" else [])
    if reached >= 4:
        for _ in range(4):
            engine.step()
        assert engine.state("a").parked
    if reached >= 5:
        engine.step(ready=["a"])
    if reached >= 6:
        engine.step({"a": [900, 77]})
    engine.abort("a")
    output = engine.step()
    meta = output.kv_connector_metadata
    assert len(meta.discards) == (phase == "waiting")
    assert meta.cancels == (["a"] if phase in order[1:6] or phase == "failed" else [])
    if phase == "loading":
        assert "a" in engine.scheduler.requests, "its blocks are still written"
        engine.step(finished=["a"])
    engine.step()
    engine.check_empty()


def test_preemption_while_drafting(make_engine, ask, make_request):
    engine = make_engine(blocks=10)
    request = ask("a", handle={"first_token": 55}, max_tokens=60)
    engine.scheduler.add_request(make_request("old", [1] * 100, max_tokens=100))
    engine.step()
    engine.load(request)
    for _ in range(60):
        engine.step()
        if request.num_preemptions:
            break
    assert request.num_preemptions == 1
    assert "a" in engine.last.kv_connector_metadata.cancels
    assert engine.state("a") is None
    assert list(request.all_token_ids) == [*PROMPT, 55], "drafts are dropped, the final token is kept"
    assert request.cache_salt is None
    engine.abort("old")
    engine.step({"a": [60]})
    plain_from_start(engine, "a", len(PROMPT) + 1)
    assert engine.last.kv_connector_metadata.receives == []
    finish(engine, "a")
    assert engine.texts["a"][:2] == [55, 60]
    assert len(engine.texts["a"]) == 60
    engine.step()
    engine.check_empty()


def test_preemption_between_refinement_and_verification(engine, ask):
    request = ask("a", max_tokens=30)
    engine.load(request)
    for n in range(5):
        engine.step({"a": [10 + n]})
    engine.step(ready=["a"])
    assert engine.decode.ready == {"a"}
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert request.num_preemptions == 1
    assert engine.decode.ready == set()
    assert list(request.all_token_ids) == PROMPT
    finish(engine, "a")
    assert len(engine.texts["a"]) == 30
    engine.step()
    engine.check_empty()


def test_preemption_after_verification_is_vllms_own(engine, ask):
    request = ask("a", max_tokens=30)
    engine.load(request)
    engine.step({"a": [10]}, ready=["a"])
    engine.step({"a": [10, 11]})
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert request.num_preemptions == 1
    output = engine.step()
    assert output.kv_connector_metadata.cancels == []
    assert list(request.all_token_ids)[:102] == [*PROMPT, 10, 11]
    finish(engine, "a")
    engine.step()
    engine.check_empty()


# -- company


def test_plain_requests_take_the_stock_path(engine, make_request):
    engine.scheduler.add_request(make_request("p", PROMPT, max_tokens=3))
    engine.step({"p": [10]})
    assert engine.texts == {"p": [10]}
    finish(engine, "p")
    engine.step()
    engine.check_empty()


def test_a_handle_of_another_prompt_computes_its_prompt(engine, make_request, make_handle):
    engine.scheduler.add_request(make_request("a", PROMPT, make_handle(PROMPT[::-1]), max_tokens=2))
    assert engine.step().num_scheduled_tokens == {"a": len(PROMPT)}
    finish(engine, "a")
    engine.step()
    engine.check_empty()


def test_a_handle_serves_one_request_at_a_time(engine, make_request, make_handle):
    handle = make_handle(PROMPT)
    engine.scheduler.add_request(make_request("a", PROMPT, handle, max_tokens=2))
    engine.scheduler.add_request(make_request("b", PROMPT, handle, max_tokens=2))
    output = engine.step()
    assert [r.req_id for r in output.kv_connector_metadata.receives] == ["a"]
    assert output.num_scheduled_tokens == {"b": len(PROMPT)}


def test_token_times_count_every_token_once(engine, ask):
    request = ask("a", handle={"first_token": 55, "token_times": True}, max_tokens=8)
    engine.load(request)
    for n in range(3):
        engine.step({"a": [10 + n]}, ready=["a"] if n == 2 else [])
    engine.step({"a": [10, 50]})
    finish(engine, "a")
    times = engine.params["a"]["token_times"]
    assert len(times["produced"]) == len(times["verified"]) == len(engine.texts["a"]) == 8
    assert (times["drafted"], times["accepted"]) == (3, 1)
    assert times["first_token_from_prefill"]
    assert all(made <= known for made, known in zip(times["produced"], times["verified"], strict=True))
    assert times["produced"][1] <= times["verify_started"] <= times["verified"][1]


def test_a_mixed_batch(engine, ask, make_request):
    engine.scheduler.add_request(make_request("p", PROMPT, max_tokens=30))
    engine.step()
    engine.load(ask("a", max_tokens=30))
    engine.load(ask("b", handle={"codec": "lynx-int8", "first_token": 55}, max_tokens=30))
    for _ in range(4):
        engine.step()
    drafts = list(engine.state("a").drafts)
    engine.step(ready=["a", "b"])
    drafts = list(engine.state("a").drafts)
    output = engine.step({"a": [*drafts, 77], "p": [5], "b": [6]})
    assert output.num_scheduled_tokens == {"a": len(drafts) + 1, "p": 1, "b": 1}
    assert engine.texts["a"] == [*drafts, 77]
    for req_id in ("p", "a", "b"):
        finish(engine, req_id)
        assert len(engine.texts[req_id]) == 30
    engine.step()
    engine.check_empty()
