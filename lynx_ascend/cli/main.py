"""The top of the command line: the groups of commands, and how errors look."""

from __future__ import annotations

import sys

import typer

from lynx_ascend import __version__
from lynx_ascend.cli import models, proxy, show, up
from lynx_ascend.cli.lazy import LazyGroup
from lynx_ascend.errors import ConfigError, LynxError

app = typer.Typer(
    name="lynx-ascend",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Progressive KV-cache transfer between a prefill and a decode engine.\n\n"
    "[bold]See it work[/] (some minutes; prints what came when)\n\n"
    "  lynx-ascend demo\n\n"
    "[bold]Begin here[/]\n\n"
    "  lynx-ascend up --example > lynx.yaml\n\n"
    "  lynx-ascend up -f lynx.yaml\n\n"
    "  curl 127.0.0.1:8000/v1/completions -H 'content-type: application/json' \\\n\n"
    '    -d \'{"model": "smollm2", "prompt": "Paris is", "temperature": 0}\'',
)

app.command("up", rich_help_panel="Serve")(up.up)
app.command("proxy", rich_help_panel="Serve")(proxy.proxy)
app.add_typer(models.app, name="model", rich_help_panel="Models")
app.command("codecs", rich_help_panel="Look")(show.codecs)
app.command("version", rich_help_panel="Look")(show.version)


@app.callback(invoke_without_command=True)
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit()


def main() -> None:
    """The console script. A known error is one message on stderr; exit status 2 for a wrong setting, else 1."""
    try:
        app()
    except LynxError as error:
        print(f"lynx-ascend: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
