"""KV through a codec: what decode reads from the anchor alone and from both streams, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from lynx_ascend.codec import Codec, EncodedPlane, PlaneSpec
from lynx_ascend.eval.model import Kv

# (layer, ``k`` or ``v``) -> the plane's settings
Specs = Callable[[int, str], PlaneSpec]


@dataclass(frozen=True)
class CodedKv:
    """What arrives of a sequence.

    Attributes:
        full: decoded from all that is sent.
        anchor: decoded from the anchor alone; None for a codec without a residual that comes later.
        bits_anchor, bits_total: bits per value, with all metadata and exact rows.
    """

    full: Kv
    anchor: Kv | None
    bits_anchor: float
    bits_total: float


def code(kv: Kv, codec: Codec, specs: Specs) -> CodedKv:
    """Encode every plane of ``kv`` as a prefill engine with a bfloat16 cache of the same values would, and decode it.

    The values stay float32: the error is the codec's alone. Exact rows are counted as 16 bits a value.
    """
    full, early, anchor_bits, total_bits, count = [], [], 0.0, 0.0, 0
    for layer, name, plane in kv.planes():
        spec = specs(layer, name)
        chosen = codec.for_layer(layer, kv.layers)
        coded = chosen.encode(plane, spec, recent=min(chosen.spec.recent, plane.shape[0]))
        full.append((layer, name, chosen.decode_full(coded.shape, spec, coded.anchor, coded.residual)))
        if codec.drafts:
            early.append((layer, name, chosen.decode_anchor(coded.shape, spec, coded.anchor)))
        anchor = 8 * _wire_bytes(chosen, coded, spec)
        anchor_bits, total_bits = anchor_bits + anchor, total_bits + anchor + 8 * coded.residual.numel()
        count += plane.numel()
    return CodedKv(Kv.of(full), Kv.of(early) if early else None, anchor_bits / count, total_bits / count)


def _wire_bytes(codec: Codec, coded: EncodedPlane, spec: PlaneSpec) -> int:
    """Bytes of the anchor, had the cache been bfloat16: its exact rows then take half."""
    if not codec.servable:  # no size is promised, and nothing in it depends on the cache's dtype
        return coded.anchor.numel()
    served = codec.anchor_bytes(replace(coded.shape, dtype=torch.bfloat16), spec)
    return served + coded.anchor.numel() - codec.anchor_bytes(coded.shape, spec)
