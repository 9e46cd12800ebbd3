"""Algorithm 1 on values: what is kept, how close, and that slices and segments are the whole's."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.codec import K_SPEC, V_SPEC, ChannelWidths, CodecSpec, PlaneShape, PlaneSpec, get_codec
from lynx_ascend.codec.bitplanes import from_bitplanes
from lynx_ascend.errors import CodecError

from . import scalar_encoder
from .planes import DTYPES, integers, laplacian, same_bits, specs, uneven

LYNX = get_codec("lynx")


def coded_rows(tokens: int, sinks: int = 4) -> int:
    """How many tokens of a first segment stand in tiles."""
    return tokens // 8 * 8 if tokens // 8 * 8 > sinks else 0


def exact_rows(tokens: int, sinks: int = 4) -> torch.Tensor:
    """bool [tokens]: which rows of a first segment travel exact."""
    rows = torch.arange(tokens)
    coded = coded_rows(tokens, sinks)
    return (rows >= coded) | (rows < (sinks if coded else 0))


def bound(plane: torch.Tensor, spec: PlaneSpec, steps: float, page: int = 256) -> torch.Tensor:
    """The documented bound of |error| for the coded rows of a first segment, float64, before the cast."""
    coded = coded_rows(plane.shape[0])
    x = plane[:coded].double()
    x[:4] = x[4:5]
    scale = torch.ones(coded, plane.shape[1], 1, dtype=torch.float64)
    if spec.token_scale:
        scale = 2 ** (torch.ceil(4 * x.abs().amax(-1, keepdim=True).log2()) / 4)
        scale = scale.clamp(min=2.0**-32)
    x = x / scale
    limit = torch.empty_like(x)
    growth = (1 + 1 / spec.alpha) * math.expm1(steps / 112 * math.log1p(spec.alpha))
    for start in range(0, coded, page):
        part = x[start : start + page]
        low, high = part.amin(0), part.amax(0)
        width = (high - low + low.abs() * 2**-10 + 2**-24) * (1 + 2**-9) + 2**-23
        filled = torch.cat((part, part[-1:].expand(-part.shape[0] % spec.chunk, -1, -1)))
        chunks = filled.unflatten(0, (-1, spec.chunk))
        reach = (chunks.amax(1) - chunks.amin(1)) / 2 + width / 510
        sigma = torch.maximum(reach * 2 ** (1 / 32), width * 2 ** (-255 / 32))
        slack = 2**-21 * (width + low.abs() + high.abs())
        limit[start : start + page] = (sigma * growth + slack).repeat_interleave(spec.chunk, 0)[: len(part)]
    return limit * scale * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 600),
    heads=st.integers(1, 3),
    dim=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    spec=specs(32, 64, 128, 256),
    exponent=st.integers(-12, 9),
    seed=st.integers(0, 2**30),
)
def test_round_trip_stays_within_the_bound(
    tokens: int, heads: int, dim: int, dtype: torch.dtype, spec: PlaneSpec, exponent: int, seed: int
) -> None:
    plane = (laplacian(tokens, heads, dim, seed=seed) * 2.0**exponent).clamp(-3e4, 3e4).to(dtype)
    encoded = LYNX.encode(plane, spec)
    full = LYNX.decode_full(encoded.shape, spec, encoded.anchor, encoded.residual)
    anchor = LYNX.decode_anchor(encoded.shape, spec, encoded.anchor)
    exact = exact_rows(tokens)
    coded = coded_rows(tokens)
    for decoded, steps in ((full, 0.5), (anchor, 8)):
        assert same_bits(decoded[exact], plane[exact])
        error = (decoded.double() - plane.double()).abs()[:coded]
        rounding = plane[:coded].double().abs() * torch.finfo(dtype).eps + torch.finfo(dtype).smallest_normal
        limit = bound(plane, spec, steps) * (1 + torch.finfo(dtype).eps) + rounding
        assert (error <= limit)[~exact[:coded]].all()


@pytest.mark.parametrize("center", ["midrange", "mean"])
@pytest.mark.parametrize("spec", [PlaneSpec(), PlaneSpec(chunk=64, token_scale=True, alpha=2.0)])
def test_codes_equal_the_scalar_encoder(center: str, spec: PlaneSpec) -> None:
    codec = get_codec("lynx", CodecSpec(page=128, center=center))
    plane = (laplacian(128, 1, 6, seed=3) * torch.linspace(0.01, 3, 128).view(-1, 1, 1)).bfloat16()
    plane[:, :, 3], plane[64:96, :, 4], plane[:, :, 5] = 0.3, 2.0, -1e-9
    encoded = codec.encode(plane, spec)
    x = plane[:, 0].float().numpy().copy()
    x[:4] = x[4]
    anchor, residual = encoded.anchor.numpy()[64 + 4 * 12 :], encoded.residual.numpy()
    chunks = 128 // spec.chunk
    header, scales, rest = np.split(anchor, [4 * 6, 4 * 6 + 2 * chunks * 6])
    gamma_min, gamma_scale = header.view("<f2").reshape(2, 6)
    mu, sigma = scales.reshape(2, chunks, 6)
    if spec.token_scale:
        codes = [scalar_encoder.token_scale(row) for row in x]
        assert rest[:128].tolist() == codes
        x = x / np.array([2.0 ** ((e - 128) / 4) for e in codes], np.float32)[:, None]
        rest = rest[128:]

    rows = np.concatenate((rest.reshape(16, 4, 6), residual.reshape(16, 4, 6)), 1)
    codes = from_bitplanes(torch.from_numpy(rows))
    for ch in range(6):
        slow = scalar_encoder.encode(x[:, ch], spec.chunk, spec.alpha, center)
        assert (gamma_min[ch], gamma_scale[ch]) == (slow.gamma_min, slow.gamma_scale)
        assert (mu[:, ch].tolist(), sigma[:, ch].tolist()) == (slow.mu, slow.sigma)
        assert codes[:, ch].tolist() == slow.codes


def test_the_sign_of_every_value_is_kept() -> None:
    """Relative to the chunk's center: decoding with and without the residual falls on the same side."""
    plane = laplacian(512, 2, 16)
    encoded = LYNX.encode(plane, K_SPEC)
    full = LYNX.decode_full(encoded.shape, K_SPEC, encoded.anchor, encoded.residual)
    anchor = LYNX.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)
    chunks = [p[32:].unflatten(0, (-1, 32)) for p in (plane, anchor, full)]
    center = (chunks[0].amax(1, keepdim=True) + chunks[0].amin(1, keepdim=True)) / 2
    reach = chunks[0].amax(1, keepdim=True) - center
    clear = (chunks[0] - center).abs() > 0.25 * reach  # mu is rounded: next to the center it may differ
    for decoded in chunks[1:]:
        assert torch.equal((decoded > center)[clear], (chunks[0] > center)[clear])


