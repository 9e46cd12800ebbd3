"""The constants of one plane on its device, in one float32 vector; where each stands. Needs no triton."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from lynx_ascend.codec.companding import companding, thresholds
from lynx_ascend.codec.scales import fractions, sigmas, token_scales
from lynx_ascend.codec.spec import LEVELS
from lynx_ascend.codec.widths import CODE_BITS, ChannelWidths

FRACTIONS = 0
SIGMAS = 256
TOKEN_SCALES = 512
KNOWN_LEVELS = 768
CURVE = 3072
THRESHOLDS = 3079

_MOST_DEGREE = 6
_HOST = torch.device("cpu")


@lru_cache(maxsize=256)
def tables(alpha: float, device: torch.device) -> Tensor:
    """float32 ``[3079 + levels]``: see the offsets above. Copied to the device once."""
    levels = companding(alpha, _HOST)
    parts = [fractions(255, _HOST), sigmas(_HOST), token_scales(_HOST), levels.anchor]
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
def width_tables(widths: ChannelWidths | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Bits of a token in the anchor before each head, int32 ``[heads + 1]``; places, int32 ``[heads, 9, dim]``.

    Of the bits of eight tokens' codes, a byte for each bit and channel, byte ``[bit, channel]`` has the position ``p``
    among those in the anchor, or among those in the residual, which is written ``-1 - p``. The last row holds the
    widths. Without widths the kernels need neither.
    """
    if widths is None:
        none = torch.zeros(1, dtype=torch.int32, device=device)
        return none, none
    values = widths.values.to(torch.int64)
    before = torch.cat((torch.zeros(1, dtype=torch.int64), values.sum(1).cumsum(0)))
    row = torch.arange(CODE_BITS).view(1, -1, 1)
    anchor = (row < values.unsqueeze(1)).flatten(1)
    places = torch.where(anchor, anchor.cumsum(1) - 1, -anchor.logical_not().cumsum(1))
    places = torch.cat((places.unflatten(1, (CODE_BITS, -1)).flip(1), values.unsqueeze(1)), 1)
    return before.to(device, torch.int32), places.to(device, torch.int32)
