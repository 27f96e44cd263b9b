"""The measurements of the page that checks a GPU: those of `bench` that say how fast memory and products are."""

from __future__ import annotations

from typing import Any

import bench

import optirs_web as ow

PRODUCTS = [128, 512, 1024]
SOFTWARE_PRODUCTS = [128, 512]
"""Sides of the square matrices; the largest would keep a processor busy for long."""


def names(device: ow.Device) -> list[str]:
    """The benchmarks to run, in their order."""
    return ["copy", *(f"matmul-{side}" for side in (SOFTWARE_PRODUCTS if device.info.software else PRODUCTS))]


def family(device: ow.Device) -> str:
    """The kernels that multiply matrices on this device: "quads" or "tiles"."""
    return "quads" if device.capabilities.quads else "tiles"


async def measure(device: ow.Device, name: str) -> dict[str, Any]:
    """Run one benchmark: its label, its rate as a spread, and the milliseconds of each round."""
    result = await bench.measure(device, name, rounds=5)
    return {key: result[key] for key in ("name", "group", "label", "rate", "samples")}
