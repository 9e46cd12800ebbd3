"""The command line. Commands import what they need when they run: `--help` loads neither torch nor vLLM."""

from lynx_ascend.cli.main import app, main

__all__ = ["app", "main"]
