"""The C++ codec against the reference, bit for bit, on every instruction set that this machine has."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from lynx_ascend.codec import K_SPEC, V_SPEC, ChannelWidths, CodecSpec, backends, cpu, get_codec
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment

from .golden import SPEC, cases
from .planes import laplacian, same_bits

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


def check(plane, spec, common=None, name="lynx", first=0, recent=0):
    """Encode and decode ``plane`` with both; the C++ codec must have done it itself."""
    codec = get_codec(name, common)
    expected = codec.encode(plane, spec, first_token=first, recent=recent)
    shape = expected.shape
    # The segment stands in the middle of a sequence, as the only block that is not before it.
    blocks = torch.zeros(first // max(1, shape.tokens) + 2, dtype=torch.int64)
    if first:
        assert first % shape.tokens == 0
    end = first + shape.tokens
    encoded = cpu.encode(codec, PagedSegment(PagedPlane.of(plane), blocks, first, end, recent), spec)
    assert encoded is not None
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(plane)
    target = PagedSegment(PagedPlane.of(out), blocks, first, end, recent)
    for residual in (None, expected.residual):
        assert cpu.decode(codec, target, spec, expected.anchor, residual)
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
@pytest.mark.parametrize(
    "tokens", [1, 5, 7, 8, 9, 16, 24, 31, 32, 33, 40, 63, 64, 97, 255, 256, 257, 288, 512, 513, 600]
)
@pytest.mark.parametrize("spec", [K_SPEC, V_SPEC], ids=["k", "v"])
def test_tokens(target, tokens, spec):
    check(laplacian(tokens, 3, 20, torch.bfloat16), spec)


def random_widths(heads, dim):
    """A head of each width, 1 to 8, then heads whose channels differ: by chance, in runs, in one channel."""
    generator = torch.Generator().manual_seed(dim)
    widths = torch.randint(1, 9, (heads, dim), generator=generator)
    widths[:8] = torch.arange(1, 9)[: min(heads, 8), None]
    widths[9:10] = (torch.arange(dim) // 19 % 8) + 1
    widths[10:11] = 4
    widths[10:11, -1] = 5
    return ChannelWidths(widths)


@built
@pytest.mark.parametrize("dim", [*range(1, 18), 33, 48, 64, 65, 80, 128, 192])
def test_widths(target, dim):
    plane = laplacian(100, 12, dim, torch.bfloat16)
    check(plane, replace(K_SPEC, widths=random_widths(12, dim)))
    check(plane, replace(V_SPEC, widths=random_widths(12, dim)))


@built
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", range(1, 9))
def test_one_width(target, width, dtype):
    plane = laplacian(256, 2, 64, dtype)
    check(plane, replace(K_SPEC, widths=ChannelWidths.uniform(2, 64, width), alpha=4.0))


@built
@pytest.mark.parametrize("dim", [5, 64, 80])
def test_no_residual(target, dim):
    plane = laplacian(300, 12, dim, torch.float16)
    codec = get_codec("lynx-int4")
    for spec in (K_SPEC, replace(V_SPEC, widths=random_widths(12, dim))):
        expected = codec.encode(plane, spec)
        encoded = cpu.encode(codec, PagedSegment.of(plane), spec)
        assert torch.equal(encoded.anchor, expected.anchor)
        assert encoded.residual.numel() == 0
        out = torch.zeros_like(plane)
        assert cpu.decode(codec, PagedSegment.of(out), spec, encoded.anchor, encoded.residual)
        assert same_bits(out, codec.decode_anchor(expected.shape, spec, expected.anchor))


@built
@pytest.mark.parametrize("tokens", [1, 16, 40, 47, 48, 100, 256, 272, 300])
@pytest.mark.parametrize("recent", [0, 5, 16, 64, 100])
def test_recent_tokens(target, tokens, recent):
    recent = min(recent, tokens)
    for spec in (K_SPEC, replace(V_SPEC, widths=random_widths(3, 20))):
        check(laplacian(tokens, 3, 20, torch.bfloat16), spec, recent=recent)
        if tokens == 256:
            check(laplacian(tokens, 3, 20, torch.bfloat16), spec, recent=recent, first=256)


@built
@pytest.mark.parametrize("chunk", [32, 64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_chunks(target, chunk, dtype):
    check(laplacian(700, 2, 64, dtype), replace(K_SPEC, chunk=chunk), CodecSpec(page=512))


@built
@pytest.mark.parametrize("dim", [5, 64, 80, 128])
def test_codes_that_no_encoder_writes(target, dim):
    """Whatever the bytes, both decode them alike: here codes are random, also those that stand for no magnitude."""
    plane, codec = laplacian(256, 12, dim, torch.float32), get_codec("lynx", CodecSpec(sinks=0))
    for spec in (K_SPEC, replace(V_SPEC, widths=random_widths(12, dim))):
        good = codec.encode(plane, spec)
        generator = torch.Generator().manual_seed(3)
        anchor = torch.randint(256, good.anchor.shape, generator=generator, dtype=torch.uint8)
        residual = torch.randint(256, good.residual.shape, generator=generator, dtype=torch.uint8)
        tile, header = 64, 4 * dim + 2 * 256 // spec.chunk * dim
        for head in range(12):  # what is not a code stays
            size = header + (256 if spec.token_scale else 0) + 32 * spec.anchor_bits(head, dim)
            anchor[tile - 64 : tile + header] = good.anchor[tile - 64 : tile + header]
            tile += size + 64
        out = torch.zeros_like(plane)
        for rest in (None, residual):
            assert cpu.decode(codec, PagedSegment.of(out), spec, anchor, rest)
            wanted = (
                codec.decode_anchor(good.shape, spec, anchor)
                if rest is None
                else codec.decode_full(good.shape, spec, anchor, rest)
            )
            assert same_bits(out, wanted)


@built
def test_streams_of_exact_length(target):
    """Nothing is read beyond the streams, nor written: what stands around them stays."""
    plane, dim = laplacian(96, 3, 40, torch.bfloat16), 40
    codec = get_codec("lynx")
    for widths in ([7] * (dim - 1) + [8], [1] * (dim - 1) + [2], [3, 5] * (dim // 2)):
        spec = replace(K_SPEC, widths=ChannelWidths(torch.tensor([widths] * 3)))
        segment = PagedSegment.of(plane)
        expected = codec.encode(plane, spec)
        place = cpu._place(MODULE, codec, segment, spec, codec.layout(segment.shape, spec))
        room = [
            torch.full((s.numel() + 128,), 0xA5, dtype=torch.uint8)
            for s in (expected.anchor, expected.residual)
        ]
        inner = [r[64:-64] for r in room]
        assert MODULE.encode(*place, *cpu._memory(inner[0]), *cpu._memory(inner[1]), 1)
        for stream, wanted, whole in zip(inner, (expected.anchor, expected.residual), room, strict=True):
            assert torch.equal(stream, wanted)
            assert set(whole[:64].tolist() + whole[-64:].tolist()) == {0xA5}


@built
@pytest.mark.parametrize("center", ["midrange", "mean"])
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.5, 2.0, 4.0, 256.0])
def test_centers_and_alphas(target, center, alpha):
    common = CodecSpec(center=center)
    check(laplacian(300, 2, 64, torch.bfloat16), replace(K_SPEC, alpha=alpha), common)
    check(laplacian(264, 2, 64, torch.float32), replace(V_SPEC, alpha=alpha), common)


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
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_golden_payloads(target, case):
    expected = case.encode()
    codec = get_codec("lynx", SPEC)
    encoded = backends.encode(codec, PagedSegment.of(case.plane, case.recent), case.spec)
    assert torch.equal(encoded.anchor, expected.anchor)
    assert torch.equal(encoded.residual, expected.residual)
    out = torch.zeros_like(case.plane)
    backends.decode(codec, PagedSegment.of(out, case.recent), case.spec, encoded.anchor, encoded.residual)
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
    **{
        f"packed {name}": lambda blocks, block, heads, dim, order=order: (
            torch.full((blocks, heads, 2, block * dim), 9.0)[:, :, 1],
            order(torch.arange(block).view(-1, 1), torch.arange(dim), block, dim).flatten(),
        )
        for name, order in {
            "as rows": lambda t, c, block, dim: t * dim + c,
            "by channels": lambda t, c, block, dim: c * block + t,
            "by pairs of channels": lambda t, c, block, dim: (
                (t // 16 * dim + c // 2 * 2) * 16 + t % 16 * 2 + c % 2
            ),
            "by pairs of tokens": lambda t, c, block, dim: (
                (c // 16 * block + t // 2 * 2) * 16 + c % 16 * 2 + t % 2
            ),
            "by chance": lambda t, c, block, dim: torch.randperm(
                block * dim, generator=torch.Generator().manual_seed(1)
            ),
        }.items()
    },
}


@built
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["16", "32"])
@pytest.mark.parametrize("span", [(0, 300, 0), (0, 300, 290), (0, 300, 70), (256, 300, 0), (256, 512, 33)])
def test_pages(target, kind, dtype, span):
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
