"""P's scheduler half: one offer a prompt, one encode order or one cancel."""

from __future__ import annotations

import pytest
from vllm.v1.request import RequestStatus

from lynx_ascend.vllm.metadata import LynxConnectorMetadata
from lynx_ascend.vllm.params import parse_remote_prefill, prompt_digest
from lynx_ascend.vllm.prefill_half import PrefillHalf, generation_of
from lynx_ascend.vllm.settings import LynxSettings

PROMPT = list(range(100))


@pytest.fixture
def half():
    return PrefillHalf(LynxSettings(port=4000, fault_injection=True), "engine")


@pytest.fixture
def ask(make_request):
    def make(req_id="a", max_tokens=1, **params):
        return make_request(req_id, PROMPT, {"do_remote_decode": True, **params}, max_tokens=max_tokens)

    return make


def fill(half, **scheduled):
    meta = LynxConnectorMetadata()
    half.fill(meta, scheduled)
    return meta


def end(half, request, status=RequestStatus.FINISHED_LENGTH_CAPPED, token=7):
    if token is not None:
        request.append_output_token_ids(token)
    request.status = status
    return half.request_finished(request, [3, 1, 2])


def test_a_prompt_is_offered_with_its_last_chunk_and_once(half, ask):
    request = ask(codec="lynx-int8", faults={"stall": "anchor"})
    half.on_new_request(request)
    assert fill(half, a=60).offers == []
    request.num_computed_tokens = 60
    assert fill(half, b=5).offers == []
    (offer,) = fill(half, a=40).offers
    assert (offer.req_id, offer.tokens, offer.codec, offer.faults) == (
        "a",
        100,
        "lynx-int8",
        {"stall": "anchor"},
    )
    request.num_computed_tokens = 100
    assert fill(half, a=1).offers == []
    held, params = end(half, request)
    assert held
    handle = parse_remote_prefill(params, codec="lynx", max_draft=64)
    assert handle.transfer_id == offer.transfer_id
    assert (handle.first_token, handle.prompt_tokens, handle.port) == (7, 100, 4000)
    assert handle.prompt_digest == prompt_digest(PROMPT)
    assert handle.generation == generation_of("engine")
    meta = fill(half)
    assert [(e.req_id, e.block_ids) for e in meta.encodes] == [("a", [3, 1, 2])]
    assert meta.cancels == []
    assert fill(half).encodes == []


def test_a_first_token_that_stops_is_handed_over_too(half, ask):
    request = ask()
    half.on_new_request(request)
    fill(half, a=100)
    assert end(half, request, RequestStatus.FINISHED_STOPPED)[0]


@pytest.mark.parametrize("token", [7, None])
def test_an_abort_behind_the_offer_is_told_to_the_worker(half, ask, token):
    request = ask()
    half.on_new_request(request)
    fill(half, a=100)
    assert end(half, request, RequestStatus.FINISHED_ABORTED, token) == (False, None)
    meta = fill(half)
    assert (meta.cancels, meta.encodes) == (["a"], [])
    assert fill(half).cancels == []


def test_an_abort_before_the_offer_needs_no_order(half, ask):
    request = ask()
    half.on_new_request(request)
    fill(half, a=60)
    assert end(half, request, RequestStatus.FINISHED_ABORTED, None) == (False, None)
    assert fill(half, a=40) == LynxConnectorMetadata()


@pytest.mark.parametrize("bad", [{"max_tokens": 2}, {"codec": "zip"}, {"max_draft": 0}], ids=str)
def test_malformed_requests_are_prefilled_plainly(half, ask, bad):
    request = ask(**bad)
    half.on_new_request(request)
    assert fill(half, a=100) == LynxConnectorMetadata()
    assert end(half, request) == (False, None)


def test_requests_of_others_are_left_alone(half, make_request):
    request = make_request("a", PROMPT, None, max_tokens=1)
    half.on_new_request(request)
    assert fill(half, a=100) == LynxConnectorMetadata()
    assert end(half, request) == (False, None)


def test_each_engine_life_has_its_generation():
    assert 0 < generation_of("a-1") < 2**32
    assert generation_of("a-1") == generation_of("a-1") != generation_of("a-2")
