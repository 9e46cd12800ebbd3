"""Linear quantization, the simple schemes that the paper compares with, in every grouping; and KIVI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.float16 import covered, covering_range
from lynx_ascend.codec.grouping import Grouping
from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.nibbles import join_tokens, split_tokens
from lynx_ascend.codec.scales import fractions
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.codec.tiled import TiledCodec, Tiles, zero_raw
from lynx_ascend.errors import CodecError


@dataclass(frozen=True)
class Scheme:
    """A linear codec as data.

    Args:
        name: its name in the registry.
        bits: of a code, 4 or 8.
        k: the grouping of K planes and of latents.
        v: the grouping of V planes; None: as K.
        unit: tokens are coded in multiples of it, and the rest of the sequence, which fills none, is exact.
    """

    name: str
    bits: int
    k: Grouping
    v: Grouping | None = None
    unit: int = 1

    def grouping(self, kind: str) -> Grouping:
        """The grouping of a plane of ``kind``."""
        return self.v if kind == "v" and self.v is not None else self.k


@dataclass(frozen=True)
class _Fields:
    """[heads, pages, *groups] float16 twice, [heads, pages, tokens, dim] uint8."""

    gamma_min: Tensor
    gamma_scale: Tensor
    codes: Tensor


class LinearCodec(TiledCodec):
    """Asymmetric linear, all in the anchor. Chunks, token scales and widths are not used."""

    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    scheme: ClassVar[Scheme]

    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        unit = self.scheme.unit
        if self.spec.page % unit:
            raise CodecError(f"groups of {unit} tokens do not divide a page of {self.spec.page}")
        # A segment that the sinks fill has nothing to code.
        return tokens // unit * unit if tokens > self.spec.sinks else 0

    def _tile_bytes(self, dim: int, tokens: int, bits: int, spec: PlaneSpec) -> tuple[int, int]:
        down, across = self.scheme.grouping(spec.kind).shape(tokens, dim)
        rows = tokens if self.scheme.bits == 8 else (tokens + 1) // 2
        return 4 * down * across + rows * dim, 0

    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        grouping, (tokens, dim) = self.scheme.grouping(spec.kind), values.shape[2:]
        low, high = grouping.extremes(values)
        gamma_min, gamma_scale = covering_range(low, high)
        fits = covered(low, high, gamma_scale).flatten(2).all(-1)
        raw = zero_raw(~fits, values, gamma_min, gamma_scale)
        width = torch.where(gamma_scale == 0, 1.0, gamma_scale.float())
        values.sub_(grouping.spread(gamma_min.float(), tokens, dim)).div_(grouping.spread(width, tokens, dim))
        codes = values.mul_(self._levels).round_().to(torch.uint8)
        return Tiles(raw, _Fields(gamma_min, gamma_scale, codes))

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        fields: _Fields = tiles.fields
        part = heads.slice
        codes = fields.codes[part] if self.scheme.bits == 8 else join_tokens(fields.codes[part])
        return [fields.gamma_min[part], fields.gamma_scale[part], codes], []

    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        grouping = self.scheme.grouping(spec.kind)
        groups = grouping.shape(tokens, dim)
        size = 4 * groups[0] * groups[1]
        gamma = anchor[..., :size].clone(memory_format=torch.contiguous_format)
        ranges = gamma.view(torch.float16).float().unflatten(2, (2, *groups))
        gamma_min, gamma_scale = (grouping.spread(part, tokens, dim) for part in ranges.unbind(2))
        codes = anchor[..., size:].unflatten(2, (-1, dim))
        index = (codes if self.scheme.bits == 8 else split_tokens(codes, tokens)).to(torch.int32)
        values = fractions(self._levels, anchor.device).index_select(0, index.view(-1)).view(index.shape)
        return values.mul_(gamma_scale).add_(gamma_min)

    @property
    def _levels(self) -> int:
        return (1 << self.scheme.bits) - 1


def _linear(scheme: Scheme) -> type[LinearCodec]:
    class Linear(LinearCodec):
        name: ClassVar[str] = scheme.name
        family: ClassVar[str] = scheme.name

    Linear.scheme = scheme
    return Linear


def _tokens(size: int) -> Grouping:
    return Grouping("tokens", size)


def _channels(size: int | None = None) -> Grouping:
    return Grouping("channels", size)


SCHEMES = (
    # Per channel over the page, with nothing left over: the cheapest ranges, and what a demo compares with.
    Scheme("int8", 8, Grouping("tokens")),
    Scheme("int4", 4, Grouping("tokens")),
    Scheme("int8-channel-32", 8, _tokens(32), unit=32),
    Scheme("int8-token", 8, _channels()),
    Scheme("int8-token-32", 8, _channels(32)),
    Scheme("int4-channel-64", 4, _tokens(64), unit=64),
    Scheme("int4-channel-32", 4, _tokens(32), unit=32),
    Scheme("int4-token", 4, _channels()),
    Scheme("int4-token-64", 4, _channels(64)),
    Scheme("int4-token-32", 4, _channels(32)),
    # KIVI (Liu et al. 2024, arXiv:2402.02750), groups of 32. It keeps the newest tokens, which fill no group, in full
    # precision: the exact tail does that here. A latent is grouped like K, which KIVI leaves open.
    Scheme("kivi4", 4, _tokens(32), _channels(32), unit=32),
)
LINEAR_CODECS = tuple(_linear(scheme) for scheme in SCHEMES)
