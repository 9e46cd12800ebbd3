"""The Triton kernels against the reference, bit for bit, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import (
    K_SPEC,
    V_SPEC,
    ChannelWidths,
    CodecSpec,
    PlaneSpec,
    backends,
    cuda,
    get_codec,
    ops,
)
from lynx_ascend.codec.companding import thresholds
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.errors import CodecError

from .golden import SPEC, cases
from .interpreter import interpreted
from .planes import laplacian, same_bits, uneven
from .test_cpu_backend import LAYOUTS, odd_planes

triton = pytest.importorskip("triton")
SMALL = CodecSpec(page=64)
# What a raw tile holds runs through the kernels; numpy says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(encountered in|All-NaN):RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    with interpreted():
        yield


def check(plane, spec, common=SMALL, name="lynx", recent=0):
    """Encode and decode ``plane`` with both: the same bytes, the same values."""
    codec = get_codec(name, common)
    expected = codec.encode(plane, spec, recent=recent)
    assert cuda.handles(codec, PagedSegment.of(plane, recent), spec)
    encoded = cuda.encode(codec, PagedSegment.of(plane, recent), spec)
    assert encoded.shape == expected.shape
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(plane)
    cuda.decode(codec, PagedSegment.of(out, recent), spec, expected.anchor)
    assert same_bits(out, codec.decode_anchor(expected.shape, spec, expected.anchor))
    if name != "lynx-int4":
        cuda.decode(codec, PagedSegment.of(out, recent), spec, expected.anchor, expected.residual)
        assert same_bits(out, codec.decode_full(expected.shape, spec, expected.anchor, expected.residual))


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
@pytest.mark.parametrize(
    ("heads", "dim", "dtype"),
    [
        (1, 64, torch.bfloat16),
        (1, 128, torch.float16),
        (1, 80, torch.float32),
        (1, 192, torch.bfloat16),
        (1, 5, torch.float32),
    ],
)
def test_dims_and_dtypes(heads, dim, dtype, spec):
    """A whole page, a chunk of the next, a tail."""
    check(laplacian(300, heads, dim, dtype), spec, CodecSpec())


@pytest.mark.parametrize("tokens", [1, 31, 32, 63, 64, 97, 128, 140])
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
def test_tokens(tokens, spec):
    check(laplacian(tokens, 2, 20, torch.bfloat16), spec)


def test_a_short_chunk_keeps_to_its_bytes():
    """Its codes are fewer bytes than the token scales of a whole chunk: those would reach into the next head."""
    check(laplacian(72, 2, 3), V_SPEC)


@pytest.mark.parametrize("chunk", [32, 64, 128, 256])
@pytest.mark.parametrize("center", ["midrange", "mean"])
def test_chunks_and_centers(chunk, center):
    check(laplacian(270, 1, 16), PlaneSpec(chunk), CodecSpec(center=center))


def test_the_order_of_a_mean():
    """Means halfway between two centers: how a sum was rounded decides. A whole chunk and a short one."""
    x = torch.rand(104, 1, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for part in (x[:64], x[64:]):
        part[0], part[1], part[2] = 0, 1, 0.5
        part[2] += part.shape[0] * ((part.mean(0) * 255).floor() + 0.5) / 255 - part.sum(0)
    check(x.float(), PlaneSpec(64), CodecSpec(page=64, sinks=0, center="mean"))


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 2.0, 4.0, 256.0])
def test_every_boundary_of_an_alpha(alpha):
    """Values made from the thresholds themselves, a rounding to either side."""
    bounds = thresholds(alpha)
    near = torch.cat([bounds, bounds.nextafter(torch.tensor(2.0)), bounds.nextafter(torch.tensor(-2.0))])
    values = torch.cat([near, -near])
    values = torch.cat([values, values[: 64 * 16 - values.numel()]]).view(64, 1, 16).clone()
    values[0], values[1] = -1.0, 1.0
    check(values, replace(K_SPEC, alpha=alpha), CodecSpec(page=64, sinks=0))


@pytest.mark.parametrize("side", [0.0, 2.0, -2.0])
@pytest.mark.parametrize("alpha", [0.5, 256.0])
def test_values_on_a_boundary_take_the_lower_magnitude(alpha, side):
    """A channel per threshold, with a center of 0 and a scale that is a power of two: u is the threshold itself."""
    bounds = thresholds(alpha)
    plane = torch.zeros(64, 1, bounds.numel())
    plane[0] = 2.0**-5
    plane[1] = (bounds if side == 0 else bounds.nextafter(torch.tensor(side))) * 2.0**-5
    plane[40] = 1.0
    check(plane, replace(K_SPEC, alpha=alpha), CodecSpec(page=64, sinks=0, center="mean"))


def test_float16_saturates():
    codec, plane = get_codec("lynx", CodecSpec(page=64, sinks=0)), laplacian(64, 1, 20, torch.float16)
    encoded = codec.encode(plane, K_SPEC)
    minimum = codec.layout(encoded.shape, K_SPEC).flags
    encoded.anchor[minimum : minimum + 40].view(torch.int16).fill_(0x7BFF)  # 65504, and the values above it
    out = torch.zeros_like(plane)
    cuda.decode(codec, PagedSegment.of(out), K_SPEC, encoded.anchor, encoded.residual)
    assert same_bits(out, codec.decode_full(encoded.shape, K_SPEC, encoded.anchor, encoded.residual))


@pytest.mark.parametrize(
    ("sinks", "page", "tokens"), [(0, 256, 100), (31, 256, 100), (7, 32, 100), (7, 32, 8), (8, 32, 15)]
)
def test_sinks_and_pages(sinks, page, tokens):
    check(laplacian(tokens, 1, 20, torch.float16), K_SPEC, CodecSpec(page=page, sinks=sinks))


@pytest.mark.parametrize("name", ["lynx", "lynx-int4"])
@pytest.mark.parametrize(
    ("tokens", "dim", "spec"), [(100, 20, K_SPEC), (70, 144, V_SPEC)], ids=["k", "v in two programs"]
)
def test_uneven_widths(name, tokens, dim, spec):
    check(laplacian(tokens, 4, dim, torch.bfloat16), replace(spec, widths=uneven(4, dim)), name=name)


@pytest.mark.parametrize("width", range(1, 9))
def test_every_width_of_any_bytes(width):
    """Also of codes that no encoder makes: what is not a code decodes to what the reference takes it for."""
    spec = replace(K_SPEC, widths=ChannelWidths.uniform(1, 24, width))
    codec, plane = get_codec("lynx", CodecSpec(page=64, sinks=0)), laplacian(64, 1, 24)
    expected = codec.encode(plane, spec)
    assert torch.equal(cuda.encode(codec, PagedSegment.of(plane), spec).anchor, expected.anchor)
    random = torch.Generator().manual_seed(width)
    anchor, residual = expected.anchor, expected.residual
    anchor[-8 * width * 24 :].random_(0, 256, generator=random)
    residual.random_(0, 256, generator=random)
    out = torch.zeros_like(plane)
    cuda.decode(codec, PagedSegment.of(out), spec, anchor)
    assert same_bits(out, codec.decode_anchor(expected.shape, spec, anchor))
    cuda.decode(codec, PagedSegment.of(out), spec, anchor, residual)
    assert same_bits(out, codec.decode_full(expected.shape, spec, anchor, residual))


@pytest.mark.parametrize("recent", [16, 64, 140])
def test_recent_tokens(recent):
    """A shorter chunk, a page that has none left, no chunk at all."""
    check(laplacian(140, 2, 20, torch.bfloat16), replace(K_SPEC, widths=uneven(2, 20)), recent=recent)


@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
@pytest.mark.parametrize("kind", odd_planes())
def test_odd_values(kind, spec):
    check(odd_planes()[kind][:96, :1, :16].contiguous(), spec)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_golden_payloads(case):
    codec, expected = get_codec("lynx", SPEC), case.encode()
    segment = PagedSegment.of(case.plane, case.recent)
    encoded = backends.to_host(codec, segment, case.spec, backends.encode_cuda(codec, segment, case.spec))
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(case.plane)
    backends.decode_cuda(
        codec, PagedSegment.of(out, case.recent), case.spec, encoded.anchor, encoded.residual
    )
    assert same_bits(out, codec.decode_full(expected.shape, case.spec, expected.anchor, expected.residual))


CACHES = {
    **{kind: make for kind, make in LAYOUTS.items() if not kind.startswith("packed")},
    "k and v in one": lambda blocks, block, heads, dim: (
        torch.full((2, blocks, block, heads, dim), 9.0)[1],
        None,
    ),
    "k beside v": lambda blocks, block, heads, dim: (
        torch.full((blocks, 2, block, heads, dim), 9.0)[:, 1],
        None,
    ),
}


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize(
    ("dtype", "span"),
    [(torch.bfloat16, (0, 140, 70)), (torch.float32, (64, 140, 0)), (torch.float16, (128, 140, 3))],
)
def test_pages(kind, dtype, span):
    """Encoded where they stand, decoded to where they stand; everything else keeps its values."""
    start, end, skip = span
    values, _ = CACHES[kind](10, 24, 2, 20)
    ids = torch.tensor([7, 2, 9, 4, 3, 8, 1])
    pages = PagedPlane(values.to(dtype), 20)
    plane = laplacian(160, 2, 20, dtype)
    pages.scatter(ids, 0, plane)
    codec, segment = get_codec("lynx", SMALL), PagedSegment(pages, ids, start, end, recent=9)
    expected = codec.encode(plane[start:end], V_SPEC, first_token=start, recent=9)
    encoded = cuda.encode(codec, segment, V_SPEC)
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    for residual in (None, expected.residual):
        pages.values.fill_(5.0)  # or exact rows that must stay would be overwritten with what they are
        before = pages.values.clone()
        wanted = PagedPlane(before.clone(), 20)
        decoded = (
            codec.decode_anchor(expected.shape, V_SPEC, expected.anchor)
            if residual is None
            else codec.decode_full(expected.shape, V_SPEC, expected.anchor, residual)
        )
        replace(segment, pages=wanted).scatter(decoded, skip)
        cuda.decode(codec, segment, V_SPEC, expected.anchor, residual, skip)
        assert same_bits(pages.values, wanted.values)


def damaged_plane(values):
    plane = laplacian(140, 2, 20, torch.float32)
    plane[70, 1, 3] = values
    return plane


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 65520.0])
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
def test_a_raw_tile_is_flagged_and_put_in_place_on_the_host(value, spec):
    codec, plane = get_codec("lynx", SMALL), damaged_plane(value)
    segment, expected = PagedSegment.of(plane), codec.encode(plane, spec)
    encoded = backends.encode_cuda(codec, segment, spec)
    assert encoded.anchor.numel() == codec.anchor_bytes(encoded.shape, spec)
    layout = codec.layout(encoded.shape, spec)
    flags = layout.sections(encoded.anchor, layout.head_runs[0])[0]
    assert flags.nonzero().tolist() == [[1, 1]]
    host = backends.to_host(codec, segment, spec, encoded)
    assert torch.equal(host.anchor, expected.anchor)
    assert torch.equal(host.residual, expected.residual)
    out = torch.zeros_like(plane)
    backends.decode_cuda(codec, PagedSegment.of(out), spec, host.anchor, host.residual)
    assert same_bits(out, codec.decode_full(expected.shape, spec, expected.anchor, expected.residual))


def test_a_range_beyond_float16_is_raw():
    plane = laplacian(64, 1, 20).clamp(-1, 1) * 65504
    plane[3, 0, 1], plane[9, 0, 1] = 65504, -65504
    codec, segment = get_codec("lynx", CodecSpec(page=64, sinks=0)), PagedSegment.of(plane)
    encoded = backends.encode_cuda(codec, segment, K_SPEC)
    assert encoded.anchor[0] == 1
    assert torch.equal(
        backends.to_host(codec, segment, K_SPEC, encoded).anchor, codec.encode(plane, K_SPEC).anchor
    )


def test_nothing_looks_at_the_device(monkeypatch):
    """Encoding, and decoding checked bytes, read no tensor from the host."""
    codec, spec = get_codec("lynx", SMALL), replace(V_SPEC, widths=uneven(2, 20))
    plane = laplacian(140, 2, 20, torch.bfloat16)
    segment, expected = PagedSegment.of(plane), codec.encode(plane, spec)
    cuda.encode(codec, segment, spec)  # the first time makes the tables

    def look(*_, **__):
        raise AssertionError("the host looks at the device")

    for name in ("item", "__bool__", "__int__", "__float__", "tolist", "nonzero", "cpu", "numpy", "__iter__"):
        monkeypatch.setattr(torch.Tensor, name, look)
    encoded = backends.encode_cuda(codec, segment, spec)
    cuda.decode(codec, segment, spec, encoded.anchor, encoded.residual)
    cuda.decode(codec, segment, spec, encoded.anchor)
    monkeypatch.undo()
    assert torch.equal(encoded.anchor, expected.anchor)


def test_what_the_operators_register():
    """The CUDA implementations with CPU tensors: the arguments find their way."""
    codec, spec = get_codec("lynx", SMALL), replace(K_SPEC, widths=uneven(2, 20))
    plane = laplacian(100, 2, 20, torch.bfloat16)
    expected = codec.encode(plane, spec, recent=30)
    settings = (*ops._settings(codec, spec), 1)
    where = (plane.unsqueeze(0).clone(), None, torch.tensor([0]), 20, 0, 100, 30)
    anchor, residual = ops._encode_cuda(*where, *settings)
    assert torch.equal(anchor, expected.anchor)
    assert torch.equal(residual, expected.residual)
    ops._decode_anchor_cuda(*where, 40, anchor, *settings)
    early = codec.decode_anchor(expected.shape, spec, anchor)
    assert same_bits(where[0][0], torch.cat((plane[:40], early[40:])))
    ops._decode_full_cuda(*where, 0, anchor, residual, *settings)
    assert same_bits(where[0][0], codec.decode_full(expected.shape, spec, anchor, residual))


def test_a_damaged_payload_is_refused_and_writes_nothing():
    codec, plane = get_codec("lynx", SMALL), laplacian(100, 2, 20)
    good, before, segment = codec.encode(plane, K_SPEC), plane.clone(), PagedSegment.of(plane)
    flagged = good.anchor.clone()
    flagged[1] = 2
    for anchor, residual, what in [
        (good.anchor[:-1], None, "anchor"),
        (good.anchor, good.residual[:-1], "residual"),
        (flagged, None, "flag"),
    ]:
        with pytest.raises(CodecError, match=what):
            backends.decode_cuda(codec, segment, K_SPEC, anchor, residual)
    with pytest.raises(CodecError, match="skip"):
        backends.decode_cuda(codec, segment, K_SPEC, good.anchor, skip=-1)
    int4 = get_codec("lynx-int4", SMALL)
    with pytest.raises(CodecError, match="residual"):
        backends.decode_cuda(int4, segment, K_SPEC, int4.encode(plane, K_SPEC).anchor, good.residual)
    assert same_bits(plane, before)


def test_what_is_left_to_the_reference(monkeypatch):
    codec, segment = get_codec("lynx", SMALL), PagedSegment.of(laplacian(128, 2, 20))
    packed = PagedPlane(torch.zeros(2, 2, 64 * 20), 20, torch.arange(64 * 20))
    blocks = torch.tensor([0, 1])
    assert cuda.handles(codec, segment, K_SPEC)
    assert not cuda.handles(get_codec("int8"), segment, K_SPEC)
    assert not cuda.handles(codec, PagedSegment(packed, blocks, 0, 128), K_SPEC)
    assert not cuda.handles(codec, PagedSegment(segment.pages, blocks, 32, 128), K_SPEC)
    assert not cuda.handles(get_codec("lynx", CodecSpec(page=96)), segment, V_SPEC)
    assert not cuda.handles(codec, segment, replace(K_SPEC, widths=uneven(2, 16)))
    plain = get_codec("int8")
    encoded = backends.encode_cuda(plain, segment, K_SPEC)
    assert torch.equal(encoded.anchor, plain.encode(segment.gather(), K_SPEC).anchor)
    monkeypatch.setenv("LYNX_CODEC_BACKEND", "torch")
    assert not cuda.handles(codec, segment, K_SPEC)
