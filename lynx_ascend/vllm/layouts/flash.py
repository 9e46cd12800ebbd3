"""CUDA FlashAttention: one tensor a layer, [blocks, 2, block, heads, dim] or kv-first [2, blocks, block, heads, dim].

Not run on a GPU in this repository; the indexing is tested on CPU tensors of these shapes.
"""

from __future__ import annotations

import torch

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.layouts.base import LayerLayout
from lynx_ascend.vllm.layouts.separate import SeparateLayout


def flash_layout(cache: torch.Tensor) -> LayerLayout:
    """Views of K and V in a FlashAttention cache tensor.

    Raises:
        ConfigError: neither of the two known shapes.
    """
    if cache.dim() == 5 and cache.shape[1] == 2:
        return SeparateLayout({"k": cache[:, 0], "v": cache[:, 1]})
    if cache.dim() == 5 and cache.shape[0] == 2:
        return SeparateLayout({"k": cache[0], "v": cache[1]})
    raise ConfigError(
        f"unknown FlashAttention cache shape {tuple(cache.shape)}; expected 5 dims with a 2 for K and V"
    )
