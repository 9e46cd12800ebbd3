"""Clients that go away: in every phase, and fifty at random. Afterwards neither engine holds a block or a byte."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from .client import MODEL, Pair, Tokens

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PHASES: dict[str, tuple[dict[str, Any], float]] = {
    # name -> (faults, seconds from D's answer until the client goes)
    "while the anchor is on its way": ({"anchor_delay_s": 6.0}, 1.5),
    "while drafting": ({"residual_delay_s": 8.0}, 1.8),
    "while parked": ({"residual_delay_s": 10.0}, 4.0),
    "after the verification": ({}, 2.5),
}


async def _leave(task: asyncio.Task[Any], after_s: float) -> None:
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("phase", PHASES)
def test_an_abort_frees_everything(pair: Pair, tokens: Tokens, phase: str) -> None:
    faults, after_s = PHASES[phase]
    prompt = tokens.prompt(600)

    async def scenario() -> None:
        handle = await pair.prefill(prompt, "lynx", salt=f"abort {phase}", faults=faults, max_draft=8)
        task = asyncio.create_task(pair.decode(prompt, handle, salt=f"abort {phase}", max_tokens=400))
        await _leave(task, after_s)

    asyncio.run(scenario())
    pair.wait_until_idle(timeout_s=8)


def test_an_abort_on_p_frees_everything(pair: Pair, tokens: Tokens) -> None:
    prompt = tokens.prompt(1900)

    async def scenario() -> None:
        await _leave(asyncio.create_task(pair.prefill(prompt, "lynx", salt="abort on P")), 0.7)

    asyncio.run(scenario())
    pair.wait_until_idle(timeout_s=8)


def test_a_request_that_d_refuses_frees_p(pair: Pair, tokens: Tokens) -> None:
    """D answers 400 before the request reaches its engine; P's staging goes long before the lease (10 s)."""
    prompt = tokens.prompt(600)
    handle = asyncio.run(pair.prefill(prompt, "lynx", salt="refused"))
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": 5,
        "logprobs": 10_000,
        "kv_transfer_params": handle,
    }
    response = httpx.post(f"{pair.decode_url}/v1/completions", json=body, timeout=60, trust_env=False)
    assert response.status_code == 400, response.text
    pair.wait_until_idle(timeout_s=4)


def test_the_proxy_passes_a_disconnect_on(pair: Pair, tokens: Tokens) -> None:
    """Streaming through the proxy: the client leaves after a few tokens, both engines are idle soon after."""

    async def scenario() -> int:
        body = {
            "model": MODEL,
            "prompt": tokens.prompt(600),
            "max_tokens": 900,
            "stream": True,
            "temperature": 0,
        }
        events = 0
        async with (
            httpx.AsyncClient(timeout=120, trust_env=False) as client,
            client.stream("POST", f"{pair.proxy_url}/v1/completions", json=body) as response,
        ):
            assert response.status_code == 200
            async for line in response.aiter_lines():
                events += line.startswith("data: {")
                if events == 5:
                    break
        return events

    assert asyncio.run(scenario()) == 5
    pair.wait_until_idle(timeout_s=8)


def test_fifty_requests_with_random_aborts(pair: Pair, tokens: Tokens) -> None:
    prompt = tokens.prompt(300)
    full = pair.ask(prompt, "lynx-int8", max_tokens=10)
    rng = random.Random(20)

    async def one(number: int) -> str:
        faults = rng.choice([None, None, {"residual_delay_s": 1.0}, {"drop_link": "residual"}])
        codec = rng.choice(["lynx", "lynx", "lynx-int8", "int4"])
        leaves = rng.random() < 0.5
        work = asyncio.create_task(
            pair.generate(prompt, codec, salt=f"soak-{number % 7}", max_tokens=10, faults=faults)
        )
        if not leaves:
            answer = await work
            if codec != "int4" and faults != {"drop_link": "residual"}:
                assert answer.ids == full.ids, (number, codec, faults)
            return "done"
        done, _ = await asyncio.wait([work], timeout=rng.uniform(0.05, 4.0))
        if done:
            return "done"
        work.cancel()
        await asyncio.wait([work])
        return "left"

    async def soak() -> list[str]:
        gate = asyncio.Semaphore(6)

        async def gated(number: int) -> str:
            async with gate:
                return await one(number)

        return await asyncio.gather(*(gated(number) for number in range(50)))

    outcomes = asyncio.run(soak())
    assert outcomes.count("left") >= 5
    assert outcomes.count("done") >= 20
    pair.wait_until_idle(timeout_s=40)
