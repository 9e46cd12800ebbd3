"""A cluster of tiny HTTP servers in place of engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lynx_ascend.config import ClusterConfig, parse_config
from lynx_ascend.launch import Cluster, Launch

# Answers /health once `delay` seconds have passed; `child` starts another process, as an engine does; `deaf` ignores
# SIGTERM; `exit` ends with that status as soon as it is healthy.
SERVER = """
import http.server, json, os, signal, subprocess, sys, threading, time
options = json.loads(sys.argv[2])
born = time.monotonic()
print("hello from", options["name"], flush=True)
if options.get("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.get("child"):
    code = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
    other = subprocess.Popen([sys.executable, "-S", "-c", code])
    print("child", other.pid, flush=True)
if "die" in options:
    print("out of cheese", file=sys.stderr, flush=True)
    sys.exit(options["die"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = time.monotonic() - born >= options.get("delay", 0)
        self.send_response(200 if ready else 503)
        self.end_headers()
        if ready and "exit" in options:
            threading.Timer(0.3, os._exit, [options["exit"]]).start()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class FakePlan:
    """Stands for `make_plan`; `options[name]` go to the server of that name."""

    def __init__(self, script: Path, options: dict[str, dict[str, Any]]) -> None:
        self.script, self.options = script, options

    def __call__(self, config: ClusterConfig, model: str, private: Path) -> list[Launch]:
        ports = {"prefill": config.prefill.port, "decode": config.decode.port, "proxy": config.proxy.port}
        return [
            Launch(
                name=name,
                command=(
                    sys.executable,
                    str(self.script),
                    str(port),
                    json.dumps({"name": name} | self.options.get(name, {})),
                ),
                health_url=f"http://127.0.0.1:{port}/health",
                env={"LYNX_TEST": name},
                ports=(("127.0.0.1", port),),
            )
            for name, port in ports.items()
        ]


@pytest.fixture
def config(tmp_path: Path, free_port: Callable[[], int]) -> ClusterConfig:
    return parse_config(
        {
            "model": str(tmp_path),
            "prefill": {"port": free_port(), "kv_port": free_port()},
            "decode": {"port": free_port()},
            "proxy": {"port": free_port()},
            "ready_timeout_s": 20,
            "grace_s": 3,
            "log_dir": str(tmp_path / "logs"),
        }
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return file


@pytest.fixture
def make_cluster(config: ClusterConfig, script: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes a cluster; keywords named after a process are its server's options, others go to `Cluster`."""
    made: list[Cluster] = []

    def make(**keywords: Any) -> Cluster:
        options = {name: keywords.pop(name) for name in ("prefill", "decode", "proxy") if name in keywords}
        cluster = Cluster(config, quiet=True, plan=FakePlan(script, options), **keywords)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.kill()
        cluster.stop()
