"""`lynx-ascend up` as a process: signals, exit status, no orphans even when the supervisor is killed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from lynx_ascend.launch import cluster as cluster_module
from lynx_ascend.launch import console, groups

# What `up` runs, with the fake plan of conftest.py in place of engines.
RUN = """
import importlib.util, json, sys
from pathlib import Path
from lynx_ascend.config import ClusterConfig
from lynx_ascend.launch import Cluster, console
import msgspec
spec = importlib.util.spec_from_file_location("fakes", sys.argv[1])
fakes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fakes)
config = msgspec.json.decode(sys.argv[3], type=ClusterConfig)
sys.exit(console.run(config, plan=fakes.FakePlan(Path(sys.argv[2]), json.loads(sys.argv[4]))))
"""


class Up:
    def __init__(self, config, script: Path, options: str) -> None:
        fakes = str(Path(__file__).with_name("conftest.py"))
        data = msgspec.json.encode(config).decode()
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, fakes, str(script), data, options], stdout=subprocess.PIPE, text=True
        )
        self.output = ""

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.output):
            line = self.process.stdout.readline()
            assert line, f"no {pattern!r} in:\n{self.output}"
            self.output += line

    def finish(self) -> int:
        self.output += self.process.stdout.read()
        return self.process.wait(10)

    def groups(self) -> list[int]:
        """The children's process groups, from /proc."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == self.process.pid:
                found.append(int(entry.name))
        return found


@pytest.fixture
def up(config, script):
    made: list[Up] = []

    def start(options: str = "{}") -> Up:
        made.append(Up(config, script, options))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_cleanly(up, number):
    running = up('{"prefill": {"child": true}}')
    running.read_until("ready http")
    children = running.groups()
    assert len(children) == 3
    running.process.send_signal(number)
    assert running.finish() == 0
    assert not any(groups.members(child) for child in children)
    assert re.search(r"^prefill *\| hello from prefill", running.output, re.MULTILINE)


def test_a_signal_while_starting(up):
    running = up('{"decode": {"delay": 60}}')
    running.read_until("hello from decode")
    children = running.groups()
    running.process.send_signal(signal.SIGTERM)
    assert running.finish() == 0
    assert not any(groups.members(child) for child in children)


def test_a_second_signal_does_not_wait(up, config):
    config.grace_s = 60
    running = up('{"prefill": {"deaf": true}}')
    running.read_until("ready http")
    children = running.groups()
    running.process.send_signal(signal.SIGINT)
    running.read_until("prefill stopping")
    running.process.send_signal(signal.SIGINT)
    running.finish()
    assert not any(groups.members(child) for child in children)


@pytest.mark.parametrize("options", ['{"decode": {"die": 7}}', '{"decode": {"exit": 7}}'])
def test_one_that_dies_ends_the_rest(up, options):
    running = up(options)
    running.read_until("hello from")
    assert running.finish() == 1
    assert "decode ended with status 7" in running.output
    assert not running.groups()


def test_a_killed_supervisor_leaves_no_orphans(up):
    running = up()
    running.read_until("ready http")
    children = running.groups()
    ends = [os.pidfd_open(child) for child in children]
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    for end in ends:
        assert select.select([end], [], [], 5)[0], "it lives on"
        os.close(end)
    assert not any(groups.members(child) for child in children)


def test_a_signal_while_the_model_is_prepared(config, monkeypatch):
    """Before anything runs, a signal breaks off the preparation."""

    def prepare(name: str, quiet: bool) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # what the handler raises ends it
        raise AssertionError("not broken off")

    monkeypatch.setattr(cluster_module, "resolve_model", prepare)
    before = signal.getsignal(signal.SIGTERM)
    assert console.run(config) == 130
    assert signal.getsignal(signal.SIGTERM) is before
