"""Codes as bit planes in the kernels: from bytes of codes to bytes of bits and back, and where these stand.

A chunk is two int32 tiles [HALF, BLOCK] of bytes. As codes: row 4 * g + t has token t of the eight of group g in the
first tile, token 4 + t in the second. As planes: row 4 * g + i has bit i of the eight codes of group g in the first
tile, bit 4 + i in the second.

With widths, `places` of one head, int32 [9, DIM], names where the byte of each bit and channel stands among those of
its group: p in the anchor, or -1 - p in the residual; its last row holds the widths. Without, the second tile is the
anchor's, the first the residual's, and it is not read.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_byte(pointers, mask):
    """Bytes as int32, 0 to 255; 0 where masked."""
    return tl.load(pointers, mask=mask, other=0).to(tl.int32) & 255


@triton.jit
def transposed(first, second, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Bit j of byte i and bit i of byte j of each eight change places: codes become planes, planes codes."""
    low = _words(first & 15, second & 15, HALF, BLOCK)
    high = _words((first >> 4) & 15, (second >> 4) & 15, HALF, BLOCK)
    return _bytes(low, HALF, BLOCK), _bytes(high, HALF, BLOCK)


@triton.jit
def _words(first, second, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """From numbers 0 to 15, eight of a group: int32 [HALF / 4, BLOCK], bit j of byte i being bit i of number j."""
    lane = tl.arange(0, 4)
    weight = (1 + (lane & 1)) * (1 + 3 * (lane >> 1))  # 1, 2, 4, 8
    # The product has bit i at i + 7 * j for j from 0 to 3, of which 8 * i stay.
    bits = (first * 0x00204081) & 0x01010101
    bits |= ((second * 0x00204081) & 0x01010101) << 4
    # Every bit of a sum comes from one row: no carries.
    bits = tl.reshape(bits, (HALF // 4, 4, BLOCK)) * weight[None, :, None]
    return tl.reduce(bits, 1, tl.standard._sum_combine)


@triton.jit
def _bytes(words, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """The bytes of words [HALF / 4, BLOCK], the lowest first, each a row: int32 [HALF, BLOCK]."""
    words = words[:, None, :]
    lane = tl.arange(0, 4)[None, :, None]
    lower = tl.where(lane == 0, words, words >> 8)
    upper = tl.where(lane == 2, words >> 16, words >> 24)
    return tl.reshape(tl.where(lane < 2, lower, upper) & 255, (HALF, BLOCK))


@triton.jit
def store_planes(
    data,
    FIRST: tl.constexpr,
    anchor,
    residual,
    row,
    rows,
    bits,
    places,
    channel,
    DIM: tl.constexpr,
    WIDTHS: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """Store the tile of the planes from bit FIRST, 0 or 4, on; without RESIDUAL what belongs there is dropped.

    `row` are the tile's rows, counted from the start of the page, which has `rows`; of a group `bits` bytes are the
    anchor's.
    """
    inside = (row < rows)[:, None] & (channel < DIM)[None, :]
    bit = row & 3
    if WIDTHS:
        place = tl.load(places + (FIRST + bit)[:, None] * DIM + channel[None, :], mask=inside, other=0)
        group = (row >> 2)[:, None]
        tl.store(anchor + group * bits + place, data.to(tl.int8), mask=inside & (place >= 0))
        if RESIDUAL:
            at = residual + group * (8 * DIM - bits) - 1 - place
            tl.store(at, data.to(tl.int8), mask=inside & (place < 0))
    else:
        # The highest bit is first.
        at = (row + 3 - 2 * bit)[:, None] * DIM + channel[None, :]
        if FIRST == 4:
            tl.store(anchor + at, data.to(tl.int8), mask=inside)
        elif RESIDUAL:
            tl.store(residual + at, data.to(tl.int8), mask=inside)


@triton.jit
def load_planes(
    FIRST: tl.constexpr,
    anchor,
    residual,
    row,
    rows,
    bits,
    places,
    channel,
    DIM: tl.constexpr,
    WIDTHS: tl.constexpr,
    FULL: tl.constexpr,
):
    """Undo `store_planes`, int32. Without FULL, what the residual has is 0; without widths too, not to be asked for."""
    inside = (row < rows)[:, None] & (channel < DIM)[None, :]
    bit = row & 3
    if WIDTHS:
        place = tl.load(places + (FIRST + bit)[:, None] * DIM + channel[None, :], mask=inside, other=0)
        group = (row >> 2)[:, None]
        data = load_byte(anchor + group * bits + place, inside & (place >= 0))
        if FULL:
            data |= load_byte(residual + group * (8 * DIM - bits) - 1 - place, inside & (place < 0))
    else:
        at = (row + 3 - 2 * bit)[:, None] * DIM + channel[None, :]
        data = load_byte((anchor if FIRST == 4 else residual) + at, inside)
    return data
