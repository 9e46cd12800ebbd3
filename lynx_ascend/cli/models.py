"""`lynx-ascend model`: small real models that need no model hub."""

from __future__ import annotations

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Small real models that need no model hub: prepare, list, find.\n\n"
    "Everywhere else a model is one of these names, a folder, or a hub id.\n\n"
    "Example:  lynx-ascend model prepare smollm2",
)
NAME = typer.Argument(help="A name of `model list`.", metavar="NAME")


@app.command("prepare")
def prepare(
    name: str = NAME,
    verify: bool = typer.Option(
        False, "--verify", help="Compare digests of the whole content, not sizes only."
    ),
    force: bool = typer.Option(False, "--force", help="Make it anew even if it is there."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Download, convert and check a model; print its folder.

    Nothing is done if it is there already. A failure leaves nothing behind.
    """
    from lynx_ascend.models import prepare_model

    typer.echo(prepare_model(name, verify=verify, force=force, quiet=quiet))


@app.command("list")
def show() -> None:
    """The known models, and which of them are prepared."""
    from rich.console import Console
    from rich.table import Table

    from lynx_ascend.models import CATALOG
    from lynx_ascend.models.prepare import is_prepared

    table = Table("name", "ready", "download", "context", "licence", "about", box=None, header_style="bold")
    for spec in CATALOG.values():
        size = f"{spec.download_bytes / 1e6:.0f} MB"
        ready = "yes" if is_prepared(spec) else "no"
        table.add_row(spec.name, ready, size, str(spec.context), spec.licence, spec.about)
    Console().print(table)


@app.command("path")
def path(name: str = NAME) -> None:
    """Print the folder of a prepared model; fail if it is not prepared."""
    from lynx_ascend.models import model_path

    typer.echo(model_path(name))
