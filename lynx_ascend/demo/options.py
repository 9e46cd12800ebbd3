"""What a demo is asked to do, and the cluster that it needs."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lynx_ascend.config import ClusterConfig, parse_config
from lynx_ascend.demo.summary import LYNX, REFERENCE
from lynx_ascend.errors import ConfigError

# Importing the codecs would import torch; a test compares this with their registry.
KNOWN_CODECS = (
    *("lynx", "lynx-int8", "lynx-int4", "lynx-paper", "lynx-paper-127", "bf16"),
    *("int8", "int8-channel-32", "int8-token", "int8-token-32"),
    *("int4", "int4-channel-64", "int4-channel-32", "int4-token", "int4-token-64", "int4-token-32", "kivi4"),
)
DEFAULT_CODECS = ("bf16", "int8", "int4", "lynx", "lynx-int8")
# docs/demo.md derives it: slow enough that KV transfer dominates, fast enough that lynx drafts less than its limit.
DEFAULT_LINK_MBPS = 40.0
MIN_MODEL_LEN = 4096
TRANSFER_DEADLINE_S = 240.0


@dataclass(frozen=True, slots=True)
class Options:
    """`ConfigError` if the codecs do not allow the check of the texts. Times in seconds, lengths in tokens."""

    model: str = "smollm2"
    prompt_tokens: int = 3000
    max_tokens: int = 65
    link_mbps: float = DEFAULT_LINK_MBPS
    repeat: int = 3
    codecs: tuple[str, ...] = DEFAULT_CODECS
    budget_s: float = 450.0
    threads: int = 2

    def __post_init__(self) -> None:
        for codec in self.codecs:
            if codec not in KNOWN_CODECS:
                raise ConfigError(f"there is no codec {codec!r}; known: {', '.join(KNOWN_CODECS)}")
        if len(set(self.codecs)) != len(self.codecs):
            raise ConfigError("each codec can be named once only")
        if not {LYNX, REFERENCE} <= set(self.codecs):
            raise ConfigError(
                f"{LYNX} and {REFERENCE} are both needed: the demo checks that their texts are equal"
            )

    def order(self, repetition: int) -> tuple[str, ...]:
        """The codecs of one repetition, begun at another one each time, so that drift of the machine hits all alike."""
        begin = repetition % len(self.codecs)
        return self.codecs[begin:] + self.codecs[:begin]


def cluster_config(options: Options, log_dir: Path) -> ClusterConfig:
    """P, D and a proxy on free ports of this machine, in float32, with the emulated link."""
    prefill, transfer, decode, proxy = free_ports(4)
    engine = {"threads": options.threads}
    needed = options.prompt_tokens + options.max_tokens + 32
    return parse_config(
        {
            "model": options.model,
            "dtype": "float32",
            "max_model_len": max(MIN_MODEL_LEN, -(-needed // 32) * 32),
            # Its /collective_rpc, on loopback, tells how long it encoded.
            "prefill": {**engine, "port": prefill, "kv_port": transfer, "env": {"VLLM_SERVER_DEV_MODE": "1"}},
            "decode": {**engine, "port": decode},
            # Without P there is nothing to see: its absence must be an error.
            "proxy": {"port": proxy, "fallback": False},
            "transfer": {"link_mbps": options.link_mbps, "deadline_s": TRANSFER_DEADLINE_S},
            "log_dir": str(log_dir),
        }
    )


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback address on which nobody listens now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
