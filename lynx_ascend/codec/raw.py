"""Raw tiles: pages that hold what no code can carry travel as they are.

Raw tiles change the size of a head, so they are spliced into, and cut out of, a segment of the
regular layout. This path is correct for any mix and slow; the segment without raw tiles skips it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lynx_ascend.codec.checks import check_bytes, check_length
from lynx_ascend.codec.layout import SegmentLayout
from lynx_ascend.errors import CodecError

RAW = 1


@dataclass(frozen=True)
class RawTile:
    """The source rows of one tile, bytes of ``[tokens, dim]`` in the source dtype."""

    head: int
    page: int
    rows: Tensor


def splice_raw(
    layout: SegmentLayout, anchor: Tensor, residual: Tensor, tiles: list[RawTile]
) -> tuple[Tensor, Tensor]:
    """Put ``tiles`` into a regular segment: flag them, swap their anchor, drop their residual."""
    raw = {(tile.head, tile.page): tile for tile in tiles}
    anchors, residuals = [], []
    for walk in _heads(layout):
        pages = [page for page in range(layout.pages) if (walk.head, page) in raw]
        start = walk.anchor
        anchor[start : start + layout.flags][pages] = RAW
        end = start + layout.flags + layout.exact
        anchors.append(anchor[start:end])
        position = walk.residual
        for page in range(layout.pages):
            size, rest = layout.tile(layout.tile_tokens(page), walk.bits)
            if (walk.head, page) in raw:
                anchors.append(raw[walk.head, page].rows)
            else:
                anchors.append(anchor[end : end + size])
                residuals.append(residual[position : position + rest])
            end += size
            position += rest
    return torch.cat(anchors), torch.cat(residuals) if residuals else residual[:0]


def flagged(layout: SegmentLayout, anchor: Tensor) -> bool:
    """Whether any flag of an anchor of the regular layout is set; a look from the host."""
    return any(bool(layout.sections(anchor, run)[0].any()) for run in layout.head_runs)


def cut_raw(
    layout: SegmentLayout, anchor: Tensor, residual: Tensor | None
) -> tuple[Tensor, Tensor | None, list[RawTile]]:
    """Undo ``splice_raw``: check all lengths and flags, return the regular segment and its raw tiles.

    ``residual`` is None where it has not arrived. Raises CodecError that says what is off.
    """
    check_bytes("anchor", anchor)
    if residual is not None:
        check_bytes("residual", residual)
    if anchor.numel() > layout.anchor_max:
        raise CodecError(f"the anchor has {anchor.numel()} bytes, more than {layout.anchor_max}")
    regular_anchor, regular_residual = layout.bytes
    if anchor.numel() == regular_anchor and not flagged(layout, anchor):
        if residual is not None:
            check_length("residual", residual, regular_residual)
        return anchor, residual, []
    return _cut(layout, anchor, residual)


def _cut(
    layout: SegmentLayout, anchor: Tensor, residual: Tensor | None
) -> tuple[Tensor, Tensor | None, list[RawTile]]:
    regular = [anchor.new_zeros(size) for size in layout.bytes]
    tiles: list[RawTile] = []
    moves: list[tuple[int, int, int]] = []  # residual: to, from, bytes
    source = rest_source = 0
    for walk in _heads(layout):
        flags = _flags(layout, anchor, source, walk.head)
        target, rest_target = walk.anchor, walk.residual
        fixed = layout.flags + layout.exact
        _check_left(anchor, source, fixed, f"the exact rows of head {walk.head}")
        regular[0][target : target + fixed] = anchor[source : source + fixed]
        source, target = source + fixed, target + fixed
        for page, flag in enumerate(flags):
            tokens = layout.tile_tokens(page)
            size, rest = layout.tile(tokens, walk.bits)
            sent = tokens * layout.row if flag else size
            _check_left(anchor, source, sent, f"head {walk.head}, page {page}")
            if flag:
                tiles.append(RawTile(walk.head, page, anchor[source : source + sent]))
            else:
                regular[0][target : target + size] = anchor[source : source + size]
                moves.append((rest_target, rest_source, rest))
                rest_source += rest
            source, target, rest_target = source + sent, target + size, rest_target + rest
    check_length("anchor", anchor, source)
    if residual is None:
        return regular[0], None, tiles
    check_length("residual", residual, rest_source)
    for to, start, size in moves:
        regular[1][to : to + size] = residual[start : start + size]
    return regular[0], regular[1], tiles


@dataclass(frozen=True)
class _Head:
    head: int
    bits: int
    anchor: int
    residual: int


def _heads(layout: SegmentLayout) -> list[_Head]:
    """Where each head starts in a regular segment."""
    heads, anchor, residual = [], 0, 0
    for run in layout.head_runs:
        size, rest = layout.head(run.bits)
        for head in range(run.first, run.first + run.heads):
            heads.append(_Head(head, run.bits, anchor, residual))
            anchor, residual = anchor + size, residual + rest
    return heads


def _flags(layout: SegmentLayout, anchor: Tensor, start: int, head: int) -> list[int]:
    _check_left(anchor, start, layout.flags, f"the page flags of head {head}")
    flags: list[int] = anchor[start : start + layout.flags].tolist()
    for page, flag in enumerate(flags):
        if flag not in (0, RAW) or (flag and (page >= layout.pages or not layout.tile_tokens(page))):
            raise CodecError(f"head {head}: the flag of page {page} is {flag}")
    return flags[: layout.pages]


def _check_left(anchor: Tensor, start: int, size: int, what: str) -> None:
    if start + size > anchor.numel():
        raise CodecError(f"the anchor ends at byte {anchor.numel()}, inside {what}")
