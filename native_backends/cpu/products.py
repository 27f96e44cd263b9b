"""Products by BLAS with the map functions before and after them, block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.blocked_products import PRODUCT, BlockedProductKernel
from ...runtime.kernels import Kernel
from ...runtime.map_kernels import MapKernel
from ..arrays.numpy_arrays import strided
from .workspace import Workspace

__all__ = ["BlockedProductKernel", "bind_product"]

Array = np.ndarray[Any, Any]
Bind = Callable[[Kernel, Sequence[Array], bytes], Callable[[], None]]


def bind_product(
    kernel: BlockedProductKernel, arrays: Sequence[Array], parameters: bytes, bind: Bind, workspace: Workspace
) -> Callable[[], None]:
    """Return a call that runs the kernel over these bytes.

    Args:
        kernel: the product.
        arrays: by binding.
        parameters: of the kernel.
        bind: returns the call of a kernel of map functions.
        workspace: of the device.
    """
    values = dict(zip((name for name, _ in kernel.parameters), kernel.unpack(parameters), strict=True))
    bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
    rows, columns, inner = (int(values[name]) for name in ("rows", "columns", "inner"))
    count, width, block, adds = kernel.layout
    parts = [slice(first, min(first + block, count)) for first in range(0, count, block)]
    operand = workspace.part("operand", block * width).reshape(block, width)
    computed = [operand[: part.stop - part.start] for part in parts]
    before = [
        _map_call(kernel.before, "before", bound, values, part, width, {"y0_values": array}, bind)
        for part, array in zip(parts, computed, strict=True)
    ]
    if kernel.operand == "a":
        other = _operand(bound["b"], values, "b", (inner, columns), ("inner", "column"))
        pairs = zip(parts, computed, strict=True)
        factors = [(array.T, other[part]) if adds else (array, other) for part, array in pairs]
    else:
        other = _operand(bound["a"], values, "a", (rows, inner), ("row", "inner"))
        factors = [(other[:, part], array) for part, array in zip(parts, computed, strict=True)]
    if kernel.after is None:
        result = bound["c"].view(np.float32)[: rows * columns].reshape(rows, columns)
        if adds:
            return _sum_of_products(before, factors, result)
        return _products(before, factors, [result[part] for part in parts], [])
    product = workspace.part("product", block * columns).reshape(block, columns)
    targets = [product[: part.stop - part.start] for part in parts]
    after = [
        _map_call(kernel.after, "after", bound, values, part, columns, {PRODUCT: array}, bind)
        for part, array in zip(parts, targets, strict=True)
    ]
    return _products(before, factors, targets, after)


def _operand(raw: Array, values: Mapping[str, Any], name: str, shape: tuple[int, int], axes: tuple[str, str]) -> Array:
    strides = [int(values[f"{name}_{axis}_stride"]) for axis in axes]
    return strided(raw.view(np.float32), int(values[f"{name}_start"]), shape, strides)


def _products(
    before: Sequence[Callable[[], None]],
    factors: Sequence[tuple[Array, Array]],
    targets: Sequence[Array],
    after: Sequence[Callable[[], None]],
) -> Callable[[], None]:
    """Return a call that writes the products of blocks to their targets."""
    following = after or [_nothing] * len(before)
    steps = list(zip(before, factors, targets, following, strict=True))

    def run() -> None:
        for compute, (left, right), target, follow in steps:
            compute()
            np.matmul(left, right, out=target)
            follow()

    return run


def _nothing() -> None:
    """Do nothing after a product."""


def _sum_of_products(
    before: Sequence[Callable[[], None]], factors: Sequence[tuple[Array, Array]], result: Array
) -> Callable[[], None]:
    """Return a call that writes the sum of the products of blocks, in their order."""
    steps = list(zip(before, factors, strict=True))

    def run() -> None:
        product = np.empty_like(result)
        for number, (compute, (left, right)) in enumerate(steps):
            compute()
            np.matmul(left, right, out=product if number else result)
            if number:
                np.add(result, product, out=result)

    return run


def _map_call(
    kernel: MapKernel,
    prefix: str,
    bound: Mapping[str, Array],
    values: Mapping[str, Any],
    part: slice,
    width: int,
    own: Mapping[str, Array],
    bind: Bind,
) -> Callable[[], None]:
    """Return a call of map functions for some rows of their results.

    Args:
        kernel: the functions.
        prefix: of the names of bindings and parameters.
        bound: bytes by binding.
        values: parameters by name.
        part: the rows.
        width: elements of a row.
        own: the rows of what lies in the workspace, by the names of the kernel's bindings.
        bind: returns the call of a kernel.
    """
    places, first, size = kernel.places, part.start * width, (part.stop - part.start) * width
    members = {name: values[f"{prefix}_{name}"] for name, _ in kernel.parameters}
    indices = math.prod(int(members[f"dim{axis}"]) for axis in range(1, places.rank))  # below one of the first axis
    members["size"] = size
    if places.rank:
        members["dim0"] = size // indices
    arrays = []
    for binding in kernel.bindings:
        name = binding.name.removesuffix("_values")
        if binding.name in own:
            arrays.append(own[binding.name].reshape(-1).view(np.uint8))
        elif name not in places.strided:
            arrays.append(bound[f"{prefix}_{binding.name}"][4 * first : 4 * (first + size)])
        else:
            arrays.append(bound[f"{prefix}_{binding.name}"])
            members[f"{name}_start"] += first // indices * members[f"{name}_stride0"]
    return bind(kernel, arrays, kernel.pack(list(members.values())))
