"""The contract between proxy, prefill and decode engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lynx_ascend.errors import TransferError
from lynx_ascend.vllm.params import (
    is_lynx_request,
    parse_remote_decode,
    parse_remote_prefill,
    prompt_digest,
    request_digest,
)

PROMPT = [1, 2, 3]


def decode(params, allow_faults=False):
    return parse_remote_decode(params, codec="lynx", max_draft=64, allow_faults=allow_faults)


def prefill(params):
    return parse_remote_prefill(params, codec="lynx", max_draft=64)


def test_what_p_answers_is_what_d_reads(make_handle):
    params = make_handle(PROMPT, first_token=5, codec="lynx-int8", max_draft=9)
    handle = prefill(params)
    assert handle.to_params() == params
    assert prefill({**params, "token_times": True}).token_times


@pytest.mark.parametrize("params", [None, {}, {"do_remote_decode": False}, {"do_remote_prefill": True}])
def test_requests_of_others_are_not_ours(params):
    assert decode(params) is None
    assert prefill(params) is None
    assert not is_lynx_request({"kv_transfer_params": params})


def test_requests_of_ours(make_handle):
    assert is_lynx_request({"kv_transfer_params": make_handle(PROMPT)})
    assert is_lynx_request({"kv_transfer_params": {"do_remote_decode": True}})
    assert not is_lynx_request(None)
    assert not is_lynx_request({"kv_transfer_params": "text"})
    assert not is_lynx_request({"kv_transfer_params": {"transfer_id": "0" * 32}})


def test_the_engines_defaults_fill_in(make_handle):
    params = make_handle(PROMPT)
    del params["codec"], params["max_draft"], params["first_token"]
    handle = prefill(params)
    assert (handle.codec, handle.max_draft, handle.first_token) == ("lynx", 64, None)
    assert decode({"do_remote_decode": True}).codec == "lynx"


@pytest.mark.parametrize(
    "change",
    [
        {"transfer_id": "0" * 31},
        {"transfer_id": "G" * 32},
        {"transfer_id": "A" * 32},
        {"transfer_id": 7},
        {"transfer_id": None},
        {"remote_host": ""},
        {"remote_host": None},
        {"prompt_digest": None},
        {"generation": -1},
        {"generation": 2**32},
        {"generation": "7"},
        {"generation": True},
        {"remote_port": 0},
        {"remote_port": 65536},
        {"remote_port": 1.5},
        {"prompt_tokens": 0},
        {"prompt_tokens": None},
        {"first_token": -1},
        {"first_token": "5"},
        {"codec": "zip"},
        {"codec": ["lynx"]},
        {"max_draft": 0},
        {"max_draft": 128},
        {"max_draft": None},
    ],
    ids=str,
)
def test_malformed_handles_are_refused(make_handle, change):
    with pytest.raises(TransferError):
        prefill(make_handle(PROMPT, **change))


@pytest.mark.parametrize(
    "change",
    [{"codec": "zip"}, {"max_draft": 0}, {"max_draft": 200}, {"faults": {"stall": "anchor"}}],
    ids=str,
)
def test_malformed_prefill_requests_are_refused(change):
    with pytest.raises(TransferError):
        decode({"do_remote_decode": True, **change})


def test_faults_need_the_engines_leave():
    params = {"do_remote_decode": True, "faults": {"stall": "anchor"}}
    assert decode(params, allow_faults=True).faults == {"stall": "anchor"}
    with pytest.raises(TransferError, match="fault_injection"):
        decode({**params, "faults": "all"}, allow_faults=True)


def test_the_digest_tells_prompts_apart():
    prompts = [[1, 2, 3], [1, 2], [3, 2, 1], [1, 2, 3, 0], [], [258], [2, 1]]
    assert len({prompt_digest(prompt) for prompt in prompts}) == len(prompts)
    assert prompt_digest(tuple(PROMPT)) == prompt_digest(PROMPT)
    assert len(prompt_digest(PROMPT)) == 16


def test_the_digest_of_a_request_knows_images_and_adapters():
    """Prompts with other images, or the same at other places, share their placeholder tokens."""

    def digest(*images, adapter=None):
        features = [
            SimpleNamespace(identifier=name, mm_position=SimpleNamespace(offset=offset))
            for name, offset in images
        ]
        lora = None if adapter is None else SimpleNamespace(lora_name=adapter)
        return request_digest(
            SimpleNamespace(prompt_token_ids=PROMPT, mm_features=features, lora_request=lora)
        )

    assert digest() == prompt_digest(PROMPT)
    others = [
        digest(("cat", 2)),
        digest(("dog", 2)),
        digest(("cat", 3)),
        digest(adapter="a"),
        digest(adapter="b"),
    ]
    assert len({digest(), *others}) == 6
