"""CacheGen (Liu et al., SIGCOMM 2024, arXiv:2310.07240) as a baseline for accuracy and size; it is not served.

Ported from the method as published and from the settings in its repositories (UChi-JCL/CacheGen, LMCache/LMCache); the
code is ours.

- Groups of 10 tokens: the first, the anchor token, has 8 bits a value; the others are coded as deltas against it. Here
  against the *decoded* anchor token, so that its error does not add to theirs.
- A scale a vector: the largest magnitude of a (token, head), float16. The repositories have one a token, for all heads.
- Bins: 32 in the first layers (10 of 32 for K, 2 of 32 for V), 16 in the others, as the repositories set them for 7B
  models: ``2 * (bins / 2 - 1) + 1`` levels around 0. For other depths the same share of layers.
- Arithmetic coding with a distribution per (plane, channel). The paper profiles them per model and sends none; here, as
  in the repositories, a payload carries its own, in as few bytes as will do: one a symbol for deltas, two (of a normal
  distribution) for anchor tokens.
"""

from __future__ import annotations

import struct
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
_HEADER = struct.Struct("<IB")  # bytes of the head behind these; whether its rows are raw


class CacheGenCodec(Codec):
    """Head by head: header, exact sinks, then what ``delta`` makes of the other rows, or these rows raw.

    They are raw where they hold what no code carries, and where coding would make them longer. Chunk, token scale and
    hot channels are not used.
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

    def encode(self, plane: Tensor, spec: PlaneSpec, *, first_token: int = 0) -> EncodedPlane:
        shape = PlaneShape.of(plane, first_token)
        sinks, heads = self._sinks(shape), []
        for rows in plane.detach().cpu().unbind(1):
            exact, rest = _bytes(rows[:sinks]), _bytes(rows[sinks:])
            coded = encode_rows(rows[sinks:].float(), self._reach(spec)) if rest else None
            raw = coded is None or len(coded) >= len(rest)
            body = exact + (rest if coded is None or raw else coded)
            heads.append(_HEADER.pack(len(body), raw) + body)
        anchor = torch.frombuffer(bytearray(b"".join(heads)), dtype=torch.uint8).to(plane.device)
        return EncodedPlane(shape, anchor, anchor.new_empty(0))

    def decode_anchor(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor) -> Tensor:
        check_bytes("anchor", anchor)
        sinks, reach = self._sinks(shape), self._reach(spec)
        row = shape.dim * shape.dtype.itemsize
        data, heads = anchor.cpu().numpy().tobytes(), []
        for head in range(shape.heads):
            body, raw, data = _cut_head(data, head)
            if raw and len(body) != shape.tokens * row:
                raise CodecError(
                    f"the anchor has {len(body)} bytes for the raw head {head} of {shape.tokens} rows"
                )
            exact = body if raw else body[: sinks * row]
            if len(exact) < sinks * row:
                raise CodecError(f"the anchor ends inside the exact rows of head {head}")
            rows = torch.frombuffer(bytearray(exact or b"\0"), dtype=torch.uint8)[: len(exact)]
            rows = rows.view(shape.dtype).view(-1, shape.dim)
            if not raw:
                coded = decode_rows(body[len(exact) :], shape.tokens - sinks, shape.dim, reach)
                rows = torch.cat((rows, saturate(coded, shape.dtype).to(shape.dtype)))
            heads.append(rows)
        if data:
            raise CodecError(f"the anchor has {len(data)} bytes behind its last head")
        return torch.stack(heads, 1).to(anchor.device)

    def decode_full(self, shape: PlaneShape, spec: PlaneSpec, anchor: Tensor, residual: Tensor) -> Tensor:
        check_none(self.name, residual)
        return self.decode_anchor(shape, spec, anchor)

    def anchor_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return shape.heads * (_HEADER.size + shape.tokens * shape.dim * shape.dtype.itemsize)

    def residual_bytes(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return 0

    def anchor_bytes_max(self, shape: PlaneShape, spec: PlaneSpec) -> int:
        return self.anchor_bytes(shape, spec)

    def _sinks(self, shape: PlaneShape) -> int:
        check_start(shape.first_token, self.spec.page)
        return min(self.spec.sinks, shape.tokens) if shape.first_token == 0 else 0

    def _reach(self, spec: PlaneSpec) -> int:
        """The largest magnitude of a delta's symbol."""
        return self.bins[spec.kind == "v"] // 2 - 1


def _cut_head(data: bytes, head: int) -> tuple[bytes, bool, bytes]:
    """The first head of ``data``: its bytes, whether they are raw, and the data behind it."""
    if len(data) < _HEADER.size:
        raise CodecError(f"the anchor ends inside the header of head {head}")
    size, raw = _HEADER.unpack_from(data)
    end = _HEADER.size + size
    if raw > 1 or len(data) < end:
        raise CodecError(
            f"the anchor's header of head {head} says {size} bytes, raw {raw}; {len(data)} are left"
        )
    return data[_HEADER.size : end], bool(raw), data[end:]


def _bytes(rows: Tensor) -> bytes:
    return bytes(rows.contiguous().view(torch.uint8).numpy().tobytes()) if rows.numel() else b""
