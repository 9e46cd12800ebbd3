"""The calls to P and D. Leaving a call's scope, also by cancellation, closes it: vLLM then aborts the request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from lynx_ascend.errors import PeerUnavailableError, ProtocolError
from lynx_ascend.proxy.config import ProxyConfig
from lynx_ascend.proxy.contract import Body
from lynx_ascend.proxy.pool import RoundRobin


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply of P."""

    status: int
    content: bytes
    content_type: str

    def transfer_params(self) -> dict[str, Any] | None:
        """P's `kv_transfer_params`, or None if it gave none (it had nothing to keep)."""
        try:
            params = json.loads(self.content).get("kv_transfer_params")
        except (ValueError, AttributeError):
            return None
        return params if isinstance(params, dict) and params else None


class Upstream:
    """One HTTP client for all engines. `close()` it at the end."""

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self.prefill = RoundRobin(config.prefill)
        self.decode = RoundRobin(config.decode)
        self._client = httpx.AsyncClient(
            # The engines queue by themselves. Idle connections end before uvicorn's 5 s, lest one is closed
            # by the engine just as a request takes it.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=2.0),
            trust_env=False,  # the engines are ours: no HTTP_PROXY in between
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask_prefill(self, path: str, body: Body, headers: dict[str, str]) -> Reply:
        """P's reply, whatever its status.

        `PeerUnavailableError` if no P can be reached, `ProtocolError` if the reply is too long.
        """
        async with self._post(self.prefill, path, body, headers, self.config.prefill_timeout_s) as response:
            content = bytearray()
            try:
                async for block in response.aiter_bytes():
                    content += block
                    if len(content) > self.config.max_prefill_reply_bytes:
                        raise ProtocolError(f"P's reply exceeds {self.config.max_prefill_reply_bytes} bytes")
            except httpx.TransportError as error:
                raise PeerUnavailableError(f"P broke off: {error!r}") from error
            return Reply(response.status_code, bytes(content), response.headers.get("content-type", ""))

    @asynccontextmanager
    async def ask_decode(
        self, path: str, body: Body, headers: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """D's reply as a stream. `PeerUnavailableError` if no D can be reached."""
        async with self._post(self.decode, path, body, headers, self.config.silence_timeout_s) as response:
            yield response

    @asynccontextmanager
    async def _post(
        self, pool: RoundRobin, path: str, body: Body, headers: dict[str, str], read_timeout_s: float
    ) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(30.0, connect=self.config.connect_timeout_s, read=read_timeout_s)
        content = json.dumps(body).encode()
        sent = headers | {"content-type": "application/json", "accept-encoding": "identity"}
        failures = []
        for url in pool.order():
            request = self._client.build_request(
                "POST", url + path, content=content, headers=sent, timeout=timeout
            )
            try:
                response = await self._client.send(request, stream=True)
            except httpx.TransportError as error:
                failures.append(f"{url}: {type(error).__name__} {error}".rstrip())
                # A slow engine may be at work: asking another one as well would double the load.
                if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
                    break
                continue
            try:
                yield response
            finally:
                await response.aclose()
            return
        raise PeerUnavailableError("; ".join(failures))

    async def get(self, url: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """A short GET; `httpx.TransportError` if it fails."""
        return await self._client.get(url, headers=headers, timeout=self.config.health_timeout_s)
