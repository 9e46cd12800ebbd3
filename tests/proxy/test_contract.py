from __future__ import annotations

import pytest

from lynx_ascend.proxy.contract import decode_body, is_disaggregated, prefill_body

REMOTE = {"remote_engine_id": None, "remote_block_ids": None, "remote_host": None, "remote_port": None}


def test_prefill_is_asked_for_one_token_and_nothing_streamed():
    body = {
        "prompt": "x",
        "max_tokens": 50,
        "max_completion_tokens": 50,
        "min_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }
    assert prefill_body(body) == {
        "prompt": "x",
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "stream": False,
        "temperature": 0.5,
        "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, **REMOTE},
    }
    assert "max_completion_tokens" not in prefill_body({"prompt": "x"})
    assert body["max_tokens"] == 50  # the client's body is left alone


def test_a_client_may_choose_the_codec_but_no_address():
    body = {
        "prompt": "x",
        "kv_transfer_params": {"codec": "int8", "token_times": True, "remote_host": "10.0.0.1"},
    }
    asked = prefill_body(body)["kv_transfer_params"]
    assert asked == {
        "codec": "int8",
        "token_times": True,
        "do_remote_decode": True,
        "do_remote_prefill": False,
        **REMOTE,
    }
    answer = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "codec": "int8"}
    assert decode_body(body, answer)["kv_transfer_params"] == {**answer, "token_times": True}
    assert decode_body(body, None)["kv_transfer_params"] == {"codec": "int8", "token_times": True}


def test_the_answer_of_p_wins():
    body = {"prompt": "x", "kv_transfer_params": {"codec": "int8", "max_draft": 3}}
    assert decode_body(body, {"codec": "lynx", "max_draft": 64})["kv_transfer_params"] == {
        "codec": "lynx",
        "max_draft": 64,
    }


def test_without_answer_or_wishes_d_gets_a_plain_request():
    body = {"prompt": "x", "kv_transfer_params": {"do_remote_prefill": True, "remote_host": "10.0.0.1"}}
    assert decode_body(body, None) == {"prompt": "x"}
    assert decode_body({"prompt": "x", "kv_transfer_params": "junk"}, None) == {"prompt": "x"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"prompt": "x"}, True),
        ({"prompt": ["x"]}, True),
        ({"prompt": [1, 2, 3]}, True),
        ({"prompt": ["x", "y"]}, False),
        ({"prompt": [[1], [2]]}, False),
        ({"prompt": "x", "n": 1}, True),
        ({"prompt": "x", "n": 2}, False),
        ({"prompt": "x", "best_of": 2}, False),
        ({"messages": [], "use_beam_search": True}, False),
        ({"messages": [], "n": None}, True),
    ],
)
def test_only_one_prompt_and_one_sample_is_disaggregated(body, expected):
    assert is_disaggregated(body) is expected
