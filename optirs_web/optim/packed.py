"""State in fewer bits for kernels that compute in float32: converted for a part of a step, and stored again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..runtime.arena import BLOCKS_PER_RANGE, blocks_of
from ..runtime.buffer import Buffer, View
from ..runtime.kernels import cooperative
from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK
from .matrices import Batch, Matrices, Products

__all__ = ["Packed", "load", "packed_slot", "packed_stack", "store"]


class Packed(NamedTuple):
    """Matrices of one shape in fewer bits.

    Attributes:
        kind: the type, of `wgsl.slot_storage`.
        stored: the view that a kernel binds.
        largest: the largest magnitude of each block; None but for 8 bits.
        firsts: the offset of the first element of each, from the beginning of the view; a block begins there.
        rows, columns: the shape of each.
    """

    kind: str
    stored: View
    largest: View | None
    firsts: tuple[int, ...]
    rows: int
    columns: int


def packed_slot(batch: Batch, name: str) -> Packed | None:
    """Return a slot of the tensors in a batch; None if it is float32."""
    kind = dict(batch.shard.stored).get(name)
    if kind is None:
        return None
    begin = batch.first_byte // (4 * BLOCK)
    first_block = begin // BLOCKS_PER_RANGE * BLOCKS_PER_RANGE
    blocks = begin - first_block + blocks_of(batch.nbytes // 4)

    def view(buffer: Buffer) -> View:
        return batch.shard.arena.range_view(buffer, first_block, blocks)

    largest = batch.shard.state.get(slot_storage.largest_name(name))
    firsts = tuple(first + (begin - first_block) * BLOCK for first in batch.firsts)
    largest_view = None if largest is None else view(largest)
    return Packed(kind, view(batch.shard.state[name]), largest_view, firsts, batch.rows, batch.columns)


def packed_stack(
    kind: str, buffers: Mapping[str, Buffer], name: str, shape: tuple[int, int], positions: Sequence[int]
) -> Packed:
    """Return the states at these positions in the buffers of a stack."""
    rows, columns = shape
    largest = buffers.get(slot_storage.largest_name(name))
    largest_view = None if largest is None else View.whole(largest)
    firsts = tuple(position * blocks_of(rows * columns) * BLOCK for position in positions)
    return Packed(kind, View.whole(buffers[name]), largest_view, firsts, rows, columns)


def load(products: Products, tensors: Sequence[int], packed: Packed, loaded: Matrices, gate: str = "") -> None:
    """Convert packed matrices to float32, into `loaded`; `gate` as in `Products.multiply`."""
    _dispatch("load_state", products, tensors, packed, loaded, products.words(gate))


def store(
    products: Products, tensors: Sequence[int], loaded: Matrices, packed: Packed, seed: int = 0, gate: str = ""
) -> None:
    """Convert float32 matrices to packed ones; `seed` is 0 or 1, so that two equal matrices are rounded differently."""
    _dispatch("store_state", products, tensors, packed, loaded, (*products.words(gate, "step"), seed))


def _dispatch(
    kernel: str,
    products: Products,
    tensors: Sequence[int],
    packed: Packed,
    loaded: Matrices,
    words: tuple[int, ...],
) -> None:
    table = products.table(zip(tensors, packed.firsts, loaded.firsts, strict=True))
    size = packed.rows * packed.columns
    most = products.device.capabilities.max_workgroups
    products.device.dispatch(
        cooperative(kernel),
        [packed.stored, packed.largest or products.unused, loaded.view, table, products.tensor_scalars],
        (min(blocks_of(size), most), len(tensors)),
        (tuple(slot_storage.BITS).index(packed.kind), size, *words),
    )
