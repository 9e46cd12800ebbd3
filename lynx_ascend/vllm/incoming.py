"""One load on D: which pieces came, which are in the pages, and the lock that makes cancelling it safe."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import torch
from vllm.logger import init_logger

from lynx_ascend.errors import LynxError, ProtocolError, TransferError
from lynx_ascend.stream.types import PieceKey, TransferStats
from lynx_ascend.vllm.background import BackgroundThread
from lynx_ascend.vllm.metadata import Receive
from lynx_ascend.vllm.planes import PlaneTable

if TYPE_CHECKING:
    from lynx_ascend.vllm.receiver import PlaneReceiver

logger = init_logger("vllm.lynx")

OPEN_TIMEOUT_S = 10.0


class IncomingPrompt:
    """A `TransferSink`. Receive threads queue pieces, the decode thread writes them to the pages.

    A drafting load writes the anchor first and overwrites it piece by piece as residuals arrive: drafts get better
    while they are made, and when the last residual is in, nothing is left to do before the verification pass.
    """

    def __init__(
        self, order: Receive, table: PlaneTable, thread: BackgroundThread, owner: PlaneReceiver
    ) -> None:
        self.req_id = order.req_id
        self.reported = False
        self.complete = False
        self._order = order
        self._table = table
        self._codec = table.codec(order.handle.codec)
        self._thread = thread
        self._owner = owner
        self._blocks = torch.tensor(order.block_ids, dtype=torch.int64, device=table.planes[0].layout.device)
        self._opened = threading.Event()
        self._write_lock = threading.Lock()
        self._cancelled = False
        self._anchors: dict[PieceKey, Any] = {}
        self._residuals: dict[PieceKey, Any] = {}
        # (layer, plane, page) of every anchor: with the count below, all came and none twice.
        self._covered: set[tuple[int, int, int]] = set()
        pages = table.pages(order.handle.prompt_tokens) * len(table.planes)
        self._anchor_pages_left = pages
        self._full_pages_left = pages
        self._facts: dict[str, float] = {}
        self._transfer: Any = None

    def opened(self, transfer: Any) -> None:
        """The subscription's handle; jobs that came before it wait for it."""
        self._transfer = transfer
        self._opened.set()

    # -- TransferSink: on receive threads ----------------------------------------------------------------------------

    def on_anchor(self, key: PieceKey, payload: Any) -> None:
        """Queue an anchor."""
        self._thread.submit(lambda: self._guarded(self._anchor_arrived, key, payload, "decode_anchor_s"))

    def on_residual(self, key: PieceKey, payload: Any) -> None:
        """Queue a residual."""
        self._thread.submit(lambda: self._guarded(self._residual_arrived, key, payload, "decode_full_s"))

    def on_complete(self, stats: TransferStats) -> None:
        """All bytes are here; the pages follow when the queue has been worked off."""
        self._thread.submit(lambda: self._received(stats))

    def on_failed(self, error: Any) -> None:
        """The transfer failed."""
        self._thread.submit(lambda: self._fail(error))

    # -- on the decode thread ----------------------------------------------------------------------------------------

    def _guarded(self, step: Any, key: PieceKey, payload: Any, fact: str) -> None:
        # Set as soon as `subscribe` has returned; the bound only keeps a fault from stopping the decode thread.
        if not self._opened.wait(OPEN_TIMEOUT_S) or self._cancelled:
            return
        began = time.perf_counter()
        try:
            step(key, payload)
        except LynxError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("lynx: piece %s of request %s", key, self.req_id)
            self._fail(TransferError(f"piece {key} cannot be applied: {error}"))
        seconds = time.perf_counter() - began
        self._facts[fact] = self._facts.get(fact, 0.0) + seconds
        self._owner.count_piece(payload.nbytes, seconds)

    def _anchor_arrived(self, key: PieceKey, payload: Any) -> None:
        pages = {(key.layer, key.plane, page) for page in range(key.first_page, key.first_page + key.pages)}
        if not self._covered.isdisjoint(pages):
            raise ProtocolError(f"piece {key} came twice, or overlaps another")
        self._covered |= pages
        self._table.shape(key, self._order.handle.prompt_tokens)  # refuses a piece behind the prompt
        anchor = torch.from_numpy(payload)
        if not self._codec.progressive:
            self._write(key, anchor)
            self._transfer.release(payload.nbytes)
            self._anchors[key] = None
            self._count(key, anchor=True, full=True)
            return
        self._anchors[key] = anchor
        residual = self._residuals.pop(key, None)
        if residual is not None:
            self._refine(key, residual)
        elif self._order.drafts:
            self._write(key, anchor)
        self._count(key, anchor=True)

    def _residual_arrived(self, key: PieceKey, payload: Any) -> None:
        if not self._codec.progressive or key in self._residuals:
            raise ProtocolError(f"unexpected residual {key}")
        residual = torch.from_numpy(payload)
        if key in self._anchors:
            self._refine(key, residual)
        else:
            self._residuals[key] = residual

    def _refine(self, key: PieceKey, residual: torch.Tensor) -> None:
        """Overwrite the pages of one piece with their full-precision values and let its bytes go."""
        anchor = self._anchors[key]
        if anchor is None:
            raise ProtocolError(f"residual {key} came twice")
        self._write(key, anchor, residual)
        self._anchors[key] = None
        self._transfer.release(anchor.nbytes + residual.nbytes)
        self._count(key, full=True)

    def _write(self, key: PieceKey, anchor: torch.Tensor, residual: torch.Tensor | None = None) -> None:
        """Decode a piece into the pages, except the tokens that D had in its own prefix cache (shared blocks)."""
        plane = self._table.find(key)
        shape = self._table.shape(key, self._order.handle.prompt_tokens)
        skip = max(0, self._order.start - shape.first_token)
        if skip >= shape.tokens:
            return
        with self._write_lock:
            if not self._cancelled:
                plane.layout.decode(
                    *(plane.name, self._blocks, shape, self._codec, plane.spec, anchor, residual),
                    skip=skip,
                )

    def _count(self, key: PieceKey, *, anchor: bool = False, full: bool = False) -> None:
        if anchor:
            self._anchor_pages_left -= key.pages
            if self._anchor_pages_left == 0:
                self._facts["t_anchor_applied"] = time.time()
                if self._order.drafts:
                    self._owner.loaded(self)
        if full:
            self._full_pages_left -= key.pages

    def _received(self, stats: TransferStats) -> None:
        if self._cancelled:
            return
        try:
            # Pieces without a residual: no whole chunk, or every page raw. The decoder checks that it is so.
            for key in [key for key, anchor in self._anchors.items() if anchor is not None]:
                self._refine(key, torch.empty(0, dtype=torch.uint8))
        except LynxError as error:
            self._fail(error)
            return
        if self._full_pages_left or self._anchor_pages_left:
            self._fail(ProtocolError("the transfer ended before all pages had come"))
            return
        self.complete = True
        self._facts.update(
            anchor_bytes=float(stats.anchor_bytes),
            residual_bytes=float(stats.residual_bytes),
            t_subscribed=stats.t_subscribed,
            t_first_byte=stats.t_first_byte,
            t_anchor_done=stats.t_anchor_done,
            t_residual_done=stats.t_residual_done,
            t_full_applied=time.time(),
        )
        self._owner.refined(self, self._facts)
        self._owner.loaded(self)

    def _fail(self, error: LynxError) -> None:
        if not self._cancelled:
            self.cancel(str(error))
            self._owner.failed(self, error)

    # -- on the engine's thread --------------------------------------------------------------------------------------

    def cancel(self, reason: str) -> None:
        """After this returns no page of the load is written any more. Safe to call twice."""
        self._cancelled = True
        with self._write_lock:
            pass  # a write in progress has ended; none starts any more
        if self._transfer is not None:
            self._transfer.cancel(reason)
        self.close()

    def close(self) -> None:
        """Let the staged bytes go."""
        if self._transfer is not None:
            self._transfer.close()
        self._thread.submit(self._drop)

    def _drop(self) -> None:
        self._anchors.clear()
        self._residuals.clear()
