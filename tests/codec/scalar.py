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


def level(nibble: int, residual: int | None, alpha: float) -> F:
    negative = nibble >= 8
    a = 15 - nibble if negative else nibble
    magnitude = 16 * a + residual - 7 if residual is not None else (16 * a or 3)
    u = ((1 + alpha) ** (magnitude / 112) - 1) / alpha
    return F(-u if negative else u)


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
    hot: Sequence[Sequence[int]],
) -> np.ndarray:
    """float32 [tokens, heads, dim]; sinks is 0 for a segment that is not the first."""
    out = np.full((tokens, heads, dim), np.nan, F)
    front, back = Reader(anchor), Reader(residual or b"")
    coded = tokens // chunk * chunk
    exact = [t for t in range(tokens) if t < (sinks if coded else 0) or t >= coded]
    pages = math.ceil(tokens / page)
    for h in range(heads):
        flags = front.take(math.ceil(pages / 64) * 64)
        rows = [[value(front.take(ITEM[dtype]), dtype) for _ in range(dim)] for _ in exact]
        for p in range(pages):
            first = p * page
            n = max(0, min(page, coded - first)) // chunk
            if flags[p]:
                for t in range(first, first + n * chunk):
                    for ch in range(dim):
                        out[t, h, ch] = value(front.take(ITEM[dtype]), dtype)
                continue
            if not n:
                continue
            gamma_min = np.frombuffer(front.take(2 * dim), "<f2").astype(F)
            gamma_scale = np.frombuffer(front.take(2 * dim), "<f2").astype(F)
            mu = front.take(n * dim)
            sigma = front.take(n * dim)
            scale = front.take(n * chunk) if token_scale else b""
            half = chunk // 2
            codes = front.take(n * half * dim)
            hot_codes = front.take(n * half * len(hot[h]))
            rest = [ch for ch in range(dim) if ch not in hot[h]]
            cold_codes = back.take(n * half * len(rest)) if residual is not None else None
            for c in range(n):
                for j in range(chunk):
                    for ch in range(dim):
                        high, row = divmod(j, half)
                        shift = 4 * high
                        nibble = codes[(c * half + row) * dim + ch] >> shift & 15
                        refinement = None
                        if ch in hot[h]:
                            at = (c * half + row) * len(hot[h]) + hot[h].index(ch)
                            refinement = hot_codes[at] >> shift & 15
                        elif cold_codes is not None:
                            at = (c * half + row) * len(rest) + rest.index(ch)
                            refinement = cold_codes[at] >> shift & 15
                        x = level(nibble, refinement, alpha) * F(2.0 ** (-sigma[c * dim + ch] / 32))
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
