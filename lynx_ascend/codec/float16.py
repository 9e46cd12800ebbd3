"""Rounding to float16 in a given direction, on whole tensors."""

from __future__ import annotations

import torch
from torch import Tensor

FLOAT16_MAX = 65504.0


def round_down(values: Tensor) -> Tensor:
    """The largest float16 not above each float32 value; zeros keep their sign.

    Steps over the bit patterns, because ``torch.nextafter`` knows no float16.
    """
    nearest = values.to(torch.float16)
    bits = nearest.view(torch.int16)
    # Patterns are sign and magnitude: below a positive number lies the next smaller pattern, below
    # a negative one the next larger, and below either zero the smallest negative number.
    below = torch.where(nearest > 0, bits - 1, bits + 1)
    below = torch.where(nearest == 0, torch.full_like(bits, -0x7FFF), below)
    return torch.where(nearest.float() > values, below, bits).view(torch.float16)


def round_up(values: Tensor) -> Tensor:
    """The smallest float16 not below each float32 value; zeros keep their sign."""
    return -round_down(-values)


def covering_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Minimum and width in float16 that cover float32 ``low <= high``.

    Returns:
        ``(gamma_min, gamma_scale)``, float16: gamma_min <= low, and gamma_min + gamma_scale >= high
        when added in float32. Neither is -0. A width beyond float16 is infinite.
    """
    # -0 + 0 is +0: which of the two zeros a minimum or a maximum returns is then no matter.
    gamma_min = round_down(low + 0.0)
    gamma_scale = round_up(high - gamma_min.float() + 0.0)
    short = gamma_min.float() + gamma_scale.float() < high
    above = (gamma_scale.view(torch.int16) + 1).view(torch.float16)
    return gamma_min, torch.where(short, above, gamma_scale)


def covered(low: Tensor, high: Tensor, gamma_scale: Tensor) -> Tensor:
    """Where all values and their range have a finite float16: bool; a NaN has none."""
    return (low >= -FLOAT16_MAX) & (high <= FLOAT16_MAX) & gamma_scale.isfinite()


def saturate(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Clamp float32 ``values`` in place so that a finite value stays finite in ``dtype``."""
    if dtype == torch.float16:
        values.clamp_(-FLOAT16_MAX, FLOAT16_MAX)
    return values
