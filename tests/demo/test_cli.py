"""The command with a fabricated session: nothing is started."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from typer.testing import CliRunner

from lynx_ascend.cli import app, main
from lynx_ascend.demo import cli
from lynx_ascend.demo.errors import DemoError
from lynx_ascend.demo.prompts import Prompt
from lynx_ascend.demo.session import Session

from .runs import make_runs

run = CliRunner().invoke


class Answers:
    chat = True

    def answer(self, ids):
        return f"{len(ids)} tokens."


@pytest.fixture
def session(monkeypatch):
    """Replaces the session by `runs`, which a test may change; its `logs` are the folder that was given."""

    class Fake:
        runs = make_runs(2)
        logs = None
        error: BaseException | None = None

    def run_session(options, screen, log_dir, on_cluster):
        Fake.logs = log_dir
        if Fake.error:
            raise Fake.error
        return Session(options, Answers(), [Prompt("What?", "Text. What?", 9)] * 3, Fake.runs)

    monkeypatch.setattr(cli, "run_session", run_session)
    return Fake


def test_equal_texts(session, tmp_path):
    result = run(app, ["demo", "--json", str(tmp_path / "demo.json")])
    assert result.exit_code == 0
    assert result.output.count("Q: What?") == 1
    for word in ("TT64T", "lynx-int8", "Q: What?", "A: 65 tokens.", "token for token"):
        assert word in result.output
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures["text_equal"] is True
    assert figures["repetitions"] == 2
    assert set(figures) >= {"machine", "versions", "date", "model", "load"}
    assert not session.logs.exists()


def test_different_texts_end_with_1(session):
    session.runs = make_runs(1, ids=[1, *range(101, 165)])
    result = run(app, ["demo", "--json", "-"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["text_equal"] is False
    assert "differs" in result.stderr


def test_a_failure_keeps_the_logs_and_says_where(session, tmp_path):
    session.error = DemoError("no transfer")
    result = run(app, ["demo"])
    assert result.exit_code == 1
    assert "lynx-ascend: no transfer" in result.output
    assert f"logs: {session.logs}" in result.output.replace("\n", "")
    assert session.logs.is_dir()
    session.logs.rmdir()
    assert run(app, ["demo", "--keep-logs", str(tmp_path / "mine")]).exit_code == 1
    assert session.logs == tmp_path / "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--codecs", "lynx,int8"], "both needed"),
        (["--json", "/absent/demo.json"], "its folder is not there"),
    ],
)
def test_slips_cost_nothing(session, arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lynx-ascend", "demo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert session.logs is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_and_a_second_kills(monkeypatch, number):
    killed = []

    class Cluster:
        def kill(self):
            killed.append(True)

    def run_session(options, screen, log_dir, on_cluster):
        on_cluster(Cluster())
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            os.kill(os.getpid(), number)  # while it stops

    before = signal.getsignal(number)
    monkeypatch.setattr(cli, "run_session", run_session)
    result = run(app, ["demo"])
    assert result.exit_code == 130
    assert killed == [True]
    assert signal.getsignal(number) is before


def test_a_plot(session, tmp_path):
    pytest.importorskip("matplotlib")
    assert run(app, ["demo", "--plot", str(tmp_path / "demo.png")]).exit_code == 0
    assert (tmp_path / "demo.png").read_bytes()[1:4] == b"PNG"
