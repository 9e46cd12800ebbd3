"""Requests that end or lose their blocks in each phase leave nothing behind."""

from __future__ import annotations

import pytest

from .engine import PROMPT, finish, plain_from_start


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
