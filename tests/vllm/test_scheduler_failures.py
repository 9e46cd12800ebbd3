"""Loads that fail in each phase: the prompt is computed here, nothing else is used."""

from __future__ import annotations

import pytest

from .engine import PROMPT, finish, no_free_blocks, plain_from_start


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
