"""Bits a value against the KL divergence of the next tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lynx_ascend.errors import ConfigError


def draw(results: Mapping[str, Mapping[str, Mapping[str, float]]], file: Path) -> None:
    """One panel per model; a codec with an anchor is a line from the anchor (hollow) to both streams.

    ``results`` are the figures by model and codec. ConfigError if matplotlib is missing or does not know the format.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib") from missing
    figure = Figure(figsize=(8 * len(results), 6), layout="constrained")
    for panel, (model, figures) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        for name, found in figures.items():
            bits, kl = [found["bits_total"]], [found["kl"]]
            if "kl_anchor" in found:
                bits.insert(0, found["bits_anchor"])
                kl.insert(0, found["kl_anchor"])
            (line,) = panel.plot(bits, kl, linewidth=2 if name == "lynx" else 1, marker="o", markevery=[-1])
            if len(bits) > 1:
                panel.plot(bits[:1], kl[:1], marker="o", markerfacecolor="white", color=line.get_color())
            panel.annotate(name, (bits[0], kl[0]), textcoords="offset points", xytext=(5, 4), fontsize=8)
        panel.set_yscale("log")
        panel.set_title(model)
        panel.set_xlabel("bits a value, all metadata counted")
        panel.set_ylabel("KL of the next token (nats)")
        panel.grid(alpha=0.3, which="both")
    try:
        figure.savefig(file, dpi=140)
    except (ValueError, OSError) as failure:
        raise ConfigError(f"{file} cannot be drawn: {failure}") from failure
