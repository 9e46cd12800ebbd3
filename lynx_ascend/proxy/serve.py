"""Runs the proxy in this process."""

from __future__ import annotations

import logging

import uvicorn

from lynx_ascend import envs
from lynx_ascend.proxy.app import create_app
from lynx_ascend.proxy.config import ProxyConfig


def serve(config: ProxyConfig) -> None:
    """Serves until SIGINT or SIGTERM; open requests then have 5 s."""
    level = envs.log_level()
    logging.basicConfig(level=level.upper(), format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line for every call
    uvicorn.run(
        create_app(config),
        host=config.host,
        port=config.port,
        log_level=level,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
