"""Hierarchical non-linear quantization: the reference of Algorithm 1 of the Lynx paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.base import PlaneShape
from lynx_ascend.codec.bitplanes import (
    GROUP,
    from_bitplanes,
    join_rows,
    split_rows,
    to_bitplanes,
    width_values,
)
from lynx_ascend.codec.checks import check_none
from lynx_ascend.codec.companding import companding
from lynx_ascend.codec.float16 import FLOAT16_MAX, covered, covering_range
from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.scales import fractions, sigma_codes, sigmas, token_scale_codes, token_scales
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.codec.tiled import TiledCodec, Tiles, zero_raw
from lynx_ascend.codec.widths import CODE_BITS
from lynx_ascend.errors import CodecError


@dataclass(frozen=True)
class _Fields:
    """One run of pages: [heads, pages, dim] float16 twice, [heads, pages, chunks, dim] uint8 twice,
    [heads, pages, tokens] uint8 or None, and the bit planes of the codes, [heads, pages, tokens / 8, 8, dim] uint8."""

    gamma_min: Tensor
    gamma_scale: Tensor
    mu: Tensor
    sigma: Tensor
    token_scale: Tensor | None
    rows: Tensor


class LynxCodec(TiledCodec):
    """Both streams; a decode engine drafts on the anchor and verifies with the residual."""

    name: ClassVar[str] = "lynx"
    progressive: ClassVar[bool] = True
    drafts: ClassVar[bool] = True
    family: ClassVar[str] = "lynx8"

    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        if self.spec.page % spec.chunk:
            raise CodecError(f"chunks of {spec.chunk} tokens do not divide a page of {self.spec.page}")
        coded = tokens // GROUP * GROUP
        return coded if coded > self.spec.sinks else 0

    def _tile_bytes(self, dim: int, tokens: int, bits: int, spec: PlaneSpec) -> tuple[int, int]:
        chunks = -(-tokens // spec.chunk)
        anchor = 4 * dim + 2 * chunks * dim + tokens // 8 * bits
        return anchor + (tokens if spec.token_scale else 0), tokens // 8 * (CODE_BITS * dim - bits)

    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        raw = torch.zeros(values.shape[:2], dtype=torch.bool, device=values.device)
        token_scale = None
        if spec.token_scale:
            largest = values.abs().amax(-1)
            raw |= ~(largest <= FLOAT16_MAX).all(-1)  # written so that a NaN fails
            token_scale = token_scale_codes(largest)
            values.div_(token_scales(values.device)[token_scale].unsqueeze(-1))
        tokens = values.shape[2]
        x = _whole_chunks(values, spec.chunk)
        low, high = x.amin(3), x.amax(3)
        page_low, page_high = low.amin(2), high.amax(2)
        gamma_min, gamma_scale = covering_range(page_low, page_high)
        raw |= ~covered(page_low, page_high, gamma_scale).all(-1)
        tiles = zero_raw(raw, x, low, high, gamma_min, gamma_scale)
        return Tiles(tiles, self._codes(x, low, high, gamma_min, gamma_scale, token_scale, spec, tokens))

    def _codes(
        self,
        x: Tensor,
        low: Tensor,
        high: Tensor,
        gamma_min: Tensor,
        gamma_scale: Tensor,
        token_scale: Tensor | None,
        spec: PlaneSpec,
        tokens: int,
    ) -> _Fields:
        base = gamma_min.float().unsqueeze(2)
        width = gamma_scale.float().unsqueeze(2)
        width = torch.where(width == 0, 1.0, width)
        # Subtraction and division are monotone, so xn stays within [0, 1], the extremes of xn are the
        # images of the extremes of x, and u stays within [-1, 1]: nothing needs a clamp.
        low, high = (low - base) / width, (high - base) / width
        x.sub_(base.unsqueeze(3)).div_(width.unsqueeze(3))
        center = (low + high) * 127.5 if self.spec.center == "midrange" else _mean(x, tokens) * 255
        mu_code = center.round_().to(torch.uint8)
        mu = fractions(255, x.device)[mu_code.int()]
        sigma_code = sigma_codes(torch.maximum(high - mu, mu - low))
        x.sub_(mu.unsqueeze(3)).div_(sigmas(x.device)[sigma_code].unsqueeze(3))
        codes = companding(spec.alpha, x.device).codes(x)
        return _Fields(
            gamma_min,
            gamma_scale,
            mu_code,
            sigma_code.to(torch.uint8),
            None if token_scale is None else token_scale.to(torch.uint8),
            to_bitplanes(codes.flatten(2, 3)[:, :, :tokens]),
        )

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        fields: _Fields = tiles.fields
        part = heads.slice
        anchor, residual = split_rows(fields.rows[part], heads, spec.widths)
        scale = [] if fields.token_scale is None else [fields.token_scale[part]]
        header = [fields.gamma_min[part], fields.gamma_scale[part], fields.mu[part], fields.sigma[part]]
        return [*header, *scale, anchor], [residual]

    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        tables = companding(spec.alpha, anchor.device)
        chunks, groups = -(-tokens // spec.chunk), tokens // GROUP
        sizes = [4 * dim, 2 * chunks * dim, tokens if spec.token_scale else 0, groups * heads.bits]
        gamma, scales, token_scale, front = anchor.split(sizes, -1)
        front = front.unflatten(2, (groups, heads.bits))
        if residual is not None:
            residual = residual.unflatten(2, (groups, CODE_BITS * dim - heads.bits))
        index = from_bitplanes(join_rows(front, residual, heads, spec.widths)).to(torch.int32)
        if residual is None:
            index += width_values(spec.widths, heads, anchor.device)[:, None, None] << 8
        table = tables.anchor if residual is None else tables.full
        u = table.index_select(0, index.view(-1)).view(index.shape)
        u = _whole_chunks(u, spec.chunk)
        mu, sigma = scales.unflatten(2, (2, chunks, dim)).unbind(2)
        gamma_min, gamma_scale = _halves(gamma, dim)
        device = anchor.device
        u.mul_(sigmas(device)[sigma.int()].unsqueeze(3)).add_(fractions(255, device)[mu.int()].unsqueeze(3))
        values = u.flatten(2, 3)[:, :, :tokens].mul_(gamma_scale.unsqueeze(2)).add_(gamma_min.unsqueeze(2))
        if spec.token_scale:
            values.mul_(token_scales(device)[token_scale.int()].unsqueeze(-1))
        return values


class LynxInt8Codec(LynxCodec):
    """The bytes of ``lynx``, decoded only when both streams are there: the text that it must equal."""

    name: ClassVar[str] = "lynx-int8"
    drafts: ClassVar[bool] = False


class LynxInt4Codec(LynxCodec):
    """The anchor of ``lynx``, never refined."""

    name: ClassVar[str] = "lynx-int4"
    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    family: ClassVar[str] = "lynx-int4"

    def _tile_bytes(self, dim: int, tokens: int, bits: int, spec: PlaneSpec) -> tuple[int, int]:
        return super()._tile_bytes(dim, tokens, bits, spec)[0], 0

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        return super()._pack(tiles, heads, spec)[0], []

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        check_none(self.name, residual)
        return self.decode_anchor(shape, spec, anchor)


def _whole_chunks(x: Tensor, chunk: int) -> Tensor:
    """``[heads, pages, tokens, dim]`` as ``[heads, pages, chunks, chunk, dim]``, the last token repeated to fill up."""
    missing = -x.shape[2] % chunk
    if missing:
        x = torch.cat((x, x[:, :, -1:].expand(-1, -1, missing, -1)), 2)
    return x.unflatten(2, (-1, chunk))


def _mean(x: Tensor, tokens: int) -> Tensor:
    """The mean over each chunk's tokens, halves added pairwise: one order of summation everywhere.

    What stands behind the first ``tokens`` tokens of ``[heads, pages, chunks, chunk, dim]`` counts as 0.
    """
    chunk = x.shape[3]
    rest = tokens % chunk
    counts = torch.full((x.shape[2], 1), chunk, dtype=x.dtype, device=x.device)
    if rest:
        x = x.clone()
        x[:, :, -1, rest:] = 0
        counts[-1] = rest
    while x.shape[3] > 1:
        first, second = x.chunk(2, 3)
        x = first + second
    return x.squeeze(3) / counts


def _halves(gamma: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    values = gamma.clone(memory_format=torch.contiguous_format).view(torch.float16).float()
    return values[..., :dim], values[..., dim:]
