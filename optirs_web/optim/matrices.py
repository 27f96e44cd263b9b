"""Optimizers with matrix products: matrices of one shape are multiplied in one dispatch, at any offsets in an arena.

A rule of this kind may have parts `prepare` and `adapt` of the form of `update`. A layout runs them, and products
between them, which work on slots of the state in float32, and on stacks of matrices that live for one step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ..runtime.buffer import Buffer, View
from ..runtime.device import Device
from ..runtime.products import product_launches
from ..runtime.rule_kernels import UpdateKernel
from ..runtime.rules import Flags, Rule
from ..tensors import Parameter
from .layout import Layout
from .optimizer import Optimizer
from .shards import Shard

__all__ = ["Batch", "Matrices", "MatrixLayout", "MatrixOptimizer", "Products", "Scaled"]

_ITEMSIZE = 4


@dataclass(frozen=True)
class Matrices:
    """Matrices of one shape in one buffer, of float32.

    Attributes:
        view: the part of the buffer that a kernel binds.
        firsts: the offset of the first element of each, from the beginning of the view.
        rows, columns: the shape of each.
        row_stride, column_stride: in elements.
    """

    view: View
    firsts: tuple[int, ...]
    rows: int
    columns: int
    row_stride: int
    column_stride: int

    @property
    def transposed(self) -> Matrices:
        """The transposed matrices, in the same memory."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            row_stride=self.column_stride,
            column_stride=self.row_stride,
        )

    def part(self, index: slice) -> Matrices:
        """Return some of the matrices."""
        return replace(self, firsts=self.firsts[index])


def stack(buffer: Buffer, count: int, rows: int, columns: int) -> Matrices:
    """Return matrices stored contiguously in a buffer of their own."""
    firsts = tuple(number * rows * columns for number in range(count))
    return Matrices(View.whole(buffer), firsts, rows, columns, columns, 1)


class Scaled(NamedTuple):
    """A coefficient: a number, times a member of the tensor's Hyper or Scalars if one is named."""

    number: float = 1.0
    name: str | None = None


class Products:
    """Products of matrices, each of which belongs to a tensor.

    Args:
        rule: names the coefficients.
        tensor_scalars: a row for each tensor.
        words: of a row.
    """

    def __init__(self, rule: Rule, tensor_scalars: View, words: int) -> None:
        self.device: Device = tensor_scalars.buffer.device
        self.tensor_scalars = tensor_scalars
        self._words = words
        self._names = ("", *rule.hyper, *rule.scalars)
        self._tables: dict[Any, Buffer] = {}

    def stack(self, count: int, rows: int, columns: int) -> Matrices:
        """Allocate uninitialized matrices, for as long as they are referenced."""
        return stack(self.device.allocate(_ITEMSIZE * count * rows * columns), count, rows, columns)

    def multiply(
        self,
        tensors: Sequence[int],
        a: Matrices,
        b: Matrices,
        result: Matrices,
        alpha: Scaled = Scaled(),  # noqa: B008 (a constant)
        plus: Matrices | None = None,
        beta: Scaled = Scaled(),  # noqa: B008
        diagonal: float = 0.0,
        gate: str = "",
    ) -> None:
        """Make the result alpha a b + beta plus + diagonal I, for the tensors that are active in this step.

        Args:
            tensors: the number of each matrix's tensor.
            a: the first factor.
            b: the second.
            result: in another buffer than the factors.
            alpha: a coefficient.
            plus: `result` itself, or in another buffer and with its strides.
            beta: a coefficient.
            diagonal: a coefficient.
            gate: a member of Scalars: products of tensors where it is 0 are skipped.
        """
        self._dispatch(tensors, a, b, result, a.columns, alpha, plus, beta, diagonal, gate)

    def copy(
        self,
        tensors: Sequence[int],
        source: Matrices,
        result: Matrices,
        scale: Scaled = Scaled(),  # noqa: B008
        diagonal: float = 0.0,
        gate: str = "",
    ) -> None:
        """Make the result scale source + diagonal I, where both have the same strides."""
        self._dispatch(tensors, source, source, result, 0, Scaled(), source, scale, diagonal, gate)

    def enclose(
        self,
        tensors: Sequence[int],
        left: Matrices | None,
        x: Matrices,
        right: Matrices | None,
        result: Matrices,
        gate: str = "",
    ) -> None:
        """Make the result left x right, where a factor may be None, and the result may be x."""
        present = [(factor, is_left) for factor, is_left in ((left, True), (right, False)) if factor is not None]
        for number, (factor, is_left) in enumerate(present):
            fits = number == len(present) - 1 and x.view.buffer is not result.view.buffer
            target = result if fits else self.stack(len(tensors), x.rows, x.columns)
            self.multiply(tensors, *((factor, x) if is_left else (x, factor)), target, gate=gate)
            x = target
        if x.view.buffer is not result.view.buffer:
            self.copy(tensors, x, result, gate=gate)

    def _dispatch(
        self,
        tensors: Sequence[int],
        a: Matrices,
        b: Matrices,
        result: Matrices,
        inner: int,
        alpha: Scaled,
        plus: Matrices | None,
        beta: Scaled,
        diagonal: float,
        gate: str,
    ) -> None:
        is_in_place = plus is result
        added = a if plus is None or is_in_place else plus  # an unread binding, if there is no `plus`
        layout = (result.rows, result.columns, inner, a.row_stride, a.column_stride, b.row_stride, b.column_stride)
        starts = (a.firsts, b.firsts)
        for launch in product_launches("batched_matmul", self.device.capabilities, layout, len(tensors), starts):
            part = slice(launch.first, launch.first + launch.products)
            operands = [matrices.part(part) for matrices in (a, b, result, added)]
            self.device.dispatch(
                launch.kernel,
                [*(matrices.view for matrices in operands), self._table(tensors[part], operands), self.tensor_scalars],
                launch.grid,
                (
                    *layout,
                    *(result.row_stride, result.column_stride),
                    *(self._words, self._word(gate), self._word(alpha.name), self._word(beta.name), is_in_place),
                    *(alpha.number, beta.number if plus is not None else 0.0, diagonal),
                ),
            )

    @cached_property
    def unused(self) -> View:
        """A view for a binding that is neither read nor written."""
        return View.whole(self.device.allocate_zeroed(_ITEMSIZE))

    def words(self, *names: str) -> tuple[int, ...]:
        """Return the number of words of a tensor's row, and the offsets of these members in it."""
        return self._words, *(self._word(name) for name in names)

    def _word(self, name: str | None) -> int:
        return self._names.index(name or "")

    def _table(self, tensors: Sequence[int], operands: Sequence[Matrices]) -> View:
        """Return the table with the number of the tensor and the first elements of the matrices, for each product."""
        return self.table(zip(tensors, *(matrices.firsts for matrices in operands), strict=True))

    def table(self, rows: Any) -> View:
        """Return rows of integers as a view on the device; equal tables are written once."""
        words = array("I", [word for row in rows for word in row])
        key = words.tobytes()
        if key not in self._tables:
            self._tables[key] = self.device.constant(words)
        return View.whole(self._tables[key])


