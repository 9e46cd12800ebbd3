"""Where tokens and channels stand in a paged cache, and the tiles of a segment among its programs."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def row_offsets(block_ids, token, block_size, block_stride, token_stride):
    """int64 offset of each token of the sequence, int32, through the block table."""
    block = tl.load(block_ids + token // block_size)
    return block * block_stride + (token % block_size) * token_stride


@triton.jit
def load_bits(pages, block_ids, token, block_size, block_stride, token_stride, columns, inside):
    """Bits [tokens, channels] of the cache; 0 for channels that are not `inside`."""
    rows = row_offsets(block_ids, token, block_size, block_stride, token_stride)
    return tl.load(pages + rows[:, None] + columns[None, :], mask=inside[None, :], other=0)


@triton.jit
def header_bytes(chunks, tokens, DIM: tl.constexpr, TOKEN_SCALE: tl.constexpr):
    """Bytes of a tile in the anchor before its codes."""
    header = 4 * DIM + 2 * chunks * DIM
    if TOKEN_SCALE:
        header = header + tokens
    return header


@triton.jit
def head_bits(head, bits_before, DIM: tl.constexpr, WIDTHS: tl.constexpr):
    """Bits of a token in the anchor's codes: those of the heads before, int64, and the head's own."""
    if WIDTHS:
        before = tl.load(bits_before + head)
        bits = tl.load(bits_before + head + 1) - before
    else:
        before = head * (4 * DIM)
        bits = 4 * DIM
    return before.to(tl.int64), bits
