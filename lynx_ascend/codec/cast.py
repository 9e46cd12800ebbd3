"""The baseline that does not quantize: every value as bfloat16."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.checks import check_bytes, check_length, check_none, check_start
from lynx_ascend.codec.float16 import saturate
from lynx_ascend.codec.spec import PlaneSpec


class Bf16Codec(Codec):
    """bfloat16 ``[heads, tokens, dim]``, all in the anchor; no flags, no exact rows."""

    name: ClassVar[str] = "bf16"
    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    family: ClassVar[str] = "bf16"

    def encode(
        self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0, recent: int = 0
    ) -> EncodedPlane:
        shape = PlaneShape.of(plane, first_token, recent)
        check_start(first_token, self.spec.page)
        values = plane.detach().transpose(0, 1).to(torch.bfloat16)
        # clone: a plane that is head-major already must not lend its memory to the payload
        anchor = values.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
        return EncodedPlane(shape, anchor, anchor.new_empty(0))

    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        check_start(shape.first_token, self.spec.page)
        check_bytes("anchor", anchor)
        check_length("anchor", anchor, self.anchor_bytes(shape, spec))
        values = anchor.clone().view(torch.bfloat16).view(shape.heads, shape.tokens, shape.dim)
        values = values.transpose(0, 1)
        if shape.dtype == torch.float16:  # 65504 has become 65536; an infinity was one before
            values = values.float()
            values = torch.where(values.isinf(), values, saturate(values.clone(), shape.dtype))
        return values.to(shape.dtype).contiguous()

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        check_none(self.name, residual)
        return self.decode_anchor(shape, spec, anchor)

    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 2 * shape.tokens * shape.heads * shape.dim

    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 0

    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.anchor_bytes(shape, spec)
