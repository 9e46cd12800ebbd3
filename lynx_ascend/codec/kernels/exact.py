"""Exact rows, the sinks and the tail, between the pages and the anchor; and the page flags, zeroed.

Byte by byte: an anchor need not be aligned, and there are few of these rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lynx_ascend.codec.kernels.rows import head_bits, row_offsets

ROWS = tl.constexpr(16)


@triton.jit(do_not_specialize=["start", "coded", "sinks", "rows", "flags", "head_bytes"])
def encode_exact(
    pages,
    block_ids,
    anchor,
    bits_before,
    block_stride,
    token_stride,
    head_stride,
    channel_stride,
    block_size,
    start,
    coded,
    sinks,
    rows,
    flags,
    head_bytes,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ITEM: tl.constexpr,
    WIDTHS: tl.constexpr,
):
    """Zero the flags of every head and copy its `rows` exact rows behind them; arguments as in `encode_tiles`.

    ITEM is the bytes of a value. Programs: channel blocks of the heads.
    """
    PARTS: tl.constexpr = (DIM + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    part = program % PARTS
    head = program // PARTS
    channel = part * BLOCK + tl.arange(0, BLOCK)
    pages += head.to(tl.int64) * head_stride
    before, _ = head_bits(head, bits_before, DIM, WIDTHS)
    anchor += head.to(tl.int64) * head_bytes + before * (coded // 8)
    for first in range(0, flags, 64):
        at = first + tl.arange(0, 64)
        tl.store(anchor + at, tl.full([64], 0, tl.int8), mask=(at < flags) & (part == 0))
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        token = start + tl.where(row < sinks, row, coded + row - sinks)
        live = (row < rows)[:, None] & (channel < DIM)[None, :]
        # A row that is none reads the table at its first entry.
        offset = row_offsets(
            block_ids, tl.where(row < rows, token, start), block_size, block_stride, token_stride
        )
        at = offset[:, None] + (channel * channel_stride)[None, :]
        values = tl.load(pages + at, mask=live, other=0).to(tl.int32)
        to = anchor + flags + (row[:, None] * DIM + channel[None, :]) * ITEM
        for byte in tl.static_range(ITEM):
            tl.store(to + byte, (values >> (8 * byte)).to(tl.int8), mask=live)


@triton.jit(do_not_specialize=["start", "coded", "sinks", "skip", "rows", "flags", "head_bytes"])
def decode_exact(
    pages,
    block_ids,
    anchor,
    bits_before,
    block_stride,
    token_stride,
    head_stride,
    channel_stride,
    block_size,
    start,
    coded,
    sinks,
    skip,
    rows,
    flags,
    head_bytes,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ITEM: tl.constexpr,
    WIDTHS: tl.constexpr,
):
    """Copy the exact rows of every head into the pages, except tokens of the segment before `skip`."""
    PARTS: tl.constexpr = (DIM + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    head = program // PARTS
    channel = program % PARTS * BLOCK + tl.arange(0, BLOCK)
    pages += head.to(tl.int64) * head_stride
    before, _ = head_bits(head, bits_before, DIM, WIDTHS)
    anchor += head.to(tl.int64) * head_bytes + before * (coded // 8)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        token = tl.where(row < sinks, row, coded + row - sinks)
        written = (row < rows) & (token >= skip)
        live = written[:, None] & (channel < DIM)[None, :]
        source = anchor + flags + (row[:, None] * DIM + channel[None, :]) * ITEM
        values = tl.full([ROWS, BLOCK], 0, tl.int32)
        for byte in tl.static_range(ITEM):
            values |= (tl.load(source + byte, mask=live, other=0).to(tl.int32) & 255) << (8 * byte)
        offset = row_offsets(
            block_ids, start + tl.where(written, token, 0), block_size, block_stride, token_stride
        )
        at = offset[:, None] + (channel * channel_stride)[None, :]
        tl.store(pages + at, values.to(pages.dtype.element_ty), mask=live)
