"""The decoder of tiles: one program for BLOCK channels of a tile, straight into the pages."""

from __future__ import annotations

import triton
import triton.language as tl

from lynx_ascend.codec.kernels.bitplanes import load_byte, load_planes, transposed
from lynx_ascend.codec.kernels.codes import FRACTIONS, SIGMAS, TOKEN_SCALES, known_levels
from lynx_ascend.codec.kernels.rows import head_bits, header_bytes, row_offsets
from lynx_ascend.codec.kernels.values import from_float16, narrow


@triton.jit
def store_values(
    u,
    sigma,
    mu,
    width,
    base,
    scales,
    pages,
    block_ids,
    token,
    start,
    skip,
    end,
    block_size,
    block_stride,
    token_stride,
    columns,
    inside,
    tables,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
):
    """From levels to values, one rounded operation at a time, and into the pages; tokens before `skip` stay.

    A short chunk has rows for tokens from `end` on, which are not there.
    """
    x = (u * sigma[None, :] + mu[None, :]) * width[None, :] + base[None, :]
    if TOKEN_SCALE:
        x = x * tl.load(tables + TOKEN_SCALES + load_byte(scales, token < end))[:, None]
    rows = row_offsets(block_ids, start + tl.minimum(token, end - 1), block_size, block_stride, token_stride)
    written = ((token >= skip) & (token < end))[:, None] & inside[None, :]
    tl.store(pages + rows[:, None] + columns[None, :], narrow(x, KIND), mask=written)


@triton.jit(do_not_specialize=["start", "skip"])
def decode_tiles(
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
    skip,
    fixed,
    head_bytes,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    CHUNK: tl.constexpr,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
    WIDTHS: tl.constexpr,
    FULL: tl.constexpr,
):
    """Decode tiles of the regular layout, none of them raw; tokens of the segment before `skip` keep their values.

    Arguments and programs are those of `encode_tiles`. `residual` is not read without FULL.
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
    anchor += fixed + page.to(tl.int64) * page_bytes
    codes = anchor + header
    residual += (head.to(tl.int64) * (8 * DIM) - before) * groups
    residual += page.to(tl.int64) * (PAGE // 8 * (8 * DIM - bits))
    places += head * (9 * DIM)
    known = tl.full([BLOCK], 8 if FULL else 4, tl.int32)
    if WIDTHS and not FULL:
        known = tl.load(places + 8 * DIM + channel, mask=inside, other=0)
    columns = channel * channel_stride
    row = tl.arange(0, HALF)

    # A received buffer need not be aligned: float16 is read as two bytes.
    at = anchor + 2 * channel
    base = from_float16(load_byte(at, inside) | (load_byte(at + 1, inside) << 8))
    width = from_float16(load_byte(at + 2 * DIM, inside) | (load_byte(at + 2 * DIM + 1, inside) << 8))
    for chunk in range(chunks):
        scale_at = anchor + 4 * DIM + chunk * DIM + channel
        mu = tl.load(tables + FRACTIONS + load_byte(scale_at, inside))
        sigma = tl.load(tables + SIGMAS + load_byte(scale_at + chunks * DIM, inside))
        at_row = chunk * HALF + row
        high = load_planes(
            4, codes, residual, at_row, 4 * page_groups, bits, places, channel, DIM, WIDTHS, FULL
        )
        low = high * 0
        if WIDTHS or FULL:
            low = load_planes(
                0, codes, residual, at_row, 4 * page_groups, bits, places, channel, DIM, WIDTHS, FULL
            )
        first, second = transposed(low, high, HALF, BLOCK)
        # The first four tokens of each eight, then the second.
        token = page * PAGE + chunk * CHUNK + 2 * row - (row & 3)
        scales = anchor + header - tokens + token - page * PAGE
        store_values(
            known_levels(first, known[None, :], tables),
            sigma,
            mu,
            width,
            base,
            scales,
            pages,
            block_ids,
            token,
            start,
            skip,
            page * PAGE + tokens,
            block_size,
            block_stride,
            token_stride,
            columns,
            inside,
            tables,
            KIND,
            TOKEN_SCALE,
        )
        store_values(
            known_levels(second, known[None, :], tables),
            sigma,
            mu,
            width,
            base,
            scales + 4,
            pages,
            block_ids,
            token + 4,
            start,
            skip,
            page * PAGE + tokens,
            block_size,
            block_stride,
            token_stride,
            columns,
            inside,
            tables,
            KIND,
            TOKEN_SCALE,
        )
