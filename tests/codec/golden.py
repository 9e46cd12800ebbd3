"""The golden payloads. ``python -m tests.codec.golden`` writes them anew: only for a new format version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lynx_ascend.codec import ChannelWidths, CodecSpec, EncodedPlane, PlaneSpec, get_codec

from .planes import integers, uneven

DATA = Path(__file__).parent / "data"
SPEC = CodecSpec(page=64)


@dataclass(frozen=True)
class Case:
    """One payload: three heads of five channels, 64 + 32 coded tokens, a tail of 7 (or 39; 20 recent)."""

    name: str
    plane: Tensor
    spec: PlaneSpec
    recent: int = 0

    def encode(self) -> EncodedPlane:
        return get_codec("lynx", SPEC).encode(self.plane, self.spec, recent=self.recent)

    def widths(self) -> list[tuple[int, ...]]:
        heads, dim = self.plane.shape[1:]
        widths = self.spec.widths or ChannelWidths.uniform(heads, dim)
        return [widths.row(head) for head in range(heads)]


def cases() -> list[Case]:
    """K with uneven widths and one raw tile, V with the token scale, a plain bfloat16 plane."""
    raw = integers(103, 3, 5, torch.float16)
    raw[70, 1, 2] = float("inf")
    value = integers(103, 3, 5, torch.float32, seed=2)
    value *= torch.tensor([2.0 ** (t % 19 - 9) for t in range(103)]).view(-1, 1, 1)
    value[40] = 0
    plain = integers(103, 3, 5, torch.bfloat16, seed=3)
    plain[:, 2, 1] = -1.5
    return [
        Case("k_widths_raw_float16", raw, PlaneSpec(widths=uneven(3, 5))),
        Case("v_token_scale_float32", value, PlaneSpec(chunk=64, token_scale=True)),
        Case("recent_bfloat16", plain, PlaneSpec(alpha=2.0), 20),
    ]


if __name__ == "__main__":
    for case in cases():
        encoded = case.encode()
        for stream in ("anchor", "residual"):
            data = getattr(encoded, stream).numpy().tobytes()
            (DATA / f"{case.name}.{stream}.bin").write_bytes(data)
