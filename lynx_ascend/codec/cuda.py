"""The Triton codec, where triton is installed: planes on a CUDA device, in the order of its current stream.

Nothing here waits for the device, but for the first use of a setting, which copies its tables there. So what depends on
values is left to the host: `encode` writes the regular layout and flags the tiles that must be raw (their bytes mean
nothing), `decode` takes the regular layout without raw tiles and does not look at the flags. `backends` looks at them,
where the bytes are on the host anyway.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lynx_ascend import envs
from lynx_ascend.codec.base import DTYPES, Codec, EncodedPlane
from lynx_ascend.codec.kernels.tables import magnitude_curve, steepness, tables, width_tables
from lynx_ascend.codec.layout import SegmentLayout
from lynx_ascend.codec.lynx import LynxCodec, LynxInt4Codec
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.codec.spec import PlaneSpec

_MOST_PROGRAMS = 65535  # what triton-ascend starts; more would be a segment of a million tokens
_BLOCK = 128
_ROW_VALUES = 4096  # of half a chunk, so that a program's values stay in registers
# A multiplication and the addition after it must not become one rounding.
_OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}


@lru_cache(maxsize=1)
def installed() -> bool:
    """Whether there is a triton to compile the kernels with."""
    return importlib.util.find_spec("triton") is not None


def handles(codec: Codec, segment: PagedSegment, spec: PlaneSpec) -> bool:
    """Whether the kernels take this codec and plane; else the reference does, which also knows what is wrong."""
    if envs.codec_backend() == "torch" or not installed() or not isinstance(codec, LynxCodec):
        return False
    if segment.pages.place is not None or segment.start % codec.spec.page or codec.spec.page % spec.chunk:
        return False
    shape = segment.shape
    if spec.widths is not None and (spec.widths.heads, spec.widths.dim) != (shape.heads, shape.dim):
        return False
    pages = -(-shape.tokens // codec.spec.page)
    return pages * shape.heads * -(-shape.dim // _block(shape.dim, spec.chunk)) <= _MOST_PROGRAMS


def encode(codec: LynxCodec, segment: PagedSegment, spec: PlaneSpec) -> EncodedPlane:
    """Encode straight from the pages: the regular layout, the tiles that must be raw flagged and without meaning."""
    from lynx_ascend.codec.kernels.encode import encode_tiles
    from lynx_ascend.codec.kernels.exact import encode_exact

    shape, layout, device = segment.shape, codec.layout(segment.shape, spec), segment.pages.values.device
    anchor, residual = (torch.empty(size, dtype=torch.uint8, device=device) for size in layout.bytes)
    common = _common(layout, segment, spec, anchor)
    alpha = float(spec.alpha)
    with torch.cuda.device_of(anchor):
        encode_exact[_heads_grid(common, shape.heads)](
            **common, **_exact(layout, segment), sinks=layout.sinks
        )
        if layout.coded:
            encode_tiles[_tiles_grid(common, layout)](
                **common,
                **_tiles(layout, segment, spec),
                residual=residual.view(torch.int8),
                sinks=layout.sinks,
                alpha=alpha,
                steepness=steepness(alpha),
                DEGREE=max(0, len(magnitude_curve(alpha)) - 1),
                STEPS=(spec.chunk // 8).bit_length() - 1,
                MEAN=codec.spec.center == "mean",
                RESIDUAL=not isinstance(codec, LynxInt4Codec),
            )
    return EncodedPlane(shape, anchor, residual)


def decode(
    codec: LynxCodec,
    segment: PagedSegment,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    skip: int = 0,
) -> None:
    """Decode straight into the pages, except the segment's first ``skip`` tokens.

    The streams must be of the regular layout (the caller has checked it) and on the device of the pages. Scales that no
    encoder makes (an infinity, a NaN) decode to values that mean nothing.
    """
    from lynx_ascend.codec.kernels.decode import decode_tiles
    from lynx_ascend.codec.kernels.exact import decode_exact

    layout = codec.layout(segment.shape, spec)
    common = _common(layout, segment, spec, anchor)
    if isinstance(codec, LynxInt4Codec):
        residual = None
    with torch.cuda.device_of(anchor):
        if layout.exact:
            decode_exact[_heads_grid(common, segment.shape.heads)](
                **common, **_exact(layout, segment), sinks=layout.sinks, skip=skip
            )
        if layout.coded > skip:
            decode_tiles[_tiles_grid(common, layout)](
                **common,
                **_tiles(layout, segment, spec),
                residual=(anchor if residual is None else residual).view(torch.int8),
                skip=max(skip, layout.sinks),
                FULL=residual is not None,
            )


def _common(layout: SegmentLayout, segment: PagedSegment, spec: PlaneSpec, anchor: Tensor) -> dict[str, Any]:
    """What every kernel is given, by name."""
    values, shape = segment.pages.values, segment.shape
    block, token, head, channel = values.stride()
    return {
        "pages": values.view(torch.int32 if values.dtype == torch.float32 else torch.int16),
        "block_ids": segment.block_ids.to(values.device, non_blocking=True),
        "anchor": anchor.view(torch.int8),
        "bits_before": width_tables(spec.widths, values.device)[0],
        "block_stride": block,
        "token_stride": token,
        "head_stride": head,
        "channel_stride": channel,
        "block_size": segment.pages.block_size,
        "start": segment.start,
        "head_bytes": layout.head(0)[0],
        "DIM": shape.dim,
        "BLOCK": _block(shape.dim, spec.chunk),
        "WIDTHS": spec.widths is not None,
        **_OPTIONS,
    }


def _exact(layout: SegmentLayout, segment: PagedSegment) -> dict[str, Any]:
    """What the kernels of the exact rows are given beside."""
    return {
        "coded": layout.coded,
        "rows": layout.exact // layout.row,
        "flags": layout.flags,
        "ITEM": segment.shape.dtype.itemsize,
    }


def _tiles(layout: SegmentLayout, segment: PagedSegment, spec: PlaneSpec) -> dict[str, Any]:
    """What the kernels of the tiles are given beside."""
    shape, device = segment.shape, segment.pages.values.device
    return {
        "tables": tables(float(spec.alpha), device),
        "places": width_tables(spec.widths, device)[1],
        "heads": shape.heads,
        "groups": layout.coded // 8,
        "fixed": layout.flags + layout.exact,
        "PAGE": layout.page,
        "CHUNK": spec.chunk,
        "KIND": DTYPES.index(shape.dtype),
        "TOKEN_SCALE": spec.token_scale,
    }


def _heads_grid(common: dict[str, Any], heads: int) -> tuple[int]:
    return (-(-common["DIM"] // common["BLOCK"]) * heads,)


def _tiles_grid(common: dict[str, Any], layout: SegmentLayout) -> tuple[int]:
    heads, pages = layout.shape.heads, -(-layout.coded // layout.page)
    return (_heads_grid(common, heads)[0] * pages,)


def _block(dim: int, chunk: int) -> int:
    """Channels of a program: a power of two."""
    most = min(_BLOCK, _ROW_VALUES // (chunk // 2))
    return min(most, max(16, 1 << (dim - 1).bit_length()))
