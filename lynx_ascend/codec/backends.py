"""Which implementation runs: C++ on the host if it was built, else the reference in torch. Same bytes either way."""

from __future__ import annotations

from torch import Tensor

from lynx_ascend import envs
from lynx_ascend.codec import cpu
from lynx_ascend.codec.base import Codec, EncodedPlane
from lynx_ascend.codec.segment import PagedSegment
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


def encode(codec: Codec, segment: PagedSegment, spec: PlaneSpec, *, threads: int = 1) -> EncodedPlane:
    """Encode a segment. Raises CodecError if it does not fit ``spec`` or starts inside a page."""
    if host_backend() == "cpu":
        encoded = cpu.encode(codec, segment, spec, threads)
        if encoded is not None:
            return encoded
    return codec.encode(segment.gather(), spec, first_token=segment.start)


def decode(
    codec: Codec,
    segment: PagedSegment,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    *,
    skip: int = 0,
    threads: int = 1,
) -> None:
    """Decode into the segment's tokens but the first ``skip``; all other values stay as they are.

    ``residual`` None: the anchor alone. Raises CodecError, with nothing written, if the bytes do not fit the layout.
    """
    if skip < 0:
        raise CodecError(f"a segment cannot skip {skip} tokens")
    if host_backend() == "cpu" and cpu.decode(codec, segment, spec, anchor, residual, skip, threads):
        return
    device = segment.pages.values.device
    anchor = anchor.to(device)
    if residual is None:
        values = codec.decode_anchor(segment.shape, spec, anchor)
    else:
        values = codec.decode_full(segment.shape, spec, anchor, residual.to(device))
    segment.scatter(values, skip)
