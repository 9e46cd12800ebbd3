"""The encoder of tiles: a program for BLOCK channels of a tile, whose rows it reads twice (then from a cache)."""

from __future__ import annotations

import triton
import triton.language as tl

from lynx_ascend.codec.kernels.bitplanes import store_planes, transposed
from lynx_ascend.codec.kernels.codes import (
    FLOAT16_MAX_BITS,
    FRACTIONS,
    SIGMAS,
    TOKEN_SCALES,
    code_bytes,
    nearest_byte,
    sigma_codes,
    token_scale_codes,
)
from lynx_ascend.codec.kernels.rows import head_bits, header_bytes, load_bits
from lynx_ascend.codec.kernels.values import float16_down, float16_up, from_float16, widen

MAGNITUDE = tl.constexpr(0x7FFFFFFF)


@triton.jit
def read_rows(
    pages,
    block_ids,
    token,
    block_size,
    block_stride,
    token_stride,
    channel_stride,
    channel,
    tables,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
):
    """Rows without their token scale, float32; the bits of their magnitudes before; their scale codes."""
    bits = load_bits(
        pages,
        block_ids,
        token,
        block_size,
        block_stride,
        token_stride,
        channel * channel_stride,
        channel < DIM,
    )
    x = widen(bits, KIND)
    size = x.to(tl.int32, bitcast=True) & MAGNITUDE
    code = token
    if TOKEN_SCALE:
        peak = tl.reduce(size, 1, tl.standard._elementwise_max)
        if BLOCK < DIM:
            # A row's scale is that of all its channels, whichever of them this program encodes.
            for first in range(0, DIM, BLOCK):
                other = first + tl.arange(0, BLOCK)
                more = load_bits(
                    pages,
                    block_ids,
                    token,
                    block_size,
                    block_stride,
                    token_stride,
                    other * channel_stride,
                    other < DIM,
                )
                wide = widen(more, KIND).to(tl.int32, bitcast=True) & MAGNITUDE
                peak = tl.maximum(peak, tl.reduce(wide, 1, tl.standard._elementwise_max))
        code = token_scale_codes(peak, tables)
        x = tl.div_rn(x, tl.load(tables + TOKEN_SCALES + code)[:, None])
    return x, size, code


