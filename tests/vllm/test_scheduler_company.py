"""Requests of other kinds beside those that draft."""

from __future__ import annotations

from .engine import PROMPT, finish


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
