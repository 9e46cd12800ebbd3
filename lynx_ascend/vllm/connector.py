"""LynxConnector: the facade that vLLM sees. Each call goes to the half (scheduler, worker) and side (P, D) it concerns.

Contract: vllm/distributed/kv_transfer/kv_connector/v1/base.py (0.23.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from lynx_ascend.vllm.decode_half import DecodeHalf
from lynx_ascend.vllm.guards import check_engine
from lynx_ascend.vllm.metadata import LynxConnectorMetadata, LynxWorkerMetadata
from lynx_ascend.vllm.metrics import LynxPromMetrics, LynxStats
from lynx_ascend.vllm.prefill_half import PrefillHalf
from lynx_ascend.vllm.settings import LynxSettings
from lynx_ascend.vllm.worker_half import WorkerHalf

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request


class LynxConnector(KVConnectorBase_V1):
    """Progressive KV transfer between a prefill engine (kv_producer) and a decode engine (kv_consumer).

    Raises:
        ConfigError: at construction, when a setting does not go with this connector; the message says what to change.
    """

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        assert transfer is not None
        assert transfer.engine_id is not None
        self.settings = LynxSettings.from_extra_config(transfer.kv_connector_extra_config)
        check_engine(vllm_config, kv_cache_config)
        self.prefill: PrefillHalf | None = None
        self.decode: DecodeHalf | None = None
        self.worker: WorkerHalf | None = None
        if role is KVConnectorRole.SCHEDULER:
            if transfer.is_kv_producer:
                self.prefill = PrefillHalf(self.settings, transfer.engine_id)
            if transfer.is_kv_consumer:
                self.decode = DecodeHalf(
                    self.settings,
                    vllm_config.parallel_config.world_size,
                    vllm_config.model_config.get_vocab_size(),
                )
        else:
            self.worker = WorkerHalf(self.settings, vllm_config)

    # -- scheduler half ----------------------------------------------------------------------------------------------

    def on_new_request(self, request: Request) -> None:
        """A request was added; P looks whether another engine will decode it."""
        if self.prefill is not None:
            self.prefill.on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """D: prompt tokens that P holds, loaded asynchronously."""
        if self.decode is None:
            return 0, False
        return self.decode.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        """D: the blocks of a load exist."""
        if self.decode is not None:
            self.decode.blocks_allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> LynxConnectorMetadata:
        """The orders of this step."""
        meta = LynxConnectorMetadata()
        if self.decode is not None:
            meta = self.decode.take_meta()
            meta.first_tokens = self.decode.first_tokens(scheduler_output.scheduled_new_reqs)
        if self.prefill is not None:
            self.prefill.fill(meta, scheduler_output.num_scheduled_tokens)
        return meta

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        """D: what the workers reported with the last step."""
        report = connector_output.kv_connector_worker_meta
        if self.decode is not None and isinstance(report, LynxWorkerMetadata):
            self.decode.on_worker_report(report)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """P: hold the blocks until they are encoded, answer with the handle. D: end the load."""
        if self.decode is not None:
            self.decode.finished(request.request_id)
        if self.prefill is not None:
            return self.prefill.request_finished(request, block_ids)
        return False, None

    # -- worker half -------------------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Read the caches' geometry and open the transport."""
        assert self.worker is not None
        self.worker.start(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Follow this step's orders; runs before the step's forward."""
        meta = self._get_connector_metadata()
        assert self.worker is not None
        assert isinstance(meta, LynxConnectorMetadata)
        self.worker.follow(meta)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for: a request is scheduled only after its load."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing to do here: planes are encoded from the pages after the prompt."""

    def wait_for_save(self) -> None:
        """Nothing to wait for: blocks are held until they are encoded."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """(requests whose blocks are encoded, requests whose first load phase is over)."""
        assert self.worker is not None
        return self.worker.take_finished()

    def build_connector_worker_meta(self) -> LynxWorkerMetadata | None:
        """What this rank has to report with this step."""
        assert self.worker is not None
        return self.worker.take_report()

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """Staging and transfer counters of this rank, when they changed."""
        return self.worker.take_stats() if self.worker is not None else None

    def shutdown(self) -> None:
        """Close sockets and threads."""
        if self.worker is not None:
            self.worker.close()

    # -- metrics -----------------------------------------------------------------------------------------------------

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        """Rebuild the stats in the logger's process."""
        return LynxStats(data=data if data is not None else {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics | None:
        """Gauges and counters under /metrics."""
        return LynxPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
