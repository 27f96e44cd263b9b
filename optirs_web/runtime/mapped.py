"""Launches of map functions as expressions over strided views, which can be put into one another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ..wgsl import shell, types
from ..wgsl.fused_shell import Argument, Fused, Step
from ..wgsl.tree import walk
from .buffer import View
from .fused_kernels import FusedMapKernel, fused_map_kernel
from .kernels import ElementwiseKernel, load_map_module
from .launches import Launch

__all__ = [
    "Mapped",
    "Output",
    "Shape",
    "StridedView",
    "cost_of",
    "fused_of",
    "inlined",
    "mapped",
    "refined",
    "relaunched",
    "row_major",
    "spread",
    "with_value",
]

Shape = tuple[int, ...]


class StridedView(NamedTuple):
    """A tensor as map functions read it: memory, WGSL type, offset of the first element, and strides along the axes."""

    view: View
    type: str
    start: int
    strides: Shape


class Output(NamedTuple):
    """A result of an expression: the view that it is written to, the type of the elements, and the value."""

    view: View
    type: str
    value: Argument


class Mapped(NamedTuple):
    """Map functions over every index below `dims`.

    Attributes:
        dims: the sizes of the axes; results are contiguous.
        steps: the functions, in order.
        tensors: the strided views that they read.
        scalars: the types and values of their numbers.
        outputs: the results that they write.
    """

    dims: Shape
    steps: tuple[Step, ...]
    tensors: tuple[StridedView, ...]
    scalars: tuple[tuple[str, float], ...]
    outputs: tuple[Output, ...]

    @property
    def size(self) -> int:
        """The number of elements of each result."""
        return math.prod(self.dims)

    @property
    def is_constant(self) -> bool:
        """True if all elements are the same: there is only one, or nothing is read."""
        if any(kind in ("index", "old") for step in self.steps for kind, _ in step.arguments):
            return False
        return self.size == 1 or not self.tensors

    def is_flat(self, number: int) -> bool:
        """The tensor's elements lie in the order of the results."""
        tensor = self.tensors[number]
        steps = zip(self.dims, tensor.strides, row_major(self.dims), strict=True)
        return tensor.start == 0 and all(size == 1 or stride == wanted for size, stride, wanted in steps)

    def reads_all(self, number: int) -> bool:
        """Each result reads the element of the tensor at its own place, and there are no others."""
        return self.is_flat(number) and 4 * self.size == self.tensors[number].view.nbytes


def row_major(dims: Shape) -> Shape:
    """The strides of elements that lie in order."""
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


@cache
def _signature(file: str, function: str) -> tuple[tuple[tuple[str, str], ...], str, bool, int]:
    """Name and type of each parameter, the type of the result in memory, whether it is a bool, and the cost."""
    module = load_map_module("elementwise", file, (function,))
    declared = shell.function_of(module, function)
    is_bool = declared.return_type == types.BOOL
    cost = sum(type(node).__name__ in ("Binary", "Unary", "Call") for node in walk(module))
    parameters = tuple((parameter.name, str(parameter.type)) for parameter in declared.parameters)
    return parameters, "u32" if is_bool else str(declared.return_type), is_bool, cost


def cost_of(expression: Mapped) -> int:
    """Operations for each element, about."""
    return sum(_signature(step.file, step.function)[3] for step in expression.steps)


