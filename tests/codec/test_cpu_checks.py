"""What the C++ codec refuses or leaves to the reference, and what its extension checks whatever Python let through."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, CodecSpec, PlaneShape, backends, cpu, get_codec, ops
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError

from .planes import laplacian, same_bits

MODULE = cpu.extension()
built = pytest.mark.skipif(MODULE is None, reason="the C++ codec is not built")


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
    broken[64 + (4 + 4) * 256 :][:2] = torch.tensor([0, 0x7C], dtype=torch.uint8)  # an infinite minimum
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


def addresses(values: torch.Tensor, table: torch.Tensor, packing: object = None) -> object:
    """Twenty blocks of 48 tokens, two heads of 8 channels."""
    strides = (2 * 48 * 8, 48 * 8, 0, 1) if packing else (48 * 16, 8, 16, 1)
    return MODULE.Pages(values.data_ptr(), 2, table.data_ptr(), len(table), 20, 48, *strides, packing)


@built
@pytest.mark.parametrize("change", [{"table": [0, 20]}, {"table": [0, -1]}, {"table": [0]}, {"size": 48 * 4}])
def test_the_extension_itself_checks_what_it_indexes_with(change):
    """Whatever Python let through: a block or a place that is not there is refused before anything is touched."""
    table, place = torch.tensor(change.get("table", [0, 1])), torch.arange(change.get("size", 48 * 8))
    values = torch.zeros(20, 2, 48 * 8)
    where = addresses(values, table, MODULE.Packing(place.data_ptr(), place.numel()))
    codec, spec, sizes = get_codec("lynx"), K_SPEC, PlaneShape(96, 2, 8, torch.float32)
    coding = cpu._coding(type(codec), codec.spec, spec, 2, 8)
    anchor = torch.zeros(codec.anchor_bytes(sizes, spec), dtype=torch.uint8)
    residual = torch.zeros(codec.residual_bytes(sizes, spec), dtype=torch.uint8)
    streams = (anchor.data_ptr(), anchor.numel(), residual.data_ptr(), residual.numel())
    with pytest.raises(ValueError, match=r"not there|other blocks|shorter"):
        MODULE.encode(coding, where, 0, 96, 96, 4, *streams, 1)
    with pytest.raises(ValueError, match=r"not there|other blocks|shorter"):
        MODULE.decode(coding, where, 0, 96, 96, 4, 0, *streams, True, 1)
    assert not values.any()


@built
@pytest.mark.parametrize("wrong", [-1, 16, 3])
def test_a_packing_is_a_permutation(wrong):
    place = torch.arange(16)
    place[7] = wrong
    with pytest.raises(ValueError, match=r"outside its block|the same place"):
        MODULE.Packing(place.data_ptr(), 16)
    with pytest.raises(ValueError, match="at least one"):
        MODULE.Packing(place.data_ptr(), 0)


@built
def test_the_tables_of_a_packing_are_made_once(monkeypatch):
    """The operators hand on the very tensor; one of inference mode has no version to look at."""
    codec, plane = get_codec("lynx"), laplacian(96, 2, 8, torch.bfloat16)
    made, make = [], MODULE.Packing
    monkeypatch.setattr(MODULE, "Packing", lambda *place: made.append(place) or make(*place))
    with torch.inference_mode():
        pages = PagedPlane(torch.zeros(2, 2, 48 * 8, dtype=torch.bfloat16), 8, torch.arange(48 * 8).flip(0))
        segment = PagedSegment(pages, torch.tensor([1, 0]), 0, 96)
        segment.scatter(plane)
        for _ in range(3):
            encoded = ops.encode(segment, codec, K_SPEC)
        assert torch.equal(encoded.anchor, codec.encode(plane, K_SPEC).anchor)
    assert len(made) == 1


@built
def test_a_packing_that_was_written_to_is_read_anew():
    plane, place = laplacian(96, 2, 8, torch.bfloat16), torch.arange(48 * 8)
    pages = PagedPlane(torch.zeros(2, 2, 48 * 8, dtype=torch.bfloat16), 8, place)
    codec, segment = get_codec("lynx"), PagedSegment(pages, torch.tensor([1, 0]), 0, 96)
    for order in (place.clone(), place.flip(0).clone()):
        place.copy_(order)
        segment.scatter(plane)
        assert torch.equal(cpu.encode(codec, segment, K_SPEC).anchor, codec.encode(plane, K_SPEC).anchor)


@built
@pytest.mark.parametrize(
    ("tokens", "coded", "sinks"),
    [
        *[(96, 96, -1), (96, 96, 96), (96, 8, 8), (2, 0, 4), (0, 0, 0), (2**63 - 1, 0, 0)],
        *[(96, -8, 0), (96, 104, 0), (96, 12, 0)],
    ],
)
def test_the_extension_itself_checks_the_span(tokens, coded, sinks):
    table, values = torch.tensor([0, 1]), torch.zeros(20, 48, 2, 8)
    codec, where = get_codec("lynx"), addresses(values, table)
    coding = cpu._coding(type(codec), codec.spec, K_SPEC, 2, 8)
    with pytest.raises(ValueError, match=r"sinks|tokens|beyond|shorter|coded"):
        MODULE.encode(coding, where, 1 if tokens > 96 else 0, tokens, coded, sinks, 0, 0, 0, 0, 1)


@built
@pytest.mark.parametrize("widths", [[[4, 0]], [[4, 9]], [[4, 4], [4]]])
def test_the_extension_itself_checks_widths(widths):
    with pytest.raises(ValueError, match=r"widths|same number"):
        MODULE.Coding(cpu._tables(0.5), widths, 256, 32, False, False, True)


@built
@pytest.mark.parametrize("widths", [[], [[]]])
def test_the_extension_itself_wants_channels(widths):
    coding = MODULE.Coding(cpu._tables(0.5), widths, 256, 32, False, False, True)
    table, values = torch.tensor([0, 1]), torch.zeros(20, 48, 2, 8)
    with pytest.raises(ValueError, match="channels"):
        MODULE.encode(coding, addresses(values, table), 0, 96, 96, 4, 0, 0, 0, 0, 1)
