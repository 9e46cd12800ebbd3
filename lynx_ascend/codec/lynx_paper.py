"""Algorithm 1 of the Lynx paper with the paper's own constants: the baseline that ``lynx`` must beat.

How each was read, from the text without the listing; what it does not say, we took from ``lynx``, so that only the
paper's choices differ.

- page 256, chunk 32, for K and V alike (section 4.1, stages 1 and 2). One width, no token scale.
- center: the chunk's mean (stage 2).
- exact sinks: none, unless the caller's CodecSpec asks for them. The tail that fills no chunk, of which the paper says
  nothing, is exact.
- anchor and residual: ``a = (m + 7) >> 4``, ``r = m - 16 a``, a nibble each, the anchor's with the sign (stage 4).
- levels: no number is given. 120 is the most that the bias and the nibbles hold: from m = 121 on a would be 8, and the
  anchor's nibble ends at 7. ``lynx-paper-127`` takes "the stored absolute value of integer y" (stage 3) for that of a
  signed byte, 127 levels; larger magnitudes than 120 then saturate, and the extreme of a chunk shrinks in *both*
  streams, which leaves less accuracy than int8 has. The paper reports more, so that can hardly be meant.
- alpha: the paper gives no value; ``PlaneSpec.alpha``.
- -0: the complement of the nibble (line 21). An anchor of 0 decodes to magnitude 3, else its sign would be in vain.
- types of minimum, range, center and scale: float16 and bytes, as in ``lynx``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.float16 import covered, covering_range
from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.nibbles import join_tokens, split_tokens
from lynx_ascend.codec.scales import fractions, sigma_codes, sigmas
from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.codec.tiled import TiledCodec, Tiles, zero_raw

CHUNK = 32
_BIAS = 7
_LARGEST = 120  # of the magnitudes that fit a sign and two nibbles: (120 + 7) >> 4 is 7
_ZERO = 3  # what the anchor's 0 decodes to, among the magnitudes 0 to 8


@dataclass(frozen=True)
class _Fields:
    """[heads, pages, dim] float16 twice; [heads, pages, chunks, dim] uint8 twice; codes uint8
    [heads, pages, chunks, C, dim]: the anchor's nibble on top."""

    gamma_min: Tensor
    gamma_scale: Tensor
    mu: Tensor
    sigma: Tensor
    codes: Tensor


class LynxPaperCodec(TiledCodec):
    """120 levels. Chunk, token scale, widths and center of the settings are not used."""

    name: ClassVar[str] = "lynx-paper"
    progressive: ClassVar[bool] = True
    drafts: ClassVar[bool] = True
    family: ClassVar[str] = "lynx-paper"
    levels: ClassVar[int] = 120

    def __init__(self, spec: CodecSpec | None = None) -> None:
        super().__init__(CodecSpec(sinks=0, center="mean") if spec is None else spec)

    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        return tokens // CHUNK * CHUNK

    def _tile_bytes(self, dim: int, tokens: int, bits: int, spec: PlaneSpec) -> tuple[int, int]:
        nibbles = tokens // 2 * dim
        return 4 * dim + 2 * (tokens // CHUNK) * dim + nibbles, nibbles

    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        x = values.unflatten(2, (-1, CHUNK))
        low, high = x.amin(3), x.amax(3)
        page_low, page_high = low.amin(2), high.amax(2)
        gamma_min, gamma_scale = covering_range(page_low, page_high)
        fits = covered(page_low, page_high, gamma_scale).all(-1)
        raw = zero_raw(~fits, x, low, high, gamma_min, gamma_scale)
        base, width = gamma_min.float().unsqueeze(2), gamma_scale.float().unsqueeze(2)
        width = torch.where(width == 0, 1.0, width)
        low, high = (low - base) / width, (high - base) / width
        x.sub_(base.unsqueeze(3)).div_(width.unsqueeze(3))
        mu_code = (_mean(x) * 255).round_().to(torch.uint8)
        mu = fractions(255, x.device)[mu_code.int()]
        sigma_code = sigma_codes(torch.maximum(high - mu, mu - low))
        x.sub_(mu.unsqueeze(3)).div_(sigmas(x.device)[sigma_code].unsqueeze(3))
        magnitude = torch.bucketize(x.abs(), _thresholds(self.levels, spec.alpha, x.device), out_int32=True)
        codes = magnitude.add_(_BIAS).to(torch.uint8)
        codes ^= (x < 0).view(torch.uint8) * 0xF0
        return Tiles(raw, _Fields(gamma_min, gamma_scale, mu_code, sigma_code.to(torch.uint8), codes))

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        fields: _Fields = tiles.fields
        part = heads.slice
        header = [fields.gamma_min[part], fields.gamma_scale[part], fields.mu[part], fields.sigma[part]]
        codes = fields.codes[part]
        return [*header, join_tokens(codes >> 4)], [join_tokens(codes & 15)]

    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        chunks, device = tokens // CHUNK, anchor.device
        gamma, scales, codes = anchor.split([4 * dim, 2 * chunks * dim, tokens // 2 * dim], -1)
        gamma = gamma.clone(memory_format=torch.contiguous_format).view(torch.float16).float()
        gamma_min, gamma_scale = gamma.unsqueeze(2).chunk(2, -1)
        mu, sigma = scales.unflatten(2, (2, chunks, dim)).int().unbind(2)
        index = split_tokens(codes.unflatten(2, (chunks, -1, dim)), CHUNK)
        if residual is not None:
            index = (index << 4) | split_tokens(residual.unflatten(2, (chunks, -1, dim)), CHUNK)
        u = _table(self.levels, spec.alpha, residual is None, device)[index.int()]
        u.mul_(sigmas(device)[sigma].unsqueeze(3)).add_(fractions(255, device)[mu].unsqueeze(3))
        return u.flatten(2, 3).mul_(gamma_scale).add_(gamma_min)


class LynxPaper127Codec(LynxPaperCodec):
    """127 levels, of which those above 120 saturate."""

    name: ClassVar[str] = "lynx-paper-127"
    family: ClassVar[str] = "lynx-paper-127"
    levels: ClassVar[int] = 127


def _mean(x: Tensor) -> Tensor:
    """The mean over the chunk's tokens, halves added pairwise: the same bits for any layout of ``x``."""
    while x.shape[3] > 1:
        first, second = x.chunk(2, 3)
        x = first + second
    return x.squeeze(3) / CHUNK


def _level(magnitude: float, levels: int, alpha: float) -> float:
    return math.expm1(magnitude / levels * math.log1p(alpha)) / alpha


@lru_cache(maxsize=64)
def _thresholds(levels: int, alpha: float, device: torch.device) -> Tensor:
    """float32 ``[120]``: between the magnitudes k - 1 and k; a value on it belongs to k - 1."""
    bounds = [_level(k - 0.5, levels, alpha) for k in range(1, _LARGEST + 1)]
    return torch.tensor(bounds, dtype=torch.float32, device=device)


@lru_cache(maxsize=64)
def _table(levels: int, alpha: float, anchor_only: bool, device: torch.device) -> Tensor:
    """float32: the value of each of 16 anchor nibbles, or of 256 bytes of both nibbles."""
    values = []
    for code in range(16 if anchor_only else 256):
        nibble = code if anchor_only else code >> 4
        top, sign = (nibble, 1) if nibble < 8 else (15 - nibble, -1)
        magnitude = (16 * top or _ZERO) if anchor_only else 16 * top + (code & 15) - _BIAS
        values.append(sign * _level(magnitude, levels, alpha))
    return torch.tensor(values, dtype=torch.float32, device=device)
