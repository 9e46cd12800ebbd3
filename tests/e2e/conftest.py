"""One engine pair for the whole suite: SmolLM2 in float32, faults allowed, few KV blocks on D."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lynx_ascend.config import parse_config
from lynx_ascend.launch.cluster import Cluster

from .client import Pair, Tokens, load_tokens

# Three sequences of 1,340 tokens fill D; the preemption test needs that, everything else fits.
DECODE_BLOCKS = 128


def _ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """P, D and the proxy, ready."""
    http_p, kv, http_d, proxy = _ports(4)
    logs: Path = tmp_path_factory.mktemp("engines")
    common = ["--max-num-seqs", "8", "--enable-prompt-tokens-details"]
    dev = {"VLLM_SERVER_DEV_MODE": "1"}  # /collective_rpc
    config = parse_config(
        {
            "model": "smollm2",
            "dtype": "float32",
            "device": "cpu",
            "max_model_len": 2048,
            "prefill": {"port": http_p, "kv_port": kv, "args": common, "env": dev},
            "decode": {
                "port": http_d,
                "args": [*common, "--num-gpu-blocks-override", str(DECODE_BLOCKS)],
                "env": dev,
            },
            "proxy": {"port": proxy},
            "transfer": {"fault_injection": True, "lease_s": 10, "progress_s": 8, "deadline_s": 20},
            "ready_timeout_s": 600,
            "log_dir": str(logs),
        }
    )
    with Cluster(config, quiet=True) as running:
        yield running


@pytest.fixture(scope="session")
def pair(cluster: Cluster) -> Pair:
    """Clients of the two engines."""
    return Pair(cluster.url_of("prefill"), cluster.url_of("decode"), cluster.url)


@pytest.fixture(scope="session")
def tokens() -> Tokens:
    """Real text as token ids of the model."""
    return load_tokens()
