"""What the proxy needs to know. Times in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from lynx_ascend.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """`prefill` and `decode` are base URLs (`http://host:port`), taken in turn.

    fallback: while no P can be reached (or P fails with 5xx), D computes the prompt alone.
    prefill_timeout_s: how long P may take to answer. silence_timeout_s: how long D may send nothing.
    request_timeout_s: the whole of one request.
    """

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    fallback: bool = True
    connect_timeout_s: float = 5.0
    prefill_timeout_s: float = 600.0
    silence_timeout_s: float = 600.0
    request_timeout_s: float = 3600.0
    health_timeout_s: float = 2.0
    max_body_bytes: int = 64 << 20
    max_prefill_reply_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        if not self.prefill or not self.decode:
            raise ConfigError("the proxy needs at least one prefill and one decode URL")
        for url in (*self.prefill, *self.decode):
            if not url.startswith(("http://", "https://")):
                raise ConfigError(f"{url!r} is not a URL like http://127.0.0.1:8100")
        for name in (
            "connect_timeout_s",
            "prefill_timeout_s",
            "silence_timeout_s",
            "request_timeout_s",
            "health_timeout_s",
            "max_body_bytes",
            "max_prefill_reply_bytes",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