@pytest.mark.parametrize("constant", [0.0, -0.0, 1.5, -3.25, 0.1, 1e-9, -1e-30, 65504.0])
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC])
def test_constant_channels(constant: float, spec: PlaneSpec) -> None:
    plane = torch.full((256, 2, 3), constant)
    encoded = LYNX.encode(plane, spec)
    full = LYNX.decode_full(encoded.shape, spec, encoded.anchor, encoded.residual)
    anchor = LYNX.decode_anchor(encoded.shape, spec, encoded.anchor)
    # The width is then one unit of float16 (or none), the reach at most half a step of mu.
    tolerance = abs(constant) * 2**-16 + 2**-24
    assert (full - constant).abs().max() <= tolerance
    assert (anchor - constant).abs().max() <= 2 * tolerance


def test_rows_of_zeros_under_a_token_scale() -> None:
    plane = laplacian(256, 2, 16)
    plane[100:140] = 0
    encoded = LYNX.encode(plane, V_SPEC)
    decoded = LYNX.decode_full(encoded.shape, V_SPEC, encoded.anchor, encoded.residual)
    assert decoded[100:140].abs().max() < 1e-9


def test_float16_saturates_where_decoding_overshoots() -> None:
    plane = torch.where(torch.rand(256, 4, 64) < 0.5, 65504.0, 40000.0).half()
    plane[::3] = 0
    for spec in (K_SPEC, V_SPEC):
        encoded = LYNX.encode(plane, spec)
        assert encoded.residual.numel() == LYNX.residual_bytes(encoded.shape, spec)
        assert LYNX.decode_anchor(encoded.shape, spec, encoded.anchor).isfinite().all()


@pytest.mark.parametrize("tokens", [*range(1, 70), 95, 96, 255, 256, 257, 287, 288, 289, 511, 512, 513, 600])
def test_tails_of_any_length_are_exact(tokens: int) -> None:
    plane = laplacian(tokens, 2, 8, torch.bfloat16)
    for spec in (K_SPEC, V_SPEC):
        encoded = LYNX.encode(plane, spec)
        decoded = LYNX.decode_anchor(encoded.shape, spec, encoded.anchor)
        exact = exact_rows(tokens)
        assert same_bits(decoded[exact], plane[exact])
        assert (decoded - plane).float().abs().max() < 30


