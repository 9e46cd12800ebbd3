"""Codes as bit planes, cut into the anchor's and the residual's.

Eight tokens' codes of a channel are eight bytes, one a bit: row ``r`` holds bit ``7 - r`` of the eight, the first token
in its lowest bit. A channel of width ``w`` has its rows 0 to w - 1 in the anchor and the others in the residual.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from lynx_ascend.codec.layout import HeadRun
from lynx_ascend.codec.widths import CODE_BITS, DEFAULT_WIDTH, ChannelWidths

GROUP = 8  # tokens whose bits share a byte
# (distance of the rows that change places, the bits that stay): an 8 x 8 bit matrix is transposed by halves.
_STEPS = ((4, 0x0F), (2, 0x33), (1, 0x55))


def to_bitplanes(codes: Tensor) -> Tensor:
    """uint8 ``[..., tokens, dim]``, tokens a multiple of 8, as rows ``[..., tokens / 8, 8, dim]``."""
    return _transpose(codes.unflatten(-2, (-1, GROUP))).flip(-2)


def from_bitplanes(rows: Tensor) -> Tensor:
    """Undo ``to_bitplanes``."""
    return _transpose(rows.flip(-2)).flatten(-3, -2)


def split_rows(rows: Tensor, run: HeadRun, widths: ChannelWidths | None) -> tuple[Tensor, Tensor]:
    """Cut ``[heads, ..., 8, dim]`` into the anchor's bytes ``[heads, ..., bits]`` and the residual's.

    Each holds row after row, the channels that are in it ascending.
    """
    flat = rows.flatten(-2)
    if widths is None:
        return flat.split([run.bits, flat.shape[-1] - run.bits], -1)
    moved = torch.empty_like(flat, memory_format=torch.contiguous_format)
    for index, order in enumerate(_orders(widths, rows.device)[run.slice]):
        torch.index_select(flat[index], -1, order, out=moved[index])
    return moved.split([run.bits, flat.shape[-1] - run.bits], -1)


def join_rows(anchor: Tensor, residual: Tensor | None, run: HeadRun, widths: ChannelWidths | None) -> Tensor:
    """Undo ``split_rows``; without a residual its bits are 0."""
    dim = run.dim
    if residual is None:
        residual = anchor.new_zeros(()).expand(*anchor.shape[:-1], CODE_BITS * dim - run.bits)
    moved = torch.cat((anchor, residual), -1)
    if widths is not None:
        joined = torch.empty_like(moved)
        for index, order in enumerate(_inverse_orders(widths, anchor.device)[run.slice]):
            torch.index_select(moved[index], -1, order, out=joined[index])
        moved = joined
    return moved.unflatten(-1, (CODE_BITS, dim))


def width_values(widths: ChannelWidths | None, run: HeadRun, device: torch.device) -> Tensor:
    """int32 ``[heads, dim]`` or, where all are the default, ``[1, 1]``."""
    if widths is None:
        return torch.full((1, 1), DEFAULT_WIDTH, dtype=torch.int32, device=device)
    return _values(widths, device)[run.slice]


def _transpose(rows: Tensor) -> Tensor:
    """Bit ``i`` of row ``j`` and bit ``j`` of row ``i`` of uint8 ``[..., 8, dim]`` change places."""
    rows = rows.clone(memory_format=torch.contiguous_format)
    for distance, mask in _STEPS:
        upper, lower = rows.unflatten(-2, (-1, 2, distance)).unbind(-3)
        swapped = ((upper >> distance) ^ lower) & mask
        lower ^= swapped
        upper ^= swapped << distance
    return rows


@lru_cache(maxsize=1024)
def _orders(widths: ChannelWidths, device: torch.device) -> list[Tensor]:
    """Per head, int64 ``[8 * dim]``: the places of the anchor's bytes, then of the residual's."""
    row = torch.arange(CODE_BITS).view(-1, 1)
    return [
        torch.argsort((row >= torch.tensor(widths.row(head))).flatten(), stable=True).to(device)
        for head in range(widths.heads)
    ]


@lru_cache(maxsize=1024)
def _inverse_orders(widths: ChannelWidths, device: torch.device) -> list[Tensor]:
    return [order.argsort() for order in _orders(widths, device)]


@lru_cache(maxsize=1024)
def _values(widths: ChannelWidths, device: torch.device) -> Tensor:
    return widths.values.to(device, torch.int32)
