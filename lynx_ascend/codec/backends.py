"""Which implementation runs. Same bytes whichever it is.

Host tensors: C++ if it was built. CUDA tensors: the Triton kernels if triton is installed. Else, and for what these do
not take, the reference in torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lynx_ascend import envs
from lynx_ascend.codec import cpu, cuda
from lynx_ascend.codec.base import Codec, EncodedPlane
from lynx_ascend.codec.lynx import LynxCodec
from lynx_ascend.codec.raw import cut_raw, flagged
from lynx_ascend.codec.segment import PagedSegment
from lynx_ascend.codec.spec import PlaneSpec
from lynx_ascend.errors import CodecError, ConfigError

_HOST = torch.device("cpu")


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
    return _encode_reference(codec, segment, spec)


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
    _check_skip(skip)
    if host_backend() == "cpu" and cpu.decode(codec, segment, spec, anchor, residual, skip, threads):
        return
    _decode_reference(codec, segment, spec, anchor, residual, skip)


def encode_cuda(codec: Codec, segment: PagedSegment, spec: PlaneSpec) -> EncodedPlane:
    """Encode a segment on a CUDA device, without waiting for it; raises as ``encode`` does.

    What the kernels made is of the regular layout, a tile that must be raw flagged but not replaced: see ``to_host``.
    """
    if isinstance(codec, LynxCodec) and cuda.handles(codec, segment, spec):
        return cuda.encode(codec, segment, spec)
    return _encode_reference(codec, segment, spec)


def to_host(codec: Codec, segment: PagedSegment, spec: PlaneSpec, encoded: EncodedPlane) -> EncodedPlane:
    """The bytes of ``encode_cuda`` on the host, complete: the one wait for the device.

    The pages must still hold what was encoded: a segment with a raw tile, rare, is encoded anew on the host.
    """
    host = EncodedPlane(encoded.shape, encoded.anchor.cpu(), encoded.residual.cpu())
    if isinstance(codec, LynxCodec) and cuda.handles(codec, segment, spec):
        layout = codec.layout(segment.shape, spec)
        if flagged(layout, host.anchor):
            return _encode_reference(codec, segment, spec, _HOST)
    return host


def decode_cuda(
    codec: Codec,
    segment: PagedSegment,
    spec: PlaneSpec,
    anchor: Tensor,
    residual: Tensor | None = None,
    *,
    skip: int = 0,
) -> None:
    """Decode on a CUDA device, like ``decode``. Streams on the host, as received, are checked there: nothing waits for
    the device. Streams on the device cost one look at their flags. Pinned streams must outlive the copy.
    """
    _check_skip(skip)
    if isinstance(codec, LynxCodec) and cuda.handles(codec, segment, spec):
        _, _, raw = cut_raw(codec.layout(segment.shape, spec), anchor, residual)
        if not raw:
            device = segment.pages.values.device
            anchor = anchor.to(device, non_blocking=True)
            residual = None if residual is None else residual.to(device, non_blocking=True)
            cuda.decode(codec, segment, spec, anchor, residual, skip)
            return
    _decode_reference(codec, segment, spec, anchor, residual, skip)


def _encode_reference(
    codec: Codec, segment: PagedSegment, spec: PlaneSpec, device: torch.device | None = None
) -> EncodedPlane:
    """``device``: where to encode; None: where the pages are."""
    values = segment.gather().to(device or segment.pages.values.device)
    return codec.encode(values, spec, first_token=segment.start, recent=segment.recent)


def _decode_reference(
    codec: Codec, segment: PagedSegment, spec: PlaneSpec, anchor: Tensor, residual: Tensor | None, skip: int
) -> None:
    device = segment.pages.values.device
    anchor = anchor.to(device)
    if residual is None:
        values = codec.decode_anchor(segment.shape, spec, anchor)
    else:
        values = codec.decode_full(segment.shape, spec, anchor, residual.to(device))
    segment.scatter(values, skip)


def _check_skip(skip: int) -> None:
    if skip < 0:
        raise CodecError(f"a segment cannot skip {skip} tokens")
