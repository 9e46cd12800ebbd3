"""`lynx-ascend up`: P, D and the proxy on this machine until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import typer


def up(
    file: Path | None = typer.Option(
        None, "--file", "-f", help="The configuration, a YAML file.", dir_okay=False
    ),
    example: bool = typer.Option(False, "--example", help="Print a commented configuration and exit."),
    check: bool = typer.Option(False, "--check", help="Check the file, print the command lines and exit."),
    quiet: bool = typer.Option(
        False, "--quiet", "-q", help="Do not show the engines' logs (they go to files)."
    ),
) -> None:
    """Start a prefill engine, a decode engine and the proxy; stop them on Ctrl-C or when one dies.

    Example:  lynx-ascend up --example > lynx.yaml && lynx-ascend up -f lynx.yaml
    """
    from lynx_ascend.config import load_config
    from lynx_ascend.launch.console import command_lines, run

    if example:
        import lynx_ascend.launch

        typer.echo(
            (Path(lynx_ascend.launch.__file__).parent / "example.yaml").read_text(encoding="utf-8"), nl=False
        )
        return
    if file is None:
        raise typer.BadParameter("give a file; `lynx-ascend up --example` prints one", param_hint="--file")
    config = load_config(file)
    if check:
        typer.echo(command_lines(config))
        return
    raise typer.Exit(run(config, quiet=quiet))
