"""One request's way through P and D to the client, as an ASGI response that ends when the client leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import httpx
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from lynx_ascend.errors import PeerUnavailableError, ProtocolError
from lynx_ascend.proxy.contract import Body, decode_body, is_disaggregated, prefill_body
from lynx_ascend.proxy.stats import ProxyStats
from lynx_ascend.proxy.upstream import Reply, Upstream

log = logging.getLogger(__name__)

# How long a call to D is left open although its client has gone: D's front end must have read the request to know, when
# we hang up, that P holds its KV. It then tells P to drop it; else P keeps it until its lease ends.
HAND_OVER_S = 0.5


def error_content(message: str, kind: str, status: int) -> bytes:
    """An error in the shape of the OpenAI API."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()


class Relay(Response):
    """Asks P, then streams D's reply. The client's leaving cancels whichever call is open."""

    def __init__(
        self, upstream: Upstream, stats: ProxyStats, path: str, body: Body, headers: dict[str, str]
    ) -> None:
        super().__init__()
        self._upstream, self._stats = upstream, stats
        self._path, self._body, self._sent = path, body, headers
        self._id = headers["x-request-id"]
        self._started = False
        self._handed_over_at: float | None = None  # when D has surely read of the KV that P keeps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._work(send))
        gone = asyncio.create_task(_disconnected(receive))
        deadline = self._upstream.config.request_timeout_s
        outcome = "failed"
        try:
            with self._stats.active.track_inprogress():
                await asyncio.wait({work, gone}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                outcome = work.result()
            elif gone.done():
                outcome = "disconnected"
                if self._handed_over_at is not None:
                    await asyncio.wait({work}, timeout=max(0.0, self._handed_over_at - time.monotonic()))
            else:
                outcome = "timed_out"
        finally:
            # Also when the server cancels us: both must be over before the connection is handed back.
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            self._stats.requests.labels(outcome).inc()
        if outcome == "timed_out":
            await self._fail(send, 504, "timeout", f"the request took more than {deadline:g} s")

    async def _work(self, send: Send) -> str:
        answer = await self._prefill()
        if isinstance(answer, Reply):
            await self._send_whole(send, answer.status, answer.content, answer.content_type)
            return "refused"
        try:
            asked = decode_body(self._body, answer)
            if answer:
                self._handed_over_at = time.monotonic() + HAND_OVER_S
            async with self._upstream.ask_decode(self._path, asked, self._sent) as response:
                await self._start(send, response)
                async for block in response.aiter_raw():
                    await send({"type": "http.response.body", "body": block, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (PeerUnavailableError, httpx.TransportError) as error:
            log.warning("request %s: D failed: %s", self._id, error)
            await self._fail(send, 502, "bad_gateway", f"the decode engine failed: {error}")
            return "failed"
        return "relayed"

    async def _prefill(self) -> dict[str, object] | Reply | None:
        """P's transfer parameters; its refusal, to be passed on; or None when D is to work alone."""
        if not is_disaggregated(self._body):
            self._stats.fallbacks.labels("not_eligible").inc()
            return None
        begin = time.perf_counter()
        fallback = self._upstream.config.fallback
        try:
            reply = await self._upstream.ask_prefill(self._path, prefill_body(self._body), self._sent)
        except (PeerUnavailableError, ProtocolError) as error:
            if not fallback:
                content = error_content(f"the prefill engine failed: {error}", "bad_gateway", 502)
                return Reply(502, content, "application/json")
            log.warning("request %s: P failed, D computes the prompt: %s", self._id, error)
            self._stats.fallbacks.labels("unreachable").inc()
            return None
        if reply.status >= 500 and fallback:
            log.warning("request %s: P answered %d, D computes the prompt", self._id, reply.status)
            self._stats.fallbacks.labels("unreachable").inc()
            return None
        if reply.status != 200:
            return reply
        self._stats.prefill_seconds.observe(time.perf_counter() - begin)
        params = reply.transfer_params()
        if params is None:
            self._stats.fallbacks.labels("no_params").inc()
        return params

    async def _start(self, send: Send, response: httpx.Response) -> None:
        keep = ("content-type", "content-length", "content-encoding", "retry-after")
        headers = [(key.encode(), response.headers[key].encode()) for key in keep if key in response.headers]
        await self._send_start(send, response.status_code, headers)

    async def _send_start(self, send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        headers = [*headers, (b"x-request-id", self._id.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send_whole(self, send: Send, status: int, content: bytes, content_type: str) -> None:
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(content)).encode())]
        await self._send_start(send, status, headers)
        await send({"type": "http.response.body", "body": content})

    async def _fail(self, send: Send, status: int, kind: str, message: str) -> None:
        content = error_content(message, kind, status)
        if not self._started:
            await self._send_whole(send, status, content, "application/json")
        elif self._body.get("stream"):
            # The status is gone already; an error event, and no [DONE], tells it.
            await send(
                {"type": "http.response.body", "body": b"data: " + content + b"\n\n", "more_body": True}
            )
            await send({"type": "http.response.body", "body": b""})
        else:
            raise ConnectionError(
                message
            )  # the server closes the connection: a cut reply must not look whole


async def _disconnected(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return
