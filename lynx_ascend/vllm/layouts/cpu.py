"""vLLM's CPU attention: [blocks, heads, block, 2 * dim], K packed by the kernel's ISA.

See vllm/v1/attention/backends/cpu_attn.py. The packing is private to the C++ kernels, so it is read from the backend's
own writer once: a block of token numbers and a block of channel numbers, written by it, tell where each (token,
channel) stands.
"""

from __future__ import annotations

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts.base import LayerLayout, PlaneView, block_span

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
        self.block_size = block
        self.planes = (PlaneView("k", heads, dim, cache.dtype), PlaneView("v", heads, dim, cache.dtype))
        parts = cache.view(blocks, heads, 2, block * dim)
        places = _packing(cache.dtype, block, dim)
        self._parts = {"k": parts[:, :, 0], "v": parts[:, :, 1]}
        self._places = {"k": places[0], "v": places[1]}
        self._inverse = {name: torch.argsort(place) for name, place in self._places.items()}
        self._dim = dim
        self.device = cache.device

    def gather(self, plane: str, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """See `LayerLayout.gather`."""
        first, last, offset = block_span(self.block_size, start, end)
        part = self._parts[plane][block_ids[first:last]]
        blocks, heads, _ = part.shape
        ordered = part.index_select(2, self._places[plane]).view(blocks, heads, self.block_size, self._dim)
        return ordered.permute(0, 2, 1, 3).reshape(-1, heads, self._dim)[offset : offset + end - start]

    def scatter(self, plane: str, block_ids: torch.Tensor, start: int, values: torch.Tensor) -> None:
        """See `LayerLayout.scatter`."""
        size, heads = self.block_size, self._parts[plane].shape[1]
        values = values.to(self._parts[plane].dtype)
        end = start + values.shape[0]
        head_end = min(end, -(-start // size) * size)
        body_end = max(head_end, end // size * size)
        if start < head_end:
            self._scatter_within(
                plane, int(block_ids[start // size]), start % size, values[: head_end - start]
            )
        if head_end < body_end:
            whole = values[head_end - start : body_end - start]
            packed = (
                whole.view(-1, size, heads, self._dim)
                .permute(0, 2, 1, 3)
                .reshape(-1, heads, size * self._dim)
            )
            self._parts[plane][block_ids[head_end // size : body_end // size]] = packed.index_select(
                2, self._inverse[plane]
            )
        if body_end < end:
            self._scatter_within(plane, int(block_ids[body_end // size]), 0, values[body_end - start :])

    def _scatter_within(self, plane: str, block: int, offset: int, values: torch.Tensor) -> None:
        """Write a few tokens of one block, leaving its other tokens alone."""
        tokens, heads, dim = values.shape
        place = self._places[plane].view(self.block_size, dim)[offset : offset + tokens].reshape(-1)
        self._parts[plane][block][:, place] = values.permute(1, 0, 2).reshape(heads, tokens * dim)
