"""Launches of map functions over tensors, with NumPy's broadcasting, and the checks of their operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple, cast

from .errors import DeviceLostError, ShapeError, UnsupportedError
from .limits import compute_part, cut, fits, in_parts, narrowed, part_along
from .runtime.buffer import View
from .runtime.determinism import are_deterministic_algorithms_enabled
from .runtime.device import Device
from .runtime.dtypes import FLOAT32, DType
from .runtime.map_kernels import MapKernel, elementwise, operands_of, uses_index
from .runtime.program import recorded_here
from .runtime.strides import collapse
from .tensor_class import Tensor, empty

__all__ = [
    "Operand",
    "Shape",
    "apply",
    "apply_in_place",
    "at_once",
    "broadcast_shapes",
    "broadcast_strides",
    "contiguous",
    "filled",
    "float_type",
    "launch_map",
    "need_float32",
    "need_one_device",
    "row_constants",
    "write_into",
]

_WORKGROUP_SIZE = 64
SHORT_ROW = 256
"""Longer rows have a workgroup of their own."""
_ALONE_COUNT = 256
"""The fewest short rows of which each invocation reduces one by itself, element by element."""
_LONG_ROW = 1024
"""From this length on a hardware GPU reduces a row by workgroups of `_LARGE_WORKGROUP`."""
_LARGE_WORKGROUP = 256

Operand = Tensor | float
Shape = tuple[int, ...]


def need_float32(operation: str, *tensors: object) -> None:
    """Check that all operands are float32 tensors.

    Raises:
        UnsupportedError: the message names the operation and the operand.
    """
    for operand in tensors:
        if not isinstance(operand, Tensor) or operand.dtype.wgsl != "f32":
            remedy = "; convert it by .astype('float32')" if isinstance(operand, Tensor) else ""
            raise UnsupportedError(f"{operation} needs float32 tensors, not {operand!r}{remedy}")


def float_type(*tensors: Tensor) -> DType:
    """Return the float type of an operation's result: that of its operands, or float32 where they differ."""
    types = [tensor.dtype for tensor in tensors if tensor.dtype.wgsl == "f32"]
    return types[0] if types and all(type_ is types[0] for type_ in types) else FLOAT32


