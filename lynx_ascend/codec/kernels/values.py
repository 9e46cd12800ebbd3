"""Values of the cache as float32 and back, and rounding to float16. Works on bits, so that the interpreter rounds too.

KIND is the position of the cache's dtype in `codec.base.DTYPES`: bfloat16, float16, float32. Bits are int16 or int32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def widen(bits, KIND: tl.constexpr):
    """float32 values of the bits of the cache's dtype; exact."""
    if KIND == 0:
        values = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    elif KIND == 1:
        values = bits.to(tl.float16, bitcast=True).to(tl.float32)
    else:
        values = bits.to(tl.float32, bitcast=True)
    return values


@triton.jit
def narrow(values, KIND: tl.constexpr):
    """Bits of float32 values, finite, rounded to nearest even; float16 saturates."""
    if KIND == 0:
        # The interpreter's conversion truncates.
        wide = values.to(tl.int32, bitcast=True)
        bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).to(tl.int16)
    elif KIND == 1:
        values = tl.minimum(tl.maximum(values, -65504.0), 65504.0)
        bits = values.to(tl.float16).to(tl.int16, bitcast=True)
    else:
        bits = values.to(tl.int32, bitcast=True)
    return bits


@triton.jit
def from_float16(bits):
    """float32 of float16 bits, int32."""
    return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def float16_down(values):
    """int32 bits of the largest float16 not above each value; the upper 16 of them mean nothing."""
    nearest = values.to(tl.float16)
    bits = nearest.to(tl.int16, bitcast=True).to(tl.int32)
    wide = nearest.to(tl.float32)
    # Patterns are sign and magnitude; below either zero lies the smallest negative number.
    below = tl.where(wide > 0, bits - 1, tl.where(wide < 0, bits + 1, 0x8001))
    return tl.where(wide > values, below, bits)


@triton.jit
def float16_up(values):
    """int32 bits of the smallest float16 not below each value, which is not negative."""
    nearest = values.to(tl.float16)
    bits = nearest.to(tl.int16, bitcast=True).to(tl.int32)
    return tl.where(nearest.to(tl.float32) < values, bits + 1, bits)
