"""``torch.ops.lynx_ascend``: the one door to the codec, for tensors of any device.

A segment is named by its pages (docs of ``PagedPlane``) and tokens, a codec by its name and settings, so that the
schemas hold plain values only. On a CPU the C++ codec does the work if it was built, on CUDA the Triton kernels if
triton is installed, else the reference (``codec.backends``). Meta gives sizes.

On CUDA nothing waits for the device. ``encode`` gives the regular layout, in which a tile that must be raw is flagged
but not replaced, since sizes would depend on values; ``encode_to_host`` looks at the flags when the bytes are on the
host, and gives what every other implementation gives at once. ``decode`` checks bytes that are on the host there, and
copies them; bytes on the device cost one look at their flags. Not run on a GPU so far.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lynx_ascend.codec import backends
from lynx_ascend.codec.base import Codec, EncodedPlane
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.registry import get_codec
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.codec.widths import ChannelWidths

_PLANE = "Tensor? place, Tensor block_ids, int dim, int start, int end, int recent"
_SETTINGS = (
    "str codec, int page, int sinks, str center, str kind, int chunk, bool token_scale, float alpha, "
    "int[]? widths, int threads"
)
_LIBRARY = torch.library.Library("lynx_ascend", "DEF")
_LIBRARY.define(f"encode(Tensor values, {_PLANE}, {_SETTINGS}) -> (Tensor, Tensor)")
_LIBRARY.define(f"decode_anchor(Tensor(a!) values, {_PLANE}, int skip, Tensor anchor, {_SETTINGS}) -> ()")
_LIBRARY.define(
    f"decode_full(Tensor(a!) values, {_PLANE}, int skip, Tensor anchor, Tensor residual, {_SETTINGS}) -> ()"
)


def encode(segment: PagedSegment, codec: Codec, spec: PlaneSpec, *, threads: int = 1) -> EncodedPlane:
    """Encode a segment of a sequence; see ``backends``. On CUDA raw tiles are only flagged: see above."""
    anchor, residual = torch.ops.lynx_ascend.encode(*_place(segment), *_settings(codec, spec), threads)
    return EncodedPlane(segment.shape, anchor, residual)


def encode_to_host(segment: PagedSegment, codec: Codec, spec: PlaneSpec, *, threads: int = 1) -> EncodedPlane:
    """``encode``, and the bytes on the host with all raw tiles in place; waits for the device once."""
    encoded = encode(segment, codec, spec, threads=threads)
    if encoded.anchor.device.type == "cpu":
        return encoded
    return backends.to_host(codec, segment, spec, encoded)


def decode(
    segment: PagedSegment,
    codec: Codec,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    *,
    skip: int = 0,
    threads: int = 1,
) -> None:
    """Decode into the pages, the anchor alone if ``residual`` is None; see ``backends.decode``."""
    place = (*_place(segment), skip)
    if residual is None:
        torch.ops.lynx_ascend.decode_anchor(*place, anchor, *_settings(codec, spec), threads)
    else:
        torch.ops.lynx_ascend.decode_full(*place, anchor, residual, *_settings(codec, spec), threads)


def _place(segment: PagedSegment) -> tuple[Any, ...]:
    pages = segment.pages
    return (
        *(pages.values, pages.place, segment.block_ids, pages.dim),
        *(segment.start, segment.end, segment.recent),
    )


def _settings(codec: Codec, spec: PlaneSpec) -> tuple[Any, ...]:
    common = codec.spec
    widths = None if spec.widths is None else _flat(spec.widths)
    return (
        *(codec.name, common.page, common.sinks, common.center),
        *(spec.kind, spec.chunk, spec.token_scale, spec.alpha, widths),
    )


@lru_cache(maxsize=1024)
def _flat(widths: ChannelWidths) -> list[int]:
    found: list[int] = widths.values.flatten().tolist()
    return found


@lru_cache(maxsize=1024)
def _coder(
    name: str,
    page: int,
    sinks: int,
    center: str,
    kind: str,
    chunk: int,
    token_scale: bool,
    alpha: float,
    widths: tuple[int, ...] | None,
    heads: int,
    dim: int,
) -> tuple[Codec, PlaneSpec]:
    channels = None if widths is None else ChannelWidths(torch.tensor(widths).view(heads, dim))
    codec = get_codec(name, CodecSpec(page=page, sinks=sinks, center=center))
    return codec, PlaneSpec(chunk, token_scale, alpha, channels, kind)


def _segment(arguments: tuple[Any, ...]) -> tuple[PagedSegment, list[Any]]:
    """The segment that an operator's first arguments name, and the other arguments."""
    values, place, block_ids, dim, start, end, recent, *rest = arguments
    return PagedSegment(PagedPlane(values, dim, place), block_ids, start, end, recent), rest


