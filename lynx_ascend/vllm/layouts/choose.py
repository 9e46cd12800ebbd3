"""Pick the layout of a layer from what the engine registered."""

from __future__ import annotations

from typing import Any

import torch

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts.base import LayerLayout
from lynx_ascend.vllm.layouts.flash import flash_layout
from lynx_ascend.vllm.layouts.separate import SeparateLayout


def layout_of(cache: Any) -> LayerLayout:
    """The layout of one registered layer.

    Args:
        cache: a tensor (CPU, CUDA), or vllm-ascend's tuple of planes [blocks, block, heads, dim].

    Raises:
        ConfigError: the shape is of no known backend.
    """
    if isinstance(cache, (tuple, list)):
        if len(cache) != 2:
            raise ConfigError(f"cannot read a KV cache of {len(cache)} planes a layer; expected 2")
        # Multi-head latent attention has one head and planes of two widths.
        one_head = all(plane.shape[-2] == 1 for plane in cache)
        latent = one_head and cache[0].shape[-1] != cache[1].shape[-1]
        return SeparateLayout(dict(zip(("latent", "rope") if latent else ("k", "v"), cache, strict=True)))
    if not isinstance(cache, torch.Tensor):
        raise ConfigError(f"cannot read a KV cache of type {type(cache).__name__}")
    if cache.device.type == "cpu":
        from lynx_ascend.vllm.layouts.cpu import CpuLayout

        return CpuLayout(cache)
    return flash_layout(cache)
