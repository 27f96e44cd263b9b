"""Map functions over tensors, with NumPy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

from ..errors import DeviceLostError, ShapeError, UnsupportedError
from ..runtime.determinism import are_deterministic_algorithms_enabled
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32, DType
from ..runtime.kernels import CooperativeKernel, ElementwiseKernel, cooperative, elementwise
from ..runtime.program import recorded_here
from ..tensors import Tensor, empty
from .limits import compute_part, cut, fits, in_parts, narrowed, part_along

__all__ = [
    "Operand",
    "Shape",
    "apply",
    "apply_in_place",
    "at_once",
    "broadcast_shapes",
    "broadcast_strides",
    "collapse",
    "contiguous",
    "float_type",
    "launch_map",
    "need_float32",
    "need_one_device",
    "row_kernel",
    "write_into",
]

_TEAMS = 64
SHORT_ROW = 256
"""Longer rows have a workgroup of their own."""
_ALONE_COUNT = 256
"""The fewest short rows of which each invocation reduces one by itself, element by element."""

Operand = Tensor | float
Shape = tuple[int, ...]


def need_float32(operation: str, *tensors: object) -> None:
    """Refuse what is no float32 tensor.

    Raises:
        UnsupportedError: the message names the operation and the operand.
    """
    for one in tensors:
        if not isinstance(one, Tensor) or one.dtype.wgsl != "f32":
            remedy = "; convert it by .astype('float32')" if isinstance(one, Tensor) else ""
            raise UnsupportedError(f"{operation} needs float32 tensors, not {one!r}{remedy}")


def float_type(*tensors: Tensor) -> DType:
    """The type of floats that an operation of these computes: theirs, or float32 where they differ."""
    types = {one.dtype for one in tensors if one.dtype.wgsl == "f32"}
    return types.pop() if len(types) == 1 else FLOAT32


def need_one_device(operation: str, *tensors: Tensor) -> None:
    """Refuse tensors that lie apart.

    Raises:
        ShapeError: they lie on different devices.
        DeviceLostError: one of these has been lost or closed, and perhaps opened again.
    """
    devices = list(dict.fromkeys(one.device for one in tensors))
    if len(devices) > 1:
        lost = next((one for one in devices if one.lost), None)
        if lost is not None:
            raise DeviceLostError(
                f"{operation} got a tensor on a device '{lost.name}' that was lost or closed; optirs_web.recover() "
                "restores parameters from the last snapshot"
            )
        program = recorded_here()
        if program is not None:
            program.elsewhere = next(one for one in devices if one is not program.device)
        names = " and ".join(one.name for one in devices)
        raise ShapeError(
            f"{operation} got tensors on {names}; move them to one device: tensor(x, device=...) copies, "
            "and compile(step, device=...) places a step's arrays"
        )


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


def broadcast_strides(one: Tensor, result: Shape) -> Shape:
    """The strides with which a tensor is read as one of the shape `result`."""
    strides = (0 if size == 1 else stride for size, stride in zip(one.shape, one.walk.strides, strict=True))
    return (*(0,) * (len(result) - one.ndim), *strides)


def collapse(shape: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
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


def launch_map(
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
    walked, steps = collapse(shape, strides)
    is_flat = all(one.is_contiguous for one in tensors) and (
        size == 1 or all(_is_contiguous(walked, one) for one in steps)
    )
    kinds = tuple("tensor" if isinstance(one, Tensor) else "scalar" for one in operands)
    kernel = elementwise(file, function, kinds, 0 if is_flat else len(walked))
    for one, type_ in zip(operands, kernel.operand_types, strict=True):
        if isinstance(one, Tensor) and one.dtype.wgsl != type_:
            raise UnsupportedError(f"'{function}' needs a tensor of {type_}, not {one!r}")
    walks = [one.walk for one in tensors]
    views = [*((one.view for one in tensors) if is_flat else (one.view for one in walks)), result.view]
    if size and not fits(*views) and _mapped_in_parts(kernel, operands, walked, steps, result):
        return result
    layout = [] if is_flat else [*walked, *(one.start for one in walks), *(step for one in steps for step in one)]
    scalars = [one for one in operands if not isinstance(one, Tensor)]
    workgroups = -(-size // kernel.elements_per_workgroup)
    result.device.dispatch(kernel, views, workgroups, (size, *layout, *scalars))
    return result


def _mapped_in_parts(
    kernel: ElementwiseKernel, operands: Sequence[Operand], shape: Shape, strides: Sequence[Shape], result: Tensor
) -> bool:
    """Run a map function over parts that a kernel can be shown; returns False where that is not possible.

    What depends on the index of an element has a parameter `first`, which is added to it.
    """
    remaining = iter(strides)
    walked = [
        Tensor(x.walk.view, shape, x.dtype, strides=next(remaining), start=x.walk.start) if isinstance(x, Tensor) else x
        for x in operands
    ]
    whole = Tensor(result.view, shape, result.dtype)
    cutting = cut([*(x for x in walked if isinstance(x, Tensor)), whole])
    offset = kernel.operand_names.index("first") if "first" in kernel.operand_names else None
    if cutting is not None and kernel.uses_index:
        if offset is None:
            return False
        if cutting[0] != 0:  # parts of the result have to be contiguous
            walked = [contiguous(x) if isinstance(x, Tensor) and cut([x]) else x for x in walked]
            cutting = 0, (cut([*(x for x in walked if isinstance(x, Tensor)), whole]) or (0, 1))[1]

    def run(operands: Sequence[Operand], target: Tensor) -> None:
        parts = [narrowed(x) if isinstance(x, Tensor) else x for x in operands]
        part_strides = [x.walk.strides for x in parts if isinstance(x, Tensor)]
        launch_map(kernel.file, kernel.name, parts, part_strides, target.shape, target)

    if cutting is None:
        run(walked, whole)
        return True
    axis, length = cutting
    for first in range(0, shape[axis], length):
        parts = [part_along(x, axis, first, length) if isinstance(x, Tensor) else x for x in walked]
        if offset is not None:
            parts[offset] = cast(int, parts[offset]) + first * math.prod(shape[1:])
        compute_part(whole, axis, first, length, partial(run, parts))
    return True


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
    need_one_device(f"'{function}'", *tensors)
    if tensors:
        device = tensors[0].device
    if shape is None:
        shape = broadcast_shapes(*(one.shape for one in tensors))
    assert device is not None
    if dtype is FLOAT32:
        dtype = float_type(*tensors)
    strides = [broadcast_strides(one, shape) for one in tensors]
    return launch_map(file, function, operands, strides, shape, empty(shape, dtype, device))


def write_into(target: Tensor, source: Tensor) -> None:
    """Copy the elements of a tensor of the same shape to where `target` lies, one after the other.

    The types may differ if both are read as float32.
    """
    if source.is_contiguous and source.dtype is target.dtype:
        source.device.copy(source.view, target.view)
    else:
        launch_map("identity", f"identity_{source.dtype.wgsl}", [source], [source.walk.strides], source.shape, target)


def contiguous(x: Tensor) -> Tensor:
    """The tensor if its elements lie one after the other, else a copy of that kind. Leaves no history."""
    if x.is_contiguous:
        return x
    result = empty(x.shape, x.dtype, x.device)
    write_into(result, x)
    return result


def row_kernel(
    device: Device, name: str, length: int, count: int, inner: int = 1, **constants: bool
) -> tuple[CooperativeKernel, int]:
    """Return a kernel of workgroups of 64 that reduces rows or columns, and how many a workgroup takes; see `at_once`.

    On adapters that compute on the processor an invocation reduces a row by itself, where rows are short and many. A
    workgroup reduces a long row by subgroups where `Capabilities.subgroups` is true.
    """
    capabilities = device.capabilities
    if capabilities.quads and length <= SHORT_ROW and count >= _ALONE_COUNT:
        return cooperative(name, ALONE=True, **constants), _TEAMS
    teams = at_once(length, count, inner)
    is_whole = teams == 1 and length > SHORT_ROW
    if is_whole and capabilities.subgroups and not are_deterministic_algorithms_enabled():
        return cooperative(name, SUBGROUPS=True, **constants), teams
    return cooperative(name, **constants), teams


def at_once(length: int, count: int, inner: int = 1) -> int:
    """How many of `count` rows a workgroup of 64 reduces at once; or of columns, `inner` of which lie side by side.

    An invocation takes 8 elements of a row, as far as there are so many; of columns, which are read together, 64.
    """
    teams = (256 // length).bit_length()
    if inner > 1:
        teams = max(teams, min(3, (2048 // length).bit_length()))
    return 1 << min(5, teams, count.bit_length() - 1)


def apply_in_place(file: str, function: str, target: Tensor, *operands: Tensor) -> None:
    """A map function whose first parameter is the old value of `target`, and whose result the new one.

    The other operands have the shape of `target` and lie in other buffers. Leaves no history.
    """
    kernel = elementwise(file, function, ("result", *("tensor" for _ in operands)), 0)
    every = [*operands, target]

    def run(targets: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        views = [one.view for one in (*operands, *targets)]
        size = targets[0].size
        target.device.dispatch(kernel, views, -(-size // kernel.elements_per_workgroup), (size,))

    if fits(*(one.walk.view for one in every)):
        run([target], operands)
    else:
        *flat, whole = (Tensor(one.view, (one.size,), one.dtype) for one in every)
        in_parts([whole], flat, 1, run)
