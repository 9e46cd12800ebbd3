"""D's end of the TCP transport: the facade, the staging budget and the peers' links."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from lynx_ascend.errors import TransferError
from lynx_ascend.stream.breaker import CircuitBreaker
from lynx_ascend.stream.staging import FifoBudget
from lynx_ascend.stream.types import TransferId, TransferSink, id_bytes
from lynx_ascend.transport.tcp.client_link import ClientLink
from lynx_ascend.transport.tcp.config import ClientConfig
from lynx_ascend.transport.tcp.incoming_transfer import IncomingTransfer


class ClientCore:
    """What the links and transfers of one client share. Everything is guarded by `lock`."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.counts: Counter[str] = Counter()
        self.budget = FifoBudget(config.staging_bytes)
        self.links: dict[tuple[str, int], ClientLink] = {}
        self.breakers: dict[tuple[str, int], CircuitBreaker] = {}
        self.threads: set[ClientLink] = set()
        self.closed = False

    def request_reservation(self, transfer: IncomingTransfer) -> None:
        self._granted(self.budget.request(transfer, transfer.bytes_max))

    def shrink_reservation(self, transfer: IncomingTransfer, nbytes: int) -> None:
        self._granted(self.budget.shrink(transfer, nbytes))
        if transfer.end and not self.budget.held(transfer):
            self.drop_reservation(transfer)

    def drop_reservation(self, transfer: IncomingTransfer) -> None:
        self._granted(self.budget.drop(transfer))

    def _granted(self, transfers: list[Any]) -> None:
        for transfer in transfers:
            transfer.granted = True
            transfer.link.granted(transfer)


class TransferClient:
    """Subscribes to transfers of any number of prefill peers. Thread-safe; `subscribe` never blocks."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._core = ClientCore(config)

    @property
    def staged_bytes(self) -> int:
        """Bytes reserved now (granted, not released)."""
        return self._core.budget.used

    @property
    def active_transfers(self) -> int:
        """Transfers that have not ended."""
        with self._core.lock:
            return sum(len(link.transfers) for link in self._core.links.values())

    def subscribe(
        self, host: str, port: int, tid: TransferId, sink: TransferSink, *, bytes_max: int, deadline_s: float
    ) -> IncomingTransfer:
        """See `base.TransferReceiver`. PeerUnavailableError also while the peer's circuit breaker is open."""
        core = self._core
        deadline = time.monotonic() + deadline_s
        with core.lock:
            if core.closed:
                raise TransferError("the transfer client is closed", tid.id)
            link = self._link(host, port)
            transfer = IncomingTransfer(core, link, tid, sink, self.config.limits, bytes_max, deadline)
            link.add(transfer)
            core.counts["subscribed"] += 1
            if not 0 <= bytes_max <= core.budget.total:
                link.doom(
                    transfer,
                    TransferError(
                        f"needs {bytes_max} bytes, the whole staging is {core.budget.total}", tid.id
                    ),
                )
            else:
                core.request_reservation(transfer)
            return transfer

    def discard(self, host: str, port: int, tid: TransferId) -> None:
        """Tell P that nobody will fetch a transfer: it frees its staging at once and encodes no more of it.

        Returns at once; best effort, behind it stands P's lease. No effect on a transfer that is subscribed here.
        """
        with self._core.lock:
            if not self._core.closed:
                self._link(host, port).turn_down((id_bytes(tid.id), tid.generation), "nobody will fetch it")

    def _link(self, host: str, port: int) -> ClientLink:
        """The peer's link, started when there is none. Under the lock."""
        core = self._core
        link = core.links.get((host, port))
        if link is None:
            link = core.links[host, port] = ClientLink(core, host, port)
            core.threads.add(link)
            link.start()
        return link

    def stats(self) -> dict[str, Any]:
        """Counters since start, and what is held now."""
        core = self._core
        with core.lock:
            return {
                **core.counts,
                "links": len(core.links),
                "staged_bytes": core.budget.used,
                "active_transfers": self.active_transfers,
            }

    def close(self) -> None:
        """Fail what is open, close every socket, join every thread within `close_timeout_s`. Idempotent."""
        core = self._core
        deadline = time.monotonic() + self.config.close_timeout_s
        with core.lock:
            core.closed = True
            links = list(core.threads)
        for link in links:
            link.close()
        for link in links:
            link.join(max(0.0, deadline - time.monotonic()))
        with core.lock:
            core.budget.clear()
