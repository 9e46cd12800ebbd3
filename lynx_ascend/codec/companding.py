"""Non-linear codes: from a value in [-1, 1] to a byte of anchor and residual, and back (Algorithm 1)."""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import torch
from torch import Tensor

from lynx_ascend.codec.spec import LEVELS
from lynx_ascend.codec.widths import CODE_BITS

_BIAS = 7  # (m + 7) >> 4 rounds half down; the same sum's low nibble is the residual's code


class Companding:
    """The tables of one ``alpha``.

    A code is one byte, most significant bits first in importance. For a magnitude ``m`` and u >= 0 it is ``m + 7``; for
    u < 0 its high nibble is inverted.

    Attributes:
        full: float32 ``[256]``, the value of every code byte.
        anchor: float32 ``[9 * 256]``, the value of a code whose ``width`` highest bits are known, the others being 0,
            at ``256 * width + code``: the middle of the magnitudes that it may stand for.
    """

    def __init__(self, alpha: float, device: torch.device) -> None:
        (alpha,) = struct.unpack("f", struct.pack("f", alpha))
        self.full = torch.tensor(
            [_full_value(code, alpha) for code in range(256)], dtype=torch.float32, device=device
        )
        self.anchor = torch.tensor(
            [_anchor_value(width, code, alpha) for width in range(CODE_BITS + 1) for code in range(256)],
            dtype=torch.float32,
            device=device,
        )
        self._build_cells(thresholds(alpha), device)

    def codes(self, u: Tensor) -> Tensor:
        """The code byte of each float32 ``u`` in [-1, 1]; uint8 of the same shape. Destroys ``u``.

        The magnitude is the number of thresholds below |u|. Cutting [0, 1] into cells that hold at
        most one threshold each leaves a single comparison per value.
        """
        negative = u < 0
        magnitude = u.abs_()
        cell = (magnitude * self._cells).to(torch.int32).view(-1)
        codes = self._below.index_select(0, cell).view(u.shape)
        codes += magnitude > self._inside.index_select(0, cell).view(u.shape)
        codes ^= negative.view(torch.uint8) * 0xF0
        return codes

    def _build_cells(self, bounds: Tensor, device: torch.device) -> None:
        # A power of two, so that value * cells is exact and cuts where the table was cut.
        cells = 128
        while (cell := (bounds * cells).to(torch.int64)).unique().numel() < LEVELS:
            cells *= 2
        self._cells = cells
        below = torch.searchsorted(cell, torch.arange(cells + 1)) + _BIAS
        inside = torch.full((cells + 1,), math.inf, dtype=torch.float32)
        inside[cell] = bounds
        self._below = below.to(torch.uint8).to(device)
        self._inside = inside.to(device)


@lru_cache(maxsize=256)
def companding(alpha: float, device: torch.device) -> Companding:
    """The (cached) tables of ``alpha`` on ``device``."""
    return Companding(alpha, device)


def thresholds(alpha: float) -> Tensor:
    """float32 ``[112]``, ascending: the boundary between the magnitudes k - 1 and k, k = 1..112.

    A value on the boundary belongs to k - 1. These boundaries are the definition of the magnitude;
    ``round(112 * ln(1 + alpha |u|) / ln(1 + alpha))`` is the same but for rounding at a boundary.
    """
    return torch.tensor([_expand(k - 0.5, alpha) for k in range(1, LEVELS + 1)], dtype=torch.float32)


def _expand(magnitude: float, alpha: float) -> float:
    return math.expm1(magnitude / LEVELS * math.log1p(alpha)) / alpha


def _full_value(code: int, alpha: float) -> float:
    return _anchor_value(CODE_BITS, code, alpha)


def _anchor_value(width: int, code: int, alpha: float) -> float:
    """The value in the middle of what codes with these ``width`` highest bits stand for; 0 for no such code."""
    negative, unknown = code >= 128, (1 << (CODE_BITS - width)) - 1
    known = (code ^ 0xF0 if negative else code) & ~unknown
    first, last = max(known - _BIAS, 0), min((known | unknown) - _BIAS, LEVELS)
    value = _expand((first + last) / 2, alpha) if first <= last else 0.0
    return -value if negative else value
