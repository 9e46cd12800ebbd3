"""Fake engines and the real proxy, each on a loopback port of its own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from lynx_ascend.proxy import ProxyConfig, create_app


class Server(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class Served:
    """An ASGI application in a thread."""

    def __init__(self, app: FastAPI) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
        )
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)
        self.thread.start()
        assert self.server.listening.wait(10)

    def stop(self) -> None:
        self.server.should_exit = True  # it closes by itself; waiting for it would cost half a second a test


class FakeEngine:
    """Records what it was asked; answers as told; notes when the caller hangs up."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.params: dict[str, Any] | None = None
        self.status = 200
        self.healthy = True
        self.delay_s = 0.0
        self.chunks = 3
        self.chunk_delay_s = 0.0
        self.break_after: int | None = None
        self.busy = threading.Event()
        self.hung_up = threading.Event()
        self.finished = threading.Event()
        app = FastAPI()
        app.post("/v1/chat/completions")(self.complete)
        app.post("/v1/completions")(self.complete)
        app.get("/v1/models")(self.models)
        app.get("/health")(self.health)
        self.served = Served(app)
        self.url = self.served.url

    async def models(self) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.text}]})

    async def health(self) -> Response:
        return Response(status_code=200 if self.healthy else 503)

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((request.url.path, body, dict(request.headers)))
        self.busy.set()
        # The body is read: the next message can only be that the caller has hung up.
        left = asyncio.ensure_future(request.receive())
        if (await asyncio.wait({left}, timeout=self.delay_s))[0]:
            self.hung_up.set()
            return Response()
        left.cancel()
        if self.status != 200:
            return JSONResponse({"error": {"message": f"{self.text} refuses"}}, self.status)
        if body.get("stream"):
            return StreamingResponse(self.stream(), media_type="text/event-stream")
        self.finished.set()
        return JSONResponse({"text": self.text, "kv_transfer_params": self.params})

    async def stream(self) -> Any:
        try:
            for index in range(self.chunks):
                if index == self.break_after:
                    raise ConnectionError("told to break")
                yield f"data: {json.dumps({'text': f'{self.text}{index}'})}\n\n"
                await asyncio.sleep(self.chunk_delay_s)
            yield "data: [DONE]\n\n"
            self.finished.set()
        finally:
            if not self.finished.is_set():
                self.hung_up.set()


@pytest.fixture
def prefill() -> Iterator[FakeEngine]:
    engine = FakeEngine("P")
    engine.params = {
        "do_remote_prefill": True,
        "transfer_id": "ab" * 16,
        "remote_host": "127.0.0.1",
        "codec": "lynx",
    }
    yield engine
    engine.served.stop()


@pytest.fixture
def decode() -> Iterator[FakeEngine]:
    engine = FakeEngine("D")
    yield engine
    engine.served.stop()


@pytest.fixture
def make_proxy(prefill: FakeEngine, decode: FakeEngine) -> Iterator[Callable[..., httpx.Client]]:
    """Starts a proxy (over the fake engines unless told otherwise) and gives a client of it."""
    running: list[tuple[Served, httpx.Client]] = []

    def make(**settings: Any) -> httpx.Client:
        config = ProxyConfig(**{"prefill": (prefill.url,), "decode": (decode.url,)} | settings)
        served = Served(create_app(config))
        client = httpx.Client(base_url=served.url, timeout=10, trust_env=False)
        running.append((served, client))
        return client

    yield make
    for served, client in running:
        client.close()
        served.stop()


@pytest.fixture
def proxy(make_proxy: Callable[..., httpx.Client]) -> httpx.Client:
    return make_proxy()
