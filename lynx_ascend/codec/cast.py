"""The baseline that does not quantize: every value as bfloat16."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.float16 import saturate
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.errors import CodecError


class Bf16Codec(Codec):
    """bfloat16 ``[heads, tokens, dim]``, all in the anchor; no flags, no exact rows."""

    name: ClassVar[str] = "bf16"
    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    family: ClassVar[str] = "bf16"

    def encode(self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0) -> EncodedPlane:
        shape = PlaneShape.of(plane, first_token)
        self._check(shape)
        values = plane.detach().transpose(0, 1).to(torch.bfloat16)
        # clone: a plane that is head-major already must not lend its memory to the payload
        anchor = values.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
        return EncodedPlane(shape, anchor, anchor.new_empty(0))

    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        self._check(shape)
        if anchor.dtype != torch.uint8 or anchor.ndim != 1:
            raise CodecError(f"the anchor must be uint8 [bytes], not {anchor.dtype} {anchor.ndim}-D")
        if anchor.numel() != self.anchor_bytes(shape, spec):
            raise CodecError(
                f"the anchor has {anchor.numel()} bytes where its layout has {self.anchor_bytes(shape, spec)}"
            )
        values = anchor.clone().view(torch.bfloat16).view(shape.heads, shape.tokens, shape.dim)
        values = values.transpose(0, 1)
        if shape.dtype == torch.float16:  # 65504 has become 65536; an infinity was one before
            values = values.float()
            values = torch.where(values.isinf(), values, saturate(values.clone(), shape.dtype))
        return values.to(shape.dtype).contiguous()

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        if residual.numel():
            raise CodecError(f"{self.name} has no residual, yet {residual.numel()} bytes came")
        return self.decode_anchor(shape, spec, anchor)

    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 2 * shape.tokens * shape.heads * shape.dim

    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 0

    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.anchor_bytes(shape, spec)

    def _check(self, shape: PlaneShape) -> None:
        if shape.first_token % self.spec.page:
            raise CodecError(f"a segment starts at token {shape.first_token}, inside a page")
