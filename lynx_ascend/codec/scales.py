"""The small tables that turn stored bytes into centers and scales.

Every table is computed in float64 and rounded once to float32, so that all backends hold the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def fractions(levels: int, device: torch.device) -> Tensor:
    """float32 ``[levels + 1]``: ``k / levels``."""
    return torch.tensor([k / levels for k in range(levels + 1)], dtype=torch.float32, device=device)


@lru_cache(maxsize=16)
def sigmas(device: torch.device) -> Tensor:
    """float32 ``[256]``: ``2^(-s/32)``, descending from 1."""
    return torch.tensor([2.0 ** (-s / 32) for s in range(256)], dtype=torch.float32, device=device)


@lru_cache(maxsize=16)
def token_scales(device: torch.device) -> Tensor:
    """float32 ``[256]``: ``2^((e-128)/4)``, ascending."""
    return torch.tensor([2.0 ** ((e - 128) / 4) for e in range(256)], dtype=torch.float32, device=device)


@lru_cache(maxsize=16)
def _ascending_sigmas(device: torch.device) -> Tensor:
    return sigmas(device).flip(0).contiguous()


def sigma_codes(reach: Tensor) -> Tensor:
    """The largest code whose sigma is at least ``reach`` (float32 in [0, 1]); int64, 255 for 0."""
    return 255 - torch.searchsorted(_ascending_sigmas(reach.device), reach)


def token_scale_codes(largest: Tensor) -> Tensor:
    """The smallest code whose scale is at least ``largest`` (float32, not negative); int64, 0 for 0."""
    return torch.searchsorted(token_scales(largest.device), largest).clamp_(max=255)
