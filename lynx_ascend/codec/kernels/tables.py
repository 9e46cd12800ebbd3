"""The constants of one plane on its device, in one float32 vector; where each stands. Needs no triton."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lynx_ascend.codec.companding import companding, thresholds
from lynx_ascend.codec.hot import HotChannels
from lynx_ascend.codec.scales import fractions, sigmas, token_scales
from lynx_ascend.codec.spec import LEVELS

FRACTIONS = 0
SIGMAS = 256
TOKEN_SCALES = 512
FULL_LEVELS = 768
ANCHOR_LEVELS = 1024
CURVE = 1040
THRESHOLDS = 1047

_MOST_DEGREE = 6
_HOST = torch.device("cpu")


@lru_cache(maxsize=256)
def tables(alpha: float, device: torch.device) -> Tensor:
    """float32 ``[1047 + levels]``: see the offsets above. Copied to the device once."""
    levels = companding(alpha, _HOST)
    parts = [fractions(255, _HOST), sigmas(_HOST), token_scales(_HOST), levels.full, levels.anchor]
    curve = torch.zeros(_MOST_DEGREE + 1)
    coefficients = magnitude_curve(alpha)
    curve[: len(coefficients)] = torch.tensor(coefficients)
    return torch.cat([*parts, curve, thresholds(alpha)]).to(device)


def steepness(alpha: float) -> float:
    """The factor that turns ``log2(1 + alpha |u|)`` into a magnitude."""
    return LEVELS / math.log2(1 + alpha)


@lru_cache(maxsize=256)
def magnitude_curve(alpha: float) -> tuple[float, ...]:
    """Coefficients, highest first, of a polynomial in |u| that is within 1/4 of the magnitude.

    Empty where 6 degrees are too few: the logarithm, dearer, does it then. Of either the kernels need only to know
    between which two magnitudes it lies.
    """
    u = np.linspace(0, 1, 4001)
    magnitude = steepness(alpha) * np.log2(1 + alpha * u)
    for degree in range(2, _MOST_DEGREE + 1):
        fit = np.polynomial.Chebyshev.fit(u, magnitude, degree).convert(kind=np.polynomial.Polynomial)
        coefficients = fit.coef[::-1].astype(np.float32)
        if np.abs(np.polyval(coefficients, u) - magnitude).max() < 0.25:
            return tuple(float(c) for c in coefficients)
    return ()


@lru_cache(maxsize=1024)
def hot_tables(hot: HotChannels | None, heads: int, dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """How many hot channels stand before each head, int32 ``[heads + 1]``; each channel's slot, int32 ``[heads, dim]``.

    A hot channel's slot is its position among the head's hot channels; another's is -1 minus that among the others.
    """
    mask = torch.zeros(heads, dim, dtype=torch.bool) if hot is None else hot.mask
    before = torch.cat((torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)))
    slots = torch.where(mask, mask.cumsum(1) - 1, -mask.logical_not().cumsum(1))
    return before.to(device, torch.int32), slots.to(device, torch.int32)
