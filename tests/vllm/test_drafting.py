"""Drafts of one request, who may draft, and the times of its tokens."""

from __future__ import annotations

import pytest

from lynx_ascend.vllm.drafting import DraftState, draft_limit, may_draft, may_take_first_token
from lynx_ascend.vllm.token_times import TokenTimes


def test_drafts_park_at_the_limit_and_at_a_stop():
    state = DraftState(base=10, limit=3)
    assert [state.add(token, False) for token in (5, 6, 7)] == [True, True, False]
    assert (state.parked, state.drafts, len(state.draft_times)) == (True, [5, 6, 7], 3)
    state = DraftState(base=10, limit=3)
    assert not state.add(5, True)
    assert state.parked


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [((64, 100, 10, 512), 64), ((64, 7, 10, 512), 7), ((64, 100, 500, 512), 12), ((64, 100, 512, 512), 0)],
)
def test_the_limit_is_what_can_be_verified(arguments, limit):
    assert draft_limit(*arguments) == limit


@pytest.mark.parametrize(
    ("sampling", "drafts", "first"),
    [
        ({}, True, True),
        ({"temperature": 1.0, "top_k": 5, "top_p": 0.5, "seed": 1}, True, True),
        ({"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.1}, True, True),
        ({"bad_words": ["x"]}, True, True),
        ({"logprobs": 2}, True, False),
        ({"min_tokens": 2}, True, False),
        ({"prompt_logprobs": 1}, False, False),
        ({"logit_bias": {5: 1.0}}, False, True),
        ({"min_p": 0.1, "temperature": 1.0}, False, True),
        ({"min_p": 0.1}, True, True),
        ({"thinking_token_budget": 5}, False, False),
    ],
    ids=str,
)
def test_who_may_draft_and_who_takes_the_first_token(make_request, sampling, drafts, first):
    request = make_request("a", [1, 2, 3], **sampling)
    assert may_draft(request) is drafts
    assert may_take_first_token(request) is first


def test_structured_output_waits(make_request):
    from vllm.sampling_params import StructuredOutputsParams

    request = make_request("a", [1], structured_outputs=StructuredOutputsParams(regex="a+"))
    assert not may_draft(request)
    assert not may_take_first_token(request)


def test_token_times_take_the_times_of_accepted_drafts():
    times = TokenTimes()
    times.add(1)
    times.add(3, [1.0, 2.0])
    times.add(1, [1.0, 2.0, 3.0])
    times.add(0, [1.0])
    assert len(times.produced) == len(times.verified) == 5
    assert times.produced[1:3] == [1.0, 2.0]
    assert times.produced[3] == times.verified[3] > 1e9
    assert times.produced[4] == 1.0
    assert times.to_params({"x": 1.0}, True)["transfer"] == {"x": 1.0}