def _with_coder(pages: PagedPlane, settings: list[Any]) -> tuple[Codec, PlaneSpec, int]:
    *values, widths, threads = settings
    codec, spec = _coder(*values, None if widths is None else tuple(widths), pages.heads, pages.dim)
    return codec, spec, threads


def _encode(*arguments: Any) -> tuple[Tensor, Tensor]:
    segment, settings = _segment(arguments)
    codec, spec, threads = _with_coder(segment.pages, settings)
    encoded = backends.encode(codec, segment, spec, threads=threads)
    return encoded.anchor, encoded.residual


def _encode_cuda(*arguments: Any) -> tuple[Tensor, Tensor]:
    segment, settings = _segment(arguments)
    codec, spec, _ = _with_coder(segment.pages, settings)
    encoded = backends.encode_cuda(codec, segment, spec)
    return encoded.anchor, encoded.residual


def _encode_meta(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The sizes without raw tiles; how many there are depends on the values."""
    segment, settings = _segment(arguments)
    codec, spec, _ = _with_coder(segment.pages, settings)
    sizes = (codec.anchor_bytes(segment.shape, spec), codec.residual_bytes(segment.shape, spec))
    anchor, residual = (segment.pages.values.new_empty(size, dtype=torch.uint8) for size in sizes)
    return anchor, residual


def _decode_anchor(*arguments: Any) -> None:
    segment, (skip, anchor, *settings) = _segment(arguments)
    codec, spec, threads = _with_coder(segment.pages, settings)
    backends.decode(codec, segment, spec, anchor, skip=skip, threads=threads)


def _decode_full(*arguments: Any) -> None:
    segment, (skip, anchor, residual, *settings) = _segment(arguments)
    codec, spec, threads = _with_coder(segment.pages, settings)
    backends.decode(codec, segment, spec, anchor, residual, skip=skip, threads=threads)


def _decode_anchor_cuda(*arguments: Any) -> None:
    segment, (skip, anchor, *settings) = _segment(arguments)
    codec, spec, _ = _with_coder(segment.pages, settings)
    backends.decode_cuda(codec, segment, spec, anchor, skip=skip)


def _decode_full_cuda(*arguments: Any) -> None:
    segment, (skip, anchor, residual, *settings) = _segment(arguments)
    codec, spec, _ = _with_coder(segment.pages, settings)
    backends.decode_cuda(codec, segment, spec, anchor, residual, skip=skip)


def _decode_meta(*_: Any) -> None:
    """Nothing to infer: the pages are changed in place."""


for _device, _operators in {
    "CPU": (_encode, _decode_anchor, _decode_full),
    "CUDA": (_encode_cuda, _decode_anchor_cuda, _decode_full_cuda),
    "Meta": (_encode_meta, _decode_meta, _decode_meta),
}.items():
    for _name, _operator in zip(("encode", "decode_anchor", "decode_full"), _operators, strict=True):
        _LIBRARY.impl(_name, _operator, _device)