def mapped(launch: Launch) -> Mapped | None:
    """The launch as an expression, if it is one of a map function over as many elements as its result has."""
    kernel = launch.kernel
    if isinstance(kernel, FusedMapKernel):
        return _of_fused(kernel.fused, launch)
    if not isinstance(kernel, ElementwiseKernel):
        return None
    values = dict(zip((name for name, _ in kernel.parameters), launch.parameters, strict=True))
    rank, size, result = kernel.rank, int(values["size"]), launch.views[-1]
    if 4 * size != result.nbytes:
        return None
    dims = tuple(int(values[f"dim{axis}"]) for axis in range(rank)) if rank else (size,)
    parameters, result_type, is_bool, _ = _signature(kernel.file, kernel.name)
    views = iter(launch.views)
    kinds = iter(kernel.operands)
    tensors: list[StridedView] = []
    scalars: list[tuple[str, float]] = []
    arguments: list[Argument] = []
    for name, type_ in parameters:
        kind = "index" if name == "index" else next(kinds)
        if kind == "tensor":
            start = int(values[f"{name}_start"]) if rank else 0
            strides = tuple(int(values[f"{name}_stride{axis}"]) for axis in range(rank)) if rank else (1,)
            arguments.append(("tensor", len(tensors)))
            tensors.append(StridedView(next(views), type_, start, strides))
        elif kind == "scalar":
            arguments.append(("scalar", len(scalars)))
            scalars.append((type_, values[name]))
        else:
            arguments.append(("old", 0) if kind == "result" else ("index", 0))
    step = Step(kernel.file, kernel.name, tuple(arguments), is_bool)
    return Mapped(dims, (step,), tuple(tensors), tuple(scalars), (Output(result, result_type, ("step", 0)),))


def _of_fused(fused: Fused, launch: Launch) -> Mapped:
    """Return the expression that `relaunched` made the launch of."""
    values = dict(zip((name for name, _ in launch.kernel.parameters), launch.parameters, strict=True))
    axes = range(fused.rank)
    dims = tuple(int(values[f"dim{axis}"]) for axis in axes) or (int(values["size"]),)
    views = iter(launch.views)
    tensors: list[StridedView] = []
    for number, (type_, is_flat) in enumerate(zip(fused.tensor_types, fused.flat, strict=True)):
        start = 0 if is_flat else int(values[f"x{number}_start"])
        strides = row_major(dims) if is_flat else tuple(int(values[f"x{number}_stride{axis}"]) for axis in axes)
        tensors.append(StridedView(next(views), type_, start, strides))
    scalars = tuple((type_, values[f"s{number}"]) for number, type_ in enumerate(fused.scalar_types))
    outputs = zip(views, fused.output_types, fused.outputs, strict=True)
    return Mapped(dims, fused.steps, tuple(tensors), scalars, tuple(Output(*output) for output in outputs))


# Putting one expression into another.


