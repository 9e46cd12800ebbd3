from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lynx_ascend import __version__
from lynx_ascend.cli import app, lazy, main

run = CliRunner().invoke


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], ["Begin here", "Serve", "Models", "up", "proxy", "codecs"]),
        (["up", "--help"], ["--example", "--check"]),
        (["proxy", "-h"], ["--prefill", "--fallback"]),
        (["model", "--help"], ["prepare", "list", "path", "Example:"]),
        (["demo", "--help"], ["Example:", "lynx-int8"]),
    ],
)
def test_help(arguments, expected):
    result = run(app, arguments)
    assert result.exit_code == 0
    for word in expected:
        assert word in result.output


def test_versions():
    assert run(app, ["--version"]).output.strip() == __version__
    assert f"lynx-ascend {__version__}" in run(app, ["version"]).output


@pytest.mark.parametrize(
    "module", ["lynx_ascend", "lynx_ascend.config", "lynx_ascend.cli", "lynx_ascend.launch"]
)
def test_importing_needs_neither_torch_nor_an_engine(module):
    heavy = ("torch", "vllm", "torch_npu", "transformers")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_example_can_be_used_and_checked(tmp_path, cache):
    example = run(app, ["up", "--example"])
    (file := tmp_path / "lynx.yaml").write_text(example.output)
    checked = run(app, ["up", "-f", str(file), "--check"])
    assert checked.exit_code == 0
    assert "--worker-cls lynx_ascend.vllm.worker." in checked.output
    assert f"--model {cache / 'models' / 'smollm2'} --served-model-name smollm2" in checked.output
    assert not cache.exists()


def test_models(cache):
    assert "smollm2" in run(app, ["model", "list"]).output
    assert "lynx-ascend model prepare smollm2" in str(run(app, ["model", "path", "smollm2"]).exception)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["up", "-f", "/absent.yaml"], 2, "lynx-ascend: /absent.yaml cannot be read"),
        (["model", "path", "nobody"], 1, "lynx-ascend: no model is called 'nobody'"),
    ],
)
def test_errors_are_one_line(arguments, status, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lynx-ascend", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert capsys.readouterr().err.startswith(message)


def test_lazy_commands_are_listed_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "lazy_example.py").write_text(
        "import typer\napp = typer.Typer()\n@app.command()\ndef go(count: int = 1):\n    typer.echo(count + 1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(lazy.ENTRIES, "example", lazy.Entry("lazy_example:app", "An example.", "Try"))
    monkeypatch.setitem(lazy.ENTRIES, "gone", lazy.Entry("nowhere.at.all:app", "Not there yet.", "Try"))
    listed = run(app, ["--help"]).output
    assert "An example." in listed
    assert "Not there yet." not in listed
    assert "lazy_example" not in sys.modules
    assert "--count" in run(app, ["example", "--help"]).output
    assert run(app, ["example", "--count", "4"]).output == "5\n"
    assert run(app, ["gone"]).exit_code == 2
