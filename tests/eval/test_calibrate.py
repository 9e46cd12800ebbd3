"""Calibration: budgets are kept, bits go where they count, and held-out text gains."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from lynx_ascend.cli.main import app
from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneShape, get_codec, load_calibration
from lynx_ascend.errors import ConfigError
from lynx_ascend.eval.allocate import allocate
from lynx_ascend.eval.calibrate import calibrate
from lynx_ascend.eval.coded import code
from lynx_ascend.eval.costs import WIDTHS, Candidate, Costs
from lynx_ascend.eval.subjects import plain_specs

LENGTH = 2000
SPECS = {(0, "k"): K_SPEC, (0, "v"): V_SPEC}


def costs(*candidates: Candidate) -> Costs:
    """Two planes of one head of 8 channels whose costs fall by 4 a bit; K weighs 100 times V, its first channel 1e6."""
    made = Costs(candidates, CodecSpec())
    falling = torch.tensor([4.0**-width for width in WIDTHS], dtype=torch.float64).view(1, -1, 1, 1)
    weights = torch.ones(1, 1, 1, 8, dtype=torch.float64)
    first = weights.clone()
    first[..., 0] = 1e6
    scale = torch.tensor([1.0 + 1e-9 * n for n in range(len(candidates))], dtype=torch.float64).view(
        -1, 1, 1, 1
    )
    made.planes = {(0, "k"): 100 * falling * first * scale, (0, "v"): falling * weights * scale}
    return made


def test_the_budget_is_kept_and_used():
    for bits in (3.5, 4.69, 6.0):
        found = allocate(costs(Candidate(64, 0.5)), SPECS, bits, LENGTH)
        assert bits - 0.51 < found.bits <= bits  # all channels of a plane but one are alike here
        widths = {key: plane.widths for key, plane in found.calibration.planes.items()}
        k, v = widths[0, "k"].row(0), widths[0, "v"].row(0)
        assert k[0] == 8
        assert k[0] > k[1] > v[0] or bits == 6.0
        mean = (sum(k) + sum(v)) / 16
        assert found.long_bits == pytest.approx(
            mean + 32 / 256 + 16 / 64 + 1 / 2
        )  # half of the planes have 8 bits / 8
        codec = get_codec("lynx", CodecSpec())
        shape = PlaneShape(LENGTH, 1, 8, torch.bfloat16, recent=CodecSpec().recent)
        sizes = [
            codec.anchor_bytes(shape, found.calibration.apply(*key, spec)) for key, spec in SPECS.items()
        ]
        assert found.bits == pytest.approx(8 * sum(sizes) / (2 * LENGTH * 8))


def test_more_bits_cost_less_kl():
    found = [allocate(costs(Candidate(64, 0.5)), SPECS, bits, LENGTH).cost for bits in (3.5, 4.2, 5.0, 6.0)]
    assert found == sorted(found, reverse=True)


def test_the_cheaper_candidate_is_taken():
    found = allocate(costs(Candidate(32, 0.5), Candidate(128, 0.5)), SPECS, 4.7, LENGTH)
    assert {plane.chunk for plane in found.calibration.planes.values()} == {128}


def test_too_few_bits_are_refused():
    with pytest.raises(ConfigError, match="too few"):
        allocate(costs(Candidate(64, 0.5)), SPECS, 1.2, LENGTH)


def test_a_calibration_gains_on_held_out_text(tiny, drawn):
    kv, _ = tiny.prefill(drawn[0].context)
    same = code(kv, get_codec("lynx", CodecSpec()), plain_specs).bits_anchor
    found = calibrate(tiny, drawn[:2], drawn[2:], bits=same, draws=4)
    assert found.calibrated["bits_anchor"] <= found.default["bits_anchor"] == same
    assert found.calibrated["kl_anchor"] < 0.9 * found.default["kl_anchor"]
    assert set(found.calibration.planes) == {(layer, name) for layer in (0, 1) for name in ("k", "v")}


def test_the_command_writes_a_file_that_loads(tiny_path, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{(7 * i * i + i) % 64}" for i in range(900)))
    output = tmp_path / "found.yaml"
    arguments = ["calibrate", str(tiny_path), "--text", str(text), "-o", str(output), "--contexts", "1"]
    size = ["--context", "300", "--following", "16", "--bits", "5", "--json"]
    result = CliRunner().invoke(app, [*arguments, *size])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["long_bits"] <= 5
    assert load_calibration(output).gains["calibrated_kl_anchor"] > 0
    missing = CliRunner().invoke(app, [*arguments[:4], "-o", str(tmp_path / "no" / "x.yaml")])
    assert isinstance(missing.exception, ConfigError)
