"""What the prefix cache may learn of requests that draft or load."""

from __future__ import annotations

import pytest

from .engine import PROMPT, finish


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
