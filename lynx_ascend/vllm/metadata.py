"""What the scheduler half tells the worker half with a step, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from lynx_ascend.vllm.params import RemotePrefill


@dataclass(frozen=True, slots=True)
class Offer:
    """P: this step computes the end of a prompt; a decode engine may subscribe from now on."""

    req_id: str
    transfer_id: str
    tokens: int
    codec: str
    faults: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Encode:
    """P: the request is done, its blocks are held; encode them and report `finished_sending`."""

    req_id: str
    block_ids: list[int]


@dataclass(frozen=True, slots=True)
class Receive:
    """D: load tokens [start, end) of the prompt into these blocks."""

    req_id: str
    handle: RemotePrefill
    drafts: bool
    start: int
    end: int
    block_ids: list[int]


@dataclass
class LynxConnectorMetadata(KVConnectorMetadata):
    """One step's orders. The worker half follows `cancels` before anything else: freed blocks may be reused below."""

    cancels: list[str] = field(default_factory=list)
    discards: list[RemotePrefill] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    encodes: list[Encode] = field(default_factory=list)
    first_tokens: dict[str, int] = field(default_factory=dict)


@dataclass
class LynxWorkerMetadata(KVConnectorWorkerMetadata):
    """What one rank reports: residuals applied, loads failed (request id -> reason), facts of finished transfers."""

    ready: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, float]] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> LynxWorkerMetadata:
        """Join two ranks' reports: ready counts add up, a failure anywhere is a failure, the latest times count."""
        if not isinstance(other, LynxWorkerMetadata):
            raise TypeError(f"cannot join with {type(other).__name__}")
        ready = dict(self.ready)
        for req_id, ranks in other.ready.items():
            ready[req_id] = ready.get(req_id, 0) + ranks
        facts = {req_id: dict(mine) for req_id, mine in self.facts.items()}
        for req_id, theirs in other.facts.items():
            mine = facts.setdefault(req_id, {})
            for name, value in theirs.items():
                joined = (
                    mine.get(name, 0.0) + value
                    if name.endswith("_bytes")
                    else max(mine.get(name, 0.0), value)
                )
                mine[name] = joined
        return LynxWorkerMetadata(ready, {**self.failed, **other.failed}, facts)
