"""A second, slow decoder: one value at a time, written from the format's description and nothing else.

It shares no code with the package, so that a mistake in one of the two shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

F = np.float32
ITEM = {torch.bfloat16: 2, torch.float16: 2, torch.float32: 4}


@dataclass
class Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        assert len(piece) == count, "the payload ends early"
        self.at += count
        return piece


def value(raw: bytes, dtype: torch.dtype) -> F:
    if dtype == torch.bfloat16:
        return np.frombuffer(b"\0\0" + raw, "<f4")[0]
    return F(np.frombuffer(raw, "<f2" if dtype == torch.float16 else "<f4")[0])


def cast(x: F, dtype: torch.dtype) -> F:
    """Round to nearest even; float16 saturates."""
    if dtype == torch.float16:
        return F(np.float16(min(max(x, F(-65504)), F(65504))))
    if dtype == torch.bfloat16:
        bits = int(np.array(x, "<f4").view("<u4"))
        bits += 0x7FFF + (bits >> 16 & 1)
        return np.array(bits & 0xFFFF0000, "<u4").view("<f4")[()]
    return x


def level(bits: str, alpha: float) -> F:
    """The value of a code of which these bits are known, the first being the sign."""
    sign, unknown = bits[0], 8 - len(bits)
    upper = "".join(b if sign == "0" else "10"[int(b)] for b in bits[:4]) + bits[4:]
    first, last = int(upper + "0" * unknown, 2) - 7, int(upper + "1" * unknown, 2) - 7
    magnitude = (max(first, 0) + min(last, 112)) / 2
    u = ((1 + alpha) ** (magnitude / 112) - 1) / alpha
    return F(-u if sign == "1" else u)


def decode(
    anchor: bytes,
    residual: bytes | None,
    *,
    tokens: int,
    heads: int,
    dim: int,
    dtype: torch.dtype,
    page: int,
    chunk: int,
    sinks: int,
    token_scale: bool,
    alpha: float,
    recent: int,
    widths: Sequence[Sequence[int]],
) -> np.ndarray:
    """float32 [tokens, heads, dim]; sinks is 0 for a segment that is not the first."""
    out = np.full((tokens, heads, dim), np.nan, F)
    front, back = Reader(anchor), Reader(residual or b"")
    coded = (tokens - recent) // 8 * 8
    coded = coded if coded > sinks else 0
    exact = [t for t in range(tokens) if t < (sinks if coded else 0) or t >= coded]
    pages = math.ceil(tokens / page)
    for h in range(heads):
        flags = front.take(math.ceil(pages / 64) * 64)
        rows = [[value(front.take(ITEM[dtype]), dtype) for _ in range(dim)] for _ in exact]
        for p in range(pages):
            first = p * page
            size = max(0, min(page, coded - first))
            n = -(-size // chunk)
            if flags[p]:
                for t in range(first, first + size):
                    for ch in range(dim):
                        out[t, h, ch] = value(front.take(ITEM[dtype]), dtype)
                continue
            if not n:
                continue
            gamma_min = np.frombuffer(front.take(2 * dim), "<f2").astype(F)
            gamma_scale = np.frombuffer(front.take(2 * dim), "<f2").astype(F)
            mu = front.take(n * dim)
            sigma = front.take(n * dim)
            scale = front.take(size) if token_scale else b""
            known: dict[tuple[int, int], str] = {}
            for group in range(size // 8):
                for part, has in ((front, int.__gt__), (back, int.__le__)):
                    if part is back and residual is None:
                        continue
                    for r in range(8):
                        for ch in range(dim):
                            if has(widths[h][ch], r):
                                byte = part.take(1)[0]
                                for t in range(8):
                                    at = (8 * group + t, ch)
                                    known[at] = known.get(at, "") + str(byte >> t & 1)
            for c in range(n):
                for j in range(min(chunk, size - c * chunk)):
                    for ch in range(dim):
                        bits = known[c * chunk + j, ch]
                        x = level(bits, alpha) * F(2.0 ** (-sigma[c * dim + ch] / 32))
                        x = x + F(mu[c * dim + ch] / 255)
                        x = x * gamma_scale[ch] + gamma_min[ch]
                        if token_scale:
                            x = x * F(2.0 ** ((scale[c * chunk + j] - 128) / 4))
                        out[first + c * chunk + j, h, ch] = cast(x, dtype)
        for t, row in zip(exact, rows, strict=True):
            out[t, h] = row
    assert front.at == len(anchor), "bytes left in the anchor"
    assert residual is None or back.at == len(residual), "bytes left in the residual"
    return out
