"""vLLM's CPU attention: [blocks, heads, block, 2 * dim], K packed by the kernel's ISA.

See vllm/v1/attention/backends/cpu_attn.py. The packing is private to the C++ kernels, so it is read from the backend's
own writer once: a block of token numbers and a block of channel numbers, written by it, tell where each (token,
channel) stands.
"""

from __future__ import annotations

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts.base import LayerLayout

_PACKING: dict[tuple[torch.dtype, int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def _packing(dtype: torch.dtype, block: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Permutations of K and V: int64 [block * dim], position of (token, channel) within a head's part of a block."""
    key = (dtype, block, dim)
    if key not in _PACKING:
        isa = _get_attn_isa(dtype, block, dim)
        token = torch.arange(block).repeat_interleave(dim)
        channel = torch.arange(dim).repeat(block)
        # Digits below 128 are exact in bfloat16; two writes a coordinate cover any block and dim.
        probes = [token % 128, token // 128, channel % 128, channel // 128]
        read = [_write_probe(p.view(block, 1, dim).to(dtype), isa, block, dim) for p in probes]
        _PACKING[key] = (_permutation([r[0] for r in read], dim), _permutation([r[1] for r in read], dim))
    return _PACKING[key]


def _write_probe(values: torch.Tensor, isa: str, block: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Write one block with the backend's writer and return the raw K and V parts, [block * dim] each."""
    cache = torch.zeros(1, 1, block * 2, dim, dtype=values.dtype)
    k, v = cache.chunk(2, dim=2)
    ops.cpu_attn_reshape_and_cache(values.contiguous(), values.contiguous(), k, v, torch.arange(block), isa)
    return k.reshape(-1).to(torch.int64), v.reshape(-1).to(torch.int64)


def _permutation(digits: list[torch.Tensor], dim: int) -> torch.Tensor:
    token = digits[0] + 128 * digits[1]
    channel = digits[2] + 128 * digits[3]
    place = torch.empty_like(token)
    flat = token * dim + channel
    if not torch.equal(flat.sort().values, torch.arange(len(flat))):
        raise ConfigError(
            "the CPU attention backend does not store every value once; its layout is not supported"
        )
    place[flat] = torch.arange(len(flat))
    return place


class CpuLayout(LayerLayout):
    """One layer of the CPU backend's cache."""

    def __init__(self, cache: torch.Tensor) -> None:
        if cache.dim() != 4 or cache.shape[3] % 2 or not cache.is_contiguous():
            raise ConfigError(
                f"unknown CPU cache shape {tuple(cache.shape)}; expected [blocks, heads, block, 2 * dim]"
            )
        blocks, heads, block, twice = cache.shape
        dim = twice // 2
        parts = cache.view(blocks, heads, 2, block * dim)
        places = _packing(cache.dtype, block, dim)
        super().__init__({n: PagedPlane(parts[:, :, i], dim, places[i]) for i, n in enumerate(("k", "v"))})
