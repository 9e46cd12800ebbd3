"""The C++ codec, if it was built and this machine can run it. Same bytes as the reference; owns no format of its own.

What it does not do (raw tiles, damaged payloads, other codecs) it says, and the caller takes the reference.
"""

from __future__ import annotations

import importlib
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lynx_ascend import envs
from lynx_ascend.codec.base import DTYPES, Codec, EncodedPlane
from lynx_ascend.codec.companding import companding, thresholds
from lynx_ascend.codec.layout import SegmentLayout
from lynx_ascend.codec.lynx import LynxCodec, LynxInt4Codec
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.scales import fractions, sigmas, token_scales
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.codec.widths import ChannelWidths
from lynx_ascend.errors import ConfigError

_HOST = torch.device("cpu")
_PACKINGS: MutableMapping[Tensor, tuple[int, Any]] = WeakTensorKeyDictionary()


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


def encode(codec: Codec, segment: PagedSegment, spec: PlaneSpec, threads: int = 1) -> EncodedPlane | None:
    """Encode straight from the pages. None: take the reference (not built, not this codec, or a raw tile)."""
    module = extension()
    if module is None or not isinstance(codec, LynxCodec) or not _handles(codec, segment, spec):
        return None
    shape = segment.shape
    layout = codec.layout(shape, spec)
    anchor, residual = (torch.empty(size, dtype=torch.uint8) for size in layout.bytes)
    place = _place(module, codec, segment, spec, layout)
    done = module.encode(*place, *_memory(anchor), *_memory(residual), threads)
    return EncodedPlane(shape, anchor, residual) if done else None


def decode(
    codec: Codec,
    segment: PagedSegment,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    skip: int = 0,
    threads: int = 1,
) -> bool:
    """Decode straight into the pages, except the segment's first ``skip`` tokens.

    False, with nothing written: take the reference, which also knows what is wrong with a payload.
    """
    module = extension()
    streams = (anchor,) if residual is None else (anchor, residual)
    if module is None or not isinstance(codec, LynxCodec) or not _handles(codec, segment, spec, *streams):
        return False
    if isinstance(codec, LynxInt4Codec):
        if residual is not None and residual.numel():
            return False
        residual = None
    place = _place(module, codec, segment, spec, codec.layout(segment.shape, spec))
    rest = (0, 0) if residual is None else _memory(residual)
    return bool(module.decode(*place, skip, *_memory(anchor), *rest, residual is not None, threads))


def _handles(codec: LynxCodec, segment: PagedSegment, spec: PlaneSpec, *streams: Tensor) -> bool:
    """Whether the C++ codec knows the layout and may dereference what it is given."""
    pages, ids = segment.pages, segment.block_ids
    tensors = [pages.values, ids, *streams, *([] if pages.place is None else [pages.place])]
    return (
        segment.start % codec.spec.page == 0
        and codec.spec.page % spec.chunk == 0
        and ids.is_contiguous()
        and all(tensor.device.type == "cpu" for tensor in tensors)
        and all(s.dtype == torch.uint8 and s.ndim == 1 and s.is_contiguous() for s in streams)
    )


def _memory(stream: Tensor) -> tuple[int, int]:
    """Address and bytes."""
    return stream.data_ptr(), stream.numel()


def _place(
    module: Any, codec: LynxCodec, segment: PagedSegment, spec: PlaneSpec, layout: SegmentLayout
) -> tuple[Any, ...]:
    """How the plane is coded, where it stands, and the segment: first token, tokens, coded tokens and exact sinks."""
    shape = segment.shape
    coding = _coding(type(codec), codec.spec, spec, shape.heads, shape.dim)
    pages = _pages(module, segment.pages, segment.block_ids)
    return coding, pages, shape.first_token, shape.tokens, layout.coded, layout.sinks


def _pages(module: Any, pages: PagedPlane, block_ids: Tensor) -> Any:
    values = pages.values
    block, token, head, channel = (
        values.stride() if pages.place is None else (values.stride(0), 0, values.stride(1), 1)
    )
    return module.Pages(
        data=values.data_ptr(),
        dtype=DTYPES.index(values.dtype),
        table=block_ids.data_ptr(),
        table_size=block_ids.numel(),
        blocks=values.shape[0],
        block_size=pages.block_size,
        block_stride=block,
        head_stride=head,
        token_stride=token,
        channel_stride=channel,
        packing=None if pages.place is None else _packing(pages.place),
    )


def _packing(place: Tensor) -> Any:
    """The tables of a packed cache; kept as long as ``place`` is, and unless torch knows that it was written to."""
    version = -1 if place.is_inference() else place._version
    found = _PACKINGS.get(place)
    if found is None or found[0] != version:
        found = _PACKINGS[place] = (version, _module().Packing(place.data_ptr(), place.numel()))
    return found[1]


@lru_cache(maxsize=1024)
def _coding(kind: type[Codec], common: CodecSpec, spec: PlaneSpec, heads: int, dim: int) -> Any:
    channels = spec.widths or ChannelWidths.uniform(heads, dim)
    return _module().Coding(
        _tables(float(spec.alpha)),
        [list(channels.row(head)) for head in range(heads)],
        common.page,
        spec.chunk,
        spec.token_scale,
        common.center == "mean",
        not issubclass(kind, LynxInt4Codec),
    )


@lru_cache(maxsize=256)
def _tables(alpha: float) -> Any:
    values = companding(alpha, _HOST)
    return _module().Tables(
        alpha,
        values.full.tolist(),
        values.anchor.tolist(),
        thresholds(alpha).tolist(),
        sigmas(_HOST).tolist(),
        fractions(255, _HOST).tolist(),
        token_scales(_HOST).tolist(),
    )


def _module() -> Any:
    module = extension()
    assert module is not None
    return module
