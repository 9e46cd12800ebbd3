"""A second, slow encoder of one channel, in float32 scalars, written from the format's description."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

F = np.float32


def float16_down(x: F) -> np.float16:
    near = np.float16(x)
    return np.nextafter(near, np.float16(-np.inf)) if F(near) > x else near


def float16_up(x: F) -> np.float16:
    near = np.float16(x)
    return np.nextafter(near, np.float16(np.inf)) if F(near) < x else near


def token_scale(row: np.ndarray) -> int:
    largest = float(np.abs(row).max())
    return min(max(math.ceil(4 * math.log2(largest)) + 128, 0), 255) if largest else 0


@dataclass
class Channel:
    """The codes of one channel over the tokens of one page."""

    gamma_min: np.float16
    gamma_scale: np.float16
    mu: list[int]
    sigma: list[int]
    codes: list[int]


def encode(x: np.ndarray, chunk: int, alpha: float, center: str) -> Channel:
    """float32 [tokens] of one channel; sinks replaced, token scale taken out."""
    gamma_min = float16_down(x.min() + F(0))
    gamma_scale = float16_up(x.max() - F(gamma_min) + F(0))
    if F(gamma_min) + F(gamma_scale) < x.max():
        gamma_scale = np.nextafter(gamma_scale, np.float16(np.inf))
    width = F(gamma_scale) if gamma_scale else F(1)
    xn = [(v - F(gamma_min)) / width for v in x]
    result = Channel(gamma_min, gamma_scale, [], [], [])
    bounds = [F(((1 + alpha) ** ((k - 0.5) / 112) - 1) / alpha) for k in range(1, 113)]
    for start in range(0, len(xn), chunk):
        part = xn[start : start + chunk]
        if center == "midrange":
            exact = (min(part) + max(part)) * F(127.5)
        else:
            sums = part
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [sums[i] + sums[half + i] for i in range(half)]
            exact = sums[0] / F(chunk) * F(255)
        mu_code = int(np.rint(exact))
        mu = F(mu_code / 255)
        reach = max(abs(v - mu) for v in part)
        sigma_code = max(s for s in range(256) if F(2.0 ** (-s / 32)) >= reach)
        result.mu.append(mu_code)
        result.sigma.append(sigma_code)
        for v in part:
            u = (v - mu) / F(2.0 ** (-sigma_code / 32))
            m = sum(abs(u) > bound for bound in bounds)
            a = (m + 7) >> 4
            result.codes.append((~a & 15 if u < 0 else a) << 4 | (m - 16 * a + 7))
    return result
