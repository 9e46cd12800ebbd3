"""Methods that operators and tests call on every rank through vLLM's `collective_rpc`."""

from __future__ import annotations

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

from lynx_ascend.vllm.connector import LynxConnector


class LynxRPC:
    """Mixed into the worker classes."""

    def lynx_stats(self) -> dict[str, float]:
        """What this rank holds now and has moved since start (names as under /metrics, read at once and not at a step).

        Empty when the engine runs without LynxConnector.
        """
        if not has_kv_transfer_group():
            return {}
        connector = get_kv_transfer_group()
        if not isinstance(connector, LynxConnector) or connector.worker is None:
            return {}
        return connector.worker.stats()
