"""Maps in NumPy: their functions one operation after the other, over parts that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ....kernel import INDEX, Kernel, Part
from ....lower.arrays import lowered
from ....lower.maps import VALUE, binding_of, map_bindings, own_parameters
from ....runtime.map_kernels import FusedKernel, MapKernel
from ....runtime.spans import spans_of
from ....wgsl.python_dialects import Dialect
from ...arrays import numpy_arrays
from ...arrays.numpy_arrays import strided
from ...arrays.tables import Placed, Table
from .forms import replacement_of
from .library import CHUNK, DTYPES, Array, Parameters

__all__ = ["bind_fused", "bind_map", "only_joins"]


class _Array(NamedTuple):
    """An array of a form: the name of the value, its type, and the number of the result whose old value it is."""

    name: str
    dtype: Any
    result: int | None = None
    is_table: bool = False


class _Function(NamedTuple):
    """The function that is printed for a form, and what it is given.

    Attributes:
        call: see `lower.arrays.Lowered`.
        memory: number of arrays that it needs besides.
        uses_index: it is given the indices of elements.
        reads: the arrays that are read.
        writes: those that are written.
        numbers: the types of the numbers of a launch.
    """

    call: Callable[..., tuple[Any, ...]]
    memory: int
    uses_index: bool
    reads: list[_Array]
    writes: list[_Array]
    numbers: list[Any]


@cache
def _function(form: Kernel, dialect: Dialect) -> _Function:
    names = [write.array for write in form.writes]
    reads = [
        _Array(
            read.name,
            DTYPES[read.type],
            names.index(read.array) if read.array else None,
            read.name in form.tables,
        )
        for read in form.reads
    ]
    writes = [_Array(write.array, DTYPES[write.type]) for write in form.writes]
    numbers = [DTYPES[type_] for type_ in form.numbers.values()]
    return _Function(*lowered(form, dialect), INDEX in form.used, reads, writes, numbers)


class _Map(NamedTuple):
    """A map over arrays of one shape.

    Attributes:
        function: of its form.
        shape: of all arrays.
        reads: the arrays that are read.
        numbers: given by the launch.
        results: those that are written, in order.
    """

    function: _Function
    shape: tuple[int, ...]
    reads: list[Array | Table | Placed]
    numbers: list[Any]
    results: list[Array]

    def call(self) -> Callable[[], None]:
        """Return a call that computes all elements: at once, where they are few."""
        if self.function.memory or math.prod(self.shape) > CHUNK:
            return self.run
        return partial(self._compute, 0, self.reads, self.results, ())

    def run(self) -> None:
        """Compute all elements, part by part."""
        shape, count = self.shape, self.function.memory
        if math.prod(shape) <= CHUNK or self._is_same_along_the_first_axis:
            self._compute(0, self.reads, self.results, [np.empty(shape, np.float32) for _ in range(count)])
            return
        rows = max(1, CHUNK // math.prod(shape[1:]))
        memory = [np.empty((rows, *shape[1:]), np.float32) for _ in range(count)]
        for first in range(0, shape[0], rows):
            part = slice(first, min(first + rows, shape[0]))
            targets = [result[part] for result in self.results]
            own = [array[: len(targets[0])] for array in memory]
            reads = [array if array.shape[0] == 1 else array[part] for array in self.reads]
            self._compute(first, reads, targets, own)

    @property
    def _is_same_along_the_first_axis(self) -> bool:
        """All values but those that are taken are, so that nothing is gained by computing them part by part."""
        arrays = (array for array in self.reads if isinstance(array, np.ndarray))
        return not (self.function.memory or self.function.uses_index) and all(array.shape[0] == 1 for array in arrays)

    def _compute(
        self, first: int, reads: Sequence[Array | Table | Placed], targets: Sequence[Array], memory: Sequence[Array]
    ) -> None:
        """Compute elements whose first has an index along the first axis."""
        index = _indices(first, targets[0].shape) if self.function.uses_index else None
        values = self.function.call(index, *reads, *self.numbers, *targets, *memory)
        others = [(target, value) for target, value in zip(targets, values, strict=True) if value is not target]
        if len(targets) > 1:  # a value may be in the memory of another result
            others = [(target, value.copy() if isinstance(value, np.ndarray) else value) for target, value in others]
        for target, value in others:
            target[...] = value


def _indices(first: int, shape: tuple[int, ...]) -> Array:
    start = first * math.prod(shape[1:])
    return np.arange(start, start + math.prod(shape), dtype=np.uint32).reshape(shape)


def _map(
    kernel: MapKernel | FusedKernel,
    shape: tuple[int, ...],
    arrays: Sequence[Array],
    parameters: Sequence[Any],
    dialect: Dialect,
) -> _Map:
    """Return the map over these buffers.

    Args:
        kernel: with the form.
        shape: of the results.
        arrays: bytes of what is read, then of what is written.
        parameters: those of the form, after the size.
        dialect: in which its functions are printed.
    """
    rank, names = kernel.places.rank, kernel.places.strided
    function, size = _function(kernel.form, dialect), math.prod(shape)
    starts, strides = rank, rank + len(names)
    words = strides + rank * len(names)  # of tables
    following = iter(parameters[words + 2 * len(kernel.form.tables) :])
    spans = spans_of(kernel.places, following) if kernel.places.spans else {}
    written = zip(arrays[-len(function.writes) :], function.writes, strict=True)
    results = [_whole(array.view(write.dtype)[:size], shape) for array, write in written]
    remaining = iter(arrays)
    tables: list[Array | Table | Placed] = []
    for read in function.reads:
        if read.result is not None:
            tables.append(results[read.result])
        elif read.name in names:
            vector, own = next(remaining).view(read.dtype), parameters[strides : strides + rank]
            if read.is_table:
                step, length = parameters[words : words + 2]
                tables.append(Table(numpy_arrays, vector, parameters[starts], shape, own, step, length))
                words += 2
            elif read.name in spans:
                tables.append(Placed(numpy_arrays, vector, parameters[starts], shape, own, spans[read.name]))
            else:
                once = [dim if stride else min(dim, 1) for dim, stride in zip(shape, own, strict=True)]
                tables.append(strided(vector, parameters[starts], once, own))
            starts, strides = starts + 1, strides + rank
        else:
            tables.append(_whole(next(remaining).view(read.dtype)[:size], shape))
    for number, write in enumerate(function.writes):
        if write.name in names:
            vector, own = arrays[number - len(function.writes)].view(write.dtype), parameters[strides : strides + rank]
            results[number] = strided(vector, parameters[starts], shape, own)
            starts, strides = starts + 1, strides + rank
    numbers = [dtype(value) for dtype, value in zip(function.numbers, following, strict=True)]
    return _Map(function, shape, tables, numbers, results)


def _whole(vector: Array, shape: tuple[int, ...]) -> Array:
    return vector if len(shape) == 1 else vector.reshape(shape)


def bind_map(
    kernel: MapKernel, arrays: Sequence[Array], parameters: Sequence[Any], dialect: Dialect
) -> Callable[[], None]:
    """Return a call that runs a map alone."""
    size, *own = parameters
    if not kernel.form.parts:
        return _bind_copy(kernel, arrays, own)
    bound = _map(kernel, tuple(own[: kernel.places.rank]) or (size,), arrays, own, dialect)
    copies = _copies(kernel.form, bound) if only_joins(kernel) else []
    if not copies:
        return bound.call()

    def copy() -> None:
        for target, source in copies:
            target[...] = source

    return copy


def _bind_copy(kernel: MapKernel, arrays: Sequence[Array], parameters: Sequence[Any]) -> Callable[[], None]:
    """Return a call that copies elements to a strided array, from one that may be strided too."""
    rank, count = kernel.places.rank, len(kernel.places.strided)
    shape, starts, strides = parameters[:rank], parameters[rank : rank + count], parameters[rank + count :]
    source, target = (array.view(np.uint32) for array in arrays)
    target = strided(target, starts[-1], shape, strides[-rank:])
    if count == 1:
        source = source[: target.size].reshape(shape)
    else:
        source = strided(source, starts[0], shape, strides[:rank])
    return partial(np.copyto, target, source)


@cache
def only_joins(kernel: MapKernel) -> bool:
    """Return whether the kernel does nothing but join strided tensors, which is faster by copies."""
    form, places = kernel.form, kernel.places
    files = {(part.file or form.file) if isinstance(part, Part) else None for part in form.parts}
    return files == {("elementwise", "joined")} and len(form.writes) == 1 and len(places.strided) == len(form.reads)


def _copies(form: Kernel, bound: _Map) -> list[tuple[Array, Array]]:
    """Return each part of the result that is a copy, and the part of an array that it copies.

    Returns:
        [] if a join is not along an axis of the shape.
    """
    shape, copies = bound.shape, list[tuple[Array, Array]]()
    output = bound.results[0].view(np.uint32)
    tables = {
        read.name: np.broadcast_to(array, shape)
        for read, array in zip(form.reads, bound.reads, strict=True)
        if isinstance(array, np.ndarray)
    }
    numbers = {name: int(number) for name, number in zip(form.numbers, bound.numbers, strict=True)}

    def fill(value: str, part: tuple[slice, ...]) -> bool:
        if value in tables:
            copies.append((output[part], tables[value][part].view(output.dtype)))
            return True
        _, first, second, *scalars = form.values[value].arguments
        length, end_of_first = (numbers[scalar] for scalar in scalars)
        for axis, size in enumerate(shape):
            inner = math.prod(shape[axis + 1 :])
            if size > 1 and size * inner == length and end_of_first % inner == 0:
                start, stop, _ = part[axis].indices(size)
                end = end_of_first // inner
                sides = (first, slice(start, min(stop, end))), (second, slice(max(start, end), stop))
                return all(
                    fill(argument, (*part[:axis], side, *part[axis + 1 :]))
                    for argument, side in sides
                    if side.start < side.stop
                )
        return False

    (value,) = form.written.values()
    return copies if fill(value.name, (slice(None),) * len(shape)) else []


def bind_fused(
    kernel: FusedKernel, arrays: Sequence[Array], values: Parameters, dialect: Dialect
) -> Callable[[], None]:
    """Return a call that runs a kernel with a map before or after it."""
    form, hook, replacement = kernel.form, kernel.hook, replacement_of(kernel.base)
    bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
    operands = [binding.name for binding in kernel.base.bindings]
    parameters = [values[name] for name, _ in own_parameters(form, kernel.places)]
    is_stored = hook.function == "stored"
    size = bound[hook.binding].size // 4 if is_stored else kernel.base.elements(values)
    shape = tuple(parameters[: kernel.places.rank]) or (size,)
    result = binding_of(form.writes[0].array)
    between = np.empty(4 * size, np.uint8)
    named = {**bound, binding_of(VALUE): between, result: bound[hook.binding] if is_stored else between}
    whole = _map(kernel, shape, [named[name] for name, _, _ in map_bindings(form)], parameters, dialect)
    number = [read.name for read in form.reads].index(VALUE) if is_stored else 0

    def over(table: Array) -> _Map:
        """Return the map over what is between the two, which is in memory only meanwhile."""
        if not is_stored:
            return whole._replace(results=[table])
        return whole._replace(reads=[*whole.reads[:number], table, *whole.reads[number + 1 :]])

    whole = over(np.empty(0, np.float32))
    del between, named

    def run() -> None:
        between = np.empty(size, np.float32)
        table = between[: math.prod(shape)].reshape(shape)
        made = {**bound, hook.binding: between.view(np.uint8)}
        if is_stored:
            replacement(values, *(made[name] for name in operands))
            over(table).run()
        else:
            over(table).run()
            replacement(values, *(made[name] for name in operands))

    return run
