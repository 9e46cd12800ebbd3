"""Counter-based Gumbel noise: a pure function of (seed, position, token), the same on every device and in every batch.

The Gumbel-max trick draws a token from softmax(logits) as argmax(logits + g) with g standard Gumbel noise. When g
depends on nothing but (seed, position, token), a draft, its verification and the plain decode of the same position
share their randomness: they give the same token unless the logits moved the argmax. Each draw is still exactly
distributed as the softmax, so nothing is approximated. Must not know of engines or requests.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

_MASK32 = 0xFFFFFFFF


def seed_key(seed: int | str) -> int:
    """Map a user's seed (int, any size or sign) or a request id (str) to a 64-bit key."""
    kind = b"i" if isinstance(seed, int) else b"s"
    return int.from_bytes(hashlib.blake2b(kind + str(seed).encode(), digest_size=8).digest(), "little")


def row_keys(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Mix seeds and absolute positions into one key a row (SplitMix64 finalizer, vectorised).

    Args:
        seeds: uint64 [rows], from `seed_key`.
        positions: int64 [rows], index of the token that is being sampled, counted from the first prompt token.

    Returns:
        int64 [rows, 2]: two 32-bit words a row, to be moved to the device.
    """
    with np.errstate(over="ignore"):
        z = seeds.astype(np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    words = np.empty((len(z), 2), dtype=np.int64)
    words[:, 0] = (z & np.uint64(_MASK32)).astype(np.int64)
    words[:, 1] = (z >> np.uint64(32)).astype(np.int64)
    return words


def _mix32(h: torch.Tensor) -> torch.Tensor:
    """32-bit avalanche (two multiply-xorshift rounds of the lowbias32 family); int64 lanes hold uint32."""
    h = h ^ (h >> 16)
    h = (h * 0x7FEB352D) & _MASK32
    h = h ^ (h >> 15)
    h = (h * 0x846CA68B) & _MASK32
    return h ^ (h >> 16)


def gumbel_noise(keys: torch.Tensor, vocab: int) -> torch.Tensor:
    """Standard Gumbel noise.

    Args:
        keys: int64 [rows, 2] from `row_keys`, on the target device.
        vocab: number of tokens.

    Returns:
        float32 [rows, vocab] on the device of `keys`.
    """
    token = torch.arange(vocab, dtype=torch.int64, device=keys.device)
    h = _mix32((token * 0x9E3779B1 & _MASK32) ^ keys[:, :1])
    h = _mix32((h + keys[:, 1:]) & _MASK32)
    # E = -log(1 - x) is exponential; small E (the likely winners) keeps full relative precision in float32.
    x = (h.to(torch.float32) + 0.5) * (1.0 / 4294967296.0)
    exponential = -torch.log1p(-x.clamp_(max=1.0 - 2.0**-24))
    return -torch.log(exponential)
