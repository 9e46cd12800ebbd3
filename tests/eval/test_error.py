"""Errors per codec: exact KV has none, more bits err less, bits are those of the wire."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from lynx_ascend.cli.main import app
from lynx_ascend.codec import CodecSpec, PlaneShape, get_codec
from lynx_ascend.errors import ConfigError
from lynx_ascend.eval import error
from lynx_ascend.eval.coded import code
from lynx_ascend.eval.plot import draw
from lynx_ascend.eval.subjects import plain_specs, subject_names, subjects

KEYS = {"bits_anchor", "bits_total", "k_error", "v_error", "attention_error", "kl"}


def test_every_codec_is_measured(tiny, drawn):
    chosen = subjects(subject_names(), "tiny")
    steps = []
    found = error.measure(tiny, drawn[:1], chosen, step=lambda: steps.append(1))
    assert len(steps) == len(chosen)
    figures = {name: errors.figures() for name, errors in found.items()}
    for name, values in figures.items():
        assert set(values) >= KEYS, name
        assert ("kl_anchor" in values) == (name.startswith("lynx"))
        assert values["kl"] > -1e-6
    assert figures["bf16"]["bits_total"] == 16
    assert figures["bf16"]["kl"] < figures["int8"]["kl"] < figures["int4"]["kl"]
    assert figures["lynx"]["k_error"] < figures["lynx"]["k_error_anchor"]
    assert figures["lynx"]["attention_error"] < figures["lynx"]["attention_error_anchor"]


def test_bits_are_those_of_a_bfloat16_cache_on_the_wire(tiny, drawn):
    kv, _ = tiny.prefill(drawn[0].context)
    codec = get_codec("lynx", CodecSpec(recent=8))
    coded = code(kv, codec, plain_specs)
    sizes = [
        (codec.anchor_bytes(shape, spec), codec.residual_bytes(shape, spec))
        for shape, spec in (
            (PlaneShape(300, 2, 16, torch.bfloat16, recent=8), plain_specs(0, name)) for name in ("k", "v")
        )
    ]
    count = 2 * 300 * 2 * 16
    assert coded.bits_anchor == pytest.approx(8 * sum(a for a, _ in sizes) / count)
    assert coded.bits_total == pytest.approx(8 * sum(map(sum, sizes)) / count)
    assert all(
        torch.equal(plane[-8:], exact[-8:]) for plane, exact in zip(coded.full.keys, kv.keys, strict=True)
    )


def test_relative_errors_add_up_over_tensors():
    ratio = error.Ratio()
    ratio.add(torch.tensor([3.0]), torch.tensor([0.0]))
    ratio.add(torch.tensor([0.0, 6.0]), torch.tensor([4.0, 6.0]))
    assert ratio.value == pytest.approx((25 / 52) ** 0.5)


def test_divergence_is_zero_for_the_same_and_known_for_two_coins():
    same = torch.tensor([[1.0, 2.0, 3.0]])
    assert error.divergence(same, same + 5).item() == pytest.approx(0, abs=1e-6)
    fair, skewed = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
    assert error.divergence(fair, skewed).item() == pytest.approx(0.143841, rel=1e-4)


def test_the_plot_is_drawn(tmp_path):
    figures = {"bits_total": 8.7, "kl": 1e-5, "bits_anchor": 4.7, "kl_anchor": 1e-3}
    plain = {"bits_total": 5.0, "kl": 2e-3}
    draw({"one": {"lynx": figures, "kivi4": plain}, "two": {"lynx": figures}}, tmp_path / "kl.png")
    assert (tmp_path / "kl.png").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="cannot be drawn"):
        draw({"one": {"lynx": figures}}, tmp_path / "kl.nothing")


def test_the_command_prints_json(tiny_path, monkeypatch):
    monkeypatch.setattr(
        "lynx_ascend.eval.samples.essays", lambda: [("a", "w1 w2 w3 w5 " * 60), ("b", "w7 w9 " * 120)]
    )
    arguments = ["--model", str(tiny_path), "--codec", "lynx", "--codec", "int8", "--context", "200"]
    result = CliRunner().invoke(
        app, ["eval", "error", *arguments, "--following", "8", "--contexts", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["models"][str(tiny_path)]) == {"lynx", "int8"}
    assert found["models"][str(tiny_path)]["lynx"]["kl_anchor"] > 0
