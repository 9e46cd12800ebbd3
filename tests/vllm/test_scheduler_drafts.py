"""Drafting, parking and verification around vLLM's own scheduler."""

from __future__ import annotations

import pytest

from lynx_ascend.vllm.drafting import Phase

from .engine import PROMPT, finish, no_free_blocks


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
