"""The measurements of the page Check: the benchmarks of `bench.py` for a copy and for matrix products."""

from __future__ import annotations

from typing import Any

import bench

import optirs_web as ow

PRODUCTS = [128, 512, 1024]
SOFTWARE_PRODUCTS = [128, 512]
"""Rows and columns of the matrices. Software adapters leave out the largest, which takes them long."""


def names(device: ow.Device) -> list[str]:
    """Return the names of the benchmarks, in the order in which they run."""
    return ["copy", *(f"matmul-{side}" for side in (SOFTWARE_PRODUCTS if device.info.software else PRODUCTS))]


def family(device: ow.Device) -> str:
    """Return the kernels that multiply matrices on a device, "quads" or "tiles"."""
    return "quads" if device.capabilities.quads else "tiles"


async def measure(device: ow.Device, name: str) -> dict[str, Any]:
    """Run a benchmark of `names`.

    Returns:
        "name", "group" and "label" of the benchmark; its "rate", a `Spread` with its "unit"; and "samples", the
        milliseconds per step of each round.
    """
    result = await bench.measure(device, name, rounds=5)
    return {key: result[key] for key in ("name", "group", "label", "rate", "samples")}
