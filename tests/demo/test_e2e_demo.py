"""The whole demo, small: two engines, one repetition."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .test_summary import KEYS


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_demo_runs(tmp_path):
    file = tmp_path / "demo.json"
    command = [sys.executable, "-m", "lynx_ascend.cli", "demo", "--prompt-tokens", "600", "--repeat", "1"]
    command += ["--codecs", "int8,lynx,lynx-int8", "--json", str(file), "--keep-logs", str(tmp_path / "logs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "token for token" in done.stdout
    result = json.loads(file.read_text())
    assert result["text_equal"] is True
    assert 500 < result["prompt_tokens"] <= 600
    assert list(result["codecs"]) == ["int8", "lynx", "lynx-int8"]
    for figures in result["codecs"].values():
        assert set(figures) >= KEYS
        assert all(isinstance(figures[key], (int, float)) for key in KEYS)
    assert result["codecs"]["lynx"]["drafted"] >= result["codecs"]["lynx"]["accepted"] > 0
    assert result["codecs"]["int8"]["drafted"] == 0
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"prefill.log", "decode.log", "proxy.log"}
