"""A plane in a paged cache: where its values stand, and moving tokens out of it and back with torch alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lynx_ascend.errors import CodecError


@dataclass(frozen=True, eq=False)
class PagedPlane:
    """The blocks of one plane.

    Args:
        values: ``[blocks, block, heads, dim]`` of any strides; with ``place``: ``[blocks, heads, block * dim]``.
        dim: channels of a head.
        place: int64 ``[block * dim]``, the position of (token, channel) within a head's part of a block,
            for caches whose kernels pack it their own way; a permutation.
    """

    values: Tensor
    dim: int
    place: Tensor | None = None

    def __post_init__(self) -> None:
        if self.place is None:
            if self.values.ndim != 4 or self.values.shape[3] != self.dim:
                raise CodecError(
                    f"a paged plane is [blocks, block, heads, {self.dim}], not {tuple(self.values.shape)}"
                )
            return
        packed = self.values.shape[-1]
        if self.values.ndim != 3 or packed % self.dim or self.values.stride(2) != 1:
            raise CodecError(
                f"a packed plane is [blocks, heads, block * {self.dim}], not {tuple(self.values.shape)}"
            )
        if self.place.dtype != torch.int64 or not self.place.is_contiguous() or self.place.shape != (packed,):
            raise CodecError(f"the places of a packed plane are int64 [{packed}]")

    @classmethod
    def of(cls, plane: Tensor) -> PagedPlane:
        """A plane ``[tokens, heads, dim]`` of any strides, as one block."""
        return cls(plane.unsqueeze(0), plane.shape[-1])

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self.values.shape[1] if self.place is None else self.values.shape[2] // self.dim

    @property
    def heads(self) -> int:
        """Heads of the plane."""
        return self.values.shape[2 if self.place is None else 1]

    def gather(self, block_ids: Tensor, start: int, end: int) -> Tensor:
        """Tokens [start, end) of the sequence whose blocks are ``block_ids``: ``[end - start, heads, dim]``."""
        size = self.block_size
        first, last = start // size, -(-end // size)
        blocks = self.values[block_ids[first:last]]
        if self.place is None:
            rows = blocks.flatten(0, 1)
        else:
            ordered = blocks.index_select(2, self.place).view(*blocks.shape[:2], size, self.dim)
            rows = ordered.permute(0, 2, 1, 3).reshape(-1, self.heads, self.dim)
        return rows[start - first * size : end - first * size]

    def scatter(self, block_ids: Tensor, start: int, rows: Tensor) -> None:
        """Write ``rows``, ``[tokens, heads, dim]``, to the tokens from ``start`` on; others keep their values."""
        rows = rows.to(self.values.dtype)
        if self.place is None:
            position = torch.arange(start, start + rows.shape[0], device=self.values.device)
            self.values[block_ids[position // self.block_size], position % self.block_size] = rows
        else:
            self._scatter_packed(block_ids, start, rows)

    def _scatter_packed(self, block_ids: Tensor, start: int, rows: Tensor) -> None:
        size, end = self.block_size, start + rows.shape[0]
        head_end = min(end, -(-start // size) * size)
        body_end = max(head_end, end // size * size)
        if start < head_end:
            self._scatter_within(int(block_ids[start // size]), start % size, rows[: head_end - start])
        if head_end < body_end:
            whole = rows[head_end - start : body_end - start].view(-1, size, self.heads, self.dim)
            packed = whole.permute(0, 2, 1, 3).reshape(-1, self.heads, size * self.dim)
            target = torch.empty_like(packed)
            target[:, :, self.place] = packed
            self.values[block_ids[head_end // size : body_end // size]] = target
        if body_end < end:
            self._scatter_within(int(block_ids[body_end // size]), 0, rows[body_end - start :])

    def _scatter_within(self, block: int, offset: int, rows: Tensor) -> None:
        """Write a few tokens of one block, leaving its other tokens alone."""
        assert self.place is not None
        tokens, heads, dim = rows.shape
        place = self.place.view(self.block_size, dim)[offset : offset + tokens].reshape(-1)
        self.values[block][:, place] = rows.permute(1, 0, 2).reshape(heads, tokens * dim)
