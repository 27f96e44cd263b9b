"""Map functions over tensors, with NumPy's broadcasting, and the operations that are one map function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd import record
from ..errors import ShapeError, UnsupportedError
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32, DType
from ..runtime.kernels import ElementwiseKernel, elementwise
from ..tensors import Tensor, empty, tensor

__all__ = [
    "add",
    "add_into",
    "apply",
    "broadcast_shapes",
    "clone",
    "divide",
    "exp",
    "multiply",
    "negate",
    "relu",
    "strided_copy",
    "subtract",
]

Operand = Tensor | float
Shape = tuple[int, ...]


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that NumPy's broadcasting gives.

    Raises:
        ShapeError: they do not fit together.
    """
    rank = max(map(len, shapes))
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes {' and '.join(map(str, shapes))} cannot be broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def row_major_strides(shape: Shape) -> Shape:
    """Elements from one index to the next along each axis of a contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _broadcast_strides(shape: Shape, result: Shape) -> Shape:
    padded = (1,) * (len(result) - len(shape)) + shape
    strides = row_major_strides(padded)
    return tuple(0 if size == 1 else stride for size, stride in zip(padded, strides, strict=True))


def _collapse(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """The same walk over the elements with as few axes as possible."""
    axes: list[tuple[int, list[int]]] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(outer == step * size for outer, step in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, steps)
        else:
            axes.append((size, steps))
    if not axes:
        axes = [(1, [0] * len(strides))]
    return tuple(size for size, _ in axes), [tuple(steps[one] for _, steps in axes) for one in range(len(strides))]


def _is_contiguous(shape: Shape, strides: Shape) -> bool:
    return shape == () or (len(shape) == 1 and strides == (1,))


def _launch(
    file: str,
    function: str,
    operands: Sequence[Operand],
    strides: Sequence[Shape],
    shape: Shape,
    result: Tensor,
) -> Tensor:
    """Run a map function; `strides` holds those of each operand that is a tensor."""
    tensors = [one for one in operands if isinstance(one, Tensor)]
    size = math.prod(shape)
    if size >= 1 << 32:
        raise UnsupportedError(f"an operation over {size:,} elements; at most 4,294,967,295 are possible")
    walked, steps = _collapse(shape, strides)
    is_flat = all(_is_contiguous(walked, one) for one in steps) or size == 1
    kinds = tuple("tensor" if isinstance(one, Tensor) else "scalar" for one in operands)
    kernel = elementwise(file, function, kinds, 0 if is_flat else len(walked))
    layout = () if is_flat else (*walked, *(step for one in steps for step in one))
    scalars = [one for one in operands if not isinstance(one, Tensor)]
    _dispatch(kernel, [*(one.view for one in tensors), result.view], size, (*layout, *scalars))
    return result


def _dispatch(kernel: ElementwiseKernel, views: Sequence[View], size: int, parameters: Sequence[float]) -> None:
    """Dispatch over `size` elements; in windows, where all views hold them in order and a kernel cannot see all."""
    device = views[-1].buffer.device
    window = size if kernel.rank or kernel.uses_index else _window(device)
    for first in range(0, size, max(1, window)):
        count = min(window, size - first)
        parts = [one.part(4 * first, 4 * count) for one in views] if count < size else views
        device.dispatch(kernel, parts, -(-count // kernel.elements_per_workgroup), (count, *parameters))


def _window(device: Device) -> int:
    """Elements of a buffer that a kernel can see at once, so that each window is aligned."""
    return device.capabilities.max_binding_bytes // 256 * 64


def apply(
    file: str, function: str, *operands: Operand, dtype: DType = FLOAT32, device: Device | None = None,
    shape: Shape | None = None,
) -> Tensor:  # fmt: skip
    """A map function of ``shaders/elementwise/FILE.wgsl`` over broadcast operands. Leaves no history.

    Args:
        file: the file, without ``.wgsl``.
        function: the function in it.
        operands: tensors on one device, or numbers, in the order of the function's parameters.
        dtype: that of the result.
        device: needed only where no operand is a tensor.
        shape: of the result, where that is not what the operands broadcast to.

    Raises:
        ShapeError: shapes that do not broadcast, or operands on different devices.
    """
    tensors = [one for one in operands if isinstance(one, Tensor)]
    homes = {id(one.device): one.device for one in tensors}
    if len(homes) > 1:
        names = " and ".join(one.name for one in homes.values())
        raise ShapeError(f"'{function}' got tensors on {names}; move them to one device")
    if tensors:
        device = tensors[0].device
    if shape is None:
        shape = broadcast_shapes(*(one.shape for one in tensors))
    assert device is not None
    strides = [_broadcast_strides(one.shape, shape) for one in tensors]
    return _launch(file, function, operands, strides, shape, empty(shape, dtype, device))


def strided_copy(source: Tensor, shape: Shape, strides: Shape) -> Tensor:
    """A new tensor whose element at an index is that of `source` at the index times these strides."""
    result = empty(shape, source.dtype, source.device)
    return _launch("identity", f"identity_{source.dtype.wgsl}", [source], [strides], shape, result)


def _operand(value: Any, other: Any) -> Operand:
    """A tensor or a float; arrays go to the other operand's device."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if not isinstance(value, Tensor):
        device = other.device if isinstance(other, Tensor) else None
        value = tensor(value, device=device, dtype="float32")
    assert isinstance(value, Tensor)
    if value.dtype is not FLOAT32:
        raise UnsupportedError(f"arithmetic needs float32 tensors, not {value.dtype}")
    return value


