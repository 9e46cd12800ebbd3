"""One matrix over every registered codec: what each must do, whatever it stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lynx_ascend.codec import (
    K_SPEC,
    LATENT_SPEC,
    V_SPEC,
    Codec,
    CodecSpec,
    EncodedPlane,
    PlaneShape,
    PlaneSpec,
    codec_names,
    cpu,
    get_codec,
    servable_codecs,
)
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError, ConfigError

from .planes import DTYPES, laplacian, same_bits, uneven

SPECS = {"k": K_SPEC, "v": V_SPEC, "widths": PlaneSpec(widths=uneven(3, 16))}
# Relative error (norm) of the final KV on a plane of Laplacian values with one outlier channel.
ERROR = {
    **{"lynx": 0.013, "lynx-int8": 0.013, "lynx-int4": 0.2, "bf16": 0.004},
    **{"lynx-paper": 0.013, "lynx-paper-127": 0.05, "cachegen": 0.4, "cachegen-32": 0.3},
    **{"int8": 0.015, "int8-channel-32": 0.015, "int8-token": 0.015, "int8-token-32": 0.015},
    **{"int4": 0.25, "int4-channel-64": 0.2, "int4-channel-32": 0.2},
    **{"int4-token": 0.25, "int4-token-64": 0.25, "int4-token-32": 0.2, "kivi4": 0.2},
}
PROGRESSIVE = {"lynx", "lynx-int8", "lynx-paper", "lynx-paper-127"}
DRAFTS = {"lynx", "lynx-paper", "lynx-paper-127"}
FAMILIES = {"lynx": "lynx8", "lynx-int8": "lynx8"}
# Bits a value of [2048, 3, 64] in bfloat16, K and V, all metadata counted: both streams.
BITS = {
    **{"lynx": (8.6602, 8.5352), "lynx-int8": (8.6602, 8.5352), "lynx-int4": (4.6602, 4.5352)},
    **{"lynx-paper": (8.6602, 8.6602), "lynx-paper-127": (8.6602, 8.6602)},
    **{"cachegen": (1.1247, 1.1247), "cachegen-32": (1.8724, 1.8724)},
    **{"bf16": (16, 16), "int8": (8.1602, 8.1602), "int4": (4.1602, 4.1602)},
    **{
        "int8-channel-32": (9.0352, 9.0352),
        "int8-token": (8.5352, 8.5352),
        "int8-token-32": (9.0352, 9.0352),
    },
    **{"int4-channel-64": (4.5352, 4.5352), "int4-channel-32": (5.0352, 5.0352), "kivi4": (5.0352, 5.0352)},
    **{"int4-token": (4.5352, 4.5352), "int4-token-64": (4.5352, 4.5352), "int4-token-32": (5.0352, 5.0352)},
}
LENGTHS = (1, 3, 4, 5, 31, 32, 33, 64, 255, 256, 257, 515, 600)

pytestmark = pytest.mark.parametrize("name", codec_names())


def test_names_what_it_does(name: str) -> None:
    codec = get_codec(name)
    assert codec.name == name
    assert codec.drafts == (name in DRAFTS)
    assert codec.progressive == (name in PROGRESSIVE)
    assert codec.family == FAMILIES.get(name, name)
    assert codec.servable == (name in servable_codecs())
    chosen = CodecSpec(page=128, sinks=2)
    assert get_codec(name, chosen).spec == chosen


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_round_trip_of_every_length(name: str, dtype: torch.dtype, spec: PlaneSpec) -> None:
    codec = get_codec(name, CodecSpec())
    for tokens in LENGTHS:
        plane = laplacian(tokens, 3, 16, dtype)
        full = round_trip(codec, plane, spec)
        if name != "bf16":
            assert same_bits(full[:4], plane[:4])
        rows = slice(4 if tokens > 4 else 0, None)
        assert relative((full - plane)[rows], plane[rows]) <= ERROR[name], tokens


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC, LATENT_SPEC], ids=lambda spec: spec.kind)
@pytest.mark.parametrize("sinks", [0, 4])
def test_round_trip_of_every_shape(name: str, spec: PlaneSpec, sinks: int) -> None:
    codec = get_codec(name, CodecSpec(sinks=sinks))
    for heads, dim in ((2, 64), (1, 80), (1, 128), (5, 1)):
        plane = laplacian(300, heads, dim, torch.bfloat16)
        full = round_trip(codec, plane, spec)
        # Sinks of 50 times the rest stretch the first page where they are not exact.
        rows = slice(4 if sinks else 256, None)
        assert relative((full - plane)[rows], plane[rows]) <= ERROR[name], (heads, dim)


def round_trip(codec: Codec, plane: Tensor, spec: PlaneSpec) -> Tensor:
    encoded = codec.encode(plane, spec)
    shape = encoded.shape
    assert shape == PlaneShape.of(plane)
    for part, size, most in (
        (encoded.anchor, codec.anchor_bytes(shape, spec), codec.anchor_bytes_max(shape, spec)),
        (encoded.residual, codec.residual_bytes(shape, spec), codec.residual_bytes_max(shape, spec)),
    ):
        assert (part.dtype, part.ndim, part.is_contiguous()) == (torch.uint8, 1, True)
        assert part.numel() == size if codec.servable else part.numel() <= size
        assert part.numel() <= most
    assert (encoded.residual.numel() > 0) <= codec.progressive
    full = codec.decode_full(shape, spec, encoded.anchor, encoded.residual)
    anchor = codec.decode_anchor(shape, spec, encoded.anchor)
    for decoded in (full, anchor):
        assert (decoded.shape, decoded.dtype) == (plane.shape, plane.dtype)
        assert decoded.is_contiguous()
    if not codec.progressive:
        assert same_bits(anchor, full)
    return full


def relative(error: Tensor, values: Tensor) -> float:
    return float(error.float().norm() / values.float().norm())


def test_bits_per_value(name: str) -> None:
    codec = get_codec(name, CodecSpec())
    plane = laplacian(2048, 3, 64, torch.bfloat16)
    for spec, bits in zip((K_SPEC, V_SPEC), BITS[name], strict=True):
        encoded = codec.encode(plane, spec)
        assert encoded.bits_per_value() == pytest.approx(bits, abs=0.005)
        residual = 8 * encoded.residual.numel() / plane.numel()
        assert encoded.bits_per_value(residual=False) == encoded.bits_per_value() - residual


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_heads_are_coded_by_themselves(name: str, spec: PlaneSpec) -> None:
    codec, plane = get_codec(name), laplacian(600, 3, 16, torch.bfloat16)
    if not codec.servable:
        pytest.skip("one scale a token and one arithmetic code for all heads: a head has no bytes of its own")
    whole = codec.encode(plane, spec)
    heads = [codec.encode(plane[:, h : h + 1], spec.slice(slice(h, h + 1))) for h in range(3)]
    assert torch.equal(whole.anchor, torch.cat([head.anchor for head in heads]))
    assert torch.equal(whole.residual, torch.cat([head.residual for head in heads]))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_pages_are_coded_by_themselves(name: str, spec: PlaneSpec) -> None:
    codec, plane = get_codec(name), laplacian(600, 3, 16, torch.bfloat16)
    if not codec.servable:
        pytest.skip("one table of frequencies and one arithmetic code a segment: a cut changes the codes")
    decoded = decode(codec, codec.encode(plane, spec), spec)
    parts = [codec.encode(plane[a : a + 256], spec, first_token=a) for a in (0, 256, 512)]
    assert same_bits(torch.cat([decode(codec, part, spec) for part in parts]), decoded)


def decode(codec: Codec, encoded: EncodedPlane, spec: PlaneSpec) -> Tensor:
    return codec.decode_full(encoded.shape, spec, encoded.anchor, encoded.residual)


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
def test_what_is_constant_is_exact(name: str, spec: PlaneSpec) -> None:
    codec = get_codec(name, CodecSpec())
    for value in (0.0, 1.0, -0.25):
        plane = torch.full((300, 2, 8), value)
        assert torch.equal(decode(codec, codec.encode(plane, spec), spec), plane)
    plane = laplacian(300, 2, 8)
    plane[:, 1, 5] = 0.5
    error = (decode(codec, codec.encode(plane, spec), spec) - plane)[4:]
    assert relative(error, plane[4:]) <= ERROR[name]


def test_what_no_code_carries_is_never_clipped(name: str) -> None:
    codec = get_codec(name)
    for value in (float("nan"), float("inf"), float("-inf"), 65536.0, -1e20):
        plane = laplacian(600, 2, 8, torch.bfloat16)
        plane[300, 1, 2] = value
        encoded = codec.encode(plane, K_SPEC)
        assert encoded.anchor.numel() <= codec.anchor_bytes_max(encoded.shape, K_SPEC)
        anchor = codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor)
        for decoded in (anchor, decode(codec, encoded, K_SPEC)):
            torch.testing.assert_close(decoded[300, 1, 2], plane[300, 1, 2], rtol=0, atol=0, equal_nan=True)
            decoded[300, 1, 2] = 0
            assert decoded.isfinite().all()


def test_encoding_is_deterministic_and_leaves_the_plane_alone(name: str) -> None:
    codec, plane = get_codec(name), laplacian(300, 2, 8)
    before = plane.clone()
    first, second = codec.encode(plane, V_SPEC), codec.encode(plane, V_SPEC)
    assert torch.equal(first.anchor, second.anchor)
    assert torch.equal(first.residual, second.residual)
    assert same_bits(plane, before)
    assert first.anchor.untyped_storage().data_ptr() != plane.untyped_storage().data_ptr()


def test_refuses_what_does_not_fit(name: str) -> None:
    codec, plane = get_codec(name), laplacian(300, 2, 8)
    with pytest.raises(CodecError, match="inside a page"):
        codec.encode(plane, K_SPEC, first_token=100)
    with pytest.raises(CodecError, match="tokens, heads, dim"):
        codec.encode(plane[0], K_SPEC)
    with pytest.raises(CodecError, match="tokens, heads and dim"):
        codec.encode(plane[:0], K_SPEC)
    with pytest.raises(CodecError, match="float64"):
        codec.encode(plane.double(), K_SPEC)
    if name not in ("bf16", "cachegen", "cachegen-32"):
        with pytest.raises(CodecError, match="does not fit"):
            codec.encode(plane, PlaneSpec(widths=uneven(2, 9)))


def test_refuses_bytes_that_do_not_fit(name: str) -> None:
    codec, plane = get_codec(name), laplacian(300, 2, 8)
    good = codec.encode(plane, K_SPEC)
    for bad in (
        good.anchor[:-2],
        good.anchor[:1],
        good.anchor[:0],
        torch.cat((good.anchor, good.anchor[:1])),
    ):
        with pytest.raises(CodecError, match="anchor"):
            codec.decode_anchor(good.shape, K_SPEC, bad)
    with pytest.raises(CodecError, match=r"anchor|flag"):
        codec.decode_anchor(replace(good.shape, tokens=301), K_SPEC, good.anchor)
    with pytest.raises(CodecError, match="contiguous uint8"):
        codec.decode_anchor(good.shape, K_SPEC, good.anchor.view(1, -1))
    with pytest.raises(CodecError, match="residual"):
        codec.decode_full(good.shape, K_SPEC, good.anchor, torch.zeros(good.residual.numel() + 1).byte())


def test_noise_is_decoded_or_refused_and_nothing_else(name: str) -> None:
    codec, good = get_codec(name), get_codec(name).encode(laplacian(300, 2, 8, torch.bfloat16), K_SPEC)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        anchor = good.anchor.clone()
        at = torch.randint(anchor.numel(), (3,), generator=generator)
        anchor[at] = torch.randint(256, (3,), generator=generator, dtype=torch.uint8)
        try:
            decoded = codec.decode_full(good.shape, K_SPEC, anchor, good.residual)
        except CodecError:
            continue
        assert decoded.shape == (300, 2, 8)


def test_pages_of_other_sizes_and_no_sinks(name: str) -> None:
    codec, plane = get_codec(name, CodecSpec(page=64, sinks=0)), laplacian(200, 2, 8)
    full = decode(codec, codec.encode(plane, V_SPEC), V_SPEC)
    # The sinks of this plane are 50 times the rest and stretch its first page.
    assert relative((full - plane)[64:], plane[64:]) <= ERROR[name]


def test_the_compiled_codec_takes_its_own_only(name: str) -> None:
    segment = PagedSegment.of(laplacian(256, 2, 8))
    mine = cpu.extension() is not None and name in ("lynx", "lynx-int8", "lynx-int4")
    assert (cpu.encode(get_codec(name), segment, K_SPEC) is not None) == mine


def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        get_codec(f"no-{name}")


@pytest.mark.parametrize("recent", [0, 1, 40, 300])
def test_recent_tokens_are_exact_in_every_codec(name: str, recent: int) -> None:
    plane, codec = laplacian(300, 2, 16, torch.bfloat16), get_codec(name)
    for spec in (K_SPEC, V_SPEC):
        encoded = codec.encode(plane, spec, recent=recent)
        assert encoded.anchor.numel() <= codec.anchor_bytes_max(encoded.shape, spec)
        full = decode(codec, encoded, spec)
        assert same_bits(full[300 - recent :], plane[300 - recent :])
        assert (full - plane).float().norm() < 0.7 * plane.float().norm()
