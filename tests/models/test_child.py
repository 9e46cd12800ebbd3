from __future__ import annotations

import os
import sys
import time

import pytest

from lynx_ascend.errors import ModelError
from lynx_ascend.models import convert
from lynx_ascend.models.child import run_child


@pytest.fixture
def run(tmp_path):
    def start(code: str, **changes):
        log = tmp_path / "child.log"
        options = {"log": log, "deadline_s": 30, "env": {"GREETING": "hello"}, "hint": "is it there?"}
        run_child([sys.executable, "-c", code], "do it", **options | changes)
        return log.read_text()

    return start


def test_the_output_is_in_the_file_and_the_last_tick_sees_all_of_it(run, tmp_path):
    seen: list[str] = []
    code = "import os, sys; print(os.environ['GREETING']); print('there', file=sys.stderr)"
    said = run(code, on_tick=lambda: seen.append((tmp_path / "child.log").read_text()))
    assert sorted(said.split()) == ["hello", "there"]
    assert seen[-1] == said


def test_a_failure_tells_the_end_of_the_output(run):
    with pytest.raises(ModelError, match=r"could not do it \(is it there\?\):\n(.|\n)*out of cheese$"):
        run("print('hello', flush=True); raise SystemExit('out of cheese')")


def test_one_that_hangs_is_killed_at_its_deadline(run, tmp_path):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    begin = time.monotonic()
    with pytest.raises(ModelError, match=r"could not do it within 0\.01 minutes"):
        run(code, deadline_s=0.6)
    assert time.monotonic() - begin < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child.log").read_text()), 0)


def test_a_conversion_that_hangs_ends(tmp_path, monkeypatch):
    """Importing torch alone takes longer than this deadline."""
    monkeypatch.setattr(convert, "DEADLINE_S", 0.0)
    with pytest.raises(ModelError, match=r"could not convert x\.gguf within 0 minutes"):
        convert.convert(tmp_path / "x.gguf", tmp_path / "model")
