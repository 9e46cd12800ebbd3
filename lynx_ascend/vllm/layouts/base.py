"""The contract of a paged-KV layout of one layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PlaneView:
    """Name and geometry of one plane of a layer: `k`, `v`, or an MLA latent."""

    name: str
    heads: int
    dim: int
    dtype: torch.dtype


class LayerLayout(ABC):
    """Where the values of one layer stand in vLLM's paged cache. Nothing else knows strides."""

    block_size: int
    device: torch.device
    planes: tuple[PlaneView, ...]

    @abstractmethod
    def gather(self, plane: str, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Read tokens [start, end) of a sequence.

        Args:
            plane: name of the plane.
            block_ids: int64 [blocks] of the whole sequence, on the cache's device.
            start, end: token positions in the sequence.

        Returns:
            [end - start, heads, dim], a copy or a view, in the cache's dtype.
        """

    @abstractmethod
    def scatter(self, plane: str, block_ids: torch.Tensor, start: int, values: torch.Tensor) -> None:
        """Write `values` [tokens, heads, dim] to the tokens from `start` on; other tokens keep their values."""


def block_span(block_size: int, start: int, end: int) -> tuple[int, int, int]:
    """(first block, end block, offset of `start` in the first block) that tokens [start, end) touch."""
    first = start // block_size
    return first, -(-end // block_size), start - first * block_size
