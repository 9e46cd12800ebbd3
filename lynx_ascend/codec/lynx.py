"""Hierarchical non-linear quantization: the reference of Algorithm 1 of the Lynx paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.base import PlaneShape
from lynx_ascend.codec.channels import join_channels, replace_hot, split_channels, take_hot
from lynx_ascend.codec.checks import check_none
from lynx_ascend.codec.companding import companding
from lynx_ascend.codec.float16 import FLOAT16_MAX, covered, covering_range
from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.scales import fractions, sigma_codes, sigmas, token_scale_codes, token_scales
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.codec.tiled import TiledCodec, Tiles, zero_raw
from lynx_ascend.errors import CodecError


@dataclass(frozen=True)
class _Fields:
    """One run of pages: [heads, pages, dim] float16 twice, [heads, pages, chunks, dim] uint8 twice,
    [heads, pages, tokens] uint8 or None, and both nibbles of codes [heads, pages, chunks, C/2, dim]."""

    gamma_min: Tensor
    gamma_scale: Tensor
    mu: Tensor
    sigma: Tensor
    token_scale: Tensor | None
    anchor: Tensor
    residual: Tensor


class LynxCodec(TiledCodec):
    """Both streams; a decode engine drafts on the anchor and verifies with the residual."""

    name: ClassVar[str] = "lynx"
    progressive: ClassVar[bool] = True
    drafts: ClassVar[bool] = True
    family: ClassVar[str] = "lynx8"

    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        if self.spec.page % spec.chunk:
            raise CodecError(f"chunks of {spec.chunk} tokens do not divide a page of {self.spec.page}")
        return tokens // spec.chunk * spec.chunk

    def _tile_bytes(self, dim: int, tokens: int, hot: int, spec: PlaneSpec) -> tuple[int, int]:
        chunks = tokens // spec.chunk
        anchor = 4 * dim + 2 * chunks * dim + tokens // 2 * (dim + hot)
        return anchor + (tokens if spec.token_scale else 0), tokens // 2 * (dim - hot)

    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        raw = torch.zeros(values.shape[:2], dtype=torch.bool, device=values.device)
        token_scale = None
        if spec.token_scale:
            largest = values.abs().amax(-1)
            raw |= ~(largest <= FLOAT16_MAX).all(-1)  # written so that a NaN fails
            token_scale = token_scale_codes(largest)
            values.div_(token_scales(values.device)[token_scale].unsqueeze(-1))
        x = values.unflatten(2, (-1, spec.chunk))
        low, high = x.amin(3), x.amax(3)
        page_low, page_high = low.amin(2), high.amax(2)
        gamma_min, gamma_scale = covering_range(page_low, page_high)
        raw |= ~covered(page_low, page_high, gamma_scale).all(-1)
        tiles = zero_raw(raw, x, low, high, gamma_min, gamma_scale)
        return Tiles(tiles, self._codes(x, low, high, gamma_min, gamma_scale, token_scale, spec))

    def _codes(
        self,
        x: Tensor,
        low: Tensor,
        high: Tensor,
        gamma_min: Tensor,
        gamma_scale: Tensor,
        token_scale: Tensor | None,
        spec: PlaneSpec,
    ) -> _Fields:
        base = gamma_min.float().unsqueeze(2)
        width = gamma_scale.float().unsqueeze(2)
        width = torch.where(width == 0, 1.0, width)
        # Subtraction and division are monotone, so xn stays within [0, 1], the extremes of xn are the
        # images of the extremes of x, and u stays within [-1, 1]: nothing needs a clamp.
        low, high = (low - base) / width, (high - base) / width
        x.sub_(base.unsqueeze(3)).div_(width.unsqueeze(3))
        center = (low + high) * 127.5 if self.spec.center == "midrange" else _mean(x) * 255
        mu_code = center.round_().to(torch.uint8)
        mu = fractions(255, x.device)[mu_code.int()]
        sigma_code = sigma_codes(torch.maximum(high - mu, mu - low))
        x.sub_(mu.unsqueeze(3)).div_(sigmas(x.device)[sigma_code].unsqueeze(3))
        codes = companding(spec.alpha, x.device).codes(x)
        first, second = codes.chunk(2, 3)
        return _Fields(
            gamma_min,
            gamma_scale,
            mu_code,
            sigma_code.to(torch.uint8),
            None if token_scale is None else token_scale.to(torch.uint8),
            (first >> 4) | (second & 0xF0),
            (first & 15) | (second << 4),
        )

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        fields: _Fields = tiles.fields
        part = heads.slice
        hot, rest = split_channels(fields.residual[part], heads, spec.hot)
        scale = [] if fields.token_scale is None else [fields.token_scale[part]]
        header = [fields.gamma_min[part], fields.gamma_scale[part], fields.mu[part], fields.sigma[part]]
        return [*header, *scale, fields.anchor[part], hot], [rest]

    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        tables = companding(spec.alpha, anchor.device)
        chunks, half = tokens // spec.chunk, spec.chunk // 2
        sizes = [4 * dim, 2 * chunks * dim, tokens if spec.token_scale else 0, tokens // 2 * dim]
        gamma, scales, token_scale, codes, hot = anchor.split([*sizes, tokens // 2 * heads.hot], -1)
        codes = codes.unflatten(2, (chunks, half, dim))
        hot = hot.unflatten(2, (chunks, half, heads.hot))
        if residual is not None:
            rest = residual.unflatten(2, (chunks, half, dim - heads.hot))
            u = _full(codes, join_channels(hot, rest, heads, spec.hot), tables.full)
        else:
            u = _anchor(codes, tables.anchor)
            if heads.hot and spec.hot is not None:
                refined = _full(take_hot(codes, heads, spec.hot), hot, tables.full)
                replace_hot(u, refined, heads, spec.hot)
        mu, sigma = scales.unflatten(2, (2, chunks, dim)).unbind(2)
        gamma_min, gamma_scale = _halves(gamma, dim)
        device = anchor.device
        u.mul_(sigmas(device)[sigma.int()].unsqueeze(3)).add_(fractions(255, device)[mu.int()].unsqueeze(3))
        values = u.flatten(2, 3).mul_(gamma_scale.unsqueeze(2)).add_(gamma_min.unsqueeze(2))
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

    def _tile_bytes(self, dim: int, tokens: int, hot: int, spec: PlaneSpec) -> tuple[int, int]:
        return super()._tile_bytes(dim, tokens, hot, spec)[0], 0

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        return super()._pack(tiles, heads, spec)[0], []

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        check_none(self.name, residual)
        return self.decode_anchor(shape, spec, anchor)


def _mean(x: Tensor) -> Tensor:
    """The mean over the chunk's tokens, halves added pairwise: one order of summation everywhere."""
    tokens = x.shape[3]
    while x.shape[3] > 1:
        first, second = x.chunk(2, 3)
        x = first + second
    return x.squeeze(3) / tokens


def _full(codes: Tensor, residual: Tensor, table: Tensor) -> Tensor:
    both = torch.stack((((codes & 15) << 4) | (residual & 15), (codes & 0xF0) | (residual >> 4)), 3)
    return _look_up(table, both.flatten(3, 4))


def _anchor(codes: Tensor, table: Tensor) -> Tensor:
    return _look_up(table, torch.stack((codes & 15, codes >> 4), 3).flatten(3, 4))


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index.to(torch.int32).view(-1)).view(index.shape)


def _halves(gamma: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    values = gamma.clone(memory_format=torch.contiguous_format).view(torch.float16).float()
    return values[..., :dim], values[..., dim:]