class Batch(NamedTuple):
    """Tensors of one arena and one shape that fit one binding range."""

    shard: Shard
    tensors: tuple[int, ...]
    firsts: tuple[int, ...]  # elements, from the first byte
    first_byte: int
    nbytes: int
    rows: int
    columns: int

    def matrices(self, buffer: Buffer) -> Matrices:
        """Return the tensors' matrices in a buffer of the arena."""
        view = View(buffer, self.first_byte, self.nbytes)
        return Matrices(view, self.firsts, self.rows, self.columns, self.columns, 1)


class MatrixLayout(Layout):
    """A layout whose tensors are treated as matrices, and whose Hyper also has their `rows` and `columns`."""

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        """Assign a row of hyper-parameters to each shape in a group."""
        self.shapes = [self.matrix_shape(param.shape) for param in params]
        self.is_matrix = [param.ndim > 1 for param in params]
        kinds = list(zip(self.groups, self.shapes, strict=True))
        self._kinds = list(dict.fromkeys(kinds))
        self.groups = [self._kinds.index(kind) for kind in kinds]
        self.hyper_count = len(self._kinds)

    @cached_property
    def products(self) -> Products:
        """The products of matrices of the layout's tensors."""
        return Products(self.rule, self.scalars.view, self.scalars.words)

    @staticmethod
    def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows and columns of a tensor as a matrix: the first axis, and the product of the others."""
        size = 1
        for length in shape[1:]:
            size *= length
        return (shape[0] if shape else 1), size

    def set_hyper(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Set the hyper-parameters, from a row for each group."""
        super().set_hyper([{**rows[group], "rows": shape[0], "columns": shape[1]} for group, shape in self._kinds])

    def hyper_rows(self, group: int) -> Sequence[int]:
        """Return the rows of `hyper` of a group, one for each of its shapes."""
        return [row for row, (kind_group, _) in enumerate(self._kinds) if kind_group == group]

    def _batch_key(self, number: int) -> tuple[int, ...]:
        """Return the key by which tensors are batched; it begins with the shape."""
        return self.shapes[number]

    def _batches(self, live: Sequence[bool]) -> Iterator[Batch]:
        """Yield the live tensors in batches by arena and shape."""
        limit = self.device.capabilities.max_binding_bytes
        for shard in self.shards:
            batches: dict[tuple[int, ...], list[tuple[int, int]]] = {}
            for index, number in shard.numbers.items():  # by first element
                if live[number] and shard.arena.sizes[index]:
                    batches.setdefault(self._batch_key(number), []).append((shard.arena.firsts[index], number))
            for (rows, columns, *_), members in batches.items():
                size = rows * columns
                start = 0
                for end in range(1, len(members) + 1):
                    span = members[end][0] + size - members[start][0] if end < len(members) else 0
                    if end == len(members) or span * _ITEMSIZE > limit:
                        yield self._batch(shard, members[start:end], rows, columns)
                        start = end

    @staticmethod
    def _batch(shard: Shard, members: Sequence[tuple[int, int]], rows: int, columns: int) -> Batch:
        first = members[0][0]
        nbytes = (members[-1][0] + rows * columns - first) * _ITEMSIZE
        tensors = tuple(number for _, number in members)
        firsts = tuple(position - first for position, _ in members)
        return Batch(shard, tensors, firsts, first * _ITEMSIZE, nbytes, rows, columns)

    def _run_part(self, part: str, shared: Mapping[str, View]) -> None:
        """Run a part of the rule over all arenas."""
        for shard in self.shards:
            self.run_over(shard, UpdateKernel.of(self.rule, shard.flags, part, shard.stored), shared)


class MatrixOptimizer(Optimizer):
    """An optimizer with a `MatrixLayout`, which sets the shapes in Hyper."""

    layout_type: ClassVar[type[Layout]] = MatrixLayout

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper with 0 for `rows` and `columns`, which the layout sets."""
        return super().hyper({**group, "rows": 0.0, "columns": 0.0})
