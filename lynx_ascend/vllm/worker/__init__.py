"""`--worker-cls lynx_ascend.vllm.worker.LynxCPUWorker` or LynxCUDAWorker, loaded lazily: each needs its platform."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "LynxCPUWorker":
        from lynx_ascend.vllm.worker.cpu import LynxCPUWorker

        return LynxCPUWorker
    if name == "LynxCUDAWorker":
        from lynx_ascend.vllm.worker.cuda import LynxCUDAWorker

        return LynxCUDAWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
