"""Move the residual codes of the hot channels out of the others, and back."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from lynx_ascend.codec.hot import HotChannels
from lynx_ascend.codec.layout import HeadRun


def split_channels(codes: Tensor, run: HeadRun, hot: HotChannels | None) -> tuple[Tensor, Tensor]:
    """Split ``[heads, ..., dim]`` into the hot channels ``[..., hot]`` and the others, in ascending order."""
    if hot is None or not run.hot:
        return codes[..., :0], codes
    moved = torch.empty_like(codes, memory_format=torch.contiguous_format)
    for index, order in enumerate(_orders(hot, codes.device)[run.slice]):
        torch.index_select(codes[index], -1, order, out=moved[index])
    return moved[..., : run.hot], moved[..., run.hot :]


def join_channels(hot_codes: Tensor, codes: Tensor, run: HeadRun, hot: HotChannels | None) -> Tensor:
    """Undo ``split_channels``."""
    if hot is None or not run.hot:
        return codes
    moved = torch.cat((hot_codes, codes), -1)
    joined = torch.empty_like(moved)
    for index, order in enumerate(_inverse_orders(hot, codes.device)[run.slice]):
        torch.index_select(moved[index], -1, order, out=joined[index])
    return joined


def replace_hot(values: Tensor, hot_values: Tensor, run: HeadRun, hot: HotChannels) -> None:
    """Overwrite the hot channels of ``values``, ``[heads, ..., dim]``, in place."""
    for index, order in enumerate(_orders(hot, values.device)[run.slice]):
        values[index].index_copy_(-1, order[: run.hot], hot_values[index])


def take_hot(codes: Tensor, run: HeadRun, hot: HotChannels) -> Tensor:
    """The hot channels of ``codes``, ``[heads, ..., hot]``."""
    orders = _orders(hot, codes.device)[run.slice]
    return torch.stack([codes[i].index_select(-1, order[: run.hot]) for i, order in enumerate(orders)])


@lru_cache(maxsize=1024)
def _orders(hot: HotChannels, device: torch.device) -> list[Tensor]:
    """Per head: its hot channels, then its others, int64 ``[dim]``."""
    return [torch.argsort(row.logical_not(), stable=True).to(device) for row in hot.mask]


@lru_cache(maxsize=1024)
def _inverse_orders(hot: HotChannels, device: torch.device) -> list[Tensor]:
    return [order.argsort() for order in _orders(hot, device)]
