"""Progress on a terminal; plain lines where there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from lynx_ascend.demo.measure import Run

LINE = 60


class Screen:
    """All that is shown while a demo runs, on one console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.began = time.monotonic()
        self._engines: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def say(self, text: str) -> None:
        """One line, in rich's markup, with the time since the beginning."""
        self.console.print(
            f"[dim]{time.monotonic() - self.began:6.1f} s[/] {text}", highlight=False, soft_wrap=True
        )

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A step without a measure of its own."""
        self.say(text)
        with self.console.status(text):
            yield

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Shows, until all are ready, what each process says last."""
        progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.fields[name]:<8}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.description}[/]"),
            console=self.console,
            transient=True,
        )
        self._tasks.clear()
        with progress:
            self._engines = progress
            try:
                yield
            finally:
                self._engines = None

    def state(self, name: str, state: str) -> None:
        """A process of the cluster is `starting`, `ready`, `stopping` or `stopped`."""
        if state != "stopping":
            self.say(f"{name} {state}")
        if self._engines is None:
            return
        if state == "starting":
            self._tasks[name] = self._engines.add_task("starting", name=name, total=1)
        elif state == "ready":
            self._engines.update(self._tasks[name], description="ready", completed=1)

    def line(self, name: str, text: str) -> None:
        """A line of a process's log."""
        progress = self._engines  # set to None by another thread
        if progress is not None and name in self._tasks:
            # The end of a log's prefix is the beginning of what it says.
            progress.update(self._tasks[name], description=escape(text.rpartition("] ")[2][:LINE]))

    @contextmanager
    def measuring(self, total: int) -> Iterator[Measuring]:
        """A bar over `total` requests."""
        progress = Progress(
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            transient=True,
        )
        with progress:
            yield Measuring(self, progress, total)


class Measuring:
    """The bar: `asking` before a request, `answered` (or, if it does not count, `done`) after it."""

    def __init__(self, screen: Screen, progress: Progress, total: int) -> None:
        self._screen, self._progress = screen, progress
        self._task = progress.add_task("", total=total)

    def asking(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def done(self) -> None:
        self._progress.advance(self._task)

    def answered(self, run: Run) -> None:
        self.done()
        last = run.times.verified[-1] - run.t_request
        drafts = f", {run.times.accepted} of {run.times.drafted} drafts accepted" if run.times.drafted else ""
        self._screen.say(
            f"repetition {run.repetition + 1} {run.codec:<9} first token {run.ttft:5.2f} s, "
            f"{len(run.token_ids)} tokens {last:5.2f} s{drafts}"
        )