def need_one_device(operation: str, *tensors: Tensor) -> None:
    """Check that all tensors are on one device.

    Raises:
        ShapeError: they are on different devices.
        DeviceLostError: one of these has been lost or closed, and perhaps opened again.
    """
    devices = list(dict.fromkeys([tensor.strided.view.buffer.device for tensor in tensors]))
    if len(devices) > 1:
        lost = next((device for device in devices if device.lost), None)
        if lost is not None:
            raise DeviceLostError(
                f"{operation} got a tensor on a device '{lost.name}' that was lost or closed; optirs_web.recover() "
                "restores parameters from the last snapshot"
            )
        program = recorded_here()
        if program is not None:
            program.elsewhere = next(device for device in devices if device is not program.device)
        names = " and ".join(device.name for device in devices)
        raise ShapeError(
            f"{operation} got tensors on {names}; move them to one device: x.to(device) copies, "
            "and compile(step, device=...) places a step's arrays"
        )


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that NumPy's broadcasting gives.

    Raises:
        ShapeError: they do not fit together.
    """
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes {' and '.join(map(str, shapes))} cannot be broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def broadcast_strides(x: Tensor, result: Shape) -> Shape:
    """Return the strides with which a tensor is read as one of the shape `result`."""
    strides = (0 if size == 1 else stride for size, stride in zip(x.shape, x.strided.strides, strict=True))
    return (*(0,) * (len(result) - len(x.shape)), *strides)


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
    """Enqueue a map function over operands of one shape; `strides` are those of each operand that is a tensor."""
    tensors: list[Tensor] = []
    scalars: list[float] = []
    seen: list[_Key | None] = []
    steps = iter(strides)
    for operand in operands:
        if isinstance(operand, Tensor):
            tensors.append(operand)
            is_whole = operand.shape == shape
            seen.append((operand.dtype.wgsl, next(steps), operand.strided.start, is_whole, operand.is_contiguous))
        else:
            scalars.append(operand)
            seen.append(None)
    plan = _plan(file, function, shape, tuple(seen))
    if plan.refused is not None:
        number, type_ = plan.refused
        raise UnsupportedError(f"'{function}' needs a tensor of {type_}, not {operands[number]!r}")
    size = plan.layout[0]
    if plan.is_flat:
        views = [*(_all_of(tensor, size) for tensor in tensors), _all_of(result, size)]
    else:
        views = [*(tensor.strided.view for tensor in tensors), result.view]
    if size and not fits(*views) and _mapped_in_parts(file, function, operands, *collapse(shape, strides), result):
        return result
    result.device.dispatch(plan.kernel, views, plan.workgroups, (*plan.layout, *scalars))
    return result


def _all_of(x: Tensor, size: int) -> View:
    """Return the view of a contiguous tensor of that size."""
    view = x.strided.view
    return view if view.nbytes == 4 * size and x.dtype.itemsize == 4 else x.view


_Key = tuple[str, Shape, int, bool, bool]
"""The values of a `_Seen`, which takes longer to make."""


class _Seen(NamedTuple):
    """A tensor as a launch sees it: `is_whole` if it has the shape of the result."""

    type: str
    strides: Shape
    start: int
    is_whole: bool
    is_contiguous: bool


class _Plan(NamedTuple):
    """The launch of a map function.

    Attributes:
        kernel: that runs.
        layout: the size, and of strided tensors the axes, starts and strides: the first parameters.
        workgroups: of the kernel.
        is_flat: all tensors are read from end to end.
        refused: the number of an operand of another type, and the type that the function takes.
    """

    kernel: MapKernel
    layout: tuple[int, ...]
    workgroups: int
    is_flat: bool
    refused: tuple[int, str] | None


@lru_cache(4096)
def _plan(file: str, function: str, shape: Shape, keys: tuple[_Key | None, ...]) -> _Plan:
    """Return the launch over operands; the key of a number is None.

    Raises:
        UnsupportedError: there are too many elements.
    """
    size = math.prod(shape)
    if size >= 1 << 32:
        raise UnsupportedError(f"an operation over {size:,} elements; at most 4,294,967,295 are possible")
    operands = [None if key is None else _Seen(*key) for key in keys]
    tensors = [operand for operand in operands if operand is not None]
    strides, starts = [tensor.strides for tensor in tensors], [tensor.start for tensor in tensors]
    are_contiguous = all(tensor.is_contiguous for tensor in tensors)
    sizes, steps = shape, strides
    is_flat = are_contiguous and all(tensor.is_whole for tensor in tensors)
    if not is_flat:
        sizes, steps = collapse(shape, strides)
        is_flat = are_contiguous and (size == 1 or all(_is_contiguous(sizes, axis_steps) for axis_steps in steps))
    kinds = tuple("scalar" if operand is None else "tensor" for operand in operands)
    kernel = elementwise(file, function, kinds, 0 if is_flat else len(sizes))
    types = [type_ for _, type_ in operands_of(file, function)]
    refused = next(
        (
            (number, type_)
            for number, (operand, type_) in enumerate(zip(operands, types, strict=True))
            if operand is not None and operand.type != type_
        ),
        None,
    )
    layout = () if is_flat else (*sizes, *starts, *(step for axis_steps in steps for step in axis_steps))
    return _Plan(kernel, (size, *layout), -(-size // kernel.elements_per_workgroup), is_flat, refused)


def _mapped_in_parts(
    file: str, function: str, operands: Sequence[Operand], shape: Shape, strides: Sequence[Shape], result: Tensor
) -> bool:
    """Enqueue a map function over parts that fit bindings; return False where that is not possible.

    A function that depends on the index of an element has a parameter `first`, which is added to the index.
    """
    remaining = iter(strides)
    strided = [
        Tensor(x.strided.view, shape, x.dtype, strides=next(remaining), start=x.strided.start)
        if isinstance(x, Tensor)
        else x
        for x in operands
    ]
    whole = Tensor(result.view, shape, result.dtype)
    cutting = cut([*(x for x in strided if isinstance(x, Tensor)), whole])
    names = [name for name, _ in operands_of(file, function)]
    offset = names.index("first") if "first" in names else None
    if cutting is not None and uses_index(file, function):
        if offset is None:
            return False
        if cutting[0] != 0:  # parts of the result have to be contiguous
            strided = [contiguous(x) if isinstance(x, Tensor) and cut([x]) else x for x in strided]
            cutting = 0, (cut([*(x for x in strided if isinstance(x, Tensor)), whole]) or (0, 1))[1]

    def run(operands: Sequence[Operand], target: Tensor) -> None:
        parts = [narrowed(x) if isinstance(x, Tensor) else x for x in operands]
        part_strides = [x.strided.strides for x in parts if isinstance(x, Tensor)]
        launch_map(file, function, parts, part_strides, target.shape, target)

    if cutting is None:
        run(strided, whole)
        return True
    axis, length = cutting
    for start in range(0, shape[axis], length):
        parts = [part_along(x, axis, start, length) if isinstance(x, Tensor) else x for x in strided]
        if offset is not None:
            parts[offset] = cast(int, parts[offset]) + start * math.prod(shape[1:])
        compute_part(whole, axis, start, length, partial(run, parts))
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
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    need_one_device(f"'{function}'", *tensors)
    if tensors:
        device = tensors[0].strided.view.buffer.device
    if shape is None:
        shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    assert device is not None
    if dtype is FLOAT32:
        dtype = float_type(*tensors)
    strides = [
        tensor.strided.strides if tensor.shape == shape else broadcast_strides(tensor, shape) for tensor in tensors
    ]
    return launch_map(file, function, operands, strides, shape, empty(shape, dtype, device))


def filled(shape: Shape, value: float, device: Device, dtype: DType = FLOAT32) -> Tensor:
    """Return a new tensor with the same value everywhere."""
    return apply("identity", f"identity_{dtype.wgsl}", value, dtype=dtype, device=device, shape=shape)


def write_into(target: Tensor, source: Tensor) -> None:
    """Copy the elements of a tensor into the contiguous tensor `target` of the same shape.

    The types may differ if both are read as float32.
    """
    if source.is_contiguous and source.dtype is target.dtype:
        source.device.copy(source.view, target.view)
    else:
        launch_map(
            "identity", f"identity_{source.dtype.wgsl}", [source], [source.strided.strides], source.shape, target
        )


def contiguous(x: Tensor) -> Tensor:
    """Return the tensor if it is contiguous, else a contiguous copy. Leaves no history."""
    if x.is_contiguous:
        return x
    result = empty(x.shape, x.dtype, x.device)
    write_into(result, x)
    return result


def row_constants(device: Device, length: int, count: int, inner: int = 1) -> tuple[dict[str, bool | int], int]:
    """Return the overrides of a kernel that reduces rows or columns, and how many rows or columns a workgroup takes.

    `at_once` gives that number for a workgroup of 64. On adapters that compute on the processor an invocation reduces
    a row by itself, where rows are short and many. A workgroup reduces a long row by subgroups where
    `Capabilities.subgroups` is true. On hardware it is larger for a very long row: invocations wait for memory at each
    load, and few workgroups leave most of a GPU idle.
    """
    capabilities = device.capabilities
    constants: dict[str, bool | int] = {}
    if capabilities.quads and length <= SHORT_ROW and count >= _ALONE_COUNT:
        return {"ALONE": True}, _WORKGROUP_SIZE
    rows_per_workgroup = at_once(length, count, inner)
    is_whole = rows_per_workgroup == 1 and length > SHORT_ROW
    if is_whole and length >= _LONG_ROW and capabilities.tiles != "software":
        constants["WORKGROUP"] = _LARGE_WORKGROUP
    if is_whole and capabilities.subgroups and not are_deterministic_algorithms_enabled():
        constants["SUBGROUPS"] = True
    return constants, rows_per_workgroup


def at_once(length: int, count: int, inner: int = 1) -> int:
    """Return the number of rows, of `count`, that a workgroup of 64 reduces at once; or of columns, `inner` adjacent.

    An invocation takes up to 8 elements of a row; of columns, which are read together, 64.
    """
    exponent = (256 // length).bit_length()
    if inner > 1:
        exponent = max(exponent, min(3, (2048 // length).bit_length()))
    return 1 << min(5, exponent, count.bit_length() - 1)


def apply_in_place(file: str, function: str, target: Tensor, *operands: Tensor) -> None:
    """Enqueue a map function whose first parameter is the old value of `target`, and whose result is the new value.

    The other operands have the shape of `target` and are in other buffers. Leaves no history.
    """
    kernel = elementwise(file, function, ("result", *("tensor" for _ in operands)), 0)
    tensors = [*operands, target]

    def run(targets: Sequence[Tensor], operands: Sequence[Tensor]) -> None:
        views = [tensor.view for tensor in (*operands, *targets)]
        size = targets[0].size
        target.device.dispatch(kernel, views, -(-size // kernel.elements_per_workgroup), (size,))

    if fits(*(tensor.strided.view for tensor in tensors)):
        run([target], operands)
    else:
        *flat, whole = (Tensor(tensor.view, (tensor.size,), tensor.dtype) for tensor in tensors)
        in_parts([whole], flat, 1, run)
