"""Golden payloads of the baselines on the wire. ``python -m tests.codec.golden_baselines`` writes them anew."""

from __future__ import annotations

from pathlib import Path

import torch

from lynx_ascend.codec import CodecSpec, EncodedPlane, PlaneSpec, get_codec, servable_codecs

from .planes import integers

DATA = Path(__file__).parent / "data" / "baselines"
LYNX = ("lynx", "lynx-int8", "lynx-int4")  # golden.py
KINDS = {"kivi4": ("k", "v")}
CASES = tuple((name, kind) for name in servable_codecs() if name not in LYNX for kind in KINDS.get(name, "k"))


def encode(name: str, kind: str) -> EncodedPlane:
    """A page of 64 tokens and a tail of 7, one head of 33 channels: 32 and 1 where they are grouped."""
    plane = integers(71, 1, 33, torch.bfloat16, seed=4)
    return get_codec(name, CodecSpec(page=64, sinks=2)).encode(plane, PlaneSpec(kind=kind))


def payload(name: str, kind: str) -> bytes:
    """Anchor and residual, one behind the other."""
    encoded = encode(name, kind)
    return torch.cat((encoded.anchor, encoded.residual)).numpy().tobytes()


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for case in CASES:
        (DATA / f"{'-'.join(case)}.bin").write_bytes(payload(*case))
