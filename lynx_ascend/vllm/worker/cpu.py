"""LynxCPUWorker: vLLM's CPU worker with the Lynx model runner."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker

from lynx_ascend.vllm.worker.rpc import LynxRPC
from lynx_ascend.vllm.worker.runner import install


class LynxCPUWorker(LynxRPC, CPUWorker):
    """`--worker-cls` for the CPU backend."""

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load the model, then fit the runner for drafting and verification."""
        result = super().load_model(*args, **kwargs)
        install(self.model_runner)
        return result
