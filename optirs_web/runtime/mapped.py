"""Launches of map functions as expressions over strided views, which can be put into one another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ..kernel import INDEX, Kernel as Form, Part, Read, Take, Type, Write
from ..lower.maps import VALUE, Places
from ..wgsl import declarations_of
from ..wgsl.syntax import Binary, Call, Function, Unary
from ..wgsl.tree import walk
from .buffer import View
from .launches import Launch
from .map_kernels import MapKernel, map_kernel, titled
from .spans import Span, simplified, spans_of
from .strides import collapse, row_major_strides

__all__ = [
    "Mapped",
    "Output",
    "Shape",
    "StridedView",
    "cost_of",
    "form_of",
    "inlined",
    "mapped",
    "old",
    "refined",
    "relaunched",
    "spread",
    "with_value",
]

Shape = tuple[int, ...]


class StridedView(NamedTuple):
    """A tensor as map functions read it.

    Attributes:
        view: the memory.
        type: of an element.
        start: offset of the first element.
        strides: along the axes.
        table: the distance of elements along an axis of its own, and their number, if elements are taken along that.
        spans: its own axes, if it is placed in a part of the map: they add to the offset by the strides.
    """

    view: View
    type: Type
    start: int
    strides: Shape
    table: tuple[int, int] | None = None
    spans: tuple[Span, ...] = ()


class Output(NamedTuple):
    """A result of an expression.

    Attributes:
        view: the memory that it is written to.
        type: of the elements.
        value: that of each.
        start: offset of the first element.
        strides: along the axes; None if the elements are contiguous and all that is in the memory.
    """

    view: View
    type: Type
    value: str
    start: int = 0
    strides: Shape | None = None


class Mapped(NamedTuple):
    """Map functions over every index below `dims`.

    Values are numbered: x0, x1, … are those of the tensors, s0, … the scalars, t0, … what the parts give, and old0, …
    what the outputs had before. There are `INDEX` and, in a hook, `VALUE` besides.

    Attributes:
        dims: the sizes of the axes.
        parts: the functions, with their arguments, and what is taken of tensors, in order.
        tensors: the strided views that they read.
        scalars: the types and values of their numbers.
        outputs: the results that they write.
    """

    dims: Shape
    parts: tuple[Part | Take, ...]
    tensors: tuple[StridedView, ...]
    scalars: tuple[tuple[Type, float], ...]
    outputs: tuple[Output, ...]

    @property
    def size(self) -> int:
        """The number of elements of each result."""
        return math.prod(self.dims)

    @property
    def is_constant(self) -> bool:
        """True if all elements are the same: there is only one, or nothing is read."""
        return (self.size == 1 or not self.tensors) and not self.uses_index and not self.uses_old

    @property
    def uses_index(self) -> bool:
        """The functions depend on the index of an element."""
        return any(INDEX in _needed_by(part) for part in self.parts)

    @property
    def is_part(self) -> bool:
        """The results are a part of what is in the memory that they are written to."""
        return any(output.strides is not None for output in self.outputs)

    @property
    def uses_old(self) -> bool:
        """The functions depend on what an output has before."""
        return any(name.startswith(_OLD) for part in self.parts for name in _needed_by(part))

    def is_flat(self, number: int) -> bool:
        """The tensor is stored in the order of the results."""
        tensor = self.tensors[number]
        steps = zip(self.dims, tensor.strides, row_major_strides(self.dims), strict=True)
        return (
            tensor.start == 0
            and tensor.table is None
            and not tensor.spans
            and all(size == 1 or stride == wanted for size, stride, wanted in steps)
        )

    def reads_all(self, number: int) -> bool:
        """Each result reads the element of the tensor at its own place, and there are no others."""
        return self.is_flat(number) and 4 * self.size == self.tensors[number].view.nbytes

    def reads_as_computed(self, number: int, producer: Mapped) -> bool:
        """Each result reads what the producer computes for its own place, or for all: none takes an element."""
        tensor = self.tensors[number]
        is_taken = tensor.table is not None or tensor.spans
        return not is_taken and (producer.is_constant or self.reads_all(number))


_OLD = "old"


def old(number: int) -> str:
    """Return the name of the value that an output has before."""
    return f"{_OLD}{number}"


_TAKE_COST = 8
"""Operations that take as long as reading an element anywhere, about."""


def _needed_by(part: Part | Take) -> tuple[str, ...]:
    if isinstance(part, Part):
        return part.arguments or ()
    return (part.array, part.at, part.fill) if part.at else (part.array, part.fill)


@cache
def _cost(file: tuple[str, str], function: str) -> int:
    """Return the operations of a function and of those that it calls, as they are written."""
    functions = [declaration for declaration in declarations_of(file, function) if isinstance(declaration, Function)]
    return sum(isinstance(node, (Binary, Call, Unary)) for node in walk(functions))


def cost_of(expression: Mapped) -> int:
    """Return the operations for each element, about."""
    parts = expression.parts
    return sum(
        _cost(part.file, part.function) if isinstance(part, Part) and part.file else _TAKE_COST for part in parts
    )


def _take(name: str, needed: tuple[str, ...]) -> Take:
    array, *at, fill = needed
    return Take(name, array, "".join(at), fill)


class _Numbered(NamedTuple):
    """The parts of a form, and the types of its arrays and numbers, by number.

    Attributes:
        parts: with numbered arguments.
        names: of tensors, in the kernel.
        types: of tensors.
        strided: for each tensor, whether it is.
        tables: for each tensor, whether it is a table.
        scalars: types.
        outputs: type and value of each.
        strided_outputs: for each output, whether it is.
    """

    parts: tuple[Part | Take, ...]
    names: tuple[str, ...]
    types: tuple[Type, ...]
    strided: tuple[bool, ...]
    tables: tuple[bool, ...]
    scalars: tuple[Type, ...]
    outputs: tuple[tuple[Type, str], ...]
    strided_outputs: tuple[bool, ...]


@cache
def _numbered(kernel: MapKernel) -> _Numbered:
    form = kernel.form
    tensors = [read for read in form.reads if not read.array]
    arrays = [write.array for write in form.writes]
    names = {read.name: f"x{number}" for number, read in enumerate(tensors)}
    names |= {read.name: old(arrays.index(read.array)) for read in form.reads if read.array}
    names |= {name: f"s{number}" for number, name in enumerate(form.numbers)} | {INDEX: INDEX}
    computed = [value for value in form.values.values() if isinstance(value.source, Part | Take)]
    names |= {value.name: f"t{number}" for number, value in enumerate(computed)}
    parts: list[Part | Take] = []
    for value in computed:
        arguments = tuple(names[name] for name in value.arguments)
        if value.part is None:
            parts.append(_take(names[value.name], arguments))
        else:
            file = value.part.file or form.file
            parts.append(Part(value.part.function, gives=names[value.name], file=file, arguments=arguments))
    return _Numbered(
        tuple(parts),
        tuple(read.name for read in tensors),
        tuple(read.type for read in tensors),
        tuple(read.name in kernel.places.strided for read in tensors),
        tuple(read.name in form.tables for read in tensors),
        tuple(form.numbers.values()),
        tuple((write.type, names[form.written[write.array].name]) for write in form.writes),
        tuple(write.array in kernel.places.strided for write in form.writes),
    )


def mapped(launch: Launch) -> Mapped | None:
    """Return the launch as an expression, if it is one of a map that writes all of its results, or what is strided."""
    kernel = launch.kernel
    if not isinstance(kernel, MapKernel):
        return None
    form, rank, parameters = _numbered(kernel), kernel.places.rank, launch.parameters
    size = int(parameters[0])
    outputs = launch.views[len(form.types) :]
    if any(
        4 * size != view.nbytes
        for view, is_strided in zip(outputs, form.strided_outputs, strict=True)
        if not is_strided
    ):
        return None
    dims = tuple(map(int, parameters[1 : 1 + rank])) if rank else (size,)
    starts = 1 + rank
    strides = starts + len(kernel.places.strided)
    words = strides + rank * len(kernel.places.strided)  # of tables
    following = iter(parameters[words + 2 * sum(form.tables) :])
    spans = spans_of(kernel.places, following) if kernel.places.spans else {}
    flat = row_major_strides(dims)
    tensors: list[StridedView] = []
    for view, name, type_, is_strided, is_table in zip(
        launch.views, form.names, form.types, form.strided, form.tables, strict=False
    ):
        if is_strided:
            own = tuple(map(int, parameters[strides : strides + rank]))
            table = (int(parameters[words]), int(parameters[words + 1])) if is_table else None
            tensors.append(StridedView(view, type_, int(parameters[starts]), own, table, tuple(spans.get(name, ()))))
            starts, strides, words = starts + 1, strides + rank, words + 2 * is_table
        else:
            tensors.append(StridedView(view, type_, 0, flat))
    results = [Output(view, *output) for view, output in zip(outputs, form.outputs, strict=True)]
    for number, is_strided in enumerate(form.strided_outputs):
        if is_strided:
            own = tuple(map(int, parameters[strides : strides + rank]))
            results[number] = results[number]._replace(start=int(parameters[starts]), strides=own)
            starts, strides = starts + 1, strides + rank
    return Mapped(
        dims,
        form.parts,
        tuple(tensors),
        tuple(zip(form.scalars, following, strict=True)),
        tuple(results),
    )


# Putting one expression into another.


def refined(left: Shape, right: Shape) -> Shape | None:
    """Return axes from which those of both can be put together, if there are such."""
    products = {math.prod(dims[axis:]) for dims in (left, right) for axis in range(len(dims) + 1)}
    ordered = sorted(products, reverse=True)
    pairs = list(itertools.pairwise(ordered))
    if any(small == 0 or large % small for large, small in pairs):
        return None
    return tuple(large // small for large, small in pairs) or (1,)


def spread(strides: Shape, dims: Shape, finer: Shape) -> Shape:
    """Return strides along `dims` as strides along axes that these are divided into."""
    result: list[int] = []
    axes = list(finer)
    for size, stride in zip(reversed(dims), reversed(strides), strict=True):
        covered = 1
        while covered < size:
            result.append(stride * covered)
            covered *= axes.pop()
    result += [0] * len(axes)
    return tuple(reversed(result))


def _over(expression: Mapped, dims: Shape) -> tuple[StridedView, ...]:
    if expression.size == 1:
        nowhere = (0,) * len(dims)
        return tuple(
            tensor._replace(strides=nowhere, spans=tuple(span._replace(steps=nowhere) for span in tensor.spans))
            for tensor in expression.tensors
        )
    return tuple(
        tensor._replace(
            strides=spread(tensor.strides, expression.dims, dims),
            spans=tuple(span._replace(steps=spread(span.steps, expression.dims, dims)) for span in tensor.spans),
        )
        for tensor in expression.tensors
    )


def inlined(consumer: Mapped, number: int, producer: Mapped, output: int, *, keeps: bool) -> Mapped | None:
    """Return `consumer` with the output of `producer` computed in place of reading it as tensor `number`.

    Args:
        consumer: reads all of the output in the order in which it is stored, or the output is a constant.
        number: the number of the tensor.
        producer: computes it.
        output: the number of the output.
        keeps: the outputs of the producer are written too.
    """
    dims = consumer.dims if producer.is_constant else refined(consumer.dims, producer.dims)
    if dims is None:
        return None
    tensors = list(_over(producer, dims))
    names: dict[str, str] = {}
    for index, tensor in enumerate(_over(consumer, dims)):
        if consumer.tensors[index] == consumer.tensors[number]:
            names[f"x{index}"] = producer.outputs[output].value
            continue
        if tensor not in tensors:
            tensors.append(tensor)
        names[f"x{index}"] = f"x{tensors.index(tensor)}"
    names |= {f"s{index}": f"s{len(producer.scalars) + index}" for index in range(len(consumer.scalars))}
    names |= {f"t{index}": f"t{len(producer.parts) + index}" for index in range(len(consumer.parts))}
    written = tuple(
        output if output.strides is None else output._replace(strides=spread(output.strides, consumer.dims, dims))
        for output in consumer.outputs
    )
    outputs = _renamed_outputs(written, names)
    return Mapped(
        dims,
        (*producer.parts, *_renamed(consumer.parts, names)),
        tuple(tensors),
        (*producer.scalars, *consumer.scalars),
        (*outputs, *producer.outputs) if keeps else outputs,
    )


def _renamed(parts: Iterable[Part | Take], names: Mapping[str, str]) -> tuple[Part | Take, ...]:
    """Return the parts with other names for what they give and are given."""
    renamed: list[Part | Take] = []
    for part in parts:
        needed = tuple(names.get(name, name) for name in _needed_by(part))
        if isinstance(part, Take):
            renamed.append(_take(names.get(part.name, part.name), needed))
        else:
            gives = names.get(part.gives, part.gives)
            renamed.append(Part(part.function, gives=gives, file=part.file, arguments=needed))
    return tuple(renamed)


def _renamed_outputs(outputs: Iterable[Output], names: Mapping[str, str]) -> tuple[Output, ...]:
    return tuple(output._replace(value=names.get(output.value, output.value)) for output in outputs)


def with_value(consumer: Mapped, number: int, value: str = VALUE) -> Mapped:
    """Return `consumer` with the result of a kernel with hooks, or another value, in place of tensor `number`."""
    replaced = consumer.tensors[number]
    kept = [tensor for tensor in dict.fromkeys(consumer.tensors) if tensor != replaced]
    names = {
        f"x{index}": value if tensor == replaced else f"x{kept.index(tensor)}"
        for index, tensor in enumerate(consumer.tensors)
    }
    parts, outputs = _renamed(consumer.parts, names), _renamed_outputs(consumer.outputs, names)
    return consumer._replace(parts=parts, tensors=tuple(kept), outputs=outputs)


# Back to launches.


def _collapsed(expression: Mapped) -> Mapped:
    """Return the expression with axes merged where the strides allow it, and axes of size 1 removed."""
    tensors = list(expression.tensors)
    for number, tensor in enumerate(tensors):
        if tensor.spans:
            strides, spans = simplified(tensor.strides, tensor.spans, expression.dims)
            tensors[number] = tensor._replace(strides=strides, spans=spans)
    all_steps = [tensor.strides for tensor in tensors]
    all_steps += [span.steps for tensor in tensors for span in tensor.spans]
    all_steps += [output.strides for output in expression.outputs if output.strides is not None]
    dims, collapsed = collapse(expression.dims, all_steps)
    along = iter(collapsed)
    tensors = [tensor._replace(strides=next(along)) for tensor in tensors]
    tensors = [
        tensor._replace(spans=tuple(span._replace(steps=next(along)) for span in tensor.spans)) for tensor in tensors
    ]
    outputs = tuple(
        output if output.strides is None else output._replace(strides=next(along)) for output in expression.outputs
    )
    return expression._replace(dims=dims, tensors=tuple(tensors), outputs=outputs)


def _ends(dims: Shape, axes: Shape) -> tuple[int, ...]:
    """Return the number of the last of the axes that each of `dims` consists of; () if one ends within an axis."""
    after = [math.prod(axes[number:]) for number in range(len(axes), 0, -1)]
    inner_sizes = [math.prod(dims[number + 1 :]) for number in range(len(dims))]
    return tuple(len(axes) - 1 - after.index(size) for size in inner_sizes) if {*inner_sizes} <= {*after} else ()


def form_of(expression: Mapped, axes: Shape = ()) -> tuple[Form, Places, list[int | float]]:
    """Return the form of an expression, its places, and the parameters of a launch of it except the size.

    These are, in order, the dims, then starts and strides of tensors that are not flat and of outputs that are a part,
    steps and lengths of tables, what there is of spans, and the scalars.

    Args:
        expression: what it computes.
        axes: products, rows and columns of the kernel in whose hook it stands, if that is told places along them.
    """
    expression = _collapsed(expression)
    strided = [number for number in range(len(expression.tensors)) if not expression.is_flat(number)]
    written = [(number, output) for number, output in enumerate(expression.outputs) if output.strides is not None]
    dims = expression.dims if strided or written else ()
    ends = _ends(dims, axes) if axes and dims else ()
    of_rows = next((number for number, end in enumerate(ends) if end >= len(axes) - 2), 0)
    tensors = [expression.tensors[number] for number in strided]
    places = Places(
        len(dims),
        (*(f"x{number}" for number in strided), *(f"y{number}" for number, _ in written)),
        ends,
        tuple(
            f"x{n}"
            for n, tensor in zip(strided, tensors, strict=True)
            if ends and tensor.strides[of_rows] == 0 and tensor.table is None and not tensor.spans
        ),
        tuple(
            (f"x{n}", tuple(span.form for span in tensor.spans))
            for n, tensor in zip(strided, tensors, strict=True)
            if tensor.spans
        ),
    )
    form = _form(
        expression.parts,
        tuple(tensor.type for tensor in expression.tensors),
        tuple(type_ for type_, _ in expression.scalars),
        tuple((output.type, output.value) for output in expression.outputs),
    )
    starts = [*(tensor.start for tensor in tensors), *(output.start for _, output in written)]
    strides = [stride for tensor in tensors for stride in tensor.strides]
    strides += [stride for _, output in written for stride in output.strides or ()]
    strides += [word for tensor in tensors for word in tensor.table or ()]
    strides += [word for tensor in tensors for span in tensor.spans for word in span.words]
    numbers = [value for _, value in expression.scalars]
    return form, places, [*dims, *starts, *strides, *numbers]


@cache
def _form(
    parts: tuple[Part | Take, ...],
    types: tuple[Type, ...],
    scalars: tuple[Type, ...],
    outputs: tuple[tuple[Type, str], ...],
) -> Form:
    used = {name for part in parts for name in _needed_by(part)} | {value for _, value in outputs}
    reads = [Read(f"x{number}", type=type_) for number, type_ in enumerate(types)]
    if VALUE in used:
        reads.append(Read(VALUE))
    reads += [
        Read(old(number), type=type_, array=f"y{number}")
        for number, (type_, _) in enumerate(outputs)
        if old(number) in used
    ]
    writes = tuple(Write(value, f"y{number}", type_) for number, (type_, value) in enumerate(outputs))
    numbers = {f"s{number}": type_ for number, type_ in enumerate(scalars)}
    file = next((part.file for part in parts if isinstance(part, Part) and part.file), ("", ""))
    return Form(titled(parts), file, 1, tuple(reads), parts, writes, numbers)


def relaunched(expression: Mapped, grid: Sequence[int]) -> Launch:
    """Return a launch of a kernel that computes the whole expression."""
    form, places, parameters = form_of(expression)
    views = [*(tensor.view for tensor in expression.tensors), *(output.view for output in expression.outputs)]
    kernel = map_kernel(form, places)
    return Launch(kernel, tuple(views), (grid[0], grid[1], grid[2]), (expression.size, *parameters))
