"""`lynx-ascend bench codec`: the keys that others read, on pages as small as they get."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lynx_ascend.bench.cli import app
from lynx_ascend.codec import cpu


@pytest.mark.parametrize(
    ("layout", "widths"), [("rows", "default"), ("packed", "default"), ("rows", "mixed")]
)
def test_the_json_has_its_keys(layout, widths):
    options = [
        "--mb",
        "8",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--layout",
        layout,
        "--widths",
        widths,
        "--json",
    ]
    result = CliRunner().invoke(app, ["codec", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert (figures["layout"], figures["widths"]) == (layout, widths)
    assert figures["memcpy_gbps"] > 0
    assert figures["int4_torch_encode_gbps"] > 0
    assert set(figures["backends"]) == {"torch"} | ({"cpu"} if cpu.extension() is not None else set())
    for backend in figures["backends"].values():
        for operation in ("encode", "decode_anchor", "decode_full"):
            assert backend[f"{operation}_gbps"]["1"] > 0


def test_thread_counts_are_checked():
    result = CliRunner().invoke(app, ["codec", "--threads", "0"])
    assert result.exit_code != 0
