"""The contract of every codec: a plane of KV cache in, two byte strings out, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.errors import CodecError

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class PlaneShape:
    """A segment of a plane: ``tokens`` consecutive prompt tokens from ``first_token`` on.

    ``first_token`` is a multiple of the page. Only the last segment of a plane may have a length
    that is not a multiple of the page. ``dtype`` is bfloat16, float16 or float32. The last ``recent`` tokens are
    exact; up to 7 more, so that a multiple of 8 is coded.
    """

    tokens: int
    heads: int
    dim: int
    dtype: torch.dtype
    first_token: int = 0
    recent: int = 0

    def __post_init__(self) -> None:
        if min(self.tokens, self.heads, self.dim) < 1 or self.first_token < 0:
            raise CodecError(
                f"a segment needs tokens, heads and dim, not {self.tokens}, {self.heads}, {self.dim} "
                f"from token {self.first_token}"
            )
        if not 0 <= self.recent <= self.tokens:
            raise CodecError(f"{self.recent} recent tokens of {self.tokens} cannot be exact")
        if self.dtype not in DTYPES:
            raise CodecError(f"planes of {self.dtype} are not coded; use one of {DTYPES}")

    @classmethod
    def of(cls, plane: Tensor, first_token: int = 0, recent: int = 0) -> PlaneShape:
        """The shape of the tensor ``plane``, ``[tokens, heads, dim]``."""
        if plane.ndim != 3:
            raise CodecError(f"a plane is [tokens, heads, dim], not {tuple(plane.shape)}")
        tokens, heads, dim = plane.shape
        return cls(tokens, heads, dim, plane.dtype, first_token, recent)


@dataclass(frozen=True, eq=False)
class EncodedPlane:
    """A coded segment. Both byte strings are contiguous uint8 ``[bytes]``; the residual may be empty."""

    shape: PlaneShape
    anchor: Tensor
    residual: Tensor

    def bits_per_value(self, *, residual: bool = True) -> float:
        """Bits a value that travel, all metadata counted; without ``residual``: of the anchor alone."""
        size = self.anchor.numel() + (self.residual.numel() if residual else 0)
        return 8 * size / (self.shape.tokens * self.shape.heads * self.shape.dim)


class Codec(ABC):
    """Encode and decode segments of planes. Stateless; safe to share between threads.

    Attributes:
        name: the name in the registry and on the wire.
        progressive: whether there is a residual stream.
        drafts: whether a decode engine should start drafting on the anchor alone.
        family: codecs that end with the same KV share it, and so the same text.
        servable: whether the sizes below are exact; a transfer needs that. Else they are upper bounds, and the codec is
            there to be measured.
    """

    name: ClassVar[str]
    progressive: ClassVar[bool]
    drafts: ClassVar[bool]
    family: ClassVar[str]
    servable: ClassVar[bool] = True

    def __init__(self, spec: CodecSpec | None = None) -> None:
        self.spec = CodecSpec() if spec is None else spec

    def for_layer(self, layer: int, layers: int) -> Codec:
        """The codec of layer ``layer`` of ``layers``: itself, unless it has settings per layer."""
        return self

    @abstractmethod
    def encode(
        self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0, recent: int = 0
    ) -> EncodedPlane:
        """Encode ``plane``, ``[tokens, heads, dim]`` of any strides; the plane is not changed.

        The last ``recent`` tokens stay exact. Raises CodecError if the plane does not fit ``spec`` or ``first_token``
        starts no page.
        """

    @abstractmethod
    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        """Decode the anchor alone into ``[tokens, heads, dim]`` of ``shape.dtype``.

        Raises CodecError if the bytes do not fit the layout.
        """

    @abstractmethod
    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        """Decode both streams into ``[tokens, heads, dim]`` of ``shape.dtype``.

        Raises CodecError if the bytes do not fit the layout.
        """

    @abstractmethod
    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        """Length of the anchor if no tile is raw; its upper bound if the codec is not servable."""

    @abstractmethod
    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        """Length of the residual if no tile is raw."""

    @abstractmethod
    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        """Longest anchor possible, raw tiles included; check a peer's length against it."""

    def residual_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        """Longest residual possible: a raw tile adds nothing to it."""
        return self.residual_bytes(shape, spec)
