"""A paged-KV layout of one layer: its planes, and moving, encoding and decoding their tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lynx_ascend.codec import Codec, EncodedPlane, PlaneShape, PlaneSpec, ops
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.segment import PagedSegment


@dataclass(frozen=True, slots=True)
class PlaneView:
    """Name and geometry of one plane of a layer: `k`, `v`, or an MLA latent."""

    name: str
    heads: int
    dim: int
    dtype: torch.dtype


class LayerLayout:
    """Where the values of one layer stand in vLLM's paged cache. Nothing else knows strides.

    `block_ids` is int64 [blocks] of the whole sequence, on the cache's device; tokens are positions in the sequence.
    """

    def __init__(self, pages: dict[str, PagedPlane]) -> None:
        first = next(iter(pages.values()))
        self.block_size = first.block_size
        self.device = first.values.device
        self.planes = tuple(PlaneView(n, p.heads, p.dim, p.values.dtype) for n, p in pages.items())
        self._pages = pages

    def gather(self, plane: str, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Read tokens [start, end): [end - start, heads, dim], a copy or a view, in the cache's dtype."""
        return self._pages[plane].gather(block_ids, start, end)

    def scatter(self, plane: str, block_ids: torch.Tensor, start: int, values: torch.Tensor) -> None:
        """Write `values` [tokens, heads, dim] to the tokens from `start` on; other tokens keep their values."""
        self._pages[plane].scatter(block_ids, start, values)

    def encode(
        self, plane: str, block_ids: torch.Tensor, shape: PlaneShape, codec: Codec, spec: PlaneSpec
    ) -> EncodedPlane:
        """Encode the tokens of a segment where they stand; the bytes are on the host."""
        return ops.encode_to_host(self._segment(plane, block_ids, shape), codec, spec)

    def decode(
        self,
        plane: str,
        block_ids: torch.Tensor,
        shape: PlaneShape,
        codec: Codec,
        spec: PlaneSpec,
        anchor: torch.Tensor,
        residual: torch.Tensor | None = None,
        *,
        skip: int = 0,
    ) -> None:
        """Decode the tokens of a segment into their places, the anchor alone if `residual` is None.

        The first `skip` of them, and all others, keep their values. CodecError, and nothing written, if the bytes are
        no such segment.
        """
        ops.decode(self._segment(plane, block_ids, shape), codec, spec, anchor, residual, skip=skip)

    def _segment(self, plane: str, block_ids: torch.Tensor, shape: PlaneShape) -> PagedSegment:
        end = shape.first_token + shape.tokens
        return PagedSegment(self._pages[plane], block_ids, shape.first_token, end, shape.recent)
