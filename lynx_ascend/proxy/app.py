"""The routes of the proxy."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from lynx_ascend import __version__
from lynx_ascend.proxy.config import ProxyConfig
from lynx_ascend.proxy.relay import Relay, error_content
from lynx_ascend.proxy.stats import ProxyStats
from lynx_ascend.proxy.upstream import Upstream

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class _BodyError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def create_app(config: ProxyConfig) -> FastAPI:
    """The proxy as an ASGI application. Its connections to the engines are closed at the lifespan's end."""
    stats = ProxyStats()
    upstream = Upstream(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await upstream.close()

    app = FastAPI(title="lynx-ascend proxy", version=__version__, lifespan=lifespan, openapi_url=None)
    app.state.stats = stats

    @app.post("/v1/chat/completions")
    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        try:
            body = await _read_body(request, config.max_body_bytes)
        except _BodyError as error:
            stats.requests.labels("refused").inc()
            content = error_content(str(error), "invalid_request_error", error.status)
            return Response(content, error.status, media_type="application/json")
        return Relay(upstream, stats, request.url.path, body, _headers(request))

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        failures = []
        for url in upstream.decode.order():
            try:
                reply = await upstream.get(url + "/v1/models", _headers(request))
            except httpx.TransportError as error:
                failures.append(f"{url}: {type(error).__name__}")
                continue
            return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))
        content = error_content(f"no decode engine answers: {'; '.join(failures)}", "bad_gateway", 502)
        return Response(content, 502, media_type="application/json")

    @app.get("/health")
    async def health() -> Response:
        urls = (*upstream.prefill.urls, *upstream.decode.urls)
        states = await asyncio.gather(*(_state(upstream, url) for url in urls))
        status = 200 if all(state == "healthy" for state in states) else 503
        return JSONResponse({"engines": dict(zip(urls, states, strict=True))}, status)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(stats.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return app


async def _state(upstream: Upstream, url: str) -> str:
    try:
        reply = await upstream.get(url + "/health")
    except httpx.TransportError as error:
        return f"unreachable: {type(error).__name__}"
    return "healthy" if reply.status_code == 200 else f"status {reply.status_code}"


async def _read_body(request: Request, limit: int) -> dict[str, object]:
    content = bytearray()
    async for block in request.stream():  # the length header may be absent, or lie
        content += block
        if len(content) > limit:
            raise _BodyError(413, f"the request is larger than {limit} bytes")
    try:
        body = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _BodyError(400, f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _BodyError(400, "the request must be a JSON object")
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _headers(request: Request) -> dict[str, str]:
    """What both engines get: one request id for both, and the client's credentials."""
    given = request.headers.get("x-request-id", "")
    headers = {"x-request-id": given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex}
    if "authorization" in request.headers:
        headers["authorization"] = request.headers["authorization"]
    return headers
