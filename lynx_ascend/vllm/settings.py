"""`kv_connector_extra_config`: the settings of the connector, checked at start-up. Must not import vllm."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Any

from lynx_ascend.codec import servable_codecs
from lynx_ascend.codec.spec import RECENT
from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.params import MAX_DRAFT_LIMIT

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WILDCARD = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class LynxSettings:
    """Settings of one engine; every key is optional.

    Attributes:
        host: address that P's transfer listener binds.
        announce_host: address under which decode engines reach it; None means `host`. Needed when that is a wildcard.
        port: first port of P's listener; rank r of a tensor-parallel engine listens at port + r.
        token: shared secret of both engines; required when `host` is not loopback.
        codec: default codec of requests that name none.
        max_draft: default draft limit, 1..127 (paper: 64).
        staging_mb: bound on encoded bytes that an engine holds, MB (10^6).
        piece_kb: target size of one anchor payload on the wire, kB.
        lease_s: how long P keeps staging for a decode engine that does not come or does not answer.
        deadline_s: how long D waits for a transfer to finish before it computes the prompt itself.
        progress_s: how long D accepts silence from P within a transfer.
        link_mbps: emulated link rate of P's sender, Mbit/s, for demos and tests; None means the real link.
        center: encoder policy (docs/codec.md).
        sinks, recent: tokens at the start and at the end of a prompt that travel exact, the same on both engines.
        calibration: path of what `lynx-ascend calibrate` wrote, the same on both engines; None: the defaults.
        allowed_hosts: hosts that D may fetch from; None means any that a request names.
        fault_injection: honour `faults` in kv_transfer_params; for tests.
    """

    host: str = "127.0.0.1"
    announce_host: str | None = None
    port: int = 14579
    token: str | None = None
    codec: str = "lynx"
    max_draft: int = 64
    staging_mb: int = 2048
    piece_kb: int = 1024
    lease_s: float = 30.0
    deadline_s: float = 120.0
    progress_s: float = 15.0
    link_mbps: float | None = None
    center: str = "midrange"
    sinks: int = 4
    recent: int = RECENT
    calibration: str | None = None
    allowed_hosts: tuple[str, ...] | None = None
    fault_injection: bool = False

    def __post_init__(self) -> None:
        if self.codec not in servable_codecs():
            known = ", ".join(servable_codecs())
            raise ConfigError(f"codec is {self.codec!r}, which no transfer can use; choose one of {known}")
        if not 1 <= self.max_draft <= MAX_DRAFT_LIMIT:
            raise ConfigError(f"max_draft must be in 1..{MAX_DRAFT_LIMIT}, got {self.max_draft}")
        if not 0 < self.port < 65536:
            raise ConfigError(f"port must be in 1..65535, got {self.port}")
        if self.host not in _LOOPBACK and not self.token:
            raise ConfigError(f"host {self.host} is not loopback: set the same token on both engines")
        if self.announced_host in _WILDCARD:
            raise ConfigError(
                f"host {self.host!r} is a wildcard: set announce_host to an address that decode engines reach"
            )
        for name in ("staging_mb", "piece_kb", "lease_s", "deadline_s", "progress_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        if self.link_mbps is not None and not self.link_mbps > 0:
            raise ConfigError(f"link_mbps must be positive or absent, got {self.link_mbps}")

    @property
    def announced_host(self) -> str:
        """What P's answers tell decode engines to connect to."""
        return self.announce_host if self.announce_host is not None else self.host

    @classmethod
    def from_extra_config(cls, extra: dict[str, Any]) -> LynxSettings:
        """Check and convert the dictionary of `--kv-transfer-config`.

        Raises:
            ConfigError: a key is unknown, or a value has the wrong type or range; the message names the key.
        """
        known = {field.name: field for field in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in extra.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(known)}"
                raise ConfigError(f"kv_connector_extra_config has no key {key!r}{hint}")
            values[key] = _convert(key, value, str(known[key].type))
        return cls(**values)


def _convert(key: str, value: Any, declared: str) -> Any:
    """Check one JSON value against the declared type of its field."""
    kinds = [part.strip() for part in declared.split("|")]
    if value is None:
        if "None" in kinds:
            return None
    elif kinds[0].startswith("tuple"):
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif kinds[0] == "bool":
        if isinstance(value, bool):
            return value
    elif kinds[0] == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif kinds[0] == "float":
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, str):
        return value
    raise ConfigError(f"kv_connector_extra_config[{key!r}] must be {declared}, got {value!r}")
