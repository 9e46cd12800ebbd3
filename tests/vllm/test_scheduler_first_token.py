"""P's token as the first output of a request."""

from __future__ import annotations

import pytest

from .engine import PROMPT, finish


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
