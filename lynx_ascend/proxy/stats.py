"""The proxy's own counters, in a registry of the application's own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class ProxyStats:
    """How requests ended, how often D had to work alone, how long P took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "lynx_proxy_requests",
            "Requests by how they ended: relayed, refused, failed, disconnected, timed_out",
            ["outcome"],
            registry=self.registry,
        )
        self.fallbacks = Counter(
            "lynx_proxy_fallbacks",
            "Requests whose prompt D computed alone: unreachable, no_params, not_eligible",
            ["reason"],
            registry=self.registry,
        )
        self.active = Gauge("lynx_proxy_active_requests", "Requests in progress", registry=self.registry)
        self.prefill_seconds = Histogram(
            "lynx_proxy_prefill_seconds",
            "From the request to P's answer",
            buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
            registry=self.registry,
        )
