"""The command line of `lynx-ascend bench`. Imported when the command runs, not for the list of commands."""

from __future__ import annotations

import json
from enum import StrEnum

import typer
from rich.console import Console
from rich.table import Table

from lynx_ascend.errors import ConfigError


class Layout(StrEnum):
    """The caches that can be measured."""

    rows = "rows"
    packed = "packed"


class Widths(StrEnum):
    """How many bits of each channel the anchor has."""

    default = "default"
    mixed = "mixed"


app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure the parts on this machine.")


@app.callback()
def _group() -> None:
    """Keeps `codec` a command of its own while it is the only one."""


@app.command()
def codec(
    megabytes: int = typer.Option(
        768, "--mb", min=8, help="Size of the pages; by default far above the cache."
    ),
    rounds: int = typer.Option(5, min=1, help="Rounds; the best of them counts."),
    threads: str = typer.Option("1,2", help="Thread counts of the codec, separated by commas."),
    layout: Layout = typer.Option(
        Layout.rows, help="How the cache holds its values: rows of channels, or packed."
    ),
    widths: Widths = typer.Option(Widths.default, help="Bits of a channel in the anchor: 4, or 2 to 8."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Encode and decode beside a copy and an int4 in torch: GB/s of the bf16 side."""
    from lynx_ascend.bench.codec import run

    try:
        counts = tuple(int(part) for part in threads.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise ConfigError(f"--threads is {threads!r}; use numbers above 0, separated by commas")
    result = run(megabytes, rounds, counts, layout.value, widths.value)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    table = Table(
        title=f"GB/s of bf16, best of {rounds} rounds, {layout.value}, {widths.value} widths, {result['machine']}",
        title_justify="left",
    )
    for title in ("", "threads", "encode", "decode anchor", "decode full"):
        table.add_column(title, justify="left" if not title else "right")
    for name, figures in result["backends"].items():
        label = f"lynx, C++ ({result['cpu_target']})" if name == "cpu" else "lynx, torch"
        for n in counts:
            columns = (
                figures[key][str(n)] for key in ("encode_gbps", "decode_anchor_gbps", "decode_full_gbps")
            )
            table.add_row(label, str(n), *(f"{value:.2f}" for value in columns))
    table.add_row("int4, torch", "1", f"{result['int4_torch_encode_gbps']:.2f}", "", "")
    table.add_row("memcpy", "1", *[f"{result['memcpy_gbps']:.2f}"] * 3)
    Console().print(table)
