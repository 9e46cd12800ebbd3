"""A segment in a paged cache: which tokens of a sequence are coded, and where their values stand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lynx_ascend.codec.base import PlaneShape
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.errors import CodecError


@dataclass(frozen=True, eq=False)
class PagedSegment:
    """Tokens [start, end) of a sequence.

    Args:
        pages: the plane.
        block_ids: int64 ``[blocks]``, the blocks of the whole sequence.
        start, end: positions in the sequence.
        recent: tokens at the end that are exact; see ``PlaneShape``.

    Raises CodecError if the blocks do not reach ``end``, or the host sees that one of them is not there; ids on another
    device are not read back for that.
    """

    pages: PagedPlane
    block_ids: Tensor
    start: int
    end: int
    recent: int = 0

    def __post_init__(self) -> None:
        ids, size, blocks = self.block_ids, self.pages.block_size, self.pages.values.shape[0]
        if ids.dtype != torch.int64 or ids.ndim != 1:
            raise CodecError(f"a block table is int64 [blocks], not {ids.dtype} {tuple(ids.shape)}")
        _ = self.shape
        if ids.numel() * size < self.end:
            raise CodecError(f"{ids.numel()} blocks of {size} tokens do not reach token {self.end}")
        if ids.device.type == "cpu":
            low, high = ids[self.start // size : -(-self.end // size)].aminmax()
            if int(low) < 0 or int(high) >= blocks:
                raise CodecError(
                    f"the block table holds ids from {low} to {high}, where there are {blocks} blocks"
                )

    @classmethod
    def of(cls, plane: Tensor, recent: int = 0) -> PagedSegment:
        """All tokens of a plane ``[tokens, heads, dim]`` of any strides, as one block."""
        block = torch.zeros(1, dtype=torch.int64, device=plane.device)
        return cls(PagedPlane.of(plane), block, 0, plane.shape[0], recent)

    @cached_property
    def shape(self) -> PlaneShape:
        """What the segment is to a codec. Raises CodecError for a segment without tokens, or of another dtype."""
        pages = self.pages
        tokens = self.end - self.start
        return PlaneShape(tokens, pages.heads, pages.dim, pages.values.dtype, self.start, self.recent)

    def gather(self) -> Tensor:
        """Its values: ``[tokens, heads, dim]``, a copy or a view."""
        return self.pages.gather(self.block_ids, self.start, self.end)

    def scatter(self, values: Tensor, skip: int = 0) -> None:
        """Write ``values``, ``[tokens, heads, dim]``, except the first ``skip`` tokens."""
        if skip < self.shape.tokens:
            self.pages.scatter(self.block_ids, self.start + skip, values[skip:])
