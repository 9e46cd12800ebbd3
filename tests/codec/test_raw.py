"""Raw tiles, and payloads that do not fit: every length and flag is checked before anything is read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lynx_ascend.codec import K_SPEC, V_SPEC, ChannelWidths, EncodedPlane, PlaneShape, PlaneSpec, get_codec
from lynx_ascend.errors import CodecError

from .planes import laplacian, same_bits, uneven

TILED = ("lynx", "lynx-int8", "lynx-int4", "int8", "int4", "int4-token-32", "kivi4")
SPECS = (K_SPEC, V_SPEC, PlaneSpec(widths=uneven(3, 6)))


def decode(name: str, encoded: EncodedPlane, spec: PlaneSpec) -> tuple[torch.Tensor, torch.Tensor]:
    codec, shape = get_codec(name), encoded.shape
    return (
        codec.decode_anchor(shape, spec, encoded.anchor),
        codec.decode_full(shape, spec, encoded.anchor, encoded.residual),
    )


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 65536.0, -1e20])
def test_a_tile_with_what_no_code_carries_is_exact(name: str, spec: PlaneSpec, value: float) -> None:
    plane = laplacian(600, 3, 6, torch.bfloat16)
    clean = decode(name, get_codec(name).encode(plane, spec), spec)
    plane[300, 1, 2] = value
    encoded = get_codec(name).encode(plane, spec)
    for decoded, expected in zip(decode(name, encoded, spec), clean, strict=True):
        assert same_bits(decoded[256:512, 1], plane[256:512, 1])
        decoded[256:512, 1] = expected[256:512, 1] = 0
        assert same_bits(decoded, expected)


@pytest.mark.parametrize("name", TILED)
def test_a_range_beyond_float16_is_raw(name: str) -> None:
    plane = laplacian(256, 1, 4)
    plane[100, 0, 0] = -60000
    plane[101, 0, 0] = plane[100, 0, 1] = 60000  # of the same channel, of the same token
    encoded = get_codec(name).encode(plane, K_SPEC)
    for decoded in decode(name, encoded, K_SPEC):
        assert same_bits(decoded, plane)


def test_a_token_scale_needs_no_raw_tile_for_a_wide_range() -> None:
    plane = laplacian(256, 1, 4)
    plane[100, 0, 0], plane[101, 0, 0] = -60000, 60000
    encoded = get_codec("lynx").encode(plane, V_SPEC)
    assert encoded.anchor.numel() == get_codec("lynx").anchor_bytes(encoded.shape, V_SPEC)


@pytest.mark.parametrize("name", TILED)
def test_exact_rows_never_make_a_tile_raw(name: str) -> None:
    plane = laplacian(290, 2, 4)
    plane[0], plane[3] = float("inf"), float("nan")
    if name.startswith("lynx"):
        plane[289] = float("nan")
    encoded = get_codec(name).encode(plane, K_SPEC)
    assert encoded.anchor.numel() == get_codec(name).anchor_bytes(encoded.shape, K_SPEC)
    decoded = decode(name, encoded, K_SPEC)[1]
    assert same_bits(decoded[:4], plane[:4])
    assert decoded[4:288].isfinite().all()


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(TILED),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    tokens=st.integers(1, 700),
    spec=st.sampled_from(SPECS),
    raw=st.lists(st.tuples(st.integers(0, 699), st.integers(0, 2)), max_size=8),
)
def test_any_mix_of_raw_and_coded_tiles(
    name: str, dtype: torch.dtype, tokens: int, spec: PlaneSpec, raw: list[tuple[int, int]]
) -> None:
    plane = laplacian(tokens, 3, 6, dtype)
    tiles = set()
    for token, head in raw:
        plane[token % tokens, head, 0] = float("inf")
        tiles.add((token % tokens // 256, head))
    codec = get_codec(name)
    encoded = codec.encode(plane, spec)
    assert encoded.anchor.numel() <= codec.anchor_bytes_max(encoded.shape, spec)
    assert encoded.residual.numel() <= codec.residual_bytes_max(encoded.shape, spec)
    for decoded in decode(name, encoded, spec):
        for page in range(-(-tokens // 256)):
            for head in range(3):
                rows = slice(256 * page, 256 * page + 256)
                got, want = decoded[rows, head], plane[rows, head]
                if (page, head) in tiles and want[4 if page == 0 else 0 :].isinf().any():
                    finite = want.isfinite()
                    assert torch.equal(got[~finite], want[~finite])
                assert torch.equal(got.isfinite(), want.isfinite())
                assert (got - want)[want.isfinite()].abs().max() < 80


def test_raw_tile_of_one_channel_may_be_shorter_than_its_codes() -> None:
    spec = PlaneSpec(token_scale=True, widths=ChannelWidths.uniform(1, 1, 8))
    codec, shape = get_codec("lynx"), PlaneShape(32, 1, 1, torch.float16, first_token=256)
    assert codec.anchor_bytes_max(shape, spec) == codec.anchor_bytes(shape, spec) == 64 + 70


def payload(name: str, spec: PlaneSpec, raw: bool) -> EncodedPlane:
    plane = laplacian(600, 3, 6, torch.bfloat16)
    if raw:
        plane[300, 1, 2] = float("nan")
    return get_codec(name).encode(plane, spec)


@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("raw", [False, True])
def test_wrong_lengths_are_refused(name: str, spec: PlaneSpec, raw: bool) -> None:
    codec, good = get_codec(name), payload(name, spec, raw)
    anchor, residual = good.anchor, good.residual
    longer = torch.cat((anchor, anchor[:1]))
    for bad in (anchor[:-1], anchor[:63], anchor[:0], anchor[: anchor.numel() // 2], longer):
        with pytest.raises(CodecError, match="anchor"):
            codec.decode_anchor(good.shape, spec, bad)
        with pytest.raises(CodecError, match="anchor"):
            codec.decode_full(good.shape, spec, bad, residual)
    with pytest.raises(CodecError, match="residual"):
        codec.decode_full(good.shape, spec, anchor, torch.cat((residual, anchor[:1])))
    if residual.numel():
        for bad in (residual[:-1], residual[:0]):
            with pytest.raises(CodecError, match="residual"):
                codec.decode_full(good.shape, spec, anchor, bad)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("raw", [False, True])
def test_flipped_flags_are_refused(spec: PlaneSpec, raw: bool) -> None:
    codec, good = get_codec("lynx"), payload("lynx", spec, raw)
    for page, flag in ((0, 1), (1, 1), (2, 1), (0, 2), (0, 255), (3, 1), (63, 1)):
        bad = good.anchor.clone()
        bad[page] = flag
        with pytest.raises(CodecError):
            codec.decode_anchor(good.shape, spec, bad)
    if raw:
        bad = good.anchor.clone()
        at = codec.anchor_bytes(PlaneShape(600, 1, 6, torch.bfloat16), spec.slice(slice(0, 1))) + 1
        assert bad[at] == 1
        bad[at] = 0
        with pytest.raises(CodecError):
            codec.decode_anchor(good.shape, spec, bad)


def test_a_page_without_tiles_cannot_be_raw() -> None:
    codec = get_codec("lynx")
    encoded = codec.encode(laplacian(7, 1, 4), K_SPEC)
    encoded.anchor[0] = 1
    with pytest.raises(CodecError, match="flag of page 0"):
        codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(TILED), raw=st.booleans())
def test_noise_is_decoded_or_refused_and_nothing_else(data: st.DataObject, name: str, raw: bool) -> None:
    codec, good = get_codec(name), payload(name, K_SPEC, raw)
    anchor = good.anchor.clone()
    for _ in range(data.draw(st.integers(1, 4))):
        anchor[data.draw(st.integers(0, anchor.numel() - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([anchor.numel(), anchor.numel() - 1, data.draw(st.integers(0, 200))]))
    try:
        decoded = codec.decode_full(good.shape, K_SPEC, anchor[:cut], good.residual)
    except CodecError:
        return
    assert decoded.shape == (600, 3, 6)


@pytest.mark.parametrize(
    "bad", [torch.zeros(8), torch.zeros(8, 8, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8)[::2]]
)
def test_other_tensors_are_refused(bad: torch.Tensor) -> None:
    shape = PlaneShape(40, 1, 4, torch.float32)
    with pytest.raises(CodecError, match="contiguous uint8"):
        get_codec("lynx").decode_anchor(shape, K_SPEC, bad)
