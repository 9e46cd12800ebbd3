"""CacheGen (Liu et al., SIGCOMM 2024, arXiv:2310.07240) as a baseline for accuracy and size; it is not served.

Ported from the method as published and from the settings in its repositories (UChi-JCL/CacheGen, LMCache/LMCache); the
code is ours.

- Groups of 10 tokens: the first, the anchor token, has 8 bits a value; the others are coded as deltas against it. Here
  against the *decoded* anchor token, so that its error does not add to theirs.
- A scale a vector: the largest magnitude of a token over all heads of the plane, float16.
- Bins: 32 in the first layers (10 of 32 for K, 2 of 32 for V), 16 in the others, as the repositories set them for 7B
  models: ``2 * (bins / 2 - 1) + 1`` levels around 0. For other depths the same share of layers.
- Arithmetic coding with a distribution per (plane, channel). The paper profiles them per model and sends none; here, as
  in the repositories, a payload carries its own, in as few bytes as will do: one a symbol for deltas, two (of a normal
  distribution) for anchor tokens.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from lynx_ascend.codec.base import Codec, EncodedPlane, PlaneShape
from lynx_ascend.codec.checks import check_bytes, check_none, check_start
from lynx_ascend.codec.delta import decode_rows, encode_rows
from lynx_ascend.codec.float16 import saturate
from lynx_ascend.codec.spec import CodecSpec, PlaneSpec
from lynx_ascend.errors import CodecError, ConfigError

FINE_BINS, COARSE_BINS = 32, 16
FINE_SHARE = {"k": 10 / 32, "v": 2 / 32}
_CODED, _RAW = b"\0", b"\1"


class CacheGenCodec(Codec):
    """A flag, the exact sinks, then what ``delta`` makes of the other rows, or these rows raw.

    They are raw where they hold what no code carries, and where coding would make them longer. Chunk, token scale and
    widths are not used.
    """

    name: ClassVar[str] = "cachegen"
    progressive: ClassVar[bool] = False
    drafts: ClassVar[bool] = False
    family: ClassVar[str] = "cachegen"
    servable: ClassVar[bool] = False

    def __init__(
        self, spec: CodecSpec | None = None, bins: tuple[int, int] = (COARSE_BINS, COARSE_BINS)
    ) -> None:
        """``bins``: of K planes and latents, and of V planes, 4 to 256. Raises ConfigError."""
        super().__init__(spec)
        if not all(4 <= count <= 256 for count in bins):
            raise ConfigError(f"bins are {bins}; use 4 to 256 for K and for V")
        self.bins = bins

    def for_layer(self, layer: int, layers: int) -> CacheGenCodec:
        """The codec with the bins of layer ``layer`` of ``layers``: the evaluation asks for each layer's."""
        fine = [layer < max(1, round(FINE_SHARE[kind] * layers)) for kind in ("k", "v")]
        k, v = (FINE_BINS if first else COARSE_BINS for first in fine)
        return CacheGenCodec(self.spec, (k, v))

    def encode(
        self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0, recent: int = 0
    ) -> EncodedPlane:
        shape = PlaneShape.of(plane, first_token, recent)
        coded, rows = self._coded(shape), plane.detach().cpu().flatten(1)
        inner = rows[coded]
        stream = encode_rows(inner.float(), self._reach(spec)) if inner.shape[0] else None
        if stream is None or len(stream) >= inner.nbytes:
            data = _RAW + _bytes(rows)
        else:
            data = _CODED + _bytes(rows[: coded.start]) + _bytes(rows[coded.stop :]) + stream
        anchor = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(plane.device)
        return EncodedPlane(shape, anchor, anchor.new_empty(0))

    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        check_bytes("anchor", anchor)
        coded, dim = self._coded(shape), shape.heads * shape.dim
        flag, data = anchor[:1].cpu().numpy().tobytes(), anchor[1:].cpu()
        count = coded.stop - coded.start
        exact = (shape.tokens - (count if flag == _CODED else 0)) * dim * shape.dtype.itemsize
        if flag not in (_CODED, _RAW) or data.numel() < exact or (flag == _RAW and data.numel() > exact):
            raise CodecError(
                f"the anchor has {data.numel()} bytes behind the flag {flag!r}; {exact} of rows stand there"
            )
        rows = data[:exact].clone().view(shape.dtype).view(-1, dim)
        if flag == _CODED:
            inner = decode_rows(data[exact:].numpy().tobytes(), count, dim, self._reach(spec))
            inner = saturate(inner, shape.dtype).to(shape.dtype)
            rows = torch.cat((rows[: coded.start], inner, rows[coded.start :]))
        return rows.view(shape.tokens, shape.heads, shape.dim).to(anchor.device)

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        check_none(self.name, residual)
        return self.decode_anchor(shape, spec, anchor)

    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 1 + shape.tokens * shape.heads * shape.dim * shape.dtype.itemsize

    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 0

    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.anchor_bytes(shape, spec)

    def _coded(self, shape: PlaneShape) -> slice:
        """The rows that are not exact."""
        check_start(shape.first_token, self.spec.page)
        end = shape.tokens - shape.recent
        return slice(min(self.spec.sinks, end) if shape.first_token == 0 else 0, end)

    def _reach(self, spec: PlaneSpec) -> int:
        """The largest magnitude of a delta's symbol."""
        return self.bins[spec.kind == "v"] // 2 - 1


class CacheGen32Codec(CacheGenCodec):
    """32 bins in every layer: CacheGen's finest level of the two, for accuracy."""

    name: ClassVar[str] = "cachegen-32"
    family: ClassVar[str] = "cachegen-32"

    def __init__(self, spec: CodecSpec | None = None) -> None:
        super().__init__(spec, (FINE_BINS, FINE_BINS))

    def for_layer(self, layer: int, layers: int) -> CacheGenCodec:
        """Itself: its bins are those of every layer."""
        return self


def _bytes(rows: Tensor) -> bytes:
    return bytes(rows.contiguous().view(torch.uint8).numpy().tobytes())
