"""Fixtures for all tests."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Two cores are shared by everything that a test starts; OpenMP's spinning threads would fight for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives ports of the loopback address that nothing listened on a moment ago, each once."""
    given: set[int] = set()

    def pick() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in given:
                given.add(port)
                return port

    return pick


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, for this test alone."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LYNX_CACHE", str(folder))
    return folder


@pytest.fixture
def python() -> str:
    return sys.executable