@pytest.mark.parametrize("shape", [(300, 1, 512), (300, 1, 64), (70, 5, 128), (300, 2, 256), (64, 1, 576)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_of_real_planes(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    plane = laplacian(*shape, dtype)
    encoded = LYNX.encode(plane, K_SPEC)
    assert encoded.anchor.numel() == LYNX.anchor_bytes(encoded.shape, K_SPEC)
    assert encoded.residual.numel() == LYNX.residual_bytes(encoded.shape, K_SPEC)
    full = LYNX.decode_full(encoded.shape, K_SPEC, encoded.anchor, encoded.residual)
    assert (full - plane).float().norm() < 0.02 * plane.float().norm()


def choices(heads: int, dim: int) -> list[ChannelWidths | None]:
    turns = (torch.arange(heads * dim) % 8 + 1).view(heads, dim)
    uniform = [ChannelWidths.uniform(heads, dim, width) for width in (1, 4, 8)]
    return [None, *uniform, ChannelWidths(turns), uneven(heads, dim)]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC])
def test_a_width_moves_bits_and_changes_none(index: int, spec: PlaneSpec) -> None:
    plane = laplacian(333, 4, 12, torch.float16)
    widths = choices(4, 12)[index]
    wide = PlaneSpec(spec.chunk, spec.token_scale, spec.alpha, widths)
    encoded, expected = LYNX.encode(plane, wide), LYNX.encode(plane, spec)
    assert encoded.anchor.numel() == LYNX.anchor_bytes(encoded.shape, wide)
    assert encoded.residual.numel() == LYNX.residual_bytes(encoded.shape, wide)
    full = LYNX.decode_full(encoded.shape, wide, encoded.anchor, encoded.residual)
    assert same_bits(full, LYNX.decode_full(expected.shape, spec, expected.anchor, expected.residual))
    anchor = LYNX.decode_anchor(encoded.shape, wide, encoded.anchor)
    values = (widths or ChannelWidths.uniform(4, 12)).values
    assert same_bits(anchor[:, values == 8], full[:, values == 8])
    four = LYNX.decode_anchor(expected.shape, spec, expected.anchor)
    assert same_bits(anchor[:, values == 4], four[:, values == 4])


def test_more_bits_err_less() -> None:
    plane = laplacian(516, 1, 16)[:, :, 6:]  # behind the outlier channel
    errors = []
    for width in range(1, 9):
        spec = PlaneSpec(widths=ChannelWidths.uniform(1, 10, width))
        encoded = LYNX.encode(plane, spec)
        errors.append(float((LYNX.decode_anchor(encoded.shape, spec, encoded.anchor) - plane).norm()))
    for wide, narrow in pairwise(reversed(errors)):
        assert 1.6 < narrow / wide < 2.4


@pytest.mark.parametrize("recent", [0, 1, 5, 31, 32, 33, 64, 100, 300])
def test_recent_tokens_are_exact(recent: int) -> None:
    plane = laplacian(300, 2, 8, torch.bfloat16)
    for spec in (K_SPEC, V_SPEC):
        encoded = LYNX.encode(plane, spec, recent=recent)
        assert encoded.anchor.numel() == LYNX.anchor_bytes(encoded.shape, spec)
        decoded = LYNX.decode_anchor(encoded.shape, spec, encoded.anchor)
        coded = coded_rows(300 - recent)
        assert same_bits(decoded[coded:], plane[coded:])
        assert coded == 0 or not same_bits(decoded[4:coded], plane[4:coded])


@settings(max_examples=30, deadline=None)
@given(
    tokens=st.integers(1, 400),
    heads=st.integers(1, 4),
    dim=st.integers(1, 5),
    first=st.integers(0, 3),
    last=st.integers(1, 4),
    raw=st.booleans(),
    uneven_widths=st.booleans(),
    spec=st.sampled_from([K_SPEC, V_SPEC]),
)
def test_a_slice_of_heads_is_a_slice_of_the_bytes(
    tokens: int, heads: int, dim: int, first: int, last: int, raw: bool, uneven_widths: bool, spec: PlaneSpec
) -> None:
    first, last = min(first, heads - 1), min(max(last, first + 1), heads)
    plane = laplacian(tokens, heads, dim, torch.bfloat16)
    if raw:
        plane[tokens // 2, heads // 2] = float("-inf")
    spec = PlaneSpec(spec.chunk, spec.token_scale, spec.alpha, uneven(heads, dim) if uneven_widths else None)
    whole = LYNX.encode(plane, spec)
    parts = [
        LYNX.encode(plane[:, part], spec.slice(part))
        for part in (slice(0, first), slice(first, last), slice(last, heads))
        if part.start < part.stop
    ]
    assert torch.equal(whole.anchor, torch.cat([part.anchor for part in parts]))
    assert torch.equal(whole.residual, torch.cat([part.residual for part in parts]))


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC, PlaneSpec(widths=uneven(2, 8))])
@pytest.mark.parametrize("tokens", [256, 512, 600, 770, 1100])
def test_segments_decode_to_the_whole(spec: PlaneSpec, tokens: int) -> None:
    plane = laplacian(tokens, 2, 8, torch.bfloat16)
    plane[300:301, :1] = float("nan")  # a raw tile, where the plane is that long
    whole = LYNX.encode(plane, spec)
    expected = [
        LYNX.decode_anchor(whole.shape, spec, whole.anchor),
        LYNX.decode_full(whole.shape, spec, whole.anchor, whole.residual),
    ]
    for cuts in ([0, 256, tokens], [*range(0, tokens, 256), tokens], [0, 512, tokens]):
        pieces: list[list[torch.Tensor]] = [[], []]
        for start, stop in pairwise(cuts):
            if start >= stop:
                continue
            part = LYNX.encode(plane[start:stop], spec, first_token=start)
            assert part.shape.first_token == start
            pieces[0].append(LYNX.decode_anchor(part.shape, spec, part.anchor))
            pieces[1].append(LYNX.decode_full(part.shape, spec, part.anchor, part.residual))
        for got, want in zip(pieces, expected, strict=True):
            assert same_bits(torch.cat(got)[: cuts[-1]], want)


