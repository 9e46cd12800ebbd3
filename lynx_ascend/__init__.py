"""Lynx Ascend: progressive KV transfer for disaggregated serving. Importing it needs neither vLLM nor torch_npu."""

__version__ = "0.1.0"
