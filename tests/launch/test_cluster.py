from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from lynx_ascend.errors import ConfigError
from lynx_ascend.launch import LaunchError, groups


def pids(cluster) -> list[int]:
    return [child.pid for child in cluster.children.values()]


def test_starts_waits_and_stops_all(make_cluster, config):
    states: list[tuple[str, str]] = []
    lines: list[tuple[str, str]] = []
    cluster = make_cluster(
        prefill={"delay": 0.3},
        on_state=lambda name, state: states.append((name, state)),
        on_line=lambda name, line: lines.append((name, line)),
    )
    with cluster:
        assert httpx.get(cluster.url + "/health").status_code == 200
        assert cluster.url_of("decode").endswith(str(config.decode.port))
        running = pids(cluster)
        assert all(groups.members(pid) == [pid] for pid in running)
        assert len({os.getpgid(pid) for pid in running} | {os.getpgid(0)}) == 4
    assert not any(groups.members(pid) for pid in running)
    names = ("prefill", "decode", "proxy")
    assert {n for n, s in states if s == "ready"} == set(names)
    assert next(n for n, s in states if s == "stopping") == "proxy"
    assert {n for n, s in states if s == "stopped"} == set(names)
    for name in names:
        assert (name, f"hello from {name}") in lines
        assert f"hello from {name}" in (Path(config.log_dir) / f"{name}.log").read_text()


def test_one_that_dies_at_start_is_reported_with_its_last_words(make_cluster):
    cluster = make_cluster(decode={"die": 3})
    with pytest.raises(LaunchError, match=r"decode ended with status 3(.|\n)*out of cheese"):
        cluster.__enter__()
    assert not cluster.children


def test_one_that_dies_later_ends_the_watch(make_cluster):
    cluster = make_cluster().start()
    cluster.wait_ready()
    os.kill(cluster.prefill.pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match="prefill ended with signal 9"):
        cluster.watch(threading.Event())


def test_never_ready(make_cluster, config):
    config.ready_timeout_s = 0.5
    cluster = make_cluster(prefill={"delay": 60})
    with pytest.raises(LaunchError, match=r"prefill was not ready after 0\.5 s"):
        cluster.__enter__()


def test_the_deaf_and_their_children_are_killed(make_cluster, config):
    config.grace_s = 0.5
    cluster = make_cluster(prefill={"deaf": True, "child": True}, decode={"child": True})
    with cluster:
        running = pids(cluster)
        assert len(groups.members(running[0])) == 2
        begin = time.monotonic()
    assert time.monotonic() - begin < 3
    assert not any(groups.members(pid) for pid in running)


def test_a_killed_engine_leaves_no_children(make_cluster):
    cluster = make_cluster(decode={"child": True})
    with cluster:
        running = pids(cluster)
        os.kill(cluster.decode.pid, signal.SIGKILL)
    assert not any(groups.members(pid) for pid in running)


def test_restart_brings_one_back(make_cluster):
    with make_cluster(decode={"child": True}) as cluster:
        first, others = cluster.decode.pid, (cluster.prefill.pid, cluster.proxy.pid)
        os.killpg(first, signal.SIGKILL)
        cluster.restart("decode")
        assert cluster.decode.pid != first
        assert (cluster.prefill.pid, cluster.proxy.pid) == others
        cluster.check()


def test_a_taken_port_is_refused_before_anything_starts(make_cluster, config):
    with socket.socket() as other:
        other.bind(("127.0.0.1", config.decode.port))
        other.listen()
        with pytest.raises(ConfigError, match=f"decode cannot listen on 127.0.0.1:{config.decode.port}"):
            make_cluster().start()


def test_starting_twice_is_refused_and_stopping_twice_is_not(make_cluster):
    cluster = make_cluster().start()
    with pytest.raises(LaunchError, match="runs already"):
        cluster.start()
    cluster.stop()
    cluster.stop()