@triton.jit
def added_halves(sums, ROWS: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """[ROWS, BLOCK] with the second half of the rows added to the first, STEPS times over."""
    for step in tl.static_range(STEPS):
        sums = tl.reduce(tl.reshape(sums, (2, ROWS >> (step + 1), BLOCK)), 0, tl.standard._sum_combine)
    return tl.reshape(sums, (ROWS >> STEPS, BLOCK))


@triton.jit
def sum_of_halves(x, y, HALF: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of a chunk's tokens, of which `x` and `y` hold the first and the second four of each eight.

    Halves are added until one row is left, STEPS halvings before eight tokens are.
    """
    sums = added_halves(x, HALF, STEPS, BLOCK) + added_halves(y, HALF, STEPS, BLOCK)
    return tl.reshape(added_halves(sums, 4, 2, BLOCK), (BLOCK,))


@triton.jit(do_not_specialize=["start", "sinks"])
def encode_tiles(
    pages,
    block_ids,
    anchor,
    residual,
    tables,
    bits_before,
    places,
    block_stride,
    token_stride,
    head_stride,
    channel_stride,
    block_size,
    heads,
    start,
    groups,
    sinks,
    fixed,
    head_bytes,
    alpha,
    steepness,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    CHUNK: tl.constexpr,
    STEPS: tl.constexpr,
    DEGREE: tl.constexpr,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
    MEAN: tl.constexpr,
    WIDTHS: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """Encode tiles of the regular layout; a tile that must be raw gets its flag, and bytes that mean nothing.

    Args:
        pages: bits of the plane, int16 or int32; strides in values.
        block_ids: int64, the blocks of the sequence.
        anchor, residual: int8, with zeroed flags.
        tables, bits_before, places: of `kernels.tables`.
        start: the segment's first token in the sequence; sinks: tokens; groups: of eight tokens in tiles.
        fixed: bytes of a head before its tiles; head_bytes: of a head without its codes.

    Programs: channel blocks of the heads of the pages, the last named slowest.
    """
    HALF: tl.constexpr = CHUNK // 2
    PARTS: tl.constexpr = (DIM + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    part = program % PARTS
    head = (program // PARTS) % heads
    page = program // (PARTS * heads)
    channel = part * BLOCK + tl.arange(0, BLOCK)
    inside = channel < DIM

    # Written so that the compiler sees what divides every offset, and joins bytes to words.
    page_groups = tl.minimum(groups - page * (PAGE // 8), PAGE // 8)
    tokens = page_groups * 8
    chunks = (tokens + (CHUNK - 1)) // CHUNK
    before, bits = head_bits(head, bits_before, DIM, WIDTHS)
    header = header_bytes(chunks, tokens, DIM, TOKEN_SCALE)
    page_bytes = header_bytes(PAGE // CHUNK, PAGE, DIM, TOKEN_SCALE) + PAGE // 8 * bits
    pages += head.to(tl.int64) * head_stride
    anchor += head.to(tl.int64) * head_bytes + before * groups
    flag = anchor + page
    anchor += fixed + page.to(tl.int64) * page_bytes
    codes = anchor + header
    residual += (head.to(tl.int64) * (8 * DIM) - before) * groups
    residual += page.to(tl.int64) * (PAGE // 8 * (8 * DIM - bits))
    places += head * (9 * DIM)
    # The exact sinks stand in the first tile as copies of the row behind them.
    copied = tl.where(page == 0, sinks, 0)
    first_token = page * PAGE
    # A short chunk is read as if its last token went on.
    last = first_token + tokens - 1
    row = tl.arange(0, HALF)

    lowest = tl.full([HALF, BLOCK], 3.0e38, tl.float32)
    highest = tl.full([HALF, BLOCK], -3.0e38, tl.float32)
    worst = tl.full([HALF, BLOCK], 0, tl.int32)
    for half in range(2 * chunks):
        token = start + tl.minimum(tl.maximum(first_token + half * HALF + row, copied), last)
        x, magnitude, code = read_rows(
            pages,
            block_ids,
            token,
            block_size,
            block_stride,
            token_stride,
            channel_stride,
            channel,
            tables,
            DIM,
            BLOCK,
            KIND,
            TOKEN_SCALE,
        )
        lowest = tl.minimum(lowest, x)
        highest = tl.maximum(highest, x)
        worst = tl.maximum(worst, magnitude)

    # -0 + 0 is +0: which of the zeros a minimum returned is then no matter.
    low_bits = float16_down(tl.reduce(lowest, 0, tl.standard._elementwise_min) + 0.0)
    page_high = tl.reduce(highest, 0, tl.standard._elementwise_max)
    base = from_float16(low_bits)
    width_bits = float16_up(page_high - base + 0.0)
    width_bits += (base + from_float16(width_bits) < page_high).to(tl.int32)
    width = from_float16(width_bits)
    at = 2 * channel
    tl.store(anchor + at, low_bits.to(tl.int8), mask=inside)
    tl.store(anchor + at + 1, (low_bits >> 8).to(tl.int8), mask=inside)
    tl.store(anchor + 2 * DIM + at, width_bits.to(tl.int8), mask=inside)
    tl.store(anchor + 2 * DIM + at + 1, (width_bits >> 8).to(tl.int8), mask=inside)
    peak = tl.reduce(worst, 0, tl.standard._elementwise_max)
    raw = ((peak > FLOAT16_MAX_BITS) | (width_bits >= 0x7C00)).to(tl.int32)
    raw = tl.reduce(raw, 0, tl.standard._elementwise_max)
    tl.store(flag, 1, mask=raw > 0)

    width = tl.where(width == 0.0, 1.0, width)
    for chunk in range(chunks):
        # The first four tokens of each eight; the second are read beside.
        token = first_token + chunk * CHUNK + 2 * row - (row & 3)
        x, magnitude, code = read_rows(
            pages,
            block_ids,
            start + tl.minimum(tl.maximum(token, copied), last),
            block_size,
            block_stride,
            token_stride,
            channel_stride,
            channel,
            tables,
            DIM,
            BLOCK,
            KIND,
            TOKEN_SCALE,
        )
        y, magnitude, more = read_rows(
            pages,
            block_ids,
            start + tl.minimum(tl.maximum(token + 4, copied), last),
            block_size,
            block_stride,
            token_stride,
            channel_stride,
            channel,
            tables,
            DIM,
            BLOCK,
            KIND,
            TOKEN_SCALE,
        )
        if TOKEN_SCALE:
            scales = anchor + header - tokens + token - first_token
            tl.store(scales, code.to(tl.int8), mask=(token <= last) & (part == 0))
            tl.store(scales + 4, more.to(tl.int8), mask=(token <= last) & (part == 0))
        # Subtraction and division are monotone: no value leaves [0, 1], and extremes stay extremes.
        x = tl.div_rn(x - base[None, :], width[None, :])
        y = tl.div_rn(y - base[None, :], width[None, :])
        low = tl.reduce(tl.minimum(x, y), 0, tl.standard._elementwise_min)
        high = tl.reduce(tl.maximum(x, y), 0, tl.standard._elementwise_max)
        center = (low + high) * 127.5
        if MEAN:
            there = (token <= last)[:, None]  # all eight tokens of a group are, or none
            sums = sum_of_halves(tl.where(there, x, 0.0), tl.where(there, y, 0.0), HALF, STEPS, BLOCK)
            center = tl.div_rn(sums, tl.minimum(tokens - chunk * CHUNK, CHUNK).to(tl.float32)) * 255.0
        mu_code = nearest_byte(center)
        mu = tl.load(tables + FRACTIONS + mu_code)
        sigma_code = sigma_codes(tl.maximum(high - mu, mu - low), tables)
        sigma = tl.load(tables + SIGMAS + sigma_code)
        scale_at = anchor + 4 * DIM + chunk * DIM + channel
        tl.store(scale_at, mu_code.to(tl.int8), mask=inside)
        tl.store(scale_at + chunks * DIM, sigma_code.to(tl.int8), mask=inside)
        a = code_bytes(tl.div_rn(x - mu[None, :], sigma[None, :]), tables, alpha, steepness, DEGREE)
        b = code_bytes(tl.div_rn(y - mu[None, :], sigma[None, :]), tables, alpha, steepness, DEGREE)
        low, high = transposed(a, b, HALF, BLOCK)
        at_row = chunk * HALF + row
        store_planes(
            low, 0, codes, residual, at_row, 4 * page_groups, bits, places, channel, DIM, WIDTHS, RESIDUAL
        )
        store_planes(
            high, 4, codes, residual, at_row, 4 * page_groups, bits, places, channel, DIM, WIDTHS, RESIDUAL
        )
