"""The planes of a model on one rank: what is encoded, in which pieces, and the hash on which both ends agree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from lynx_ascend.codec import (
    K_SPEC,
    LATENT_SPEC,
    V_SPEC,
    Calibration,
    Codec,
    CodecSpec,
    PlaneShape,
    PlaneSpec,
    get_codec,
    load_calibration,
)
from lynx_ascend.errors import ConfigError, ProtocolError
from lynx_ascend.stream.types import Kind, PieceKey
from lynx_ascend.vllm.layouts import LayerLayout, layout_of
from lynx_ascend.vllm.settings import LynxSettings

FORMAT_VERSION = 2
_SPECS = {"k": K_SPEC, "v": V_SPEC, "latent": LATENT_SPEC, "rope": LATENT_SPEC}


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane: its place on the wire (layer, index), its place in the engine (layout, name) and its coding."""

    layer: int
    index: int
    name: str
    heads: int
    dim: int
    dtype: torch.dtype
    spec: PlaneSpec
    layout: LayerLayout

    def shape(self, start: int, end: int, recent: int = 0) -> PlaneShape:
        """Shape of the segment that holds tokens [start, end), the last ``recent`` exact."""
        return PlaneShape(end - start, self.heads, self.dim, self.dtype, start, recent)


class PlaneTable:
    """All planes of a rank in wire order (layer by layer), and the arithmetic of pages and pieces."""

    def __init__(self, caches: dict[str, Any], settings: LynxSettings) -> None:
        """Read the geometry from the caches that the engine registered.

        Args:
            caches: layer name -> cache, as `register_kv_caches` gets them; shared caches are taken once.
            settings: codec policy and calibration.

        Raises:
            ConfigError: an unknown layout, no layer, or a calibration that does not fit the model.
        """
        self.codec_spec = CodecSpec(sinks=settings.sinks, recent=settings.recent, center=settings.center)
        self.piece_bytes = settings.piece_kb * 1000
        calibration = load_calibration(settings.calibration) if settings.calibration else Calibration({})
        self.layers: list[str] = []
        self.planes: list[Plane] = []
        seen: set[int] = set()
        for name, cache in caches.items():
            first = cache[0] if isinstance(cache, (tuple, list)) else cache
            if first.data_ptr() in seen:
                continue
            seen.add(first.data_ptr())
            layout = layout_of(cache)
            layer = len(self.layers)
            self.layers.append(name)
            for index, view in enumerate(layout.planes):
                spec = calibration.apply(layer, view.name, _SPECS[view.name])
                widths = spec.widths
                if widths is not None and (widths.heads, widths.dim) != (view.heads, view.dim):
                    raise ConfigError(
                        f"the calibration of layer {layer} {view.name} is of {(widths.heads, widths.dim)} heads and "
                        f"channels, the model has {(view.heads, view.dim)}: calibrate for this model"
                    )
                self.planes.append(
                    Plane(layer, index, view.name, view.heads, view.dim, view.dtype, spec, layout)
                )
        if not self.planes:
            raise ConfigError("the engine registered no KV cache: this model has nothing to transfer")
        self._by_key = {(plane.layer, plane.index): plane for plane in self.planes}
        self.codecs: dict[str, Codec] = {}

    def codec(self, name: str) -> Codec:
        """The codec of that name with this engine's policy."""
        if name not in self.codecs:
            self.codecs[name] = get_codec(name, self.codec_spec)
        return self.codecs[name]

    @property
    def page(self) -> int:
        """Tokens a page."""
        return self.codec_spec.page

    def pages(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page)

    def layout_hash(self) -> str:
        """Hash of everything both ends must agree on; encoder policy (center), which no decoder sees, is not in it."""
        rows = [
            [
                p.layer,
                self.layers[p.layer],
                p.name,
                p.heads,
                p.dim,
                str(p.dtype),
                p.spec.chunk,
                p.spec.token_scale,
                p.spec.alpha,
                p.spec.widths.digits() if p.spec.widths is not None else None,
            ]
            for p in self.planes
        ]
        spec = self.codec_spec
        text = json.dumps(
            [FORMAT_VERSION, spec.page, spec.levels, spec.sinks, spec.recent, rows], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: PieceKey) -> Plane:
        """The plane of a piece.

        Raises:
            ProtocolError: no such plane, or heads out of range.
        """
        plane = self._by_key.get((key.layer, key.plane))
        if plane is None:
            raise ProtocolError(f"there is no plane {key.plane} in layer {key.layer}")
        if key.first_head != 0 or key.heads != plane.heads or key.pages < 1:
            raise ProtocolError(
                f"piece has heads {key.first_head}+{key.heads} and {key.pages} pages; "
                f"this rank owns {plane.heads} heads"
            )
        return plane

    def shape(self, key: PieceKey, tokens: int) -> PlaneShape:
        """Shape of a piece of a prompt of so many tokens.

        Raises:
            ProtocolError: no such plane, heads out of range, or it starts behind the prompt.
        """
        start, end = key.first_page * self.page, min(tokens, (key.first_page + key.pages) * self.page)
        if start >= end:
            raise ProtocolError(f"piece {key} starts behind the prompt's {tokens} tokens")
        recent = min(end - start, max(0, self.codec_spec.recent - (tokens - end)))
        return self.find(key).shape(start, end, recent)

    def pieces(self, codec: Codec, tokens: int) -> Iterator[tuple[Plane, PieceKey, PlaneShape]]:
        """Cut a prompt into pieces: (plane, key, shape), layer by layer, pages in order."""
        for plane in self.planes:
            page_bytes = codec.anchor_bytes(plane.shape(0, self.page), plane.spec)
            run = max(1, self.piece_bytes // page_bytes)
            for first in range(0, self.pages(tokens), run):
                pages = min(run, self.pages(tokens) - first)
                key = PieceKey(plane.layer, plane.index, first, pages, 0, plane.heads)
                yield plane, key, self.shape(key, tokens)

    def planned_bytes(self, codec: Codec, tokens: int) -> int:
        """Bytes of a prompt's anchor and residual when no page is raw, plus room for a few raw pages."""
        total = 0
        for plane, _, shape in self.pieces(codec, tokens):
            total += codec.anchor_bytes(shape, plane.spec) + codec.residual_bytes(shape, plane.spec)
        return total + total // 4 + (1 << 20)


class TransferLimits:
    """`PayloadLimits` of this model: the longest payload that any codec may send for a piece."""

    def __init__(self, table: PlaneTable, codecs: list[Codec], max_tokens: int) -> None:
        self._table = table
        self._codecs = codecs
        self._max_pages = table.pages(max_tokens)

    def max_bytes(self, kind: Kind, key: PieceKey) -> int:
        """See `PayloadLimits`.

        Raises:
            ProtocolError: the piece is out of the model's range.
        """
        plane = self._table.find(key)
        if key.first_page + key.pages > self._max_pages:
            raise ProtocolError(
                f"pages up to {key.first_page + key.pages}; the longest prompt has {self._max_pages}"
            )
        start = key.first_page * self._table.page
        shape = plane.shape(start, start + key.pages * self._table.page)
        if kind is Kind.ANCHOR:
            return max(codec.anchor_bytes_max(shape, plane.spec) for codec in self._codecs)
        return max(codec.residual_bytes_max(shape, plane.spec) for codec in self._codecs)
