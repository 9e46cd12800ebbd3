"""A picture of when each token came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lynx_ascend.demo.measure import Run
from lynx_ascend.demo.summary import LYNX
from lynx_ascend.errors import ConfigError


def draw(runs: Sequence[Run], file: Path) -> None:
    """Tokens over time of the first repetition: produced as a line, verified (where it is later) dashed.

    `ConfigError` if matplotlib is missing or does not know the file's format.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for run in runs:
        if run.repetition != runs[0].repetition:
            continue
        numbers = range(len(run.token_ids))
        produced = [at - run.t_request for at in run.times.produced]
        width = 2.5 if run.codec == LYNX else 1.2
        (line,) = axes.step(produced, numbers, where="post", linewidth=width, label=run.codec)
        if run.times.drafted:
            verified = [at - run.t_request for at in run.times.verified]
            label = f"{run.codec}, verified"
            axes.step(verified, numbers, where="post", linestyle="--", color=line.get_color(), label=label)
    axes.set_xlabel("seconds from the request")
    axes.set_ylabel("tokens after the first")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    try:
        figure.savefig(file, dpi=140)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{file} cannot be drawn: {error}") from error
