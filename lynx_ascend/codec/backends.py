"""Which implementation runs: C++ on the host if it was built, else the reference in torch. Same bytes either way."""

from __future__ import annotations

import torch
from torch import Tensor

from lynx_ascend import envs
from lynx_ascend.codec import cpu
from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.errors import CodecError, ConfigError


def host_backend() -> str:
    """``cpu`` (C++) or ``torch``: what host tensors are coded with. ConfigError if C++ is asked for in vain."""
    wanted = envs.codec_backend()
    if wanted == "torch":
        return "torch"
    if cpu.extension() is not None:
        return "cpu"
    if wanted == "cpu":
        raise ConfigError(
            "LYNX_CODEC_BACKEND is 'cpu', but the C++ codec is not built or needs AVX2, AVX-512 or NEON"
        )
    return "torch"


def encode_pages(
    codec: Codec,
    pages: PagedPlane,
    block_ids: Tensor,
    start: int,
    end: int,
    spec: PlaneSpec,
    *,
    threads: int = 1,
) -> EncodedPlane:
    """Encode tokens [start, end) of the sequence whose blocks are ``block_ids``, int64 ``[blocks]``.

    Raises CodecError if the plane does not fit ``spec``, ``start`` starts no page or the blocks are too few.
    """
    shape = _shape(pages, block_ids, start, end)
    if host_backend() == "cpu":
        encoded = cpu.encode(codec, pages, block_ids, shape, spec, threads)
        if encoded is not None:
            return encoded
    return codec.encode(pages.gather(block_ids, start, end), spec, first_token=start)


def decode_pages(
    codec: Codec,
    pages: PagedPlane,
    block_ids: Tensor,
    start: int,
    end: int,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    *,
    skip: int = 0,
    threads: int = 1,
) -> None:
    """Decode a segment into tokens [start + skip, end) of the sequence; all other values stay as they are.

    ``residual`` None: the anchor alone. Raises CodecError, with nothing written, if the bytes do not fit the layout.
    """
    shape = _shape(pages, block_ids, start, end)
    if host_backend() == "cpu" and cpu.decode(
        codec, pages, block_ids, shape, spec, anchor, residual, skip, threads
    ):
        return
    anchor = anchor.to(pages.values.device)
    if residual is None:
        values = codec.decode_anchor(shape, spec, anchor)
    else:
        values = codec.decode_full(shape, spec, anchor, residual.to(pages.values.device))
    if skip < shape.tokens:
        pages.scatter(block_ids, start + skip, values[skip:])


def _shape(pages: PagedPlane, block_ids: Tensor, start: int, end: int) -> PlaneShape:
    if block_ids.dtype != torch.int64 or block_ids.ndim != 1:
        raise CodecError(f"a block table is int64 [blocks], not {block_ids.dtype} {tuple(block_ids.shape)}")
    if block_ids.numel() * pages.block_size < end:
        raise CodecError(f"{block_ids.numel()} blocks of {pages.block_size} tokens do not reach token {end}")
    return PlaneShape(end - start, pages.heads, pages.dim, pages.values.dtype, start)
