"""Paged-KV layouts: one class each, answering two questions (gather tokens of a plane, scatter them back)."""

from lynx_ascend.vllm.layouts.base import LayerLayout
from lynx_ascend.vllm.layouts.choose import layout_of

__all__ = ["LayerLayout", "layout_of"]
