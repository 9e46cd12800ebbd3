"""The contract of vLLM's toy proxy as pure functions on request bodies: what P is asked, what D is handed."""

from __future__ import annotations

from typing import Any

# What a client may say about its own request. Addresses and ids are P's to give: a client that could name
# them would make D connect to where it likes.
CLIENT_KEYS = ("codec", "max_draft", "token_times", "faults")

Body = dict[str, Any]


def is_disaggregated(body: Body) -> bool:
    """False for what one transfer cannot serve (several prompts or samples): D takes such a request alone."""
    if any(isinstance(body.get(key), int) and body[key] > 1 for key in ("n", "best_of")):
        return False
    if body.get("use_beam_search"):
        return False
    prompt = body.get("prompt")
    # A list of integers is one prompt as token ids; a list of anything else holds prompts.
    several = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
    return not several


def client_params(body: Body) -> dict[str, Any]:
    """The client's own `kv_transfer_params`, less what it must not set."""
    given = body.get("kv_transfer_params")
    if not isinstance(given, dict):
        return {}
    return {key: given[key] for key in CLIENT_KEYS if key in given}


def prefill_body(body: Body) -> Body:
    """P computes the prompt and one token, and keeps the KV for a decode engine."""
    asked = {key: value for key, value in body.items() if key not in ("stream_options", "min_tokens")}
    asked |= {"max_tokens": 1, "stream": False}
    if "max_completion_tokens" in body:  # it would win over max_tokens
        asked["max_completion_tokens"] = 1
    asked["kv_transfer_params"] = client_params(body) | {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    return asked


def decode_body(body: Body, answer: dict[str, Any] | None) -> Body:
    """D continues from what P answered; without an answer it computes the prompt itself."""
    params = client_params(body)
    if answer:
        params |= answer
    else:
        params.pop("faults", None)
    asked = {key: value for key, value in body.items() if key != "kv_transfer_params"}
    if params:
        asked["kv_transfer_params"] = params
    return asked
