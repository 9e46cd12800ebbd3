"""LynxCUDAWorker: vLLM's GPU worker with the Lynx model runner. Same code path as the CPU worker; not run on a GPU."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.gpu_worker import Worker

from lynx_ascend.vllm.worker.rpc import LynxRPC
from lynx_ascend.vllm.worker.runner import install


class LynxCUDAWorker(LynxRPC, Worker):
    """`--worker-cls` for CUDA."""

    def load_model(self, *args: Any, **kwargs: Any) -> Any:
        """Load the model, then fit the runner for drafting and verification."""
        result = super().load_model(*args, **kwargs)
        install(self.model_runner)
        return result
