"""The environment variables that the package reads, each behind one function."""

from __future__ import annotations

import os
from pathlib import Path

from lynx_ascend.errors import ConfigError

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
CODEC_BACKENDS = ("auto", "cpu", "torch")


def cache_dir() -> Path:
    """Where prepared models and texts live.

    `LYNX_CACHE` if set, else `$XDG_CACHE_HOME/lynx-ascend`, else `~/.cache/lynx-ascend`. Not created here.
    """
    own = os.environ.get("LYNX_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification tells to ignore a relative path.
    base = Path(xdg) if xdg and os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "lynx-ascend"


def transfer_token() -> str | None:
    """The shared secret of the transfer link (`LYNX_TOKEN`), for those who keep it out of the file."""
    return os.environ.get("LYNX_TOKEN") or None


def log_level() -> str:
    """The level of the package's own log lines (`LYNX_LOG_LEVEL`, default `info`); `ConfigError` if unknown."""
    level = os.environ.get("LYNX_LOG_LEVEL", "info").lower()
    if level not in LOG_LEVELS:
        raise ConfigError(f"LYNX_LOG_LEVEL is {level!r}; choose one of {', '.join(LOG_LEVELS)}")
    return level


def codec_backend() -> str:
    """What codes planes (`LYNX_CODEC_BACKEND`): `auto`, `cpu` (on the host C++ alone) or `torch` (the reference)."""
    backend = os.environ.get("LYNX_CODEC_BACKEND") or "auto"
    if backend not in CODEC_BACKENDS:
        raise ConfigError(f"LYNX_CODEC_BACKEND is {backend!r}; choose one of {', '.join(CODEC_BACKENDS)}")
    return backend


def cpu_target() -> str | None:
    """The instruction set that the C++ codec must use (`LYNX_CPU_TARGET`), to compare them; default: the best."""
    return os.environ.get("LYNX_CPU_TARGET") or None
