"""P's end of the TCP transport: the facade over registry, acceptor and links."""

from __future__ import annotations

import secrets
import time
from typing import Any

from lynx_ascend.errors import ConfigError
from lynx_ascend.stream.rate import TokenBucket
from lynx_ascend.stream.types import Faults
from lynx_ascend.transport.tcp.acceptor import Acceptor, LinkSockets
from lynx_ascend.transport.tcp.config import ServerConfig
from lynx_ascend.transport.tcp.outgoing_transfer import OutgoingTransfer
from lynx_ascend.transport.tcp.registry import TransferRegistry
from lynx_ascend.transport.tcp.server_link import ServerLink
from lynx_ascend.transport.tcp.sockets import is_loopback


class TransferServer:
    """Offers transfers to decode peers. Thread-safe. Binds at once, accepts from `start` on.

    ConfigError when the host is reachable from outside and no token is set; OSError when the port is taken.
    """

    def __init__(self, config: ServerConfig) -> None:
        if config.token is None and not is_loopback(config.host):
            raise ConfigError(
                f"host {config.host} is reachable from outside: set a transfer token or bind to 127.0.0.1"
            )
        self.config = config
        # 0 is left out so that a forgotten field never fits.
        self._generation = config.generation or 1 + secrets.randbelow((1 << 32) - 1)
        self._registry = TransferRegistry(
            generation=self._generation, staging_bytes=config.staging_bytes, lease_s=config.lease_s,
            max_transfers=config.max_transfers, early_s=config.early_subscribe_s,
        )  # fmt: skip
        self._bucket = TokenBucket(config.link_mbps, time.monotonic())
        self._links: set[ServerLink] = set()
        self._closed = False
        self._acceptor = Acceptor(config, self._generation, self._add_link, self._registry.expire)

    @property
    def address(self) -> tuple[str, int]:
        return self._acceptor.address

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def staged_bytes(self) -> int:
        return self._registry.staging.used

    @property
    def active_transfers(self) -> int:
        return len(self._registry.transfers)

    def start(self) -> None:
        self._acceptor.start()

    def offer(
        self, id: str, *, pieces: int, bytes_max: int, faults: Faults | None = None
    ) -> OutgoingTransfer:
        """See `base.TransferSource`."""
        return self._registry.offer(id, pieces, bytes_max, faults)

    def stats(self) -> dict[str, Any]:
        """Counters since start, and what is held now. Bytes unless the name says otherwise."""
        with self._registry.lock:
            for link in self._links:
                link.count()
            return {
                **self._registry.counts,
                "generation": self._generation,
                "links": len(self._links),
                "refused_connections": self._acceptor.refused,
                "staged_bytes": self._registry.staging.used,
                "staged_bytes_peak": self._registry.staging.peak,
                "active_transfers": len(self._registry.transfers),
            }

    def close(self) -> None:
        """End every transfer, close every socket, join every thread within `close_timeout_s`. Idempotent."""
        deadline = time.monotonic() + self.config.close_timeout_s
        with self._registry.lock:
            if self._closed:
                return
            self._closed = True
            links = list(self._links)
        self._registry.close()
        for link in links:
            link.close("the transfer server was closed")
        self._acceptor.close(deadline)
        for link in links:
            link.join(max(0.0, deadline - time.monotonic()))

    def _add_link(self, socks: LinkSockets) -> bool:
        with self._registry.lock:
            if self._closed or len(self._links) >= self.config.max_links:
                return False
            link = ServerLink(self.config, self._registry, self._bucket, socks, self._links_discard)
            self._links.add(link)
            link.start()
            return True

    def _links_discard(self, link: ServerLink) -> None:
        with self._registry.lock:
            self._links.discard(link)
