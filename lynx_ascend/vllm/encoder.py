"""P's worker side: encodes finished prompts from the pages into the transport's staging, off the engine's thread."""

from __future__ import annotations

import threading
import time

import torch
from vllm.logger import init_logger

from lynx_ascend.errors import LynxError
from lynx_ascend.stream.types import Faults, Piece
from lynx_ascend.transport.tcp import OutgoingTransfer, TransferServer
from lynx_ascend.vllm.background import BackgroundThread
from lynx_ascend.vllm.metadata import Encode, Offer
from lynx_ascend.vllm.planes import PlaneTable
from lynx_ascend.vllm.settings import LynxSettings

logger = init_logger("vllm.lynx")


class PlaneEncoder:
    """Offers, encodes and cancels transfers. Piece i is on the wire while piece i + 1 is encoded."""

    def __init__(self, table: PlaneTable, server: TransferServer, settings: LynxSettings) -> None:
        self._table = table
        self._server = server
        self._settings = settings
        self._thread = BackgroundThread("lynx-encode")
        self._offers: dict[str, tuple[Offer, OutgoingTransfer | None]] = {}
        self._lock = threading.Lock()
        self._finished: set[str] = set()
        self._encode_s = 0.0

    def offer(self, offer: Offer) -> None:
        """Make the transfer known to the listener. An offer that is refused leaves D to compute the prompt itself."""
        codec = self._table.codec(offer.codec)
        transfer: OutgoingTransfer | None = None
        try:
            transfer = self._server.offer(
                offer.transfer_id,
                pieces=sum(1 for _ in self._table.pieces(codec, offer.tokens)),
                bytes_max=self._table.planned_bytes(codec, offer.tokens),
                faults=Faults(**offer.faults) if offer.faults else None,
            )
        except (LynxError, TypeError) as error:
            logger.warning(
                "lynx: transfer %s of request %s is not offered: %s", offer.transfer_id, offer.req_id, error
            )
        self._offers[offer.req_id] = (offer, transfer)

    def encode(self, order: Encode) -> None:
        """Encode the prompt's pages in the background; the request's blocks are held until `take_finished` names it."""
        offer, transfer = self._offers.pop(order.req_id)
        # The step that computed the prompt has been waited for on CPU; elsewhere the copy is ordered by an event.
        event = None
        if torch.accelerator.is_available() and self._table.planes[0].layout.device.type != "cpu":
            event = torch.accelerator.current_stream().record_event()
        self._thread.submit(lambda: self._encode(order, offer, transfer, event))

    def _encode(
        self, order: Encode, offer: Offer, transfer: OutgoingTransfer | None, event: torch.Event | None
    ) -> None:
        try:
            if event is not None:
                event.synchronize()
            if transfer is not None and not transfer.done:
                self._put_pieces(order, offer, transfer)
        except LynxError as error:
            logger.warning("lynx: transfer %s ended: %s", offer.transfer_id, error)
            if transfer is not None:
                transfer.fail(str(error))
        except Exception as error:
            if transfer is not None:
                transfer.fail(f"encoding failed: {error}")
            raise
        finally:
            with self._lock:
                self._finished.add(order.req_id)

    def _put_pieces(self, order: Encode, offer: Offer, transfer: OutgoingTransfer) -> None:
        codec = self._table.codec(offer.codec)
        blocks = torch.tensor(order.block_ids, dtype=torch.int64, device=self._table.planes[0].layout.device)
        for plane, key, shape in self._table.pieces(codec, offer.tokens):
            began = time.perf_counter()
            encoded = plane.layout.encode(plane.name, blocks, shape, codec, plane.spec)
            anchor, residual = encoded.anchor.numpy(), encoded.residual.numpy()
            self._encode_s += time.perf_counter() - began
            transfer.put(Piece(key, anchor, residual if residual.size else None), self._settings.lease_s)
        transfer.finish()

    def cancel(self, req_id: str) -> None:
        """An offered request was aborted before its blocks were handed over."""
        _, transfer = self._offers.pop(req_id, (None, None))
        if transfer is not None:
            transfer.fail("the request was aborted on the prefill engine")

    def take_finished(self) -> set[str]:
        """Requests whose blocks may be freed, since the last call."""
        with self._lock:
            finished, self._finished = self._finished, set()
        return finished

    def stats(self) -> dict[str, float]:
        """Values for METRICS."""
        stats = self._server.stats()
        return {
            "staged_bytes": self._server.staged_bytes,
            "active_transfers": self._server.active_transfers,
            "sent_bytes": stats.get("anchor_wire_bytes", 0) + stats.get("residual_wire_bytes", 0),
            "encode_seconds": self._encode_s,
        }

    def close(self) -> None:
        """Stop the listener (which ends every put) and the thread."""
        self._server.close()
        self._thread.close()
