"""The C++ codec against the reference, bit for bit, on every instruction set that this machine has."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneShape, backends, cpu, get_codec
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError

from .golden import SPEC, cases
from .planes import laplacian, same_bits, uneven

MODULE = cpu.extension()
TARGETS = MODULE.targets() if MODULE is not None else []
built = pytest.mark.skipif(MODULE is None, reason="the C++ codec is not built")


def test_the_extension_is_there_where_it_must_be():
    if os.environ.get("LYNX_REQUIRE_CPU_BACKEND") == "1":
        assert MODULE is not None, "make setup builds it; its output says what is missing"


@pytest.fixture(params=TARGETS)
def target(request):
    """Restricts the codec to one instruction set."""
    best = MODULE.target()
    assert MODULE.use_target(request.param)
    yield request.param
    MODULE.use_target(best)


def check(plane, spec, common=None, name="lynx", first=0, threads=1):
    """Encode and decode ``plane`` with both; the C++ codec must have done it itself."""
    codec = get_codec(name, common)
    expected = codec.encode(plane, spec, first_token=first)
    shape = expected.shape
    # The segment stands in the middle of a sequence, as the only block that is not before it.
    blocks = torch.zeros(first // max(1, shape.tokens) + 2, dtype=torch.int64)
    if first:
        assert first % shape.tokens == 0
    end = first + shape.tokens
    encoded = cpu.encode(codec, PagedSegment(PagedPlane.of(plane), blocks, first, end), spec, threads)
    assert encoded is not None
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(plane)
    target = PagedSegment(PagedPlane.of(out), blocks, first, end)
    for residual in (None, expected.residual):
        assert cpu.decode(codec, target, spec, expected.anchor, residual, 0, threads)
        reference = (
            codec.decode_anchor(shape, spec, expected.anchor)
            if residual is None
            else codec.decode_full(shape, spec, expected.anchor, residual)
        )
        assert same_bits(out, reference)


@built
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dim", [1, 5, 64, 80, 128, 256, 512, 576])
def test_dims_and_dtypes(target, dim, dtype):
    check(laplacian(300, 2, dim, dtype), K_SPEC)
    check(laplacian(300, 2, dim, dtype, seed=1), V_SPEC)


@built
@pytest.mark.parametrize("tokens", [1, 5, 31, 32, 33, 63, 64, 97, 255, 256, 257, 288, 512, 513, 600])
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
def test_tokens(target, tokens, spec):
    check(laplacian(tokens, 3, 20, torch.bfloat16), spec)


@built
@pytest.mark.parametrize("name", ["lynx", "lynx-int4"])
@pytest.mark.parametrize("dim", [5, 64, 80])
def test_uneven_hot_channels(target, dim, name):
    plane = laplacian(300, 4, dim, torch.float16)
    codec, spec = get_codec(name), replace(K_SPEC, hot=uneven(4, dim))
    expected = codec.encode(plane, spec)
    check(plane, spec, name=name) if name == "lynx" else None
    encoded = cpu.encode(codec, PagedSegment.of(plane), spec)
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)


@built
@pytest.mark.parametrize("center", ["midrange", "mean"])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.5, 2.0, 4.0, 256.0])
def test_centers_and_alphas(target, center, alpha):
    common = CodecSpec(center=center)
    check(laplacian(300, 2, 64, torch.bfloat16), replace(K_SPEC, alpha=alpha), common)
    check(laplacian(300, 2, 64, torch.float32), replace(V_SPEC, alpha=alpha), common)


@built
@pytest.mark.parametrize(("sinks", "page"), [(0, 256), (31, 256), (4, 32), (7, 64)])
def test_sinks_and_pages(target, sinks, page):
    check(laplacian(200, 2, 64, torch.bfloat16), K_SPEC, CodecSpec(page=page, sinks=sinks))


@built
def test_a_later_segment_has_no_sinks(target):
    check(laplacian(256, 2, 64, torch.bfloat16), K_SPEC, first=256)


def odd_planes():
    """Zeros of both signs, constants, one value apart, the smallest and the largest numbers."""
    generator = torch.Generator().manual_seed(5)
    bits = torch.randint(0, 2**15, (256, 2, 64), generator=generator, dtype=torch.int32)
    tiny = (bits % 128).to(torch.int16).view(torch.bfloat16)  # subnormal
    signed = torch.where(bits % 2 == 0, 0.0, -0.0)
    steps = (bits % 3).float() * 2.0**-20 - 7
    large = laplacian(256, 2, 64).clamp(-1, 1) * 65504
    mixed = torch.where(bits % 5 == 0, laplacian(256, 2, 64), tiny.float())
    return {
        "subnormal": tiny,
        "subnormal and not": mixed,
        "zeros": signed,
        "constant": torch.full((256, 2, 64), -1.5),
        "grid": (bits % 9).float(),
        "small steps": steps,
        "large": large / 4,
        "offset": laplacian(256, 2, 64) * 1e-3 + 100,
        "rising": torch.arange(256.0).view(-1, 1, 1).expand(256, 2, 64),
    }


@built
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
@pytest.mark.parametrize("kind", odd_planes())
def test_odd_values(target, kind, spec):
    check(odd_planes()[kind], spec)
    check(odd_planes()[kind], spec, CodecSpec(center="mean"))


@built
def test_many_values_near_boundaries(target):
    """Values made from the thresholds themselves, a rounding to either side."""
    from lynx_ascend.codec.companding import thresholds

    bounds = thresholds(0.5)
    near = torch.cat([bounds, bounds.nextafter(torch.tensor(2.0)), bounds.nextafter(torch.tensor(-2.0))])
    values = (
        torch.cat([near, -near])[: 256 * 2].repeat(256 * 64 // 512 + 1)[: 256 * 64].view(256, 1, 64).clone()
    )
    values[0] = -1.0
    values[1] = 1.0
    check(values, K_SPEC, CodecSpec(sinks=0))


@built
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads(threads):
    check(laplacian(1100, 3, 64, torch.bfloat16), K_SPEC, threads=threads)
    check(laplacian(1100, 3, 64, torch.bfloat16), V_SPEC, threads=threads)


@built
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_golden_payloads(target, case):
    expected = case.encode()
    codec = get_codec("lynx", SPEC)
    encoded = backends.encode(codec, PagedSegment.of(case.plane), case.spec)
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(case.plane)
    backends.decode(codec, PagedSegment.of(out), case.spec, encoded.anchor, encoded.residual)
    assert same_bits(out, codec.decode_full(expected.shape, case.spec, expected.anchor, expected.residual))


LAYOUTS = {
    "rows": lambda blocks, block, heads, dim: (torch.full((blocks, block, heads, dim), 9.0), None),
    "heads outside": lambda blocks, block, heads, dim: (
        torch.full((blocks, heads, block, dim), 9.0).transpose(1, 2),
        None,
    ),
    "channels outside": lambda blocks, block, heads, dim: (
        torch.full((blocks, heads, dim, block), 9.0).permute(0, 3, 1, 2),
        None,
    ),
    "packed": lambda blocks, block, heads, dim: (
        torch.full((blocks, heads, 2, block * dim), 9.0)[:, :, 1],
        torch.randperm(block * dim, generator=torch.Generator().manual_seed(1)),
    ),
}


@built
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("span", [(0, 300, 0), (0, 300, 290), (0, 300, 70), (256, 300, 0), (256, 512, 33)])
def test_pages(kind, dtype, span):
    """Encoded where they stand, decoded to where they stand; everything else keeps its values."""
    start, end, skip = span
    block, heads, dim = 48, 3, 64
    values, place = LAYOUTS[kind](20, block, heads, dim)
    ids = torch.tensor([7, 2, 19, 4, 11, 3, 8, 16, 1, 13, 0])
    pages = PagedPlane(values.to(dtype), dim, place)
    plane = laplacian(528, heads, dim, dtype)
    pages.scatter(ids, 0, plane)
    codec = get_codec("lynx")
    expected = codec.encode(plane[start:end], V_SPEC, first_token=start)
    segment = PagedSegment(pages, ids, start, end)
    encoded = cpu.encode(codec, segment, V_SPEC)
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    for residual in (None, expected.residual):
        before = pages.values.clone()
        wanted = PagedPlane(before.clone(), dim, place)
        shape = expected.shape
        decoded = (
            codec.decode_anchor(shape, V_SPEC, expected.anchor)
            if residual is None
            else codec.decode_full(shape, V_SPEC, expected.anchor, residual)
        )
        wanted.scatter(ids, start + skip, decoded[skip:])
        assert cpu.decode(codec, segment, V_SPEC, expected.anchor, residual, skip)
        assert same_bits(pages.values, wanted.values)


@built
def test_what_it_leaves_to_the_reference():
    plane = laplacian(300, 2, 64)
    codec, segment = get_codec("lynx"), PagedSegment.of(plane)
    good = codec.encode(plane, K_SPEC)
    plane[270, 1, 3] = torch.nan
    assert cpu.encode(codec, segment, K_SPEC) is None
    raw = backends.encode(codec, segment, K_SPEC)
    assert torch.equal(raw.anchor, codec.encode(plane, K_SPEC).anchor)
    before = plane.clone()
    assert not cpu.decode(codec, segment, K_SPEC, raw.anchor, raw.residual)
    assert not cpu.decode(codec, segment, K_SPEC, good.anchor[:-1], None)
    assert not cpu.decode(codec, segment, K_SPEC, good.anchor, good.residual[:-1])
    flagged = good.anchor.clone()
    flagged[1] = 2
    assert not cpu.decode(codec, segment, K_SPEC, flagged, None)
    with pytest.raises(CodecError, match="flag"):
        backends.decode(codec, segment, K_SPEC, flagged)
    broken = good.anchor.clone()
    broken[64 + (4 + 12) * 256 :][:2] = torch.tensor([0, 0x7C], dtype=torch.uint8)  # an infinite minimum
    assert not cpu.decode(codec, segment, K_SPEC, broken, None)
    assert same_bits(plane, before)
    assert cpu.encode(get_codec("int8"), segment, K_SPEC) is None


@built
def test_a_received_buffer_need_not_be_aligned():
    plane = laplacian(300, 2, 64, torch.bfloat16)
    codec = get_codec("lynx")
    good = codec.encode(plane, K_SPEC)
    moved = [torch.cat((torch.zeros(1, dtype=torch.uint8), s))[1:] for s in (good.anchor, good.residual)]
    out = torch.zeros_like(plane)
    assert cpu.decode(codec, PagedSegment.of(out), K_SPEC, *moved)
    assert same_bits(out, codec.decode_full(good.shape, K_SPEC, good.anchor, good.residual))


@built
def test_streams_of_another_device_are_left_to_the_reference():
    plane = laplacian(300, 2, 64)
    codec, segment = get_codec("lynx"), PagedSegment.of(plane)
    good = codec.encode(plane, K_SPEC)
    before = plane.clone()
    assert not cpu.decode(codec, segment, K_SPEC, good.anchor.to("meta"), good.residual)
    assert not cpu.decode(codec, segment, K_SPEC, good.anchor, good.residual.to("meta"))
    assert same_bits(plane, before)


@built
def test_settings_that_no_segment_has_are_left_to_the_reference():
    plane = laplacian(300, 2, 64)
    codec, inside = get_codec("lynx"), PagedSegment(PagedPlane.of(plane), torch.tensor([0, 0]), 100, 400)
    good = codec.encode(plane, K_SPEC)
    assert cpu.encode(codec, inside, K_SPEC) is None
    with pytest.raises(CodecError, match="inside a page"):
        backends.encode(codec, inside, K_SPEC)
    with pytest.raises(CodecError, match="inside a page"):
        backends.decode(codec, inside, K_SPEC, good.anchor, good.residual)
    with pytest.raises(CodecError, match="do not divide"):
        backends.decode(get_codec("lynx", CodecSpec(page=96)), PagedSegment.of(plane), V_SPEC, good.anchor)


@built
@pytest.mark.parametrize("change", [{"table": [0, 20]}, {"table": [0, -1]}, {"place": -1}, {"place": 48 * 8}])
def test_the_extension_itself_checks_what_it_indexes_with(change):
    """Whatever Python let through: a block or a place that is not there is refused before anything is touched."""
    table, place = torch.tensor(change.get("table", [0, 1])), torch.arange(48 * 8)
    place[17] = change.get("place", 17)
    values = torch.zeros(20, 2, 48 * 8)
    where = MODULE.Pages(
        values.data_ptr(), 2, table.data_ptr(), 2, 20, 48, 2 * 48 * 8, 48 * 8, 0, 1, place.data_ptr()
    )
    codec, spec, sizes = get_codec("lynx"), K_SPEC, PlaneShape(96, 2, 8, torch.float32)
    coding = cpu._coding(type(codec), codec.spec, spec, 2, 8)
    anchor = torch.zeros(codec.anchor_bytes(sizes, spec), dtype=torch.uint8)
    residual = torch.zeros(codec.residual_bytes(sizes, spec), dtype=torch.uint8)
    streams = (anchor.data_ptr(), anchor.numel(), residual.data_ptr(), residual.numel())
    with pytest.raises(ValueError, match=r"not there|outside its block"):
        MODULE.encode(coding, where, 0, 96, 4, *streams, 1)
    with pytest.raises(ValueError, match=r"not there|outside its block"):
        MODULE.decode(coding, where, 0, 96, 4, 0, *streams, True, 1)
    assert not values.any()


@built
@pytest.mark.parametrize(("tokens", "sinks"), [(96, 32), (96, -1), (2, 4), (0, 0), (2**63 - 1, 0)])
def test_the_extension_itself_checks_the_span(tokens, sinks):
    table, values = torch.tensor([0, 1]), torch.zeros(2, 48, 2, 8)
    where = MODULE.Pages(values.data_ptr(), 2, table.data_ptr(), 2, 2, 48, 48 * 16, 8, 16, 1, 0)
    codec = get_codec("lynx")
    coding = cpu._coding(type(codec), codec.spec, K_SPEC, 2, 8)
    with pytest.raises(ValueError, match=r"sinks|tokens|beyond|shorter"):
        MODULE.encode(coding, where, 1 if tokens > 96 else 0, tokens, sinks, 0, 0, 0, 0, 1)
