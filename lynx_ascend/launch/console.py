"""A cluster on a terminal: prefixed logs, progress until ready, signals."""

from __future__ import annotations

import shlex
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from lynx_ascend.config import ClusterConfig
from lynx_ascend.errors import LynxError
from lynx_ascend.launch.cluster import Cluster, Plan
from lynx_ascend.launch.plan import make_plan
from lynx_ascend.launch.signals import on_stop
from lynx_ascend.models import resolve_model

COLOURS = {"prefill": "cyan", "decode": "magenta", "proxy": "green"}


def command_lines(config: ClusterConfig) -> str:
    """What `run` would start, to be read or pasted; nothing is prepared, a token's file is named but not written."""
    model = resolve_model(config.model, prepare=False)
    blocks = []
    for launch in make_plan(config, model, Path("PRIVATE")):
        env = " ".join(f"{key}={shlex.quote(value)}" for key, value in launch.env.items())
        blocks.append(f"# {launch.name}\n{env} {shlex.join(launch.command)}")
    return "\n\n".join(blocks)


def run(config: ClusterConfig, *, quiet: bool = False, plan: Plan = make_plan) -> int:
    """Runs until SIGINT, SIGTERM or SIGHUP (returns 0) or until a process ends by itself (prints why, returns 1).

    A second signal kills everything at once.
    """
    screen = _Screen(quiet)
    cluster = Cluster(config, on_line=screen.line, on_state=screen.state, plan=plan)
    stopping = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stopping.is_set():
            cluster.kill()
        elif not cluster.children:  # the model is being prepared: nothing to stop, but that to break off
            raise KeyboardInterrupt
        stopping.set()

    with on_stop(on_signal):
        try:
            cluster.start()
            with screen.progress:
                cluster.wait_ready(stopping)
            if not stopping.is_set():
                screen.console.print(
                    f"[bold green]ready[/] {cluster.url}/v1   (Ctrl-C stops)", highlight=False
                )
                cluster.watch(stopping)
            return 0
        except KeyboardInterrupt:
            return 130
        except LynxError as error:
            screen.console.print(Text(f"lynx-ascend: {error}", style="red"), soft_wrap=True)
            return 1
        finally:
            stopping.set()
            cluster.stop()


class _Screen:
    """One console for logs and progress, so that neither overwrites the other."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = Console()
        self.progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.fields[name]:<8} {task.description}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begin = time.monotonic()

    def line(self, name: str, text: str) -> None:
        if not self.quiet:
            prefix = Text(f"{name:<8}| ", style=COLOURS.get(name, ""))
            self.console.print(prefix + Text.from_ansi(text), soft_wrap=True, highlight=False)

    def state(self, name: str, state: str) -> None:
        seconds = time.monotonic() - self._begin
        if state == "starting":
            self._tasks[name] = self.progress.add_task("starting", name=name, total=1)
        elif state == "ready" and name in self._tasks:
            self.progress.update(self._tasks[name], description="ready", completed=1)
        self.console.print(f"[dim]{seconds:6.1f} s[/] {name} {state}", highlight=False)
