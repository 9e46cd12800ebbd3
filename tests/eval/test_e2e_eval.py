"""The commands on a real model, its shipped calibration in use."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lynx_ascend.cli.main import app

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def _run(*arguments: str) -> dict[str, dict[str, float]]:
    result = CliRunner().invoke(app, ["eval", *arguments, "--model", "smollm2", "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, dict[str, float]] = json.loads(result.stdout)["models"]["smollm2"]
    return found


def test_error_on_a_real_model():
    codecs = ("lynx", "lynx-default", "kivi4", "int8")
    named = [word for codec in codecs for word in ("--codec", codec)]
    found = _run("error", "--contexts", "2", "--context", "1024", *named)
    lynx, default = found["lynx"], found["lynx-default"]
    assert lynx["bits_anchor"] < default["bits_anchor"] + 0.05
    assert lynx["kl_anchor"] < 0.6 * default["kl_anchor"]
    assert lynx["kl_anchor"] < found["kivi4"]["kl"]
    assert lynx["kl"] < 0.1 * lynx["kl_anchor"]
    assert lynx["attention_error_anchor"] < default["attention_error_anchor"]


def test_acceptance_on_a_real_model():
    found = _run(
        "acceptance", "--codec", "lynx", "--codec", "lynx-paper", "--prompts", "3", "--max-draft", "24"
    )
    assert found["lynx"]["mean_accepted"] > found["lynx-paper"]["mean_accepted"]
    assert found["lynx"]["top1_agreement"] > 0.9
