"""Where every byte of a segment stands. Knows sizes and offsets; nothing of what the bytes mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from lynx_ascend.codec.base import PlaneShape
from lynx_ascend.codec.spec import PlaneSpec

_FLAGS_ALIGNMENT = 64
# Long planes are worked on in runs of about this many values: their temporaries then stay in the cache.
_RUN_VALUES = 1 << 20

# (tokens of a tile, anchor bits of a token of its head) -> bytes in the anchor, bytes in the residual
TileSizes = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True)
class PageRun:
    """Consecutive pages whose tiles all hold ``tokens`` tokens."""

    first: int
    pages: int
    tokens: int
    first_row: int

    @property
    def rows(self) -> slice:
        """The tokens of the run, as rows of the segment."""
        return slice(self.first_row, self.first_row + self.pages * self.tokens)


@dataclass(frozen=True)
class HeadRun:
    """Consecutive heads of ``dim`` channels with the same sum of widths, ``bits``, and so tiles of the same size."""

    first: int
    heads: int
    dim: int
    bits: int

    @property
    def slice(self) -> slice:
        """The heads of the run."""
        return slice(self.first, self.first + self.heads)


class SegmentLayout:
    """The layout of a segment without raw tiles, head after head:

    anchor:   page flags, exact rows, tiles; residual: tiles.

    Args:
        shape: the segment.
        page: tokens of a page.
        coded: how many tokens, from the start, stand in tiles.
        sinks: how many of the coded tokens, from the start, are exact as well.
        spec: names the widths of the channels.
        sizes: the size of one tile.
    """

    def __init__(
        self, shape: PlaneShape, page: int, coded: int, sinks: int, spec: PlaneSpec, sizes: TileSizes
    ) -> None:
        self.shape = shape
        self.page = page
        self.coded = coded
        self.sinks = sinks
        self.pages = -(-shape.tokens // page)
        self.flags = -(-self.pages // _FLAGS_ALIGNMENT) * _FLAGS_ALIGNMENT
        self.row = shape.dim * shape.dtype.itemsize
        self.exact = (sinks + shape.tokens - coded) * self.row
        self.page_runs = _page_runs(page, coded, shape.heads * shape.dim)
        self.head_runs = _head_runs(shape.heads, shape.dim, spec)
        self._sizes = sizes

    def tile(self, tokens: int, bits: int) -> tuple[int, int]:
        """Bytes of a tile of ``tokens`` in the anchor and in the residual."""
        return self._sizes(tokens, bits) if tokens else (0, 0)

    def tile_tokens(self, page: int) -> int:
        """How many tokens the tiles of ``page`` hold; 0: every row of the page is exact."""
        return max(0, min(self.page, self.coded - page * self.page))

    def head(self, bits: int) -> tuple[int, int]:
        """Bytes of one head in the anchor and in the residual."""
        anchor, residual = self.flags + self.exact, 0
        for run in self.page_runs:
            tile_anchor, tile_residual = self.tile(run.tokens, bits)
            anchor += run.pages * tile_anchor
            residual += run.pages * tile_residual
        return anchor, residual

    @cached_property
    def bytes(self) -> tuple[int, int]:
        """Bytes of the segment in the anchor and in the residual."""
        sizes = [(run.heads, *self.head(run.bits)) for run in self.head_runs]
        return sum(n * anchor for n, anchor, _ in sizes), sum(n * residual for n, _, residual in sizes)

    @cached_property
    def anchor_max(self) -> int:
        """Bytes of the anchor if every tile is what is longer, raw or coded."""
        total = 0
        for heads in self.head_runs:
            head = self.flags + self.exact
            for run in self.page_runs:
                head += run.pages * max(self.tile(run.tokens, heads.bits)[0], run.tokens * self.row)
            total += heads.heads * head
        return total

    def sections(self, anchor: Tensor, run: HeadRun) -> tuple[Tensor, Tensor]:
        """Views of the flags ``[heads, flags]`` and of the exact rows ``[heads, bytes]`` of a run."""
        heads = self._heads(anchor, run, 0)
        return heads[:, : self.flags], heads[:, self.flags : self.flags + self.exact]

    def tiles(self, stream: Tensor, part: int, heads: HeadRun, pages: PageRun) -> Tensor:
        """View of the tiles ``[heads, pages, bytes]`` in the anchor (part 0) or the residual (part 1)."""
        start = 0 if part else self.flags + self.exact
        for run in self.page_runs:
            if run == pages:
                break
            start += run.pages * self.tile(run.tokens, heads.bits)[part]
        size = self.tile(pages.tokens, heads.bits)[part]
        rows = self._heads(stream, heads, part)[:, start : start + pages.pages * size]
        return rows.unflatten(1, (pages.pages, size))

    def _heads(self, stream: Tensor, run: HeadRun, part: int) -> Tensor:
        start = 0
        for other in self.head_runs:
            if other == run:
                break
            start += other.heads * self.head(other.bits)[part]
        size = self.head(run.bits)[part]
        return stream[start : start + run.heads * size].view(run.heads, size)


def _page_runs(page: int, coded: int, width: int) -> tuple[PageRun, ...]:
    whole, rest = divmod(coded, page)
    step = max(1, _RUN_VALUES // (page * width))
    runs = [PageRun(first, min(step, whole - first), page, first * page) for first in range(0, whole, step)]
    if rest:
        runs.append(PageRun(whole, 1, rest, whole * page))
    return tuple(runs)


def _head_runs(heads: int, dim: int, spec: PlaneSpec) -> tuple[HeadRun, ...]:
    runs: list[HeadRun] = []
    for head in range(heads):
        bits = spec.anchor_bits(head, dim)
        if runs and runs[-1].bits == bits:
            runs[-1] = HeadRun(runs[-1].first, runs[-1].heads + 1, dim, bits)
        else:
            runs.append(HeadRun(head, 1, dim, bits))
    return tuple(runs)
