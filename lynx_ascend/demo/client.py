"""Asks the proxy one question and measures the answer."""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any

import httpx

from lynx_ascend.demo.errors import DemoError
from lynx_ascend.demo.measure import Run, parse_token_times
from lynx_ascend.demo.prompts import Prompt

TIMEOUT_S = 300.0
STATS_TIMEOUT_S = 30


class Client:
    """Sends greedy, non-streaming requests, each with a cache salt of its own: no prefix cache helps any codec."""

    def __init__(self, url: str, prefill_url: str, model: str, *, chat: bool) -> None:
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._prefill_url = prefill_url
        self._model, self._chat = model, chat

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, prompt: Prompt, codec: str, repetition: int, max_tokens: int) -> Run:
        """One measured request. `DemoError` if it is refused, or if no transfer took place."""
        body = self._body(prompt, codec, max_tokens)
        path = "/v1/chat/completions" if self._chat else "/v1/completions"
        encoded = self._encode_seconds()
        began = time.time()
        try:
            reply = self._http.post(path, json=body)
        except httpx.TimeoutException as error:
            raise DemoError(
                f"no answer within {TIMEOUT_S:.0f} s ({codec}); raise --link-mbps or ask for fewer --prompt-tokens"
            ) from error
        except httpx.TransportError as error:
            raise DemoError(f"the proxy does not answer: {error}") from error
        ended = time.time()
        if reply.status_code != 200:
            raise DemoError(f"{codec}: status {reply.status_code}: {reply.text[:500]}")
        run = read_answer(reply.json(), codec, repetition, began, ended)
        return dataclasses.replace(run, encode_s=self._encode_seconds() - encoded)

    def _encode_seconds(self) -> float:
        """What P's rank 0 has spent encoding so far; requests follow each other, so the increase is one's."""
        body = {"method": "lynx_stats", "timeout": STATS_TIMEOUT_S}
        try:
            reply = self._http.post(
                f"{self._prefill_url}/collective_rpc", json=body, timeout=2 * STATS_TIMEOUT_S
            )
            return float(reply.json()["results"][0]["encode_seconds"])
        except (httpx.TransportError, ValueError, KeyError, IndexError, TypeError) as error:
            raise DemoError(f"the prefill engine does not tell its counters: {error}") from error

    def _body(self, prompt: Prompt, codec: str, max_tokens: int) -> dict[str, Any]:
        said: dict[str, Any] = {"prompt": prompt.text}
        if self._chat:
            said = {"messages": [{"role": "user", "content": prompt.text}]}
        return {
            **said,
            "model": self._model,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,  # every codec makes the same number of tokens
            "cache_salt": uuid.uuid4().hex,
            "return_token_ids": True,
            "kv_transfer_params": {"codec": codec, "token_times": True},
        }


def read_answer(answer: dict[str, Any], codec: str, repetition: int, began: float, ended: float) -> Run:
    """An OpenAI response (chat or completion) as a `Run`."""
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        token_ids = choice["token_ids"]
        prompt_tokens = answer["usage"]["prompt_tokens"]
    except (KeyError, IndexError, TypeError) as error:
        raise DemoError(f"{codec}: the answer lacks {error}: another version of vLLM?") from error
    times = parse_token_times(answer.get("kv_transfer_params"))
    if not token_ids or len(times.produced) != len(token_ids) or len(times.verified) != len(token_ids):
        raise DemoError(f"{codec}: {len(token_ids or ())} tokens came with {len(times.produced)} times")
    return Run(codec, repetition, began, ended, prompt_tokens, tuple(token_ids), text or "", times)
