"""What a received stream must be before anything in it is read."""

from __future__ import annotations

import torch
from torch import Tensor

from lynx_ascend.errors import CodecError


def check_bytes(what: str, stream: Tensor) -> None:
    """Contiguous uint8 ``[bytes]``, or CodecError."""
    if stream.dtype != torch.uint8 or stream.ndim != 1 or not stream.is_contiguous():
        raise CodecError(f"the {what} must be contiguous uint8 [bytes], not {stream.dtype} {stream.ndim}-D")


def check_length(what: str, stream: Tensor, size: int) -> None:
    """Exactly ``size`` bytes, or CodecError."""
    if stream.numel() != size:
        raise CodecError(f"the {what} has {stream.numel()} bytes where its layout has {size}")


def check_none(codec: str, residual: Tensor) -> None:
    """No residual at all, or CodecError."""
    if residual.numel():
        raise CodecError(f"{codec} has no residual, yet {residual.numel()} bytes came")


def check_start(first_token: int, page: int) -> None:
    """A segment starts with a page, or CodecError."""
    if first_token % page:
        raise CodecError(f"a segment starts at token {first_token}, inside a page")
