"""From numbers to stored codes and back: the one place of the kernels that knows what a code means.

Every code is an estimate by a logarithm, put right by one comparison with the format's own table: an estimate that is
off by less than half a step leaves one boundary in question, so the codes are exact however the logarithm rounds.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lynx_ascend.codec.kernels import tables as at
from lynx_ascend.codec.spec import LEVELS as MAGNITUDES

FRACTIONS = tl.constexpr(at.FRACTIONS)
SIGMAS = tl.constexpr(at.SIGMAS)
TOKEN_SCALES = tl.constexpr(at.TOKEN_SCALES)
KNOWN_LEVELS = tl.constexpr(at.KNOWN_LEVELS)
CURVE = tl.constexpr(at.CURVE)
THRESHOLDS = tl.constexpr(at.THRESHOLDS)
LEVELS = tl.constexpr(MAGNITUDES)
OFFSET = tl.constexpr(7)  # a magnitude and this share a byte: the format's split at step 4
FLOAT16_MAX_BITS = tl.constexpr(0x477FE000)  # 65504 in float32; an infinity and a NaN have larger bits


@triton.jit
def code_bytes(u, tables, alpha, steepness, DEGREE: tl.constexpr):
    """The code of each float32 in [-1, 1]: int32, 0 to 255.

    DEGREE is that of the curve in `tables`, 0 where the logarithm itself is asked.
    """
    size = tl.abs(u)
    if DEGREE == 0:
        estimate = tl.log2(size * alpha + 1.0) * steepness
    else:
        estimate = size * tl.load(tables + CURVE) + tl.load(tables + CURVE + 1)
        for k in tl.static_range(2, DEGREE + 1):
            estimate = tl.fma(estimate, size, tl.load(tables + CURVE + k))
    # Clamped for what the format excludes and a raw tile holds: a NaN must not become an address.
    cell = estimate.to(tl.int32)
    cell = tl.minimum(tl.maximum(cell, 0), LEVELS - 1)
    above = size > tl.load(tables + THRESHOLDS + cell)
    return (cell + above.to(tl.int32) + OFFSET) ^ tl.where(u < 0, 0xF0, 0)


@triton.jit
def known_levels(codes, width, tables):
    """float32 value of codes, int32, of which the `width` upper bits are known and the others are 0."""
    return tl.load(tables + KNOWN_LEVELS + ((width << 8) | codes))


@triton.jit
def sigma_codes(reach, tables):
    """The largest code whose sigma is at least `reach`, float32 in [0, 1]: int32."""
    guess = (0.5 - 32.0 * tl.log2(tl.maximum(reach, 0.001953125))).to(tl.int32)
    guess = tl.minimum(tl.maximum(guess, 0), 255)
    return guess - (tl.load(tables + SIGMAS + guess) < reach).to(tl.int32)


@triton.jit
def token_scale_codes(peak, tables):
    """The smallest code whose scale is at least a row's largest magnitude, given as float32 bits: int32."""
    largest = tl.minimum(peak, FLOAT16_MAX_BITS).to(tl.float32, bitcast=True)
    # The smallest scale is 2^-32: below it every code is 0.
    guess = (4.0 * tl.log2(tl.maximum(largest, 2.3283064365386963e-10)) + 128.5).to(tl.int32)
    guess = tl.minimum(tl.maximum(guess, 0), 254)
    return guess + (tl.load(tables + TOKEN_SCALES + guess) < largest).to(tl.int32)


@triton.jit
def nearest_byte(value):
    """The integer nearest to a float32 in [0, 255], ties to even: int32."""
    # Adding 1.5 * 2^23 leaves the integer in the low bits.
    return (value + 12582912.0).to(tl.int32, bitcast=True) & 255
