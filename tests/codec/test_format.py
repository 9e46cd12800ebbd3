"""The bytes: against committed payloads, and against a decoder that shares no code with the package."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.codec import ChannelWidths, CodecSpec, PlaneShape, PlaneSpec, get_codec

from . import scalar
from .golden import DATA, SPEC, Case, cases
from .planes import DTYPES, integers, laplacian, same_bits, specs

CASES = {case.name: case for case in cases()}


@pytest.mark.parametrize("name", CASES)
def test_bytes_equal_the_golden_file(name: str) -> None:
    encoded = CASES[name].encode()
    for stream in ("anchor", "residual"):
        data = (DATA / f"{name}.{stream}.bin").read_bytes()
        assert getattr(encoded, stream).numpy().tobytes() == data


@pytest.mark.parametrize("name", CASES)
def test_golden_file_decodes_as_described(name: str) -> None:
    case = CASES[name]
    anchor, residual = ((DATA / f"{name}.{part}.bin").read_bytes() for part in ("anchor", "residual"))
    check(case, anchor, residual)


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(1, 150),
    heads=st.integers(1, 3),
    dim=st.integers(1, 6),
    dtype=st.sampled_from(DTYPES),
    spec=specs(32, 64),
    raw=st.booleans(),
    recent=st.integers(0, 40),
    seed=st.integers(0, 2**30),
)
def test_scalar_decoder_agrees(
    tokens: int, heads: int, dim: int, dtype: torch.dtype, spec: PlaneSpec, raw: bool, recent: int, seed: int
) -> None:
    plane = laplacian(tokens, heads, dim, dtype, seed)
    if raw:
        plane[tokens // 2, 0, 0] = float("nan")
    widths = torch.randint(1, 9, (heads, dim), generator=torch.Generator().manual_seed(seed))
    case = Case("random", plane, replace(spec, widths=ChannelWidths(widths)), min(recent, tokens))
    encoded = case.encode()
    check(case, encoded.anchor.numpy().tobytes(), encoded.residual.numpy().tobytes())


def check(case: Case, anchor: bytes, residual: bytes) -> None:
    shape = PlaneShape.of(case.plane, recent=case.recent)
    codec = get_codec("lynx", SPEC)
    settings = {
        "tokens": shape.tokens,
        "heads": shape.heads,
        "dim": shape.dim,
        "dtype": shape.dtype,
        "page": SPEC.page,
        "sinks": SPEC.sinks,
        "chunk": case.spec.chunk,
        "token_scale": case.spec.token_scale,
        "alpha": float(np.float32(case.spec.alpha)),
        "recent": case.recent,
        "widths": case.widths(),
    }
    front, back = (torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[: len(data)]
                   for data in (anchor, residual))  # fmt: skip
    for decoded, slow in (
        (codec.decode_anchor(shape, case.spec, front), scalar.decode(anchor, None, **settings)),
        (codec.decode_full(shape, case.spec, front, back), scalar.decode(anchor, residual, **settings)),
    ):
        expected = torch.from_numpy(slow)
        assert decoded.dtype == shape.dtype
        nan = expected.isnan()
        assert torch.equal(nan, decoded.isnan())
        assert same_bits(decoded.float().masked_fill(nan, 0), expected.masked_fill(nan, 0))


def test_tile_of_the_default_k_plane_has_the_documented_size() -> None:
    codec, shape = get_codec("lynx"), PlaneShape(256, 1, 128, torch.bfloat16, first_token=256)
    assert codec.anchor_bytes(shape, PlaneSpec()) == 64 + 18944
    assert codec.residual_bytes(shape, PlaneSpec()) == 16384


def test_flags_are_padded_to_64_bytes() -> None:
    codec = get_codec("lynx", CodecSpec(page=32, sinks=0))
    plane = integers(32 * 65, 1, 1, torch.float32)
    plane[32 * 64 + 3] = float("inf")
    anchor = codec.encode(plane, PlaneSpec()).anchor
    assert anchor[:128].nonzero().flatten().tolist() == [64]


@pytest.mark.parametrize("first_token", [0, 256])
def test_only_the_first_segment_holds_sinks(first_token: int) -> None:
    plane = integers(256, 1, 3, torch.float32)
    encoded = get_codec("lynx").encode(plane, PlaneSpec(), first_token=first_token)
    tile = 4 * 3 + 2 * 8 * 3 + 128 * 3
    assert encoded.anchor.numel() == 64 + (4 * 12 if first_token == 0 else 0) + tile
    if first_token == 0:
        assert same_bits(encoded.anchor[64 : 64 + 48].clone().view(torch.float32), plane[:4].flatten())
