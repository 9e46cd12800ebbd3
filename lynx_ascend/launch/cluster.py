"""P, D and the proxy together."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol

import httpx

from lynx_ascend.config import ClusterConfig
from lynx_ascend.errors import ConfigError
from lynx_ascend.launch import groups
from lynx_ascend.launch.child import Child, LaunchError
from lynx_ascend.launch.plan import Launch, make_plan, private_files
from lynx_ascend.models import resolve_model

POLL_S = 0.2  # an engine tells that it serves by its answer to /health alone: someone has to ask


class Plan(Protocol):
    """`make_plan`, or what a test puts in its place."""

    def __call__(self, config: ClusterConfig, model: str, private: Path) -> list[Launch]: ...


class Cluster:
    """Starts, watches and stops the three processes.

        with Cluster(config, quiet=True) as cluster:   # ready here
            httpx.post(f"{cluster.url}/v1/completions", json=...)

    `on_line(name, line)` gets their output, which also goes to `<log_dir>/<name>.log`; `on_state(name, state)` gets
    `starting`, `ready`, `stopping`, `stopped`. With `quiet` the preparation of the model shows no progress.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        quiet: bool = False,
        on_line: Callable[[str, str], None] | None = None,
        on_state: Callable[[str, str], None] | None = None,
        plan: Plan = make_plan,
    ) -> None:
        self.config, self.quiet = config, quiet
        self.children: dict[str, Child] = {}
        self._on_line, self._plan = on_line, plan
        self._on_state = on_state or (lambda name, state: None)
        self._private: tempfile.TemporaryDirectory[str] | None = None

    @property
    def prefill(self) -> Child:
        return self.children["prefill"]

    @property
    def decode(self) -> Child:
        return self.children["decode"]

    @property
    def proxy(self) -> Child:
        return self.children["proxy"]

    @property
    def url(self) -> str:
        """The proxy's base URL."""
        return self.url_of("proxy")

    def url_of(self, name: str) -> str:
        """The base URL of `prefill`, `decode` or `proxy`."""
        return self.children[name].launch.health_url.removesuffix("/health")

    def start(self) -> Cluster:
        """Starts all three without waiting. `ConfigError` if a port is taken, `LaunchError`, `ModelError`."""
        if self.children:
            raise LaunchError("the cluster runs already")
        model = resolve_model(self.config.model, quiet=self.quiet)
        self._private = tempfile.TemporaryDirectory(prefix="lynx-")
        try:
            launches = self._plan(self.config, model, Path(self._private.name))
            for launch in launches:
                _check_ports(launch)
            for name, content in private_files(self.config).items():
                _write_private(Path(self._private.name) / name, content)
            for launch in launches:
                self._start(launch)
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, launch: Launch) -> None:
        self._on_state(launch.name, "starting")
        log = Path(self.config.log_dir) / f"{launch.name}.log"
        self.children[launch.name] = Child(launch, log, self._on_line)

    def wait_ready(self, cancel: threading.Event | None = None) -> None:
        """Returns when all answer `/health`, or when `cancel` is set.

        `LaunchError` with the log's end if one dies, or if `ready_timeout_s` passes.
        """
        end = time.monotonic() + self.config.ready_timeout_s
        waiting = dict(self.children)
        cancel = cancel or threading.Event()
        with httpx.Client(timeout=2.0, trust_env=False) as client:
            while waiting and not cancel.is_set():
                self.check()
                for name, child in list(waiting.items()):
                    if _healthy(client, child.launch.health_url):
                        del waiting[name]
                        self._on_state(name, "ready")
                if waiting and time.monotonic() > end:
                    name, child = next(iter(waiting.items()))
                    limit = self.config.ready_timeout_s
                    raise LaunchError(f"{name} was not ready after {limit:g} s; {_last(child)}")
                if waiting:
                    cancel.wait(POLL_S)

    def check(self) -> None:
        """`LaunchError` with the log's end if a process has ended."""
        for name, child in self.children.items():
            if child.returncode is not None:
                raise LaunchError(f"{name} ended with {_status(child.returncode)}; {_last(child)}")

    def watch(self, cancel: threading.Event) -> None:
        """Returns when `cancel` is set; `LaunchError` as soon as a process ends."""
        while not cancel.wait(POLL_S):
            self.check()

    def restart(self, name: str) -> None:
        """Stops one process, dead or alive, starts it anew and waits until all are ready."""
        child = self.children[name]
        child.stop(self.config.grace_s)
        self._start(child.launch)
        self.wait_ready()

    def stop(self) -> None:
        """Stops everything; safe to call twice. The proxy goes first, so that no client meets half of the rest."""
        running = list(self.children.values())
        with ExitStack() as cleanup:  # each step is done, whatever becomes of the one before it
            cleanup.callback(self.children.clear)
            if self._private:
                cleanup.callback(self._private.cleanup)
                self._private = None
            cleanup.callback(self._stop, [child for child in running if child.name != "proxy"])
            cleanup.callback(self._stop, [child for child in running if child.name == "proxy"])

    def _stop(self, children: list[Child]) -> None:
        for child in children:
            self._on_state(child.name, "stopping")
            child.terminate()
        end = time.monotonic() + self.config.grace_s
        with ExitStack() as cleanup:
            for child in children:
                cleanup.callback(self._on_state, child.name, "stopped")
                cleanup.callback(_stop_until, child, end)

    def kill(self) -> None:
        """SIGKILL to everything; a `stop()` that waits then returns. Only signals: may be called by a handler."""
        for child in list(self.children.values()):
            groups.signal_all(child.pid, signal.SIGKILL)

    def __enter__(self) -> Cluster:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _stop_until(child: Child, end: float) -> None:
    child.stop(max(0.0, end - time.monotonic()))


def _check_ports(launch: Launch) -> None:
    for host, port in launch.ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not refused by TIME_WAIT
            try:
                probe.bind((host, port))
            except OSError as error:
                raise ConfigError(
                    f"{launch.name} cannot listen on {host}:{port}: {error.strerror}"
                ) from error


def _write_private(file: Path, content: str) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(content)


def _healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def _last(child: Child) -> str:
    return f"the end of {child.log}:\n{child.tail()}"
