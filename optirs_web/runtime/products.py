"""Matrix products: which family of kernels a device is given, and the workgroups of a launch.

Both families are in one file, ``shaders/kernels/matmul.wgsl`` (and ``batched_matmul.wgsl``), and give the same sums in
another order: tiles staged in workgroup memory for GPUs, and quads for adapters that compute on the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..errors import ShaderError
from .backend import Backend, Capabilities, Handle
from .kernels import CooperativeKernel, cooperative

__all__ = [
    "QUAD_INVOCATIONS",
    "ProductLaunch",
    "ask_for_quads",
    "grid_of_products",
    "longest_inner_axis",
    "longest_side",
    "note_quads",
    "product_launches",
]

_TILE = 32  # rows and columns of a workgroup, with the default SIDE of shaders/lib/tile.wgsl
_QUAD_TILE, _QUADS = 16, 4  # of shaders/lib/quads.wgsl
QUAD_INVOCATIONS = 4 * _QUADS  # of a workgroup


class ProductLaunch(NamedTuple):
    """A launch for some of the products of a batch.

    Attributes:
        kernel: what runs.
        first: the number of the first product.
        products: how many of them.
        grid: workgroups along x and y.
    """

    kernel: CooperativeKernel
    first: int
    products: int
    grid: tuple[int, int]


def product_launches(
    name: str, capabilities: Capabilities, rows: int, columns: int, products: int = 1
) -> Iterator[ProductLaunch]:
    """The launches of the kernel `name` for products with results of `rows` and `columns`."""
    most = capabilities.max_workgroups
    quads = capabilities.quads
    width, height = grid_of_products(rows, columns, 1, quads=quads)
    if quads and width > most:
        quads = False
        width, height = grid_of_products(rows, columns, 1, quads=False)
    kernel = cooperative(name, QUADS=True) if quads else cooperative(name)
    at_once = max(1, most // height)
    for first in range(0, products, at_once):
        count = min(at_once, products - first)
        yield ProductLaunch(kernel, first, count, (width, height * count))


def longest_side(capabilities: Capabilities) -> int:
    """Rows or columns of a product that the workgroups of a launch can cover."""
    return _TILE * capabilities.max_workgroups


def longest_inner_axis(capabilities: Capabilities) -> int:
    """Products that an invocation may add up: in half its iterations, each of which adds 4 or more."""
    return (capabilities.max_iterations + 1) // 2 * 4


def grid_of_products(rows: int, columns: int, products: int, *, quads: bool, tile: int = _TILE) -> tuple[int, int]:
    """Workgroups along x and y of a family of kernels, with square tiles of that many rows."""
    if quads:
        return -(-(-(-rows // _QUAD_TILE) * -(-columns // _QUAD_TILE)) // _QUADS), products
    return -(-columns // tile), -(-rows // tile) * products


def ask_for_quads(backend: Backend) -> Handle | None:
    """Have a device that was just opened count what `note_quads` needs to know, into memory of 4 bytes.

    None where it does not matter, as products by quads are for adapters that compute on the processor, and where the
    device's compiler refuses quads.
    """
    if not backend.info.software or "subgroups" not in backend.capabilities.features:
        return None
    counted = backend.allocate(4)
    try:
        backend.submit([backend.bind(cooperative("quad_lanes"), [(counted, 0, 4)], b"", (1, 1, 1))])
    except ShaderError:
        backend.free(counted)
        return None
    return counted


def note_quads(backend: Backend, counted: Handle, differences: memoryview) -> None:
    """Set `Capabilities.quads` by what was counted."""
    backend.free(counted)
    backend.capabilities = replace(backend.capabilities, quads=not any(differences))
