"""How results look on a terminal; progress goes to stderr, so that JSON on stdout stays JSON."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lynx_ascend import __version__

if TYPE_CHECKING:
    from lynx_ascend.eval.calibrate import Calibrated

Figures = Mapping[str, Mapping[str, float]]


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on stderr; the context's value is to be called once per step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def stamp() -> dict[str, str]:
    """What made a result: versions, machine, date."""
    return {
        "lynx_ascend": __version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def print_errors(model: str, figures: Figures, contexts: int, context: int) -> None:
    """One row per codec, and one for the anchor alone where there is one, by KL."""
    title = f"{model}: {contexts} contexts of {context} tokens; KL in nats x 1,000"
    table = _table(title, "", "bits", "K error", "V error", "attention", "KL", "+-", "same top token")
    rows = []
    for name, found in figures.items():
        rows.append((name, found, "", "bits_total"))
        if "kl_anchor" in found:
            rows.append((f"{name}, anchor", found, "_anchor", "bits_anchor"))
    for name, found, suffix, bits in sorted(rows, key=lambda row: row[1][f"kl{row[2]}"]):
        table.add_row(
            name,
            f"{found[bits]:.2f}",
            *(f"{found[f'{key}{suffix}']:.4f}" for key in ("k_error", "v_error", "attention_error")),
            f"{1000 * found[f'kl{suffix}']:.4f}",
            f"{1000 * found[f'kl_standard_error{suffix}']:.4f}",
            f"{100 * found[f'top1_agreement{suffix}']:.2f} %",
        )
    Console().print(table)


def print_acceptance(model: str, figures: Figures, max_draft: int, temperature: float) -> None:
    """One row per codec."""
    how = f"temperature {temperature}" if temperature else "greedy"
    prompts = int(next(iter(figures.values()))["prompts"])
    title = f"{model}: {prompts} prompts, up to {max_draft} drafts, {how}"
    table = _table(
        title, "", "anchor bits", "accepted", "+-", "possible", "P(>= 10)", "P(>= 20)", "whole", "same token"
    )
    for name, found in sorted(figures.items(), key=lambda item: -item[1]["mean_accepted"]):
        table.add_row(
            name,
            f"{found['bits_anchor']:.2f}",
            f"{found['mean_accepted']:.1f}",
            f"{found['mean_accepted_standard_error']:.1f}",
            f"{found['mean_possible']:.1f}",
            *(f"{found[key]:.2f}" for key in ("p_at_least_10", "p_at_least_20", "p_whole")),
            f"{100 * found['top1_agreement']:.1f} %",
        )
    Console().print(table)


def print_calibration(model: str, found: Calibrated, path: Path, contexts: int, context: int) -> None:
    """Before and after on held-out text, and what to do with the file."""
    title = f"{model}: the anchor on {contexts} held-out contexts of {context} tokens; KL in nats x 1,000"
    table = _table(title, "", "bits", "K error", "V error", "attention", "KL", "+-", "same top token")
    for name, figures in (("default", found.default), ("calibrated", found.calibrated)):
        table.add_row(
            name,
            f"{figures['bits_anchor']:.2f}",
            *(f"{figures[f'{key}_error_anchor']:.4f}" for key in ("k", "v", "attention")),
            f"{1000 * figures['kl_anchor']:.4f}",
            f"{1000 * figures['kl_standard_error_anchor']:.4f}",
            f"{100 * figures['top1_agreement_anchor']:.2f} %",
        )
    console = Console()
    console.print(table)
    console.print(
        f"{found.long_bits:.3f} bits a value in a long context, whose exact rows count for little.\n"
        f"Written to {path}. Give it to both engines: transfer: {{calibration: {path.resolve()}}}",
        soft_wrap=True,
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table
