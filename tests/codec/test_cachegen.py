"""CacheGen's method: what is quantized how, that the arithmetic coder is exact, and that its tables are paid for."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from lynx_ascend.codec import K_SPEC, LATENT_SPEC, V_SPEC, CodecSpec, PlaneShape, get_codec
from lynx_ascend.codec import entropy as coder
from lynx_ascend.codec.cachegen import CacheGenCodec
from lynx_ascend.errors import CodecError, ConfigError, TransferError
from lynx_ascend.vllm.params import parse_remote_decode
from lynx_ascend.vllm.settings import LynxSettings

from .planes import laplacian, same_bits

NO_SINKS = CodecSpec(sinks=0)


def drifting(tokens: int, heads: int, dim: int) -> torch.Tensor:
    """Values that change little from token to token, the locality that CacheGen lives on."""
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(tokens, heads, dim, generator=generator)
    return steps.cumsum(0) * 0.05 + 5 * torch.randn(1, heads, dim, generator=generator)


def test_values_by_hand() -> None:
    plane = drifting(23, 2, 40)
    codec = CacheGenCodec(NO_SINKS, (32, 16))
    for spec, reach in ((K_SPEC, 15), (LATENT_SPEC, 15), (V_SPEC, 7)):
        encoded = codec.encode(plane, spec)
        decoded = codec.decode_anchor(encoded.shape, spec, encoded.anchor).numpy().astype(np.float64)
        values = plane.numpy().astype(np.float64)
        for token in range(23):
            base, levels = (decoded[token - token % 10], reach) if token % 10 else (0, 127)
            delta = values[token] - base
            scale = covering_float16(np.abs(delta).max())
            steps = (decoded[token] - base) / scale * levels
            np.testing.assert_allclose(steps, np.rint(steps), atol=1e-2)
            assert np.abs(decoded[token] - values[token]).max() <= scale / levels / 2 + 1e-5


def covering_float16(value: float) -> float:
    rounded = np.float16(value)
    return float(rounded if rounded >= value else np.nextafter(rounded, np.float16(np.inf)))


def test_the_first_layers_are_finer() -> None:
    codec = get_codec("cachegen", NO_SINKS)
    layers = [codec.for_layer(layer, 32) for layer in range(32)]
    assert [layer.bins for layer in layers] == [(32, 32)] * 2 + [(32, 16)] * 8 + [(16, 16)] * 22
    assert {layer.spec for layer in layers} == {NO_SINKS}
    assert [codec.for_layer(layer, 6).bins for layer in range(6)] == [(32, 32), (32, 16)] + [(16, 16)] * 4
    assert get_codec("cachegen-32", NO_SINKS).for_layer(20, 32).bins == (32, 32)
    assert get_codec("lynx").for_layer(0, 32).name == "lynx"


def test_more_bins_cost_bits_and_gain_accuracy() -> None:
    plane, figures = drifting(500, 1, 64), []
    for bins in (8, 16, 32, 64):
        codec = CacheGenCodec(NO_SINKS, (bins, 8))
        encoded = codec.encode(plane, K_SPEC)
        error = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor) - plane
        figures.append((encoded.bits_per_value(), -float(error.norm())))
    assert figures == sorted(figures)


@pytest.mark.parametrize("bins", [(2, 16), (16, 300)])
def test_bins_out_of_range_are_refused(bins: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="4 to 256"):
        CacheGenCodec(NO_SINKS, bins)


def test_the_coder_reaches_the_entropy_and_inverts_exactly() -> None:
    generator = np.random.default_rng(0)
    columns = [generator.binomial(30, p, 3000) for p in (0.02, 0.3, 0.5)] + [np.full(3000, 7)]
    models = [coder.table_model(coder.table(column, 31)) for column in columns]
    data = coder.encode(zip(columns, models, strict=True))
    decoded = coder.decode(data, [(3000, model) for model in models])
    assert all(np.array_equal(*pair) for pair in zip(decoded, columns, strict=True))
    shares = [np.bincount(column) / 3000 for column in columns]
    bits = sum(-3000 * (share[share > 0] * np.log2(share[share > 0])).sum() for share in shares)
    assert bits <= 8 * len(data) <= 1.01 * bits + 64


def test_anchor_tokens_cost_what_a_normal_distribution_does() -> None:
    symbols = np.rint(np.random.default_rng(0).normal(127, 9, 3000)).astype(int)
    model = coder.bell_model(coder.bell(symbols))
    data = coder.encode([(symbols, model)])
    assert np.array_equal(coder.decode(data, [(3000, model)])[0], symbols)
    assert 8 * len(data) / 3000 == pytest.approx(np.log2(9 * np.sqrt(2 * np.pi * np.e)), abs=0.03)


def test_a_payload_pays_for_its_scales_and_tables() -> None:
    plane = torch.ones(100, 1, 64)
    encoded = get_codec("cachegen", NO_SINKS).encode(plane, K_SPEC)
    fixed = 1 + 2 * 100 + 2 * 64 + 15 * 64
    assert fixed < encoded.anchor.numel() <= fixed + 100


@pytest.mark.parametrize("value", [float("nan"), 7e4])
def test_what_no_code_carries_travels_raw(value: float) -> None:
    plane = drifting(300, 3, 32)
    plane[2, 0, 0] = float("inf")  # a sink, exact anyway
    codec = get_codec("cachegen")
    assert codec.encode(plane, K_SPEC).anchor.numel() < plane.nbytes / 4
    plane[200, 1, 5] = value
    encoded = codec.encode(plane, K_SPEC)
    assert encoded.anchor.numel() == 1 + plane.nbytes
    assert same_bits(codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor), plane)


def test_a_delta_beyond_float16_is_raw() -> None:
    plane = drifting(30, 1, 8)
    plane[0, 0, 0], plane[1, 0, 0] = 60000, -60000
    codec = get_codec("cachegen", NO_SINKS)
    encoded = codec.encode(plane, K_SPEC)
    assert same_bits(codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor), plane)


def test_coding_never_makes_a_plane_longer() -> None:
    plane = laplacian(5, 2, 8, torch.bfloat16)
    codec = get_codec("cachegen")
    encoded = codec.encode(plane, K_SPEC)
    assert encoded.anchor.numel() == codec.anchor_bytes(PlaneShape.of(plane), K_SPEC) == 1 + plane.nbytes
    assert same_bits(codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor), plane)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:100], "tables take"),
        (lambda data: data[:-2], "32-bit words"),
        (lambda data: torch.cat((data, data[-8:])), "more coded bytes|damaged"),
        (lambda data: torch.cat((data[: 1 + 600 + 80], data[:15] * 0, data[1 + 600 + 80 + 15 :])), "weight"),
        (lambda data: torch.cat((data[:1] + 1, data[1:])), "flag"),
        (lambda data: torch.cat((data[:1] + 2, data[1:])), "flag"),
    ],
)
def test_damaged_payloads_are_refused(change, message) -> None:
    plane = drifting(300, 1, 40)
    codec = get_codec("cachegen", NO_SINKS)
    encoded = codec.encode(plane, K_SPEC)
    with pytest.raises(CodecError, match=message):
        codec.decode_anchor(encoded.shape, K_SPEC, change(encoded.anchor))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "constriction", None)
    with pytest.raises(ConfigError, match=r"constriction: pip install lynx-ascend\[eval\]"):
        get_codec("cachegen").encode(drifting(100, 1, 8), K_SPEC)


def test_no_transfer_takes_it() -> None:
    with pytest.raises(ConfigError, match="cachegen"):
        LynxSettings(codec="cachegen")
    with pytest.raises(TransferError, match="cachegen"):
        parse_remote_decode(
            {"do_remote_decode": True, "codec": "cachegen"}, codec="lynx", max_draft=64, allow_faults=False
        )
