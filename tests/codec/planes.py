"""Planes to test with. The golden ones come from integers alone, so that no generator can drift."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from lynx_ascend.codec import ChannelWidths, PlaneSpec

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def specs(*chunks: int) -> st.SearchStrategy[PlaneSpec]:
    """Plane specs of any of these chunks, of the default widths."""
    return st.builds(PlaneSpec, st.sampled_from(chunks), st.booleans(), st.sampled_from([0.1, 0.5, 4.0]))


def laplacian(tokens: int, heads: int, dim: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Laplacian values, one outlier channel, large sinks: like a K cache."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(tokens, heads, dim, generator=generator) - 0.5
    plane = -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.4999))
    plane[:, :, dim // 3] *= 30
    plane[:4] *= 50
    return plane.to(dtype)


def integers(tokens: int, heads: int, dim: int, dtype: torch.dtype, seed: int = 1) -> Tensor:
    """Values k / 64 from a linear congruential generator; exact in every dtype."""
    state, values = seed, []
    for _ in range(tokens * heads * dim):
        state = (1103515245 * state + 12345) % 2**31
        values.append((((state >> 16) % 255) - 127) / 64)
    return torch.tensor(values, dtype=torch.float32).view(tokens, heads, dim).to(dtype)


def uneven(heads: int, dim: int) -> ChannelWidths:
    """The default in the first head, 8 in the second, 1 to 8 in turns in the others."""
    widths = torch.full((heads, dim), 4)
    widths[1:2] = 8
    widths[2:] = torch.arange(dim) * 3 % 8 + 1
    return ChannelWidths(widths)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors hold the same bits, NaN and -0 included."""
    return (
        left.shape == right.shape
        and left.dtype == right.dtype
        and torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))
    )
