"""The schema of `lynx.yaml`: P, D and a proxy on one machine. docs/configuration.md explains every key."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, field

from lynx_ascend import envs
from lynx_ascend.errors import ConfigError

Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARD = ("0.0.0.0", "::", "")


class EngineConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """One vLLM engine. `args` are appended to its command line and win over ours; `env` likewise."""

    host: str = "127.0.0.1"
    port: Port
    threads: Count = 2  # OMP_NUM_THREADS, on a CPU
    kv_cache_gb: Count = 1  # VLLM_CPU_KVCACHE_SPACE, on a CPU
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


class PrefillConfig(EngineConfig, kw_only=True):
    """P also listens for transfers, at `kv_host:kv_port`."""

    port: Port = 8100
    kv_host: str = "127.0.0.1"
    kv_port: Port = 14579


class DecodeConfig(EngineConfig, kw_only=True):
    """D fetches from P and listens for nothing but HTTP."""

    port: Port = 8200


class ProxyListen(Struct, kw_only=True, forbid_unknown_fields=True):
    """Where clients connect. `fallback`: D computes the prompt alone while P cannot be reached."""

    host: str = "127.0.0.1"
    port: Port = 8000
    fallback: bool = True


class TransferConfig(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`kv_connector_extra_config` of both engines. An absent key keeps the connector's own default."""

    codec: str | None = None
    max_draft: Annotated[int, Meta(ge=1, le=127)] | None = None
    link_mbps: Positive | None = None
    token: str | None = None
    staging_mb: Count | None = None
    piece_kb: Count | None = None
    lease_s: Positive | None = None
    deadline_s: Positive | None = None
    progress_s: Positive | None = None
    center: str | None = None
    sinks: Annotated[int, Meta(ge=0)] | None = None
    recent: Annotated[int, Meta(ge=0)] | None = None
    calibration: str | None = None
    allowed_hosts: list[str] | None = None
    fault_injection: bool | None = None


class ClusterConfig(Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Only `model` is required: a name of `lynx-ascend model list`, a folder, or a hub id."""

    model: str
    served_model_name: str | None = None  # default: what `model` says
    device: Literal["auto", "cpu", "cuda", "npu"] = "auto"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: Count | None = None
    block_size: Count | None = None
    prefill: PrefillConfig = field(default_factory=PrefillConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    proxy: ProxyListen = field(default_factory=ProxyListen)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    ready_timeout_s: Positive = 300.0
    grace_s: Positive = 20.0  # from SIGTERM to SIGKILL when stopping
    log_dir: str = "lynx-logs"

    def __post_init__(self) -> None:
        ports = {
            "prefill.port": self.prefill.port,
            "prefill.kv_port": self.prefill.kv_port,
            "decode.port": self.decode.port,
            "proxy.port": self.proxy.port,
        }
        for name, port in ports.items():
            for other, same in ports.items():
                if name < other and port == same:
                    raise ConfigError(f"{name} and {other} are both {port}: give each its own")
        if self.prefill.kv_host not in LOOPBACK and not self.token:
            raise ConfigError(
                f"prefill.kv_host {self.prefill.kv_host} is not loopback: set transfer.token or LYNX_TOKEN"
            )

    @property
    def token(self) -> str | None:
        """The transfer link's secret: from the file, else from `LYNX_TOKEN`."""
        return self.transfer.token or envs.transfer_token()


def load_config(file: Path) -> ClusterConfig:
    """Reads and checks `file`. `ConfigError` names the key that is unknown or wrong, and the nearest known."""
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not YAML: {error}") from error
    try:
        return parse_config(data)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def parse_config(data: Any) -> ClusterConfig:
    """The same from what YAML holds: a mapping."""
    if not isinstance(data, dict):
        raise ConfigError("the file must hold a mapping with at least `model`")
    _refuse_unknown(data, ClusterConfig, "")
    # An empty section (`transfer:` with all lines commented out) means the defaults.
    sections = {key: value for key, value in data.items() if value is not None}
    try:
        return msgspec.convert(sections, ClusterConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from error


def _refuse_unknown(data: dict[Any, Any], kind: type[Struct], where: str) -> None:
    known = {item.name: item.type for item in msgspec.structs.fields(kind)}
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known here: {', '.join(known)}"
            raise ConfigError(f"unknown key {where}{key}; {hint}")
        section = known[key]
        if isinstance(section, type) and issubclass(section, Struct) and isinstance(value, dict):
            _refuse_unknown(value, section, f"{where}{key}.")


def _readable(message: str) -> str:
    """msgspec's `Expected int - at $.a.b` as `a.b: expected int`."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message)
    if not match:
        return message
    text, path = match.groups()
    return f"{path}: {text[0].lower()}{text[1:]}" if path else text
