"""The worker half of the connector: follows the scheduler's orders on one rank and reports back."""

from __future__ import annotations

from typing import Any

from vllm.distributed import get_tensor_model_parallel_rank
from vllm.logger import init_logger

from lynx_ascend.codec import servable_codecs
from lynx_ascend.errors import LynxError
from lynx_ascend.transport.tcp import ClientConfig, ServerConfig, TransferClient, TransferServer
from lynx_ascend.vllm.encoder import PlaneEncoder
from lynx_ascend.vllm.metadata import LynxConnectorMetadata, LynxWorkerMetadata
from lynx_ascend.vllm.metrics import METRICS, LynxStats
from lynx_ascend.vllm.planes import PlaneTable, TransferLimits
from lynx_ascend.vllm.prefill_half import generation_of
from lynx_ascend.vllm.receiver import PlaneReceiver
from lynx_ascend.vllm.settings import LynxSettings

logger = init_logger("vllm.lynx")


class WorkerHalf:
    """Owns the transport of a rank: a listener on P, a client on D."""

    def __init__(self, settings: LynxSettings, vllm_config: Any) -> None:
        self._settings = settings
        self._vllm_config = vllm_config
        self._encoder: PlaneEncoder | None = None
        self._receiver: PlaneReceiver | None = None
        self._last: dict[str, float] = {}

    def start(self, caches: dict[str, Any]) -> None:
        """Read the planes from the caches and open the transport.

        Raises:
            ConfigError: the caches or the settings do not fit.
        """
        settings, transfer = self._settings, self._vllm_config.kv_transfer_config
        table = PlaneTable(caches, settings)
        rank = get_tensor_model_parallel_rank()
        staging = settings.staging_mb * 1_000_000
        if transfer.is_kv_producer:
            server = TransferServer(
                ServerConfig(
                    layout_hash=table.layout_hash(),
                    staging_bytes=staging,
                    host=settings.host,
                    port=settings.port + rank,
                    token=settings.token,
                    lease_s=settings.lease_s,
                    link_mbps=settings.link_mbps,
                    generation=generation_of(transfer.engine_id),
                )
            )
            server.start()
            self._encoder = PlaneEncoder(table, server, settings)
        else:
            codecs = [table.codec(name) for name in servable_codecs()]
            limits = TransferLimits(table, codecs, self._vllm_config.model_config.max_model_len)
            client = TransferClient(
                ClientConfig(
                    layout_hash=table.layout_hash(),
                    limits=limits,
                    staging_bytes=staging,
                    token=settings.token,
                    progress_timeout_s=settings.progress_s,
                )
            )
            self._receiver = PlaneReceiver(table, client, settings, rank)
        logger.info(
            "lynx: %s, %d layers, %d planes, layout %s", transfer.kv_role, len(table.layers), len(table.planes),
            table.layout_hash()[:12],
        )  # fmt: skip

    def follow(self, meta: LynxConnectorMetadata) -> None:
        """Do what one step orders. Never blocks on the network."""
        if self._encoder is not None:
            for req_id in meta.cancels:
                self._encoder.cancel(req_id)
            for offer in meta.offers:
                self._encoder.offer(offer)
            for encode in meta.encodes:
                self._encoder.encode(encode)
        if self._receiver is not None:
            # Cancels first: blocks freed by them may be written by a load or a forward of this very step.
            for req_id in meta.cancels:
                self._receiver.cancel(req_id)
            for req_id in meta.commits:
                self._receiver.commit(req_id)
            for handle in meta.discards:
                self._receiver.discard(handle)
            for receive in meta.receives:
                self._receiver.receive(receive)

    def take_finished(self) -> tuple[set[str] | None, set[str] | None]:
        """(encoded requests, loaded requests) since the last call."""
        sent = self._encoder.take_finished() if self._encoder is not None else None
        received = self._receiver.take_finished() if self._receiver is not None else None
        return sent or None, received or None

    def take_report(self) -> LynxWorkerMetadata | None:
        """Residuals applied and failures since the last call, or None."""
        return self._receiver.take_report() if self._receiver is not None else None

    def take_stats(self) -> LynxStats | None:
        """Metric values, when any changed since the last call."""
        now = self.stats()
        data: dict[str, Any] = {}
        for name, value in now.items():
            before = self._last.get(name)
            if value != before:
                data[name] = value if METRICS[name][0] else value - (before or 0)
        self._last = now
        return LynxStats(data=data) if data else None

    def stats(self) -> dict[str, Any]:
        """Values of METRICS at this moment; empty before `start` and after `close`."""
        side = self._encoder or self._receiver
        return side.stats() if side is not None else {}

    def close(self) -> None:
        """Close sockets and threads; safe to call twice."""
        for side in (self._encoder, self._receiver):
            if side is not None:
                try:
                    side.close()
                except LynxError:
                    logger.exception("lynx: closing the transport failed")
        self._encoder = self._receiver = None
