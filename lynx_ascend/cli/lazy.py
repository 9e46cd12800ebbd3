"""Commands that live in rooms of their own and are imported only when they are run (or asked for their help)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """`target` is `module:app`, a `typer.Typer`; `help` and `panel` are what the list of commands shows."""

    target: str
    help: str
    panel: str


# One line adds a command. Its module is left out of the list until it exists.
ENTRIES = {
    "demo": Entry(
        "lynx_ascend.demo.cli:app", "See it work: a real model, a long text, the codecs side by side.", "Try"
    ),
    "bench": Entry("lynx_ascend.bench.cli:app", "Measure the codec on this machine.", "Measure"),
    "eval": Entry("lynx_ascend.eval.cli:app", "What a codec does to a model's answers.", "Measure"),
    "calibrate": Entry(
        "lynx_ascend.eval.cli:calibrate_app",
        "Choose the codec's settings for a model, and say what it gains.",
        "Models",
    ),
}


class LazyGroup(TyperGroup):
    """The group of all commands: the eager ones and `ENTRIES`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(name for name, entry in ENTRIES.items() if _exists(entry)), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = ENTRIES.get(cmd_name)
        if entry and _exists(entry):
            return _Placeholder(cmd_name, entry)
        return super().get_command(ctx, cmd_name)


class _Placeholder(TyperCommand):
    """Shows in the list of commands; turns into the real command when its arguments are to be parsed."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.help, short_help=entry.help, rich_help_panel=entry.panel)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        module, _, attribute = self._entry.target.partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
        return command.make_context(info_name, args, parent=parent, **extra)


def _exists(entry: Entry) -> bool:
    module = entry.target.partition(":")[0]
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
