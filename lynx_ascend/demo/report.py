"""The result for a reader: two tables, where the time went, what it was measured on, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lynx_ascend.demo.breakdown import median_breakdown
from lynx_ascend.demo.measure import Run
from lynx_ascend.demo.summary import BASELINE, KS, LYNX, Row, after_first, differences, rows

NONE = "-"


def print_report(console: Console, runs: Sequence[Run], result: dict[str, Any]) -> None:
    """Everything but the answers and the verdict. `result` is what `to_json` gives."""
    table = rows(runs)
    console.print()
    console.print(times_table(table))
    console.print(transfer_table(runs))
    if any(row.codec == BASELINE for row in table):
        console.print(speed_table(table))
    for line in (
        *breakdown_lines(runs),
        *codec_lines(table),
        *link_lines(table, result["link_mbps"]),
        *about_lines(result),
    ):
        console.print(Text(line), soft_wrap=True)


def times_table(table: Sequence[Row]) -> Table:
    """Medians per codec, seconds from the client's request."""
    view = Table(
        title=f"Seconds from the request, medians of {table[0].runs}",
        caption="TTkT: k-th token after the first; prod.: made, never taken back; verif.: final; "
        "acc./drafts: of all repetitions",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    view.add_column("codec")
    view.add_column("TTFT", justify="right")
    for k in KS:
        view.add_column(f"TT{k}T\nprod.", justify="right")
    for k in KS:
        view.add_column(f"TT{k}T\nverif.", justify="right")
    view.add_column("MB\nsent", justify="right")
    view.add_column("acc./\ndrafts", justify="right")
    for row in table:
        produced = [_seconds(row.produced[k]) for k in KS]
        verified = [_seconds(row.verified[k]) for k in KS]
        drafts = f"{row.all_accepted}/{row.all_drafted}" if row.all_drafted else NONE
        view.add_row(
            row.codec,
            _seconds(row.ttft),
            *produced,
            *verified,
            f"{row.bytes / 1e6:.1f}",
            drafts,
            style=_style(row.codec),
        )
    return view


def transfer_table(runs: Sequence[Run]) -> Table:
    """TTkT less the same run's TTFT: without the prefill, which is the same work for all codecs."""
    title = "Seconds after the first token (TTkT less TTFT)"
    view = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    _add_ttkt_columns(view)
    for codec, after in after_first(runs).items():
        cells = [_seconds(after.produced[k]) for k in KS] + [_seconds(after.verified[k]) for k in KS]
        view.add_row(codec, *cells, style=_style(codec))
    return view


def speed_table(table: Sequence[Row]) -> Table:
    """int8's median divided by each codec's: above 1 is faster than int8."""
    base = next(row for row in table if row.codec == BASELINE)
    title = f"Speed-up over {BASELINE} (its time / the codec's)"
    view = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    _add_ttkt_columns(view)
    view.add_column("bytes\nratio", justify="right")
    for row in table:
        ratios = [_ratio(base.produced[k], row.produced[k]) for k in KS]
        ratios += [_ratio(base.verified[k], row.verified[k]) for k in KS]
        view.add_row(row.codec, *ratios, f"{row.bytes / base.bytes:.2f}", style=_style(row.codec))
    return view


def _add_ttkt_columns(view: Table) -> None:
    view.add_column("codec")
    for kind in ("prod.", "verif."):
        for k in KS:
            view.add_column(f"TT{k}T\n{kind}", justify="right")


def _style(codec: str) -> str:
    return "bold" if codec == LYNX else ""


def breakdown_lines(runs: Sequence[Run]) -> list[str]:
    """lynx's verified TT64T, span by span, of its median run."""
    spans = median_breakdown([run for run in runs if run.codec == LYNX])
    if not spans:
        return []
    total = sum(span.seconds for span in spans)
    lines = [f"{span.seconds:7.2f}  {span.about}" for span in spans]
    return [
        f"Where {LYNX}'s verified TT{KS[-1]}T went (median run, s)",
        *lines,
        f"{total:7.2f}  together",
        "",
    ]


def codec_lines(table: Sequence[Row]) -> list[str]:
    """How much of lynx's first token is the codec's own work."""
    row = next((row for row in table if row.codec == LYNX), None)
    if row is None or row.codec_share is None:
        return []
    return [
        f"codec: {row.encode_s:.2f} s of encoding, most of it while the link is busy, and "
        f"{row.decode_anchor_s:.2f} s of decoding the anchor: {100 * row.codec_share:.1f} % of {LYNX}'s TT1T"
    ]


def link_lines(table: Sequence[Row], link_mbps: float) -> list[str]:
    """The rule of the link rate, and what came of it."""
    line = f"link: {link_mbps:g} Mbit/s, emulated in the prefill engine's sender"
    base = next((row for row in table if row.codec == BASELINE), None)
    if base is None:
        return [line]
    wire = base.bytes * 8e-6 / link_mbps
    line += (
        f"; {BASELINE}'s KV is on it for {wire:.1f} s, {wire / base.ttft:.1f} x the time to the first token"
    )
    last, first = base.verified[KS[-1]], base.verified[1]
    if last is not None and first is not None and last > first:
        step = (last - first) / (KS[-1] - 1)
        line += f" and {wire / (step * KS[-1]):.1f} x that of {KS[-1]} decode steps of {step * 1e3:.0f} ms"
        line += f"; half of it, a residual, lasts {wire / 2 / step:.0f} steps"
    return [line]


def about_lines(result: dict[str, Any]) -> list[str]:
    """What it was measured on."""
    machine, load = result["machine"], result["load"]
    return [
        f"model: {result['model']}, float32, {result['prompt_tokens']} prompt tokens, greedy, "
        f"{result['max_tokens']} tokens of answer",
        f"machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}; "
        f"load {load:g} before the engines started"
        + (": OTHERS WERE AT WORK, the times are noisy" if load > machine["cores"] / 2 else ""),
        f"date: {result['date']}; "
        + ", ".join(f"{name} {value}" for name, value in result["versions"].items()),
    ]


def print_answers(console: Console, answers: Sequence[tuple[str, str]]) -> None:
    """What was asked and what lynx answered."""
    for question, answer in answers:
        console.print()
        console.print(Text("Q: ", style="bold").append(question, style="default"))
        console.print(Text("A: ", style="bold").append(answer.strip(), style="default"))


def print_verdict(console: Console, runs: Sequence[Run]) -> bool:
    """Whether lynx's tokens are lynx-int8's in every repetition, and where they differ if not."""
    found = differences(runs)
    console.print()
    if not found:
        count = len({run.repetition for run in runs})
        console.print(
            f"[bold green]lynx's text equals lynx-int8's, token for token, in {count} of {count} repetitions[/]"
        )
        return True
    for difference in found:
        console.print(
            f"[bold red]repetition {difference.repetition + 1}: lynx's text differs from lynx-int8's "
            f"from token {difference.token} on[/]"
        )
        console.print(Text(f"lynx:      {difference.lynx}\nlynx-int8: {difference.reference}"))
    return False


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _ratio(base: float | None, value: float | None) -> str:
    return NONE if base is None or not value else f"{base / value:.2f}"