def refined(left: Shape, right: Shape) -> Shape | None:
    """Axes from which those of both can be put together, if there are such."""
    products = {math.prod(dims[axis:]) for dims in (left, right) for axis in range(len(dims) + 1)}
    ordered = sorted(products, reverse=True)
    pairs = list(itertools.pairwise(ordered))
    if any(small == 0 or large % small for large, small in pairs):
        return None
    return tuple(large // small for large, small in pairs) or (1,)


def spread(strides: Shape, dims: Shape, finer: Shape) -> Shape:
    """Strides along `dims` as strides along axes that these are divided into."""
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
        return tuple(tensor._replace(strides=(0,) * len(dims)) for tensor in expression.tensors)
    return tuple(
        tensor._replace(strides=spread(tensor.strides, expression.dims, dims)) for tensor in expression.tensors
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
    replacements: list[Argument] = []
    shift = len(producer.steps)
    for index, tensor in enumerate(_over(consumer, dims)):
        if consumer.tensors[index] == consumer.tensors[number]:
            replacements.append(producer.outputs[output].value)
        elif tensor in tensors:
            replacements.append(("tensor", tensors.index(tensor)))
        else:
            replacements.append(("tensor", len(tensors)))
            tensors.append(tensor)
    scalars = [*producer.scalars]

    def moved(argument: Argument) -> Argument:
        kind, at = argument
        if kind == "tensor":
            return replacements[at]
        if kind == "step":
            return kind, at + shift
        if kind == "scalar":
            scalars.append(consumer.scalars[at])
            return kind, len(scalars) - 1
        return argument

    steps = [*producer.steps]
    steps += [step._replace(arguments=tuple(moved(argument) for argument in step.arguments)) for step in consumer.steps]
    outputs = [output._replace(value=moved(output.value)) for output in consumer.outputs]
    if keeps:
        outputs += producer.outputs
    return Mapped(dims, tuple(steps), tuple(tensors), tuple(scalars), tuple(outputs))


def with_value(consumer: Mapped, number: int, value: Argument = ("value", 0)) -> Mapped:
    """Return `consumer` with the result of a kernel with hooks, or another value, in place of tensor `number`."""
    replaced = consumer.tensors[number]
    kept = [tensor for tensor in dict.fromkeys(consumer.tensors) if tensor != replaced]

    def moved(argument: Argument) -> Argument:
        kind, at = argument
        if kind != "tensor":
            return argument
        tensor = consumer.tensors[at]
        return value if tensor == replaced else (kind, kept.index(tensor))

    steps = tuple(
        step._replace(arguments=tuple(moved(argument) for argument in step.arguments)) for step in consumer.steps
    )
    outputs = tuple(output._replace(value=moved(output.value)) for output in consumer.outputs)
    return consumer._replace(steps=steps, tensors=tuple(kept), outputs=outputs)


# Back to launches.


def _collapsed(expression: Mapped) -> Mapped:
    """Return the expression with axes merged where the strides allow it, and axes of size 1 removed."""
    axes: list[tuple[int, list[int]]] = []
    for size, *steps in zip(expression.dims, *(tensor.strides for tensor in expression.tensors), strict=True):
        if size == 1:
            continue
        if axes and all(outer == step * size for outer, step in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, steps)
        else:
            axes.append((size, steps))
    axes = axes or [(1, [0] * len(expression.tensors))]
    tensors = tuple(
        tensor._replace(strides=tuple(steps[number] for _, steps in axes))
        for number, tensor in enumerate(expression.tensors)
    )
    return expression._replace(dims=tuple(size for size, _ in axes), tensors=tensors)


def _ends(dims: Shape, axes: Shape) -> tuple[int, ...]:
    """Return the number of the last of the axes that each of `dims` consists of; () if one ends within an axis."""
    after = [math.prod(axes[number:]) for number in range(len(axes), 0, -1)]
    rests = [math.prod(dims[number + 1 :]) for number in range(len(dims))]
    return tuple(len(axes) - 1 - after.index(rest) for rest in rests) if {*rests} <= {*after} else ()


def fused_of(expression: Mapped, axes: Shape = ()) -> tuple[Fused, list[int | float]]:
    """Return the source of a generated kernel, and the parameters of a launch of it except the size.

    These are, in order, the dims, then starts and strides of tensors that are not flat, and the scalars.

    Args:
        expression: what it computes.
        axes: products, rows and columns of the kernel in whose hook it stands, if that is told places along them.
    """
    expression = _collapsed(expression)
    flat = tuple(expression.is_flat(number) for number in range(len(expression.tensors)))
    strided = [tensor for tensor, is_flat in zip(expression.tensors, flat, strict=True) if not is_flat]
    dims = expression.dims if strided else ()
    ends = _ends(dims, axes) if axes and dims else ()
    of_rows = next((number for number, end in enumerate(ends) if end >= len(axes) - 2), 0)
    fused = Fused(
        steps=expression.steps,
        tensor_types=tuple(tensor.type for tensor in expression.tensors),
        flat=flat,
        scalar_types=tuple(type_ for type_, _ in expression.scalars),
        outputs=tuple(output.value for output in expression.outputs),
        output_types=tuple(output.type for output in expression.outputs),
        rank=len(dims),
        ends=ends,
        of_column=tuple(
            number
            for number, (tensor, is_flat) in enumerate(zip(expression.tensors, flat, strict=True))
            if ends and not is_flat and tensor.strides[of_rows] == 0
        ),
    )
    strides = [stride for tensor in strided for stride in tensor.strides]
    return fused, [*dims, *(tensor.start for tensor in strided), *strides, *(value for _, value in expression.scalars)]


def relaunched(expression: Mapped, grid: Sequence[int]) -> Launch:
    """Return a launch of a kernel that computes the whole expression."""
    fused, parameters = fused_of(expression)
    views = [*(tensor.view for tensor in expression.tensors), *(output.view for output in expression.outputs)]
    kernel: FusedMapKernel = fused_map_kernel(fused)
    return Launch(kernel, tuple(views), (grid[0], grid[1], grid[2]), (expression.size, *parameters))
