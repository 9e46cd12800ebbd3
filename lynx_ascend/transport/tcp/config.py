"""The settings of both ends of the TCP transport, with their defaults and checks."""

from __future__ import annotations

from dataclasses import dataclass

from lynx_ascend.errors import ConfigError
from lynx_ascend.stream.types import PayloadLimits


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """P's side. Sizes in bytes, times in seconds.

    link_mbps: megabits per second of one emulated network card shared by all links; for demos and tests.
    generation: the worker's epoch (u32, above 0) when its engine draws one; None: drawn here.
    early_subscribe_s: a subscription that comes before its offer waits so long for it; 0 refuses it.
    residual_window: most residual bytes handed to the kernel at a time, and that socket's send buffer.
    """

    layout_hash: str
    staging_bytes: int
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    lease_s: float = 30.0
    early_subscribe_s: float = 0.0
    link_mbps: float | None = None
    generation: int | None = None
    residual_window: int = 2 << 20
    handshake_timeout_s: float = 5.0
    io_timeout_s: float = 15.0
    close_timeout_s: float = 5.0
    max_unauthenticated: int = 16
    max_links: int = 64
    max_transfers: int = 4096

    def __post_init__(self) -> None:
        _positive(
            self, "staging_bytes", "lease_s", "residual_window", "handshake_timeout_s", "io_timeout_s",
            "close_timeout_s", "max_unauthenticated", "max_links", "max_transfers",
        )  # fmt: skip
        if self.link_mbps is not None and not self.link_mbps > 0:
            raise ConfigError(f"link_mbps must be positive or None, got {self.link_mbps}")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be 0 to 65535, got {self.port}")
        if self.generation is not None and not 0 < self.generation < 1 << 32:
            raise ConfigError(f"generation must be a u32 above 0, got {self.generation}")
        _check_handshake(self.layout_hash, self.token)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """D's side. Sizes in bytes, times in seconds.

    progress_timeout_s: silence of the peer (no byte, no heartbeat) after which its transfers fail.
    breaker_threshold, breaker_open_s: so many failed connects in a row refuse the peer for so long.
    link_idle_s: a link without transfers is closed after so long.
    """

    layout_hash: str
    limits: PayloadLimits
    staging_bytes: int
    token: str | None = None
    connect_timeout_s: float = 5.0
    progress_timeout_s: float = 15.0
    heartbeat_s: float = 2.0
    breaker_threshold: int = 3
    breaker_open_s: float = 5.0
    link_idle_s: float = 60.0
    close_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        _positive(
            self, "staging_bytes", "connect_timeout_s", "progress_timeout_s", "heartbeat_s",
            "breaker_threshold", "breaker_open_s", "link_idle_s", "close_timeout_s",
        )  # fmt: skip
        _check_handshake(self.layout_hash, self.token)


def _positive(config: object, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise ConfigError(f"{name} must be positive, got {getattr(config, name)}")


def _check_handshake(layout_hash: str, token: str | None) -> None:
    if len(layout_hash) > 128:
        raise ConfigError("layout_hash may have at most 128 characters")
    if token == "":
        raise ConfigError("token must be None or not empty")
