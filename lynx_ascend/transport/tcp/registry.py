"""P's transfers: staging, leases and ends, under one lock. Knows links by a small protocol only."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from typing import Protocol

from lynx_ascend.errors import DeadlineError, ProtocolError, TransferError
from lynx_ascend.stream import messages as m
from lynx_ascend.stream.frames import MAX_PAYLOAD, as_bytes_view, crc32c
from lynx_ascend.stream.leases import LeaseTable
from lynx_ascend.stream.outgoing import OutgoingState, SendState, StagedPayload
from lynx_ascend.stream.send_frame import SendFrame
from lynx_ascend.stream.send_queue import SendQueue
from lynx_ascend.stream.staging import StagingBudget
from lynx_ascend.stream.types import Buffer, Faults, Kind, Piece, PieceKey, TransferId
from lynx_ascend.transport.tcp.outgoing_transfer import OutgoingTransfer

_REMEMBERED_ENDS = 1024


class Link(Protocol):
    """What the registry needs of a link. All calls happen under the registry's lock and do not block."""

    queue: SendQueue

    def send(self, message: m.Message) -> None: ...

    def wake(self) -> None: ...

    def abandon(self, transfer: OutgoingState) -> None: ...

    def acked(self, kind: Kind, frames: int) -> list[SendFrame]: ...