def test_segments_hold_the_tiles_of_the_whole() -> None:
    plane = integers(600, 1, 4, torch.float32)
    tile, row = 4 * 4 + 2 * 8 * 4 + 128 * 4, 16
    whole = LYNX.encode(plane, K_SPEC).anchor[64 + 4 * row :]
    first = LYNX.encode(plane[:256], K_SPEC).anchor[64 + 4 * row :]
    second = LYNX.encode(plane[256:512], K_SPEC, first_token=256).anchor[64:]
    last = LYNX.encode(plane[512:], K_SPEC, first_token=512).anchor[64:]
    assert first.numel() == second.numel() == tile
    assert last.numel() == 4 * 4 + 2 * 3 * 4 + 44 * 4  # 88 tokens: two whole chunks and one of 24
    assert torch.equal(whole, torch.cat((first, second, last)))


def test_long_planes_are_coded_in_runs_of_pages() -> None:
    plane = laplacian(256 * 20 + 40, 2, 128, torch.bfloat16)
    whole = LYNX.encode(plane, K_SPEC)
    decoded = LYNX.decode_full(whole.shape, K_SPEC, whole.anchor, whole.residual)
    start = 256 * 17
    part = LYNX.encode(plane[start:], K_SPEC, first_token=start)
    assert same_bits(LYNX.decode_full(part.shape, K_SPEC, part.anchor, part.residual), decoded[start:])


def test_strides_do_not_matter_and_the_plane_is_not_changed() -> None:
    plane = laplacian(300, 3, 16, torch.float32)
    expected = LYNX.encode(plane, V_SPEC)
    strided = torch.empty(16, 3, 600).permute(2, 1, 0)[::2]
    strided.copy_(plane)
    head_major = plane.transpose(0, 1).contiguous().transpose(0, 1)
    for view in (strided, head_major):
        encoded = LYNX.encode(view, V_SPEC)
        assert torch.equal(encoded.anchor, expected.anchor)
        assert torch.equal(encoded.residual, expected.residual)
        assert same_bits(view, plane)


def test_anchor_errs_less_than_int4_where_a_few_channels_are_large() -> None:
    plane = laplacian(2048, 2, 64)

    def error(name: str) -> float:
        codec = get_codec(name)
        encoded = codec.encode(plane, K_SPEC)
        decoded = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)
        return float(((decoded - plane).norm(dim=0) / plane.norm(dim=0)).mean())

    assert error("lynx") < error("int4")


def test_the_default_dtype_of_the_engine_does_not_matter() -> None:
    plane = laplacian(128, 2, 8, torch.float32)
    spec = PlaneSpec(alpha=0.7171)  # a value no other test caches tables for
    torch.set_default_dtype(torch.bfloat16)
    try:
        encoded = LYNX.encode(plane, spec)
        decoded = LYNX.decode_full(encoded.shape, spec, encoded.anchor, encoded.residual)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (decoded - plane).norm() < 0.01 * plane.norm()


def test_chunks_must_divide_the_page() -> None:
    codec = get_codec("lynx", CodecSpec(page=96))
    with pytest.raises(CodecError, match="do not divide"):
        codec.anchor_bytes(PlaneShape(96, 1, 1, torch.float32), V_SPEC)
