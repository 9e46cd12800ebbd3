"""The torch operators: the same bytes as the codec, shapes without values, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, get_codec, ops, servable_codecs
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError

from .planes import laplacian, same_bits, uneven

IDS = torch.tensor([3, 0, 5, 1, 4])


def paged(dtype=torch.bfloat16):
    pages = PagedPlane(torch.zeros(6, 64, 3, 16, dtype=dtype), 16)
    pages.scatter(IDS, 0, laplacian(300, 3, 16, dtype))
    return pages


def segment(pages, device="cpu", recent=20):
    return PagedSegment(pages, IDS.to(device), 0, 300, recent)


@pytest.fixture(params=["auto", "torch"])
def backend(request, monkeypatch):
    monkeypatch.setenv("LYNX_CODEC_BACKEND", request.param)


@pytest.mark.parametrize("name", servable_codecs())
@pytest.mark.parametrize("widths", [None, uneven(3, 16)], ids=["plain", "widths"])
def test_there_and_back(backend, name, widths):
    codec, spec, pages = get_codec(name, CodecSpec(center="mean")), replace(K_SPEC, widths=widths), paged()
    expected = codec.encode(pages.gather(IDS, 0, 300), spec, recent=20)
    encoded = ops.encode(segment(pages), codec, spec)
    assert encoded.shape == expected.shape
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    before = pages.gather(IDS, 0, 20).clone()
    ops.decode(segment(pages), codec, spec, encoded.anchor, skip=20)
    assert same_bits(
        pages.gather(IDS, 20, 300), codec.decode_anchor(expected.shape, spec, expected.anchor)[20:]
    )
    ops.decode(segment(pages), codec, spec, encoded.anchor, encoded.residual, skip=20)
    full = codec.decode_full(expected.shape, spec, expected.anchor, expected.residual)
    assert same_bits(pages.gather(IDS, 20, 300), full[20:])
    assert same_bits(pages.gather(IDS, 0, 20), before)


def test_the_kind_of_a_plane_reaches_the_codec(backend):
    codec, pages = get_codec("kivi4"), paged()
    k, v = (ops.encode(segment(pages), codec, spec).anchor for spec in (K_SPEC, V_SPEC))
    assert torch.equal(v, codec.encode(pages.gather(IDS, 0, 300), V_SPEC, recent=20).anchor)
    assert k.shape != v.shape


def test_shapes_are_known_without_values():
    pages = PagedPlane(torch.zeros(6, 64, 3, 16, dtype=torch.bfloat16, device="meta"), 16)
    codec, spec, real = get_codec("lynx"), replace(V_SPEC, widths=uneven(3, 16)), paged()
    encoded = ops.encode(segment(pages, "meta"), codec, spec)
    expected = ops.encode(segment(real), codec, spec)
    assert encoded.anchor.device.type == "meta"
    assert (encoded.anchor.shape, encoded.residual.shape) == (expected.anchor.shape, expected.residual.shape)
    ops.decode(segment(pages, "meta"), codec, spec, encoded.anchor, encoded.residual)


def test_a_damaged_payload_is_refused_and_writes_nothing(backend):
    codec, pages = get_codec("lynx"), paged()
    encoded = ops.encode(segment(pages), codec, K_SPEC)
    before = pages.values.clone()
    with pytest.raises(CodecError, match="residual"):
        ops.decode(segment(pages), codec, K_SPEC, encoded.anchor, encoded.residual[:-1])
    assert same_bits(pages.values, before)


def test_too_few_blocks_are_refused():
    with pytest.raises(CodecError, match="do not reach"):
        PagedSegment(paged(), IDS[:2], 0, 300)


def test_pages_of_another_shape_are_refused():
    with pytest.raises(CodecError):
        PagedPlane(torch.zeros(6, 64, 3, 16), 8)
    with pytest.raises(CodecError):
        PagedPlane(torch.zeros(6, 3, 64 * 16), 16, torch.arange(5))
