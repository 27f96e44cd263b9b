"""Tiles of attention, chosen by the class of adapter and the shape. See ``shaders/lib/attention.wgsl``.

The tiles were not compared on a GPU. An invocation has as many sums as in a product on the same class of adapters.
"""

from __future__ import annotations

from typing import NamedTuple

from .kernels import CooperativeKernel, cooperative
from .products import TILE_CLASSES

__all__ = ["COLUMN_TILES", "TILES", "AttentionTile", "attention_kernel", "attention_tile", "column_tiles_for"]

_OTHERS = 32  # rows that the owned rows of a workgroup meet at a time
_COLUMNS = 32  # of a column tile
_PITCH = 5  # vectors of a row that is staged
_LANES = 8  # invocations that share their owned rows

COLUMN_TILES = (1, 2, 4)
"""How many tiles of 32 columns of the result a dispatch may compute: more columns take more dispatches."""


class AttentionTile(NamedTuple):
    """A member of the family.

    Attributes:
        rows: owned by a workgroup.
        own_rows: of an invocation.
    """

    rows: int
    own_rows: int

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.own_rows} each"

    @property
    def invocations(self) -> int:
        """Invocations of a workgroup."""
        return self.rows // self.own_rows * _LANES

    @property
    def nbytes(self) -> int:
        """Bytes of workgroup memory: the staged rows, and the weights."""
        return 16 * ((self.rows + _OTHERS) * _PITCH + self.rows * _LANES)


_SMALL, _LARGE, _WIDE = AttentionTile(32, 4), AttentionTile(64, 4), AttentionTile(64, 8)

TILES = (_SMALL, _LARGE, _WIDE)
"""All tiles. The first is the default of `shaders/lib/attention.wgsl`."""

_WIDE_CLASSES = frozenset({"apple", "d3d12", "discrete"})
"""The classes of adapters where an invocation of a product has 8 rows of 4 columns or more."""

_MOST_WIDE = 2
"""The most column tiles for whose sums, with eight rows, an invocation has registers on these adapters."""


def column_tiles_for(columns: int) -> int:
    """Return the fewest column tiles by which one dispatch computes all columns; the most if none does."""
    return next((tiles for tiles in COLUMN_TILES if columns <= tiles * _COLUMNS), COLUMN_TILES[-1])


def attention_tile(tiles: str, rows: int, products: int, column_tiles: int) -> AttentionTile:
    """Return the tile for a class of adapters, a value of `Capabilities.tiles`.

    It has 64 rows where that gives as many workgroups as occupy the class.

    Example:
        >>> attention_tile("discrete", rows=512, products=16, column_tiles=2)
        AttentionTile(rows=64, own_rows=8)
    """
    is_enough = -(-rows // _LARGE.rows) * products >= TILE_CLASSES[tiles].occupied
    if tiles == "software" or rows <= _SMALL.rows or not is_enough:
        return _SMALL
    return _WIDE if tiles in _WIDE_CLASSES and column_tiles <= _MOST_WIDE else _LARGE


def attention_kernel(
    name: str, tiles: str, tile: AttentionTile, column_tiles: int, *, by_vectors: bool
) -> CooperativeKernel:
    """Return a kernel of attention or of its gradients.

    Args:
        name: "attention" or "attention_grad".
        tiles: the class of the adapter.
        tile: of a workgroup.
        column_tiles: of a dispatch.
        by_vectors: the matrices may be read and written by vectors of four columns; ignored on software adapters.
    """
    if tiles == "software":  # unrolled loops take their compilers too long
        return cooperative(name, column_tiles=column_tiles)
    constants = {"OWN_TILE": tile.rows, "OWN_ROWS": tile.own_rows, "BY_VECTORS": by_vectors, "IN_REGISTERS": True}
    return cooperative(name, column_tiles=column_tiles, **constants)
