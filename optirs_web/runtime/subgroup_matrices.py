"""Products by subgroup matrices, on the matrix units of GPUs: where they are used, and their kernels.

They are used only if OPTIRS_SUBGROUP_MATRICES=1, since no GPU has run them: Dawn's compiler accepts their WGSL, and
their results are tested with functions in place of the extension's. The tile is in `shaders/lib/matrices.wgsl`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from .backend import Capabilities, MatrixShape

if TYPE_CHECKING:
    from .kernels import CooperativeKernel, SourceKernel

__all__ = [
    "FEATURE",
    "LARGEST_SUBGROUP",
    "MATRIX_TILES",
    "MatrixTile",
    "asked_for_matrices",
    "by_matrices",
    "kernel_by_matrices",
    "matrix_shapes",
    "shape_of",
]

FEATURE = "chromium-experimental-subgroup-matrix"
"""The name of the optional feature, in browsers and in wgpudawn."""

LARGEST_SUBGROUP = 128
"""Invocations of the largest subgroups that WebGPU allows, and of a workgroup here."""

_BYTES = {"f32": 4, "f16": 2}


class MatrixTile(NamedTuple):
    """A tile of a product, for a workgroup: four blocks of half as many rows and columns.

    Attributes:
        rows: of a workgroup.
        columns: of a workgroup.
        depth: columns of A and rows of B that are staged at a time.
    """

    rows: int
    columns: int
    depth: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} by matrices, {self.depth} deep"

    @property
    def invocations(self) -> int:
        """Invocations of a workgroup."""
        return LARGEST_SUBGROUP

    def nbytes(self, element: str) -> int:
        """Return the bytes of workgroup memory, for factors of "f32" or "f16"."""
        staged = self.rows * self.depth + self.depth * self.columns
        return _BYTES[element] * staged + 16 * (self.rows + self.depth) + 4 * self.rows * (self.columns + 4)

    def fits(self, shape: MatrixShape, capabilities: Capabilities) -> bool:
        """Return whether whole matrices of that shape fill the tile, and a device can run it."""
        is_whole = not (self.rows % (2 * shape.rows) or self.columns % (2 * shape.columns) or self.depth % shape.inner)
        return (
            is_whole
            and capabilities.max_invocations >= LARGEST_SUBGROUP
            and self.nbytes(shape.element) <= capabilities.max_workgroup_bytes
        )

    def constants(self) -> dict[str, int]:
        """Return the overrides of `shaders/lib/matrices.wgsl` that a tuner sets."""
        return {"TILE_ROWS": self.rows, "TILE_COLUMNS": self.columns, "DEPTH": self.depth}


MATRIX_TILES = (MatrixTile(64, 64, 32), MatrixTile(64, 64, 16), MatrixTile(32, 64, 16))
"""All tiles, from the one that stages most to the one that stages least."""


def asked_for_matrices() -> bool:
    """Return whether OPTIRS_SUBGROUP_MATRICES has devices use subgroup matrices.

    Raises:
        ValueError: OPTIRS_SUBGROUP_MATRICES is neither 0 nor 1.
    """
    setting = os.environ.get("OPTIRS_SUBGROUP_MATRICES", "")
    if setting not in ("", "0", "1"):
        raise ValueError(f"OPTIRS_SUBGROUP_MATRICES must be 0 or 1, not '{setting}'")
    return setting == "1"


def matrix_shapes(
    configs: Iterable[Iterable[Any]], features: Collection[str], largest_subgroup: int
) -> tuple[MatrixShape, ...]:
    """Return the sizes that products use of an adapter's, the largest first: sums are f32, factors f32 or f16.

    Args:
        configs: (elements of factors, elements of sums, M, N, K) of each size.
        features: of the device, by WebGPU's names.
        largest_subgroup: invocations of the adapter's largest subgroups.

    Example:
        >>> matrix_shapes([("f16", "f16", 16, 16, 16), ("f32", "f32", 8, 8, 8)], ["shader-f16"], 32)
        (MatrixShape(element='f32', rows=8, columns=8, inner=8),)
    """
    if not 0 < largest_subgroup <= LARGEST_SUBGROUP or LARGEST_SUBGROUP % largest_subgroup:
        return ()
    elements = {"f32", "f16"} if "shader-f16" in features else {"f32"}
    shapes = {
        MatrixShape(factor, m, n, k) for factor, total, m, n, k in configs if total == "f32" and factor in elements
    }
    return tuple(sorted(shapes, key=lambda shape: (-shape.rows * shape.columns * shape.inner, shape)))


def kernel_by_matrices(
    name: str, capabilities: Capabilities, rows: int, columns: int, is_float16: bool
) -> tuple[CooperativeKernel, MatrixTile] | None:
    """Return a kernel and its tile for products of a size; None without matrices, or where half a tile would be empty.

    Args:
        name: "matmul" or "batched_matmul".
        capabilities: of the device.
        rows: of a product.
        columns: of a product.
        is_float16: both factors are float16, which lose no digits as f16.
    """
    for element in ("f16", "f32") if is_float16 else ("f32",):
        for tile in MATRIX_TILES:
            is_filled = tile.rows < 2 * rows and tile.columns < 2 * columns
            for shape in capabilities.matrices if is_filled else ():
                if shape.element == element and tile.fits(shape, capabilities):
                    return by_matrices(name, tile, shape, capabilities.largest_subgroup), tile
    return None


def by_matrices(name: str, tile: MatrixTile, shape: MatrixShape, largest_subgroup: int) -> CooperativeKernel:
    """Return the kernel `name` with a tile of matrices of a shape."""
    sizes = {"MATRIX_ROWS": shape.rows, "MATRIX_COLUMNS": shape.columns, "MATRIX_INNER": shape.inner}
    halves = {"HALVES": True} if shape.element == "f16" else {}
    subgroup = {"LARGEST_SUBGROUP": largest_subgroup}
    from .kernels import cooperative  # a page requests its adapter before these are loaded

    return cooperative(name, MATRICES=True, **halves, **tile.constants(), **sizes, **subgroup)


def shape_of(kernel: SourceKernel) -> MatrixShape | None:
    """Return the shape of the matrices that a kernel multiplies; None for a kernel without matrices."""
    constants = kernel.constants
    if "MATRICES" not in constants:
        return None
    sizes = (int(constants[name]) for name in ("MATRIX_ROWS", "MATRIX_COLUMNS", "MATRIX_INNER"))
    return MatrixShape("f16" if "HALVES" in constants else "f32", *sizes)
