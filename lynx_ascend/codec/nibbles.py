"""Two codes of four bits in a byte: the first half of a tile's tokens low, the second high."""

from __future__ import annotations

import torch
from torch import Tensor


def join_tokens(codes: Tensor) -> Tensor:
    """uint8 ``[..., tokens, dim]``, all below 16, as ``[..., ceil(tokens / 2), dim]``; 0 where no token is."""
    half = (codes.shape[-2] + 1) // 2
    joined = codes[..., :half, :].clone()
    joined[..., : codes.shape[-2] - half, :] |= codes[..., half:, :] << 4
    return joined


def split_tokens(data: Tensor, tokens: int) -> Tensor:
    """Undo ``join_tokens``."""
    return torch.cat((data & 15, data >> 4), -2)[..., :tokens, :].contiguous()
