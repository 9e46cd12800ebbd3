"""A client that leaves: the open call must be closed at once, so that the engine aborts the request."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from lynx_ascend.proxy import ProxyConfig
from lynx_ascend.proxy.relay import Relay
from lynx_ascend.proxy.stats import ProxyStats
from lynx_ascend.proxy.upstream import Upstream

BODY = {"model": "m", "prompt": "hi", "max_tokens": 8}
PROMPT_S = 1.0


def leave_after(proxy, event, body) -> None:
    """Sends `body` and hangs up as soon as `event` is set."""
    with httpx.Client(base_url=proxy.base_url, timeout=httpx.Timeout(5, read=0.3), trust_env=False) as client:
        try:
            with client.stream("POST", "/v1/completions", json=body) as reply:
                assert event.wait(3)
                next(reply.iter_raw())
        except httpx.ReadTimeout:
            assert event.is_set()


@pytest.mark.parametrize("stream", [False, True])
def test_while_p_prefills(proxy, prefill, decode, stream):
    prefill.delay_s = 10
    leave_after(proxy, prefill.busy, BODY | {"stream": stream})
    assert prefill.hung_up.wait(PROMPT_S)
    assert not decode.asked


def test_while_d_decodes(proxy, decode):
    decode.delay_s = 10
    leave_after(proxy, decode.busy, BODY)
    assert decode.hung_up.wait(PROMPT_S)


def test_before_the_first_event_of_d(proxy, decode):
    decode.delay_s = 10
    leave_after(proxy, decode.busy, BODY | {"stream": True})
    assert decode.hung_up.wait(PROMPT_S)


def test_between_the_events_of_d(proxy, decode):
    decode.chunks, decode.chunk_delay_s = 1000, 0.02
    leave_after(proxy, decode.busy, BODY | {"stream": True})
    assert decode.hung_up.wait(PROMPT_S)
    end = time.monotonic() + PROMPT_S  # it counts after it has hung up on D
    while 'lynx_proxy_requests_total{outcome="disconnected"} 1.0' not in (
        metrics := proxy.get("/metrics").text
    ):
        assert time.monotonic() < end
    assert "lynx_proxy_active_requests 0.0" in metrics


@pytest.mark.parametrize("kept", [True, False])
def test_d_learns_of_the_kv_that_p_keeps_before_it_is_hung_up_on(prefill, decode, kept):
    """The client leaves just as P has answered. D is slow to read, and only what it has read can it give back to P."""
    if not kept:
        prefill.params = None

    async def relay() -> tuple[list[str], float]:
        gone, seen = asyncio.Event(), []

        class SlowToRead(Upstream):
            @asynccontextmanager
            async def ask_decode(self, path, body, headers):
                gone.set()
                begin = time.monotonic()
                try:
                    await asyncio.sleep(0.1)
                    seen.append("read")
                    await asyncio.sleep(30)
                    yield
                finally:
                    seen.append("hung up on")
                    self.open_s = time.monotonic() - begin

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            raise AssertionError("nobody is there")

        upstream = SlowToRead(ProxyConfig(prefill=(prefill.url,), decode=(decode.url,)))
        relay = Relay(upstream, ProxyStats(), "/v1/completions", BODY, {"x-request-id": "1"})
        await relay({}, receive, send)
        await upstream.close()
        return seen, upstream.open_s

    seen, open_s = asyncio.run(relay())
    assert seen == (["read", "hung up on"] if kept else ["hung up on"])
    assert open_s < PROMPT_S
