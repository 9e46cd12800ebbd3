"""Paged-KV layouts against the backend's own writer and against plain indexing."""

from __future__ import annotations

import pytest
import torch

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts import layout_of
from lynx_ascend.vllm.layouts.flash import flash_layout
from lynx_ascend.vllm.layouts.separate import SeparateLayout

BLOCKS, BLOCK, HEADS, DIM = 9, 32, 3, 64
IDS = torch.tensor([7, 2, 5, 1])
SPANS = [(0, 128), (0, 1), (31, 33), (5, 20), (32, 96), (40, 128), (17, 100), (127, 128), (64, 64)]


def values(tokens, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, HEADS, DIM, generator=generator).to(dtype)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def cpu_cache(request):
    """A CPU cache, the K and V that vLLM's writer put into the sequence's blocks, and what the others hold."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    dtype = request.param
    cache = torch.full((BLOCKS, HEADS, BLOCK, 2 * DIM), 9.0, dtype=dtype)
    k, v = values(len(IDS) * BLOCK, 1, dtype), values(len(IDS) * BLOCK, 2, dtype)
    slots = (IDS[:, None] * BLOCK + torch.arange(BLOCK)).flatten()

    def write(cache, k, v, slots):
        parts = cache.view(BLOCKS, HEADS, 2 * BLOCK, DIM).chunk(2, dim=2)
        ops.cpu_attn_reshape_and_cache(k, v, *parts, slots, _get_attn_isa(dtype, BLOCK, DIM))

    write(cache, k, v, slots)
    return cache, k, v, slots, write


@pytest.mark.parametrize(("start", "end"), SPANS)
def test_cpu_gather_reads_what_the_backend_wrote(cpu_cache, start, end):
    cache, k, v, _, _ = cpu_cache
    layout = layout_of(cache)
    assert torch.equal(layout.gather("k", IDS, start, end), k[start:end])
    assert torch.equal(layout.gather("v", IDS, start, end), v[start:end])


@pytest.mark.parametrize(("start", "end"), SPANS)
def test_cpu_scatter_leaves_the_cache_as_the_backend_would(cpu_cache, start, end):
    cache, _, _, slots, write = cpu_cache
    new_k, new_v = values(end - start, 3, cache.dtype), values(end - start, 4, cache.dtype)
    expected = cache.clone()
    if end > start:
        write(expected, new_k, new_v, slots[start:end])
    layout = layout_of(cache)
    layout.scatter("k", IDS, start, new_k)
    layout.scatter("v", IDS, start, new_v)
    assert torch.equal(cache, expected)


def test_cpu_planes(cpu_cache):
    layout = layout_of(cpu_cache[0])
    assert [(p.name, p.heads, p.dim, p.dtype) for p in layout.planes] == [
        ("k", HEADS, DIM, cpu_cache[0].dtype),
        ("v", HEADS, DIM, cpu_cache[0].dtype),
    ]
    assert layout.block_size == BLOCK


def test_cpu_layout_of_large_blocks_and_heads():
    """Coordinates above 128 take a second digit of the probe."""
    cache = torch.zeros(2, 1, 256, 2 * 160)
    layout = layout_of(cache)
    plane = torch.randn(256, 1, 160)
    layout.scatter("k", torch.tensor([1]), 0, plane)
    assert torch.equal(layout.gather("k", torch.tensor([1]), 0, 256), plane)


@pytest.mark.parametrize("shape", [(4, 32, 64), (4, 2, 32, 63), (4, 2, 32, 2, 64)])
def test_unknown_cpu_shapes_are_refused(shape):
    with pytest.raises(ConfigError, match="CPU cache shape"):
        layout_of(torch.zeros(shape))


def test_a_cpu_cache_with_strides_is_refused():
    with pytest.raises(ConfigError, match="CPU cache shape"):
        layout_of(torch.zeros(4, 32, 2, 128).transpose(1, 2))


SEPARATE = {
    "blocks first": lambda: torch.zeros(BLOCKS, 2, BLOCK, HEADS, DIM),
    "kv first": lambda: torch.zeros(2, BLOCKS, BLOCK, HEADS, DIM),
    "heads inside": lambda: torch.zeros(BLOCKS, 2, HEADS, BLOCK, DIM).transpose(2, 3),
    "tuple": lambda: (torch.zeros(BLOCKS, BLOCK, HEADS, DIM), torch.zeros(BLOCKS, BLOCK, HEADS, DIM)),
}


@pytest.mark.parametrize("kind", SEPARATE)
@pytest.mark.parametrize(("start", "end"), SPANS)
def test_separate_planes(kind, start, end):
    cache = SEPARATE[kind]()
    layout = layout_of(cache) if kind == "tuple" else flash_layout(cache)
    k, v = cache if kind == "tuple" else (cache[0], cache[1]) if kind == "kv first" else cache.unbind(1)
    new = values(end - start, 1, torch.float32)
    layout.scatter("k", IDS, start, new)
    layout.scatter("v", IDS, start, new + 1)
    for plane, written in ((k, new), (v, new + 1)):
        expected = torch.zeros(BLOCKS, BLOCK, HEADS, DIM)
        for n, position in enumerate(range(start, end)):
            expected[IDS[position // BLOCK], position % BLOCK] = written[n]
        assert torch.equal(plane, expected)
    assert torch.equal(layout.gather("k", IDS, start, end), new)
    assert torch.equal(layout.gather("v", IDS, start, end), new + 1)


def test_scatter_casts_to_the_caches_dtype():
    cache = tuple(torch.zeros(BLOCKS, BLOCK, HEADS, DIM, dtype=torch.bfloat16) for _ in range(2))
    layout = layout_of(cache)
    layout.scatter("k", IDS, 3, torch.full((4, HEADS, DIM), 1.001))
    assert torch.equal(layout.gather("k", IDS, 3, 7), torch.ones(4, HEADS, DIM, dtype=torch.bfloat16))


def test_latent_attention_has_planes_of_its_own():
    latent, rope = torch.zeros(BLOCKS, 128, 1, 512), torch.zeros(BLOCKS, 128, 1, 64)
    layout = layout_of((latent, rope))
    assert [(p.name, p.heads, p.dim) for p in layout.planes] == [("latent", 1, 512), ("rope", 1, 64)]


def test_grouped_heads_of_two_widths_are_still_k_and_v():
    layout = layout_of((torch.zeros(BLOCKS, 128, 4, 192), torch.zeros(BLOCKS, 128, 4, 128)))
    assert [(p.name, p.dim) for p in layout.planes] == [("k", 192), ("v", 128)]


@pytest.mark.parametrize(
    "cache",
    [
        "text",
        (torch.zeros(1, 2, 3, 4),),
        tuple(torch.zeros(1, 2, 3, 4) for _ in range(3)),
        (torch.zeros(1, 2, 3, 4), torch.zeros(2, 2, 3, 4)),
        (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)),
    ],
    ids=["type", "one", "three", "blocks differ", "rank"],
)
def test_unknown_caches_are_refused(cache):
    with pytest.raises(ConfigError):
        layout_of(cache)


@pytest.mark.parametrize("shape", [(4, 3, 32, 2, 64), (4, 32, 2, 64)])
def test_unknown_flash_shapes_are_refused(shape):
    with pytest.raises(ConfigError, match="FlashAttention"):
        flash_layout(torch.zeros(shape))


def test_two_blocks_are_read_as_blocks_first():
    assert isinstance(flash_layout(torch.zeros(2, 2, 32, 1, 8)), SeparateLayout)
