"""The bytes of one connected link on D: bulk frames into arrays, control messages into events."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import numpy as np

from lynx_ascend.errors import ProtocolError, StaleTransferError, TransferError
from lynx_ascend.stream import messages as m
from lynx_ascend.stream.frame_reader import FrameReader, LandedFrame
from lynx_ascend.stream.frames import FrameHeader
from lynx_ascend.stream.incoming import Verdict
from lynx_ascend.stream.types import Kind

if TYPE_CHECKING:
    from lynx_ascend.transport.tcp.client import ClientCore
    from lynx_ascend.transport.tcp.client_link import ClientLink
    from lynx_ascend.transport.tcp.incoming_transfer import IncomingTransfer

_READS_PER_TURN = 16


class Receiver:
    """Reads when poll says so. All sink calls of the link are made from here or from the link's own turn."""

    def __init__(self, link: ClientLink, core: ClientCore, socks: list[socket.socket]) -> None:
        self._link, self._core = link, core
        self._control = socks[0]
        self._messages = m.MessageReader()
        self._bulk = {
            kind: (sock, FrameReader(lambda header, kind=kind: self._allocate(kind, header)))  # type: ignore[misc]
            for kind, sock in zip(Kind, socks[1:], strict=True)
        }
        self._landed_frames = dict.fromkeys(Kind, 0)
        self._acked_frames = dict.fromkeys(Kind, 0)

    def receive(self, ready: set[int]) -> bool:
        """Read from the ready sockets: control, anchors, then residuals. True when bytes came."""
        heard = False
        if self._control.fileno() in ready:
            heard |= self._read_control()
        for sock, reader in self._bulk.values():
            if sock.fileno() in ready:
                heard |= self._read_bulk(sock, reader, _READS_PER_TURN)
        self._send_acks()
        return heard

    def _read_control(self) -> bool:
        try:
            chunk = self._control.recv(64 << 10)
        except BlockingIOError:
            return False
        if not chunk:
            raise ConnectionResetError("the peer closed the link")
        for message in self._messages.feed(chunk):
            self._handle(message)
        return True

    def _read_bulk(self, sock: socket.socket, reader: FrameReader, reads: int) -> bool:
        for turn in range(reads):
            try:
                nbytes = sock.recvmsg_into(reader.views())[0]
            except BlockingIOError:
                return turn > 0
            if not nbytes:
                raise ConnectionResetError("the peer closed the link")
            for frame in reader.filled(nbytes):
                self._landed(frame)
        return True

    # -- bulk

    def _allocate(self, socket_kind: Kind, header: FrameHeader) -> np.ndarray | None:
        if header.kind is not socket_kind:
            raise ProtocolError(f"a {header.kind.name.lower()} came on the {socket_kind.name.lower()} socket")
        transfer = self._link.transfers.get((header.transfer, header.generation))
        if transfer is None:
            self._core.counts["late_frames"] += 1
            return None
        stats = transfer.protocol.stats
        if stats.t_first_byte == 0.0:
            stats.t_first_byte = time.time()
        try:
            transfer.protocol.admit(header)
        except ProtocolError as error:
            # The header itself is sound, so the stream stays in step: only this transfer is lost.
            self._fail(transfer, str(error), error)
            return None
        return np.empty(header.length, np.uint8)

    def _landed(self, frame: LandedFrame) -> None:
        header, payload = frame.header, frame.payload
        self._landed_frames[header.kind] += 1
        transfer = self._link.transfers.get((header.transfer, header.generation))
        if transfer is None or payload is None:
            return
        verdict = transfer.protocol.landed(header, frame.intact, time.time())
        if verdict is Verdict.DELIVER:
            transfer.deliver(header, payload)
            self._check_complete(transfer)
            return
        self._core.counts["checksum_errors"] += 1
        with self._core.lock:
            self._link.send(m.Nack(*transfer.key, m.wire_key(header.kind, header.key)))
        if verdict is Verdict.FAIL:
            self._fail(transfer, f"checksum: {header.kind.name.lower()} {header.key} damaged twice")

    def _check_complete(self, transfer: IncomingTransfer) -> None:
        if not transfer.protocol.complete:
            return
        with self._core.lock:
            if self._link.transfers.get(transfer.key) is transfer:
                del self._link.transfers[transfer.key]
                self._link.send(m.Released(*transfer.key))
        transfer.complete()

    def _send_acks(self) -> None:
        for kind, landed in self._landed_frames.items():
            if landed != self._acked_frames[kind]:
                self._acked_frames[kind] = landed
                with self._core.lock:
                    self._link.send(m.Ack(kind, landed))

    # -- control

    def _handle(self, message: m.Message) -> None:
        if isinstance(message, m.Heartbeat):
            return
        if not isinstance(message, m.Accepted | m.Finished | m.Failed):
            raise ProtocolError(f"a prefill side must not send {type(message).__name__}")
        transfer = self._link.transfers.get((message.transfer, message.generation))
        if transfer is None:
            self._core.counts["late_messages"] += 1
            return
        if isinstance(message, m.Failed):
            kind = StaleTransferError if message.code in ("stale", "unknown") else TransferError
            transfer.fail(kind(f"prefill side: {message.code}: {message.reason}", transfer.tid.id))
            return
        try:
            if isinstance(message, m.Accepted):
                transfer.protocol.accepted(message.pieces)
            else:
                transfer.protocol.finished(message.anchors, message.residuals)
        except ProtocolError as error:
            self._fail(transfer, str(error), error)
            return
        transfer.protocol.note_time(time.time())
        self._check_complete(transfer)

    def _fail(self, transfer: IncomingTransfer, reason: str, cause: Exception | None = None) -> None:
        failure = TransferError(reason, transfer.tid.id)
        failure.__cause__ = cause
        transfer.fail(failure)