class TransferRegistry:
    """All transfers of one server. `lock` also guards the links' queues and outboxes."""

    def __init__(
        self, *, generation: int, staging_bytes: int, lease_s: float, max_transfers: int, early_s: float = 0.0
    ) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.generation = generation
        self.staging = StagingBudget(staging_bytes)
        self.leases = LeaseTable(lease_s)
        self.transfers: dict[bytes, OutgoingState] = {}
        self.counts: Counter[str] = Counter()
        self._max_transfers = max_transfers
        self._early_s = early_s
        self._early: dict[bytes, tuple[float, Link, m.Subscribe]] = {}
        self._next_order = 0
        self._closed = False
        self._ends: OrderedDict[bytes, str] = OrderedDict()

    # -- the encode side

    def offer(self, id: str, pieces: int, bytes_max: int, faults: Faults | None) -> OutgoingTransfer:
        tid = TransferId(id, self.generation)
        if pieces < 0 or bytes_max < 0:
            raise TransferError("pieces and bytes_max must not be negative", id)
        with self.lock:
            if self._closed:
                raise TransferError("the transfer server is closed", id)
            state = OutgoingState(tid, pieces, bytes_max, self._next_order, faults)
            if state.raw_id in self.transfers:
                raise TransferError("is offered already", id)
            if len(self.transfers) >= self._max_transfers:
                raise TransferError(f"{self._max_transfers} transfers are open already", id)
            self._next_order += 1
            self.transfers[state.raw_id] = state
            self.leases.open(state.raw_id, time.monotonic())
            self.counts["offered"] += 1
            if (early := self._early.pop(state.raw_id, None)) is not None:
                self.subscribe(early[1], early[2])
                early[1].wake()
            return OutgoingTransfer(self, state)

    def put(self, state: OutgoingState, piece: Piece, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        anchor = _stage_payload(piece.anchor)
        residual = _stage_payload(piece.residual) if piece.residual is not None else None
        if residual is not None and residual.data.size == 0:
            residual = None
        need = anchor.data.size + (residual.data.size if residual else 0)
        _check_key(piece.key)
        with self.changed:
            self._check_alive(state)
            state.check_room(piece.key, need)
            if need > self.staging.total:
                raise TransferError(
                    f"a piece of {need} bytes exceeds the staging of {self.staging.total}", state.tid.id
                )
            while not self.staging.fits(need):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineError(f"no staging for {need} bytes within {timeout_s} s", state.tid.id)
                self.counts["staging_waits"] += 1
                self.changed.wait(left)
                self._check_alive(state)
            self.staging.take(need)
            state.stage(piece.key, anchor, residual)
            # A prefill that still produces is a sign of life too; the peer may not have heard of it yet.
            self.leases.renew(state.raw_id, time.monotonic())
            self._push(state)

    def finish(self, state: OutgoingState) -> None:
        with self.lock:
            self._check_alive(state)
            if state.put_pieces != state.pieces:
                reason = f"finished after {state.put_pieces} of {state.pieces} pieces"
                self.end(state, SendState.FAILED, reason, tell="failed")
                raise TransferError(reason, state.tid.id)
            if state.finished:
                return
            state.finished = True
            state.settle()
            self.leases.renew(state.raw_id, time.monotonic())
            if state.link is not None:
                self._tell_finished(state)

    def end(self, state: OutgoingState, how: SendState, reason: str, tell: str = "") -> None:
        """Free everything of a transfer at once. `tell`: the Failed code for D, empty to say nothing."""
        with self.changed:
            if state.ended:
                return
            link: Link | None = state.link
            self.staging.give(state.end(how, reason))
            self.transfers.pop(state.raw_id, None)
            self.leases.close(state.raw_id)
            self.counts[how.value] += 1
            self._ends[state.raw_id] = f"{how.value}: {reason}" if reason else how.value
            while len(self._ends) > _REMEMBERED_ENDS:
                self._ends.popitem(last=False)
            if link is not None:
                link.queue.remove(state)
                link.abandon(state)
                if tell:
                    link.send(m.Failed(state.raw_id, self.generation, tell, m.clip(reason)))
                link.wake()
            self.changed.notify_all()

    def _check_alive(self, state: OutgoingState) -> None:
        if state.ended:
            raise TransferError(f"has ended ({state.state.value}): {state.reason}", state.tid.id)

    def _push(self, state: OutgoingState) -> None:
        if state.link is not None:
            state.link.queue.mark(state)
            state.link.wake()

    def _tell_finished(self, state: OutgoingState) -> None:
        state.link.send(m.Finished(state.raw_id, self.generation, state.pieces, state.put_residuals))
        state.link.wake()

    # -- the peer's messages

    def subscribe(self, link: Link, message: m.Subscribe) -> None:
        with self.lock:
            state = self.transfers.get(message.transfer)
            refusal = None
            if message.generation != self.generation:
                refusal = (
                    "stale",
                    f"generation {message.generation} is gone, this prefill side is {self.generation}",
                )
            elif state is None:
                ended = self._ends.get(message.transfer)
                if self._early_s and ended is None and len(self._early) < self._max_transfers:
                    if message.transfer not in self._early:
                        self._early[message.transfer] = (time.monotonic() + self._early_s, link, message)
                    return
                refusal = ("unknown", f"the transfer is not known here ({ended or 'never offered'})")
            elif state.link is not None:
                refusal = ("busy", "the transfer has a subscriber already")
            if refusal is not None or state is None:
                code, reason = refusal or ("unknown", "")
                self.counts["refused_" + code] += 1
                link.send(m.Failed(message.transfer, message.generation, code, m.clip(reason)))
                return
            now = time.monotonic()
            state.subscribe(link, message.credit, now)
            if state.pieces == 0:
                state.state, state.t_anchors_sent = SendState.ANCHOR_SENT, now
            state.settle()
            self.leases.renew(state.raw_id, now)
            self.counts["subscribed"] += 1
            link.send(m.Accepted(state.raw_id, self.generation, state.pieces, state.bytes_max))
            if state.finished:
                self._tell_finished(state)
            self._push(state)

    def live(
        self, link: Link, message: m.Cancel | m.Nack | m.Released, *, offered: bool = False
    ) -> OutgoingState | None:
        """The transfer a peer's message is about; None (and a count) when it is late or not that peer's.

        `offered`: one without a subscriber will do; who knows its random id may turn it down.
        """
        state = self.transfers.get(message.transfer)
        if state is None or message.generation != self.generation:
            self.counts["late_messages"] += 1
            return None
        if state.link is not link and not (offered and state.link is None):
            self.counts["late_messages"] += 1
            return None
        return state

    def handle(self, link: Link, message: m.Message) -> None:
        """Any message of a proven peer. ProtocolError for one that D must not send."""
        with self.changed:
            if isinstance(message, m.Subscribe):
                self.subscribe(link, message)
            elif isinstance(message, m.Heartbeat):
                now = time.monotonic()
                for raw_id in message.waiting:
                    self.leases.renew(raw_id, now)
                link.send(m.Heartbeat(message.seq, []))
            elif isinstance(message, m.Ack):
                done = link.acked(Kind(message.kind), message.frames)
                self.staging.give(sum(frame.owner.acked(frame.kind, frame.key) for frame in done))
                self.changed.notify_all()
            elif isinstance(message, m.Nack):
                if (state := self.live(link, message)) is not None:
                    self._nacked(state, Kind(message.key[0]), PieceKey(*message.key[1:]))
            elif isinstance(message, m.Cancel):
                early = self._early.get(message.transfer)
                if early is not None and early[1] is link:
                    del self._early[message.transfer]
                elif (state := self.live(link, message, offered=True)) is not None:
                    self.end(state, SendState.CANCELLED, message.reason)
            elif isinstance(message, m.Released):
                if (state := self.live(link, message)) is not None:
                    self.end(state, SendState.RELEASED, "")
            else:
                raise ProtocolError(f"a decode side must not send {type(message).__name__}")

    def _nacked(self, state: OutgoingState, kind: Kind, key: PieceKey) -> None:
        self.counts["nacks"] += 1
        if state.nacked(kind, key):
            self._push(state)
        else:
            self.end(
                state, SendState.FAILED, f"checksum: {kind.name.lower()} {key} damaged twice", tell="checksum"
            )

    # -- time and links

    def renew(self, link: Link, now: float) -> None:
        """The link's peer gave a sign of life."""
        with self.lock:
            for raw_id, state in self.transfers.items():
                if state.link is link:
                    self.leases.renew(raw_id, now)

    def expire(self, now: float) -> None:
        """End every transfer whose lease is over, and every subscription whose offer did not come."""
        with self.lock:
            for raw_id in [raw_id for raw_id, (until, _, _) in self._early.items() if now >= until]:
                _, link, _ = self._early.pop(raw_id)
                self.counts["refused_unknown"] += 1
                reason = f"no such transfer was offered within {self._early_s:g} s"
                link.send(m.Failed(raw_id, self.generation, "unknown", reason))
                link.wake()
            for holder in self.leases.expired(now):
                state = self.transfers[holder]  # type: ignore[index]
                reason = f"no sign of the decode side for {self.leases.lease_s:g} s"
                self.end(state, SendState.EXPIRED, reason, tell="expired")

    def link_closed(self, link: Link, reason: str) -> None:
        with self.lock:
            self._early = {raw_id: early for raw_id, early in self._early.items() if early[1] is not link}
            for state in [state for state in self.transfers.values() if state.link is link]:
                self.end(state, SendState.FAILED, f"link closed: {reason}")

    def close(self) -> None:
        with self.lock:
            self._closed = True
            for state in list(self.transfers.values()):
                self.end(state, SendState.FAILED, "the transfer server was closed", tell="failed")


def _stage_payload(buffer: Buffer) -> StagedPayload:
    data = as_bytes_view(buffer)
    if data.size > MAX_PAYLOAD:
        raise TransferError(f"a payload of {data.size} bytes exceeds the frame's {MAX_PAYLOAD}")
    return StagedPayload(data, crc32c(data))


def _check_key(key: PieceKey) -> None:
    wide = (key.first_page, key.pages)
    narrow = (key.layer, key.plane, key.first_head, key.heads)
    if not all(0 <= value < 1 << 16 for value in narrow) or not all(0 <= value < 1 << 32 for value in wide):
        raise ProtocolError(f"{key} does not fit the frame header")
