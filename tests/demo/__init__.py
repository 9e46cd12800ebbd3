"""Tests of `lynx_ascend/demo`; `runs` fabricates what they measure."""
