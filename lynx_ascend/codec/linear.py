"""The simple schemes that the paper compares with: linear int8 and int4 per (page, head, channel)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.float16 import covered, covering_range
from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.scales import fractions
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.codec.tiled import TiledCodec, Tiles, zero_raw


@dataclass(frozen=True)
class _Fields:
    gamma_min: Tensor
    gamma_scale: Tensor
    codes: Tensor


class Int8Codec(TiledCodec):
    """Asymmetric linear, 8 bits, all in the anchor. Chunks, token scales and hot channels are not used."""

    name: ClassVar[str] = "int8"
    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    family: ClassVar[str] = "int8"
    levels: ClassVar[int] = 255

    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        # Without chunks there is no tail; a segment that the sinks fill has nothing to code.
        return tokens if tokens > self.spec.sinks else 0

    def _tile_bytes(self, dim: int, tokens: int, hot: int, spec: PlaneSpec) -> tuple[int, int]:
        return 4 * dim + tokens * dim, 0

    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        low, high = values.amin(2), values.amax(2)
        gamma_min, gamma_scale = covering_range(low, high)
        raw = zero_raw(~covered(low, high, gamma_scale).all(-1), values, gamma_min, gamma_scale)
        width = torch.where(gamma_scale == 0, 1.0, gamma_scale.float()).unsqueeze(2)
        values.sub_(gamma_min.float().unsqueeze(2)).div_(width).mul_(self.levels).round_()
        return Tiles(raw, _Fields(gamma_min, gamma_scale, values.to(torch.uint8)))

    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        fields: _Fields = tiles.fields
        part = heads.slice
        return [fields.gamma_min[part], fields.gamma_scale[part], self._join(fields.codes[part])], []

    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        gamma = anchor[..., : 4 * dim].clone(memory_format=torch.contiguous_format)
        gamma_min, gamma_scale = gamma.view(torch.float16).float().unsqueeze(2).chunk(2, -1)
        codes = self._split(anchor[..., 4 * dim :].unflatten(2, (-1, dim)), tokens)
        index = codes.to(torch.int32)
        values = fractions(self.levels, anchor.device).index_select(0, index.view(-1)).view(index.shape)
        return values.mul_(gamma_scale).add_(gamma_min)

    def _join(self, codes: Tensor) -> Tensor:
        """Codes ``[heads, pages, tokens, dim]`` as the bytes that travel."""
        return codes

    def _split(self, data: Tensor, tokens: int) -> Tensor:
        """Undo ``_join``."""
        return data


class Int4Codec(Int8Codec):
    """Asymmetric linear, 4 bits: token ``j`` of a tile in the low nibble, token ``half + j`` in the high."""

    name: ClassVar[str] = "int4"
    family: ClassVar[str] = "int4"
    levels: ClassVar[int] = 15

    def _tile_bytes(self, dim: int, tokens: int, hot: int, spec: PlaneSpec) -> tuple[int, int]:
        return 4 * dim + (tokens + 1) // 2 * dim, 0

    def _join(self, codes: Tensor) -> Tensor:
        half = (codes.shape[2] + 1) // 2
        joined = codes[:, :, :half].clone()
        joined[:, :, : codes.shape[2] - half] |= codes[:, :, half:] << 4
        return joined

    def _split(self, data: Tensor, tokens: int) -> Tensor:
        return torch.cat((data & 15, data >> 4), 2)[:, :, :tokens].contiguous()
