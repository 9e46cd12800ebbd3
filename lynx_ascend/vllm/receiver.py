"""D's worker side: receives pieces, decodes them into the pages, refines them when their residual arrives."""

from __future__ import annotations

import threading
import time
from typing import Any

from vllm.logger import init_logger

from lynx_ascend.errors import LynxError, TransferError
from lynx_ascend.stream.types import TransferId
from lynx_ascend.transport.tcp import TransferClient
from lynx_ascend.vllm.background import BackgroundThread
from lynx_ascend.vllm.incoming import IncomingPrompt
from lynx_ascend.vllm.metadata import LynxWorkerMetadata, Receive
from lynx_ascend.vllm.params import RemotePrefill
from lynx_ascend.vllm.planes import PlaneTable
from lynx_ascend.vllm.settings import LynxSettings

logger = init_logger("vllm.lynx")


class PlaneReceiver:
    """The loads of one rank. Called on the engine's thread; pieces are decoded on a thread of its own."""

    def __init__(self, table: PlaneTable, client: TransferClient, settings: LynxSettings, rank: int) -> None:
        self._table = table
        self._client = client
        self._settings = settings
        self._rank = rank
        self._thread = BackgroundThread("lynx-decode")
        self._loads: dict[str, IncomingPrompt] = {}
        self._lock = threading.Lock()
        self._finished: set[str] = set()
        self._report = LynxWorkerMetadata()
        self._failed_loads = 0
        self._decode_s = 0.0
        self._received_bytes = 0

    def receive(self, order: Receive) -> None:
        """Subscribe to a transfer; every outcome is reported, none raises here."""
        handle = order.handle
        load = IncomingPrompt(order, self._table, self._thread, self)
        self._loads[order.req_id] = load
        try:
            transfer = self._client.subscribe(
                handle.host,
                handle.port + self._rank,
                TransferId(handle.transfer_id, handle.generation),
                load,
                bytes_max=self._table.planned_bytes(self._table.codec(handle.codec), handle.prompt_tokens),
                deadline_s=self._settings.deadline_s,
            )
        except TransferError as error:
            load.cancel("not subscribed")
            self.failed(load, error)
            return
        load.opened(transfer)

    def commit(self, req_id: str) -> None:
        """Confirm, before a forward, that every page of the request is at full precision.

        Raises:
            TransferError: it is not; the step must not run.
        """
        load = self._loads.pop(req_id, None)
        if load is None or not load.complete:
            raise TransferError(f"request {req_id} was committed before its residual was in place")
        load.close()

    def cancel(self, req_id: str) -> None:
        """Stop writing to the request's blocks, now; free its staging here and on P."""
        load = self._loads.pop(req_id, None)
        if load is None:
            return
        load.cancel("cancelled by the decode engine")
        self.loaded(load)

    def discard(self, handle: RemotePrefill) -> None:
        """Tell P that nobody will fetch this transfer."""
        self._client.discard(
            handle.host, handle.port + self._rank, TransferId(handle.transfer_id, handle.generation)
        )

    # -- called by loads, on their threads ---------------------------------------------------------------------------

    def loaded(self, load: IncomingPrompt) -> None:
        """The first phase of a load is over (pages usable, failed or cancelled); reported once."""
        with self._lock:
            if not load.reported:
                load.reported = True
                self._finished.add(load.req_id)

    def refined(self, load: IncomingPrompt, facts: dict[str, float]) -> None:
        """Every page of a load is at full precision."""
        with self._lock:
            self._report.ready[load.req_id] = 1
            self._report.facts[load.req_id] = facts

    def failed(self, load: IncomingPrompt, error: LynxError) -> None:
        """A load failed; its request is recomputed."""
        logger.warning("lynx: load of request %s failed: %s", load.req_id, error)
        with self._lock:
            self._failed_loads += 1
            self._report.failed[load.req_id] = str(error)
        self.loaded(load)

    def count_piece(self, nbytes: int, seconds: float) -> None:
        """Add a payload that was decoded and the time that it took; called on the decode thread."""
        self._received_bytes += nbytes
        self._decode_s += seconds

    # -- reports -----------------------------------------------------------------------------------------------------

    def take_finished(self) -> set[str]:
        """Requests whose first phase ended since the last call."""
        with self._lock:
            finished, self._finished = self._finished, set()
        return finished

    def take_report(self) -> LynxWorkerMetadata | None:
        """Refined and failed loads since the last call."""
        with self._lock:
            if not self._report.ready and not self._report.failed:
                return None
            report, self._report = self._report, LynxWorkerMetadata()
        for req_id in report.failed:
            if (load := self._loads.pop(req_id, None)) is not None:
                load.cancel("failed")
        return report

    def stats(self) -> dict[str, Any]:
        """Values for METRICS."""
        return {
            "staged_bytes": self._client.staged_bytes,
            "active_transfers": self._client.active_transfers,
            "loads": len(self._loads),
            "received_bytes": self._received_bytes,
            "failed_loads": self._failed_loads,
            "decode_seconds": self._decode_s,
        }

    def close(self) -> None:
        """Cancel what is open and stop."""
        began = time.monotonic()
        for load in self._loads.values():
            load.cancel("the decode engine shuts down")
        self._loads.clear()
        self._client.close()
        self._thread.close(max(0.1, 5.0 - (time.monotonic() - began)))
