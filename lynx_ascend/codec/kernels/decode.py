"""The decoder of tiles: one program for BLOCK channels of a tile, straight into the pages."""

from __future__ import annotations

import triton
import triton.language as tl

from lynx_ascend.codec.kernels.codes import FRACTIONS, SIGMAS, TOKEN_SCALES, anchor_level, full_level
from lynx_ascend.codec.kernels.rows import header_bytes, row_offsets
from lynx_ascend.codec.kernels.values import from_float16, narrow


@triton.jit
def load_byte(pointers, mask):
    """Bytes as int32, 0 to 255; 0 where masked."""
    return tl.load(pointers, mask=mask, other=0).to(tl.int32) & 255


@triton.jit
def load_residual(
    anchor, residual, row, channel, slot, hot, DIM: tl.constexpr, HOT: tl.constexpr, FULL: tl.constexpr
):
    """Residual codes [rows, channels]; without FULL, those of hot channels alone."""
    inside = channel < DIM
    if HOT:
        codes = load_byte(anchor + row[:, None] * hot + slot[None, :], (inside & (slot >= 0))[None, :])
        if FULL:
            rest = row[:, None] * (DIM - hot) + (-1 - slot)[None, :]
            codes = codes | load_byte(residual + rest, (inside & (slot < 0))[None, :])
    else:
        codes = load_byte(residual + row[:, None] * DIM + channel[None, :], inside[None, :])
    return codes


@triton.jit
def levels(anchor, residual, slot, tables, HOT: tl.constexpr, FULL: tl.constexpr):
    """float32 in [-1, 1] of nibbles; channels without a residual take their anchor's."""
    if FULL:
        u = full_level(anchor, residual, tables)
    else:
        u = anchor_level(anchor, tables)
        if HOT:
            u = tl.where((slot >= 0)[None, :], full_level(anchor, residual, tables), u)
    return u


@triton.jit
def store_rows(
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
    block_size,
    block_stride,
    token_stride,
    columns,
    inside,
    tables,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
):
    """From levels to values, one rounded operation at a time, and into the pages; tokens before `skip` stay."""
    x = (u * sigma[None, :] + mu[None, :]) * width[None, :] + base[None, :]
    if TOKEN_SCALE:
        x = x * tl.load(tables + TOKEN_SCALES + load_byte(scales, token >= 0))[:, None]
    rows = row_offsets(block_ids, start + token, block_size, block_stride, token_stride)
    written = (token >= skip)[:, None] & inside[None, :]
    tl.store(pages + rows[:, None] + columns[None, :], narrow(x, KIND), mask=written)


@triton.jit(do_not_specialize=["start", "skip"])
def decode_tiles(
    pages,
    block_ids,
    anchor,
    residual,
    tables,
    hot_before,
    hot_slots,
    block_stride,
    token_stride,
    head_stride,
    channel_stride,
    block_size,
    heads,
    start,
    half_coded,
    skip,
    fixed,
    head_bytes,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    CHUNK: tl.constexpr,
    KIND: tl.constexpr,
    TOKEN_SCALE: tl.constexpr,
    HOT: tl.constexpr,
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
    chunks = tl.minimum((half_coded - page * (PAGE // 2)) // HALF, PAGE // CHUNK)
    tokens = chunks * CHUNK
    before = tl.load(hot_before + head)
    hot = tl.load(hot_before + head + 1) - before
    slot = channel
    if HOT:
        slot = tl.load(hot_slots + head * DIM + channel, mask=inside, other=0)
    header = header_bytes(chunks, DIM, CHUNK, TOKEN_SCALE)
    page_bytes = header_bytes(PAGE // CHUNK, DIM, CHUNK, TOKEN_SCALE) + PAGE // 2 * (DIM + hot)
    pages += head.to(tl.int64) * head_stride
    anchor += head.to(tl.int64) * head_bytes + before.to(tl.int64) * half_coded
    anchor += fixed + page.to(tl.int64) * page_bytes
    codes = anchor + header
    hot_codes = codes + tokens // 2 * DIM
    residual += (head.to(tl.int64) * DIM - before) * half_coded + page.to(tl.int64) * (
        PAGE // 2 * (DIM - hot)
    )
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
        upper = load_byte(codes + at_row[:, None] * DIM + channel[None, :], inside[None, :])
        lower = upper
        if HOT or FULL:
            lower = load_residual(hot_codes, residual, at_row, channel, slot, hot, DIM, HOT, FULL)
        token = page * PAGE + chunk * CHUNK + row
        scales = anchor + header - tokens + chunk * CHUNK + row
        store_rows(
            levels(upper & 15, lower & 15, slot, tables, HOT, FULL),
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
            block_size,
            block_stride,
            token_stride,
            columns,
            inside,
            tables,
            KIND,
            TOKEN_SCALE,
        )
        store_rows(
            levels(upper >> 4, lower >> 4, slot, tables, HOT, FULL),
            sigma,
            mu,
            width,
            base,
            scales + HALF,
            pages,
            block_ids,
            token + HALF,
            start,
            skip,
            block_size,
            block_stride,
            token_stride,
            columns,
            inside,
            tables,
            KIND,
            TOKEN_SCALE,
        )
