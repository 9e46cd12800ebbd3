"""What the ranks report, joined; stats on their way to /metrics."""

from __future__ import annotations

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorWorkerMetadata

from lynx_ascend.vllm.metadata import LynxWorkerMetadata
from lynx_ascend.vllm.metrics import LynxStats


def test_reports_of_ranks_are_joined():
    one = LynxWorkerMetadata({"a": 1, "b": 1}, {"x": "lost"}, {"a": {"anchor_bytes": 5.0, "t_full": 2.0}})
    two = LynxWorkerMetadata(
        {"a": 1, "c": 1}, {"y": "late"}, {"a": {"anchor_bytes": 6.0, "t_full": 1.0}, "c": {"t": 3.0}}
    )
    joined = one.aggregate(two)
    assert joined.ready == {"a": 2, "b": 1, "c": 1}
    assert joined.failed == {"x": "lost", "y": "late"}
    assert joined.facts == {"a": {"anchor_bytes": 11.0, "t_full": 2.0}, "c": {"t": 3.0}}
    assert one.ready == {"a": 1, "b": 1}
    assert one.facts["a"]["anchor_bytes"] == 5.0
    assert joined.aggregate(LynxWorkerMetadata({"a": 1})).ready["a"] == 3


def test_reports_of_other_connectors_are_refused():
    class Other(KVConnectorWorkerMetadata):
        def aggregate(self, other):
            return self

    with pytest.raises(TypeError):
        LynxWorkerMetadata().aggregate(Other())


def test_counters_add_up_and_gauges_are_replaced():
    stats = LynxStats(data={"sent_bytes": 5, "staged_bytes": 100})
    stats.aggregate(LynxStats(data={"sent_bytes": 2, "staged_bytes": 30, "failed_loads": 1}))
    assert stats.reduce() == {"sent_bytes": 7, "staged_bytes": 30, "failed_loads": 1}
    stats.reset()
    assert stats.is_empty()
