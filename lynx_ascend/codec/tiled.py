"""The frame that all tiled codecs share: flags, exact rows, raw tiles. What a tile holds is theirs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.checks import check_start
from lynx_ascend.codec.float16 import saturate
from lynx_ascend.codec.layout import HeadRun, PageRun, SegmentLayout
from lynx_ascend.codec.raw import RawTile, cut_raw, splice_raw
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.errors import CodecError


@dataclass(frozen=True)
class Tiles:
    """Quantized tiles.

    ``raw`` is bool ``[heads, pages]``, None where no tile is; ``fields`` mean something to the codec only.
    """

    raw: Tensor | None
    fields: Any


class TiledCodec(Codec):
    """A codec that quantizes tile by tile."""

    @abstractmethod
    def _coded(self, tokens: int, spec: PlaneSpec) -> int:
        """How many of the ``tokens`` of a segment stand in tiles; the others are exact."""

    @abstractmethod
    def _tile_bytes(self, dim: int, tokens: int, bits: int, spec: PlaneSpec) -> tuple[int, int]:
        """Bytes of a tile in the anchor and in the residual; ``bits``: of a token in the anchor's codes."""

    @abstractmethod
    def _quantize(self, values: Tensor, spec: PlaneSpec) -> Tiles:
        """Quantize float32 ``[heads, pages, tokens, dim]``, which may be destroyed."""

    @abstractmethod
    def _pack(self, tiles: Tiles, heads: HeadRun, spec: PlaneSpec) -> tuple[list[Tensor], list[Tensor]]:
        """The fields of the anchor and of the residual, each ``[heads, pages, ...]``, in their order."""

    @abstractmethod
    def _dequantize(
        self, anchor: Tensor, residual: Tensor | None, tokens: int, dim: int, heads: HeadRun, spec: PlaneSpec
    ) -> Tensor:
        """Undo ``_pack`` and ``_quantize``: float32 ``[heads, pages, tokens, dim]``.

        ``anchor`` and ``residual`` are uint8 ``[heads, pages, bytes]``; ``residual`` may be None.
        """

    def encode(
        self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0, recent: int = 0
    ) -> EncodedPlane:
        shape = PlaneShape.of(plane, first_token, recent)
        layout = self.layout(shape, spec)
        rows = plane.detach().transpose(0, 1)
        anchor, residual = (
            torch.empty(size, dtype=torch.uint8, device=plane.device) for size in layout.bytes
        )
        raw: list[RawTile] = []
        for pages in layout.page_runs:
            source = rows[:, pages.rows].unflatten(1, (pages.pages, pages.tokens))
            values = torch.empty(source.shape, dtype=torch.float32, device=plane.device).copy_(source)
            if pages.first == 0 and layout.sinks:
                values[:, 0, : layout.sinks] = values[:, 0, layout.sinks : layout.sinks + 1]
            tiles = self._quantize(values, spec)
            for heads in layout.head_runs:
                for part, fields in enumerate(self._pack(tiles, heads, spec)):
                    _write(layout.tiles((anchor, residual)[part], part, heads, pages), fields)
            if tiles.raw is not None:
                raw += _raw_tiles(source, tiles.raw, pages)
        exact = _bytes(torch.cat((rows[:, : layout.sinks], rows[:, layout.coded :]), 1)).flatten(1)
        for heads in layout.head_runs:
            flags, target = layout.sections(anchor, heads)
            flags.zero_()
            target.copy_(exact[heads.slice])
        if raw:
            anchor, residual = splice_raw(layout, anchor, residual, raw)
        return EncodedPlane(shape, anchor, residual)

    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        return self._decode(shape, spec, anchor, None)

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        return self._decode(shape, spec, anchor, residual)

    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.layout(shape, spec).bytes[0]

    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.layout(shape, spec).bytes[1]

    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.layout(shape, spec).anchor_max

    def layout(self, shape: PlaneShape, spec: PlaneSpec) -> SegmentLayout:
        """Where every byte of a segment stands. Raises CodecError if the segment does not fit ``spec``."""
        check_start(shape.first_token, self.spec.page)
        widths = spec.widths
        if widths is not None and (widths.heads, widths.dim) != (shape.heads, shape.dim):
            raise CodecError(f"{widths} does not fit {shape.heads} heads of {shape.dim} channels")
        coded = self._coded(shape.tokens - shape.recent, spec)
        sinks = self.spec.sinks if coded and shape.first_token == 0 else 0
        return SegmentLayout(
            shape,
            self.spec.page,
            coded,
            sinks,
            spec,
            lambda tokens, bits: self._tile_bytes(shape.dim, tokens, bits, spec),
        )

    def _decode(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor | None) -> Tensor:
        layout = self.layout(shape, spec)
        anchor, residual, raw = cut_raw(layout, anchor, residual)
        out = torch.empty((shape.tokens, shape.heads, shape.dim), dtype=shape.dtype, device=anchor.device)
        rows = out.transpose(0, 1)
        for heads in layout.head_runs:
            for pages in layout.page_runs:
                values = self._dequantize(
                    layout.tiles(anchor, 0, heads, pages),
                    None if residual is None else layout.tiles(residual, 1, heads, pages),
                    pages.tokens,
                    shape.dim,
                    heads,
                    spec,
                )
                rows[heads.slice, pages.rows].copy_(saturate(values, shape.dtype).flatten(1, 2))
            exact = _values(layout.sections(anchor, heads)[1], shape.dtype)
            exact = exact.view(heads.heads, layout.exact // layout.row, shape.dim)
            rows[heads.slice, : layout.sinks] = exact[:, : layout.sinks]
            rows[heads.slice, layout.coded :] = exact[:, layout.sinks :]
        for tile in raw:
            start = tile.page * layout.page
            values = _values(tile.rows, shape.dtype).view(-1, shape.dim)
            rows[tile.head, start : start + values.shape[0]] = values
        return out


def zero_raw(raw: Tensor, *fields: Tensor) -> Tensor | None:
    """``raw``, or None if no tile is: the encoder's one look from the host.

    What ``fields``, ``[heads, pages, ...]``, hold of a raw tile is dropped later; zeros keep it harmless until then.
    """
    if not bool(raw.any()):
        return None
    for field in fields:
        field.masked_fill_(raw.view(*raw.shape, *(1,) * (field.ndim - 2)), 0)
    return raw


def _write(target: Tensor, fields: Iterable[Tensor]) -> None:
    start = 0
    for field in fields:
        data = _bytes(field).flatten(2)
        target[..., start : start + data.shape[-1]] = data
        start += data.shape[-1]


def _raw_tiles(source: Tensor, raw: Tensor, pages: PageRun) -> list[RawTile]:
    return [
        RawTile(head, pages.first + page, _bytes(source[head, page]).flatten())
        for head, page in raw.nonzero().tolist()
    ]


def _bytes(values: Tensor) -> Tensor:
    """The bytes of ``values``; the last dimension grows by the size of a value."""
    return values if values.dtype == torch.uint8 else values.contiguous().view(torch.uint8)


def _values(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as a vector of ``dtype``; copied, because a received buffer need not be aligned."""
    return data.clone(memory_format=torch.contiguous_format).flatten().view(dtype)
