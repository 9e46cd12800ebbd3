"""The command line of `lynx-ascend demo`. Imported when the command runs, not for the list of commands."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from lynx_ascend.demo import machine, report
from lynx_ascend.demo.options import DEFAULT_CODECS, DEFAULT_LINK_MBPS, Options
from lynx_ascend.demo.screen import Screen
from lynx_ascend.demo.session import Session, run_session
from lynx_ascend.demo.summary import to_json
from lynx_ascend.errors import ConfigError, LynxError
from lynx_ascend.launch import Cluster
from lynx_ascend.launch.signals import on_stop

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    model: str = typer.Option("smollm2", help="A name of `model list`, a folder, or a hub id."),
    prompt_tokens: int = typer.Option(3000, min=64, help="Length of the prompt: essay and question."),
    max_tokens: int = typer.Option(
        65, min=2, help="Length of each answer; the first token is the prefill engine's."
    ),
    link_mbps: float = typer.Option(
        DEFAULT_LINK_MBPS, min=0.1, help="Rate of the emulated link between the engines, Mbit/s."
    ),
    repeat: int = typer.Option(3, min=1, help="Repetitions; all codecs take part in each."),
    codecs: str = typer.Option(
        ",".join(DEFAULT_CODECS),
        help="Codecs, separated by commas, with lynx and lynx-int8 among them.",
        show_default=", ".join(DEFAULT_CODECS),
    ),
    threads: int = typer.Option(2, min=1, help="Threads of each engine, on a CPU."),
    budget_s: float = typer.Option(450.0, min=1, help="Begin no repetition that would end later than this."),
    json_file: str | None = typer.Option(
        None,
        "--json",
        metavar="FILE",
        help="Write the figures to a file; `-` for stdout, all else goes to stderr.",
    ),
    plot: Path | None = typer.Option(
        None, metavar="FILE", dir_okay=False, help="Draw when each token came (.png, .svg; needs matplotlib)."
    ),
    keep_logs: Path | None = typer.Option(
        None, metavar="DIR", file_okay=False, help="Keep the logs of engines and proxy here."
    ),
) -> None:
    """Ask a real model about a real long text, with each codec in turn, over a slow emulated link.

    Starts a prefill engine, a decode engine and a proxy on free ports, and stops them at the end.
    Exit status 1 if lynx's text is not lynx-int8's, token for token, or if something fails.

    Example:  lynx-ascend demo --link-mbps 100 --json demo.json
    """
    options = Options(
        model=model,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        link_mbps=link_mbps,
        repeat=repeat,
        codecs=tuple(codec.strip() for codec in codecs.split(",")),
        budget_s=budget_s,
        threads=threads,
    )
    console = Console(stderr=json_file == "-")
    _check_writable(json_file, plot)
    facts = machine.describe()
    logs = keep_logs or Path(tempfile.mkdtemp(prefix="lynx-demo-"))
    kept = keep_logs is not None
    try:
        session = _run(options, console, logs)
    except KeyboardInterrupt:
        console.print("stopped")
        raise typer.Exit(130) from None
    except LynxError as error:
        kept = True
        console.print(Text(f"lynx-ascend: {error}", style="red"), soft_wrap=True)
        console.print(f"logs: {logs}", highlight=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from error
    finally:
        if not kept:
            shutil.rmtree(logs, ignore_errors=True)
    result = to_json(session.runs, options.link_mbps, about(options, session, facts))
    report.print_report(console, session.runs, result)
    report.print_answers(console, session.answers())
    equal = report.print_verdict(console, session.runs)
    if plot is not None:
        from lynx_ascend.demo.plot import draw

        draw(session.runs, plot)
    if json_file is not None:
        text = json.dumps(result, indent=1) + "\n"
        if json_file == "-":
            typer.echo(text, nl=False)
        else:
            Path(json_file).write_text(text, encoding="utf-8")
    raise typer.Exit(0 if equal else 1)


def about(options: Options, session: Session, facts: dict[str, Any]) -> dict[str, Any]:
    """What the JSON says beside the figures."""
    repetitions = 1 + max(run.repetition for run in session.runs)
    return {
        "model": options.model,
        "dtype": "float32",
        "max_tokens": options.max_tokens,
        "repetitions": repetitions,
        "threads": options.threads,
        "questions": [prompt.question for prompt in session.prompts[:repetitions]],
        **facts,
    }


def _check_writable(json_file: str | None, plot: Path | None) -> None:
    """Ten minutes of work are not lost to a slip in a path."""
    for file in (Path(json_file) if json_file and json_file != "-" else None, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigError(f"{file} cannot be written: its folder is not there")


def _run(options: Options, console: Console, logs: Path) -> Session:
    """The session, broken off by SIGINT, SIGTERM or SIGHUP; a second signal kills the engines at once."""
    clusters: list[Cluster] = []
    stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            for cluster in clusters:
                cluster.kill()
            return
        stopping = True
        console.print("stopping (again: at once)")
        raise KeyboardInterrupt

    with on_stop(on_signal):
        return run_session(options, Screen(console), logs, clusters.append)
