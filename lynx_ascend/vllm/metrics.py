"""Connector stats on their way from the workers to the log line and to /metrics."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

# name -> (is a gauge, help)
METRICS: dict[str, tuple[bool, str]] = {
    "staged_bytes": (True, "Encoded KV bytes that this engine holds."),
    "active_transfers": (True, "Transfers that are neither released nor ended."),
    "loads": (True, "Requests whose KV is being received or refined."),
    "sent_bytes": (False, "Payload bytes sent to decode engines."),
    "received_bytes": (False, "Payload bytes received from prefill engines."),
    "failed_loads": (False, "Loads that failed; their requests were recomputed locally."),
    "encode_seconds": (False, "Seconds spent encoding."),
    "decode_seconds": (False, "Seconds spent decoding into pages."),
}


class LynxStats(KVConnectorStats):
    """`data`: metric name -> value since the last report (counters) or now (gauges)."""

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> LynxStats:
        """Join a later report or another rank's: counters add up, of gauges the later one counts."""
        for name, value in other.data.items():
            gauge = METRICS[name][0]
            self.data[name] = value if gauge else self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """Values for vLLM's periodic log line."""
        return {name: round(value, 3) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not self.data


class LynxPromMetrics(KVConnectorPromMetrics):
    """`lynx_<name>` gauges and `lynx_<name>_total` counters, one child per engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._children: dict[str, dict[int, Any]] = {}
        for name, (gauge, text) in METRICS.items():
            cls = self._gauge_cls if gauge else self._counter_cls
            metric = cls(name=f"lynx_{name}", documentation=text, labelnames=labelnames)
            self._children[name] = {
                engine: metric.labels(*values) for engine, values in per_engine_labelvalues.items()
            }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Record one report."""
        for name, value in transfer_stats_data.items():
            child = self._children[name][engine_idx]
            if METRICS[name][0]:
                child.set(value)
            else:
                child.inc(value)
