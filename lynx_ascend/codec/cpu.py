"""The C++ codec, if it was built and this machine can run it. Same bytes as the reference; owns no format of its own.

What it does not do (raw tiles, damaged payloads, other codecs) it says, and the caller takes the reference.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lynx_ascend import envs
from lynx_ascend.codec.base import DTYPES, Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.companding import companding, thresholds
from lynx_ascend.codec.lynx import LynxCodec, LynxInt4Codec
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.scales import fractions, sigmas, token_scales
from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.errors import CodecError, ConfigError

_HOST = torch.device("cpu")


@lru_cache(maxsize=1)
def extension() -> Any | None:
    """The compiled module; None where it was not built, or the machine lacks the vectors it needs."""
    try:
        module = importlib.import_module("lynx_ascend.codec._cpu")
    except ImportError:
        return None
    if not module.targets():
        return None
    target = envs.cpu_target()
    if target and not module.use_target(target):
        raise ConfigError(f"LYNX_CPU_TARGET is {target!r}; this machine has {', '.join(module.targets())}")
    return module


def encode(
    codec: Codec, pages: PagedPlane, block_ids: Tensor, shape: PlaneShape, spec: PlaneSpec, threads: int = 1
) -> EncodedPlane | None:
    """Encode straight from the pages. None: take the reference (not built, not this codec, or a raw tile)."""
    module = extension()
    if module is None or not _handles(codec, pages, block_ids):
        return None
    anchor = torch.empty(codec.anchor_bytes(shape, spec), dtype=torch.uint8)
    residual = torch.empty(codec.residual_bytes(shape, spec), dtype=torch.uint8)
    done = module.encode(
        _coding(type(codec), codec.spec, spec, shape.heads, shape.dim),
        _pages(module, pages, block_ids),
        *_span(codec, shape, spec),
        anchor.data_ptr(),
        anchor.numel(),
        residual.data_ptr(),
        residual.numel(),
        threads,
    )
    return EncodedPlane(shape, anchor, residual) if done else None


def decode(
    codec: Codec,
    pages: PagedPlane,
    block_ids: Tensor,
    shape: PlaneShape,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None,
    skip: int = 0,
    threads: int = 1,
) -> bool:
    """Decode straight into the pages, except the segment's first ``skip`` tokens.

    False, with nothing written: take the reference, which also knows what is wrong with a payload.
    """
    module = extension()
    if module is None or not _handles(codec, pages, block_ids):
        return False
    if isinstance(codec, LynxInt4Codec):
        if residual is not None and residual.numel():
            return False
        residual = None
    for stream in (anchor,) if residual is None else (anchor, residual):
        if stream.dtype != torch.uint8 or stream.ndim != 1 or not stream.is_contiguous():
            return False
    return bool(
        module.decode(
            _coding(type(codec), codec.spec, spec, shape.heads, shape.dim),
            _pages(module, pages, block_ids),
            *_span(codec, shape, spec),
            skip,
            anchor.data_ptr(),
            anchor.numel(),
            0 if residual is None else residual.data_ptr(),
            0 if residual is None else residual.numel(),
            residual is not None,
            threads,
        )
    )


def _handles(codec: Codec, pages: PagedPlane, block_ids: Tensor) -> bool:
    tensors = [pages.values, block_ids, *([] if pages.place is None else [pages.place])]
    return (
        isinstance(codec, LynxCodec)
        and pages.values.dtype in DTYPES
        and block_ids.dtype == torch.int64
        and block_ids.is_contiguous()
        and all(tensor.device.type == "cpu" for tensor in tensors)
    )


def _span(codec: Codec, shape: PlaneShape, spec: PlaneSpec) -> tuple[int, int, int]:
    """First token, tokens and exact sinks of a segment."""
    sinks = codec.spec.sinks if shape.first_token == 0 and shape.tokens >= spec.chunk else 0
    return shape.first_token, shape.tokens, sinks


def _pages(module: Any, pages: PagedPlane, block_ids: Tensor) -> Any:
    values = pages.values
    block, token, head, channel = (
        values.stride() if pages.place is None else (values.stride(0), 0, values.stride(1), 1)
    )
    return module.Pages(
        values.data_ptr(),
        DTYPES.index(values.dtype),
        block_ids.data_ptr(),
        block_ids.numel(),
        values.shape[0],
        pages.block_size,
        block,
        head,
        token,
        channel,
        0 if pages.place is None else pages.place.data_ptr(),
    )


@lru_cache(maxsize=1024)
def _coding(kind: type[Codec], common: CodecSpec, spec: PlaneSpec, heads: int, dim: int) -> Any:
    hot = [[] if spec.hot is None else list(spec.hot.channels(head)) for head in range(heads)]
    if spec.hot is not None and (spec.hot.heads, spec.hot.dim) != (heads, dim):
        raise CodecError(f"{spec.hot} does not fit {heads} heads of {dim} channels")
    return _module().Coding(
        _tables(float(spec.alpha)),
        hot,
        dim,
        common.page,
        spec.chunk,
        spec.token_scale,
        common.center == "mean",
        not issubclass(kind, LynxInt4Codec),
    )


@lru_cache(maxsize=256)
def _tables(alpha: float) -> Any:
    return _module().Tables(
        alpha,
        companding(alpha, _HOST).full.tolist(),
        thresholds(alpha).tolist(),
        sigmas(_HOST).tolist(),
        fractions(255, _HOST).tolist(),
        token_scales(_HOST).tolist(),
    )


def _module() -> Any:
    module = extension()
    assert module is not None
    return module
