"""One matrix over every registered codec: what each must do, whatever it stores."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneShape, PlaneSpec, codec_names, get_codec
from lynx_ascend.errors import CodecError, ConfigError

from .planes import laplacian, same_bits, uneven

SPECS = {"k": K_SPEC, "v": V_SPEC, "hot": PlaneSpec(hot=uneven(3, 16))}
# Relative error (norm) of the final KV on a plane of Laplacian values with one outlier channel.
ERROR = {"lynx": 0.01, "lynx-int8": 0.01, "lynx-int4": 0.15, "bf16": 0.004, "int8": 0.015, "int4": 0.25}

pytestmark = pytest.mark.parametrize("name", codec_names())


def test_names_what_it_does(name: str) -> None:
    codec = get_codec(name)
    assert codec.name == name
    assert codec.spec == CodecSpec()
    assert codec.drafts == (name == "lynx")
    assert codec.progressive == (name in ("lynx", "lynx-int8"))
    assert codec.family == ("lynx8" if codec.progressive else name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 31, 32, 33, 64, 255, 256, 257, 515, 600])
def test_round_trip(name: str, dtype: torch.dtype, spec: PlaneSpec, tokens: int) -> None:
    codec, plane = get_codec(name), laplacian(tokens, 3, 16, dtype)
    encoded = codec.encode(plane, spec)
    shape = encoded.shape
    assert shape == PlaneShape(tokens, 3, 16, dtype)
    for part, size in (("anchor", codec.anchor_bytes), ("residual", codec.residual_bytes)):
        data = getattr(encoded, part)
        assert (data.dtype, data.ndim, data.is_contiguous()) == (torch.uint8, 1, True)
        assert data.numel() == size(shape, spec)
    assert encoded.anchor.numel() <= codec.anchor_bytes_max(shape, spec)
    assert encoded.residual.numel() <= codec.residual_bytes_max(shape, spec)
    assert (encoded.residual.numel() > 0) <= codec.progressive
    full = codec.decode_full(shape, spec, encoded.anchor, encoded.residual)
    anchor = codec.decode_anchor(shape, spec, encoded.anchor)
    for decoded in (full, anchor):
        assert (decoded.shape, decoded.dtype) == (plane.shape, dtype)
        assert decoded.is_contiguous()
    if not codec.progressive:
        assert same_bits(anchor, full)
    if name != "bf16":
        assert same_bits(full[:4], plane[:4])
    rows = slice(4 if tokens > 4 else 0, None)
    assert (full - plane)[rows].float().norm() <= ERROR[name] * plane[rows].float().norm()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_heads_and_segments(name: str, spec: PlaneSpec) -> None:
    codec, plane = get_codec(name), laplacian(600, 3, 16, torch.bfloat16)
    whole = codec.encode(plane, spec)
    heads = [codec.encode(plane[:, h : h + 1], spec.slice(slice(h, h + 1))) for h in range(3)]
    assert torch.equal(whole.anchor, torch.cat([head.anchor for head in heads]))
    assert torch.equal(whole.residual, torch.cat([head.residual for head in heads]))
    decoded = codec.decode_full(whole.shape, spec, whole.anchor, whole.residual)
    parts = [codec.encode(plane[a : a + 256], spec, first_token=a) for a in (0, 256, 512)]
    parts = [codec.decode_full(part.shape, spec, part.anchor, part.residual) for part in parts]
    assert same_bits(torch.cat(parts), decoded)


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
    encoded = codec.encode(plane, K_SPEC)
    with pytest.raises(CodecError, match="anchor"):
        codec.decode_anchor(encoded.shape, K_SPEC, encoded.anchor[:-2])
    with pytest.raises(CodecError, match="residual"):
        codec.decode_full(
            encoded.shape, K_SPEC, encoded.anchor, torch.zeros(encoded.residual.numel() + 1).byte()
        )
    if name != "bf16":
        with pytest.raises(CodecError, match="does not fit"):
            codec.encode(plane, PlaneSpec(hot=uneven(2, 9)))


def test_pages_of_other_sizes_and_no_sinks(name: str) -> None:
    codec, plane = get_codec(name, CodecSpec(page=64, sinks=0)), laplacian(200, 2, 8)
    encoded = codec.encode(plane, V_SPEC)
    full = codec.decode_full(encoded.shape, V_SPEC, encoded.anchor, encoded.residual)
    # The sinks of this plane are 50 times the rest and stretch its first page.
    assert (full - plane)[64:].norm() <= ERROR[name] * plane[64:].norm()


def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        get_codec(f"no-{name}")
