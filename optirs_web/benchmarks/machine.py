"""The machine of a run: processor, cores, versions and settings."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["description"]

_PACKAGES = ("optirs-web", "numpy", "numba", "wgpu", "torch", "jax", "tinygrad", "pyopencl")
_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "OPTIRS_CPU", "OPTIRS_TUNE")


def description(packages: Sequence[str] = _PACKAGES) -> dict[str, Any]:
    """Describe this machine for a report, without names of users, hosts or files.

    Args:
        packages: whose versions are included where they are installed.

    Returns:
        "processor", "cores" (those that this process may use), "system", "versions" by package, and "settings": the
        environment variables that change times.
    """
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **_versions(packages)},
        "settings": {name: os.environ[name] for name in _SETTINGS if os.environ.get(name)},
    }


def _versions(packages: Sequence[str]) -> dict[str, str]:
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    if sys.platform == "linux":
        try:
            text = Path("/proc/cpuinfo").read_text("utf-8")
        except OSError:
            text = ""
        for row in text.splitlines():
            if row.startswith("model name"):
                return row.partition(":")[2].strip()
    return platform.processor() or platform.machine()