def _shape(operand: Operand) -> Shape:
    return operand.shape if isinstance(operand, Tensor) else ()


def _binary(name: str, a: Any, b: Any) -> tuple[Operand, Operand, Tensor]:
    a, b = _operand(a, b), _operand(b, a)
    return a, b, apply(name, name, a, b)


def add(a: Any, b: Any) -> Tensor:
    """A + b, with broadcasting."""
    from .reduce import sum_to

    a, b, result = _binary("add", a, b)
    return record(result, (a, b), lambda g: (sum_to(g, _shape(a)), sum_to(g, _shape(b))))


def subtract(a: Any, b: Any) -> Tensor:
    """A - b, with broadcasting."""
    from .reduce import sum_to

    a, b, result = _binary("subtract", a, b)
    return record(result, (a, b), lambda g: (sum_to(g, _shape(a)), sum_to(negate(g), _shape(b))))


def multiply(a: Any, b: Any) -> Tensor:
    """A * b, with broadcasting."""
    from .reduce import sum_to

    a, b, result = _binary("multiply", a, b)
    return record(result, (a, b), lambda g: (sum_to(multiply(g, b), _shape(a)), sum_to(multiply(g, a), _shape(b))))


def divide(a: Any, b: Any) -> Tensor:
    """A / b, with broadcasting. Gradients: g / b and -g a / b²."""
    from .reduce import sum_to

    a, b, result = _binary("divide", a, b)

    def gradient(g: Tensor) -> tuple[Tensor, Tensor]:
        of_a = divide(g, b)
        return sum_to(of_a, _shape(a)), sum_to(negate(divide(multiply(of_a, a), b)), _shape(b))

    return record(result, (a, b), gradient)


def negate(x: Tensor) -> Tensor:
    """-x."""
    return record(apply("negate", "negate", x), (x,), lambda g: (negate(g),))


def exp(x: Tensor) -> Tensor:
    """E to the power of x."""
    result = apply("exp", "exp_", x)
    value = result.detach()
    return record(result, (x,), lambda g: (multiply(g, value),))


def relu(x: Tensor) -> Tensor:
    """max(x, 0); the gradient at 0 is 0, as in torch."""
    return record(apply("relu", "relu", x), (x,), lambda g: (apply("relu", "relu_grad", g, x),))


def add_into(target: Tensor, addend: Tensor) -> None:
    """Target += addend, in place; leaves no history."""
    _dispatch(elementwise("add", "add", ("result", "tensor"), 0), [addend.view, target.view], target.size, ())


def clone(x: Tensor) -> Tensor:
    """A copy in memory of its own; leaves no history."""
    result = empty(x.shape, x.dtype, x.device)
    x.device.copy(x.view, result.view)
    return result
