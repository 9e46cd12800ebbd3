"""What the end-to-end tests say to the engines: prefill on P, decode on D, and what both hold."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from lynx_ascend.models import resolve_model
from lynx_ascend.texts import essays

MODEL = "smollm2"
TIMEOUT_S = 180.0
_salts = itertools.count()


@dataclass
class Tokens:
    """Token ids of essays, and the tokenizer."""

    ids: list[int]
    tokenizer: Any

    def prompt(self, length: int, offset: int = 0) -> list[int]:
        """`length` token ids of running text, starting at `offset`."""
        return self.ids[offset : offset + length]

    def chat(self, question: str) -> list[int]:
        """Token ids of one user message, templated."""
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text)["input_ids"])


def load_tokens() -> Tokens:
    """Essays as ids of the tests' model."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model(MODEL, quiet=True))
    text = "\n\n".join(text for _, text in essays()[:3])
    return Tokens(list(tokenizer(text)["input_ids"]), tokenizer)


@dataclass
class Answer:
    """One completion."""

    ids: list[int]
    text: str
    finish: str
    logprobs: list[float] | None
    cached_tokens: int
    times: dict[str, Any] = field(default_factory=dict)

    @property
    def drafted(self) -> int:
        return int(self.times["drafted"])

    @property
    def accepted(self) -> int:
        return int(self.times["accepted"])


class Pair:
    """HTTP clients of P, D and the proxy."""

    def __init__(self, prefill: str, decode: str, proxy: str) -> None:
        self.prefill_url, self.decode_url, self.proxy_url = prefill, decode, proxy

    def ask(self, prompt: list[int], codec: str = "lynx", **kwargs: Any) -> Answer:
        """Prefill on P and decode on D, one request."""
        return asyncio.run(self.generate(prompt, codec, **kwargs))

    async def generate(
        self, prompt: list[int], codec: str = "lynx", *, salt: str | None = None, **kwargs: Any
    ) -> Answer:
        """The same as a coroutine. `faults`, `max_draft` go to P; everything else is a sampling parameter."""
        salt = salt or f"salt-{next(_salts)}"
        handle = await self.prefill(prompt, codec, salt=salt, **kwargs)
        return await self.decode(prompt, handle, salt=salt, **kwargs)

    async def plain(self, prompt: list[int], *, salt: str | None = None, **kwargs: Any) -> Answer:
        """A request that D computes alone."""
        return await self.decode(prompt, None, salt=salt or f"salt-{next(_salts)}", **kwargs)

    async def prefill(
        self,
        prompt: list[int],
        codec: str,
        *,
        salt: str,
        faults: dict[str, Any] | None = None,
        max_draft: int | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """Ask P; return the handle of its answer."""
        params: dict[str, Any] = {"do_remote_decode": True, "codec": codec}
        if faults:
            params["faults"] = faults
        if max_draft:
            params["max_draft"] = max_draft
        sampling.pop("min_tokens", None)
        body = self._body(prompt, salt, sampling) | {"max_tokens": 1, "kv_transfer_params": params}
        answer = await self._post(self.prefill_url, body)
        handle: dict[str, Any] = answer["kv_transfer_params"]
        assert handle["prompt_tokens"] == len(prompt)
        return handle

    async def decode(
        self, prompt: list[int], handle: dict[str, Any] | None, *, salt: str, **sampling: Any
    ) -> Answer:
        """Ask D with a handle, or without one."""
        sampling.pop("faults", None)
        sampling.pop("max_draft", None)
        body = self._body(prompt, salt, sampling)
        if handle is not None:
            body["kv_transfer_params"] = handle | {"token_times": True}
        answer = await self._post(self.decode_url, body)
        choice = answer["choices"][0]
        details = answer["usage"].get("prompt_tokens_details") or {}
        return Answer(
            ids=choice["token_ids"],
            text=choice["text"],
            finish=choice["finish_reason"],
            logprobs=choice["logprobs"]["token_logprobs"] if choice.get("logprobs") else None,
            cached_tokens=details.get("cached_tokens") or 0,
            times=(answer.get("kv_transfer_params") or {}).get("token_times") or {},
        )

    @staticmethod
    def _body(prompt: list[int], salt: str, sampling: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": MODEL,
            "prompt": prompt,
            "temperature": 0,
            "max_tokens": 24,
            "cache_salt": salt,
            "return_token_ids": True,
            **sampling,
        }

    @staticmethod
    async def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            response = await client.post(f"{url}/v1/completions", json=body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    # -- what the engines hold ---------------------------------------------------------------------------------------

    def stats(self, url: str) -> dict[str, float]:
        """`lynx_stats` of an engine's first rank, now."""
        body = {"method": "lynx_stats", "timeout": 30}
        response = httpx.post(f"{url}/collective_rpc", json=body, timeout=40, trust_env=False)
        assert response.status_code == 200, response.text
        found: dict[str, float] = response.json()["results"][0]
        return found

    def metric(self, url: str, name: str) -> float:
        """Sum of a metric's samples under /metrics."""
        text = httpx.get(f"{url}/metrics", timeout=40, trust_env=False).text
        values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", text, re.MULTILINE)
        assert values, f"{name} is not exported"
        return sum(float(value) for value in values)

    def held(self) -> dict[str, float]:
        """Everything that must be zero when nothing runs."""
        found: dict[str, float] = {}
        for name, url in (("P", self.prefill_url), ("D", self.decode_url)):
            stats = self.stats(url)
            found[f"{name} staged bytes"] = stats["staged_bytes"]
            found[f"{name} transfers"] = stats["active_transfers"]
            found[f"{name} loads"] = stats.get("loads", 0)
            found[f"{name} running"] = self.metric(url, "vllm:num_requests_running")
            found[f"{name} waiting"] = self.metric(url, "vllm:num_requests_waiting")
            found[f"{name} blocks used"] = self.metric(url, "vllm:kv_cache_usage_perc")
        return found

    def wait_until_idle(self, timeout_s: float = 30.0) -> None:
        """Fail unless both engines hold nothing within the timeout."""
        end = time.monotonic() + timeout_s
        while True:
            held = self.held()
            if not any(held.values()):
                return
            assert time.monotonic() < end, f"still held: { {k: v for k, v in held.items() if v} }"
            time.sleep(0.25)  # an engine tells what it holds only when asked
