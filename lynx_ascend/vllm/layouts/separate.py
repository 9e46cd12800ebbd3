"""Planes as tensors of their own, [blocks, block, heads, dim]: vllm-ascend's tuples, and views of other layouts."""

from __future__ import annotations

import torch

from lynx_ascend.codec.pages import PagedPlane
from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts.base import LayerLayout


class SeparateLayout(LayerLayout):
    """Planes as separate tensors [blocks, block, heads, dim] of any strides: views of one cache, or vllm-ascend's
    tuple."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        first = next(iter(tensors.values()))
        if any(t.dim() != 4 or t.shape[:2] != first.shape[:2] for t in tensors.values()):
            raise ConfigError(f"unexpected plane shapes {[tuple(t.shape) for t in tensors.values()]}")
        super().__init__({name: PagedPlane(t, t.shape[3]) for name, t in tensors.items()})
