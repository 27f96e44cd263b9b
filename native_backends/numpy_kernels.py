"""Kernels in NumPy: map functions printed as Python, cooperative kernels replaced by library calls.

Loaded at the first kernel, so that a device can be opened and filled without the compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..runtime.kernels import AdvanceKernel, CooperativeKernel, ElementwiseKernel, Kernel, UpdateKernel
from ..wgsl import compile_python, print_python, shell, syntax, types

__all__ = ["bind_kernel"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]

_CHUNK = 1 << 15
"""Elements handled at once: the temporaries of a map function then stay in the cache."""

_DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}


def bind_kernel(kernel: Kernel, arrays: Sequence[Array], parameters: bytes) -> Callable[[], None]:
    """A call that runs the kernel over these bytes."""
    names = (name for name, _ in kernel.parameters)
    values = dict(zip(names, kernel.unpack(parameters), strict=True))
    match kernel:
        case ElementwiseKernel():
            return _bind_elementwise(kernel, arrays, values)
        case UpdateKernel():
            return _bind_update(kernel, arrays)
        case AdvanceKernel():
            return _bind_advance(kernel, arrays)
        case CooperativeKernel():
            replacement = _REPLACEMENTS[kernel.name]
            return lambda: replacement(values, *arrays)
    raise TypeError(f"kernel '{kernel.name}' is of no kind that the cpu device knows")


@cache
def _functions(kernel: ElementwiseKernel | UpdateKernel | AdvanceKernel) -> Mapping[str, Any]:
    """The kernel's map functions and structs, as Python."""
    return compile_python(print_python(kernel.map_module, "numpy"), kernel.name)


# Elementwise kernels.


def _bind_elementwise(kernel: ElementwiseKernel, arrays: Sequence[Array], values: Parameters) -> Callable[[], None]:
    declared = shell.function_of(kernel.map_module, kernel.name)
    call = _functions(kernel)[kernel.name]
    size = values["size"]
    result_type = _DTYPES.get(str(declared.return_type), np.uint32)
    result = arrays[-1].view(result_type)[:size]
    shape = tuple(values[f"dim{axis}"] for axis in range(kernel.rank))
    kinds = iter(kernel.operands)
    remaining = iter(arrays)
    operands: list[Any] = []
    for parameter in declared.parameters:
        dtype = _DTYPES[str(parameter.type)]
        kind = "index" if parameter.name == "index" else next(kinds)
        if kind == "index":
            operands.append(None)
        elif kind == "result":
            operands.append(result)
        elif kind == "scalar":
            operands.append(dtype(values[parameter.name]))
        elif kernel.rank:
            strides = tuple(4 * values[f"{parameter.name}_stride{axis}"] for axis in range(kernel.rank))
            operands.append(as_strided(next(remaining).view(dtype), shape, strides))
        else:
            operands.append(next(remaining).view(dtype)[:size])
    if kernel.rank:
        shaped = result.reshape(shape)
        return lambda: np.copyto(shaped, call(*operands))

    def run() -> None:
        for start in range(0, size, _CHUNK):
            end = min(start + _CHUNK, size)
            parts = [
                np.arange(start, end, dtype=np.uint32)
                if operand is None
                else (operand[start:end] if isinstance(operand, np.ndarray) else operand)
                for operand in operands
            ]
            result[start:end] = call(*parts)

    return run


# Optimizer kernels: the shells of `wgsl.shell`, over arrays that go by the names of the bindings.


def _by_name(kernel: Kernel, arrays: Sequence[Array]) -> dict[str, Array]:
    return {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}


def _columns(struct: types.Struct, table: Array) -> dict[str, Array]:
    """The members of an array of structs of 4-byte members, by name."""
    members = enumerate(struct.members)
    return {one.name: table[:, column].view(_DTYPES[str(one.type)]) for column, one in members}


def _tables(module: syntax.Module, bound: Mapping[str, Array]) -> tuple[dict[str, Array], Array, dict[str, Array]]:
    """The columns of `hyper`; of `tensor_scalars` the words before the scalars, and the columns of those."""
    hyper, scalars = shell.struct_of(module, "Hyper"), shell.struct_of(module, "Scalars")
    words = bound["tensor_scalars"].view(np.uint32).reshape(-1, 2 + len(scalars.members))
    table = bound["hyper"].view(np.uint32).reshape(-1, len(hyper.members))
    return _columns(hyper, table), words[:, :2], _columns(scalars, words[:, 2:])


def _bind_advance(kernel: AdvanceKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    bound, functions = _by_name(kernel, arrays), _functions(kernel)
    hyper, progress, scalars = _tables(kernel.map_module, bound)
    entries = bound["tensors"].view(np.uint32).reshape(-1, 2)
    found_inf = bound["found_inf"].view(np.uint32) if kernel.checked else np.zeros(2, np.uint32)

    def run() -> None:
        group = entries[:, 0]
        skip = bool(found_inf[0])
        is_active = (entries[:, 1] != 0) & (not skip)
        old = functions["Scalars"](*scalars.values())
        new = functions["advance"](old, functions["Hyper"](*(column[group] for column in hyper.values())))
        for column, value in zip(scalars.values(), new, strict=True):
            column[:] = np.where(is_active, value, column)
        progress[:, 0] = is_active
        progress[:, 1] = group
        found_inf[0] = 0
        found_inf[1] += skip

    return run


def _runs(blocks: Array) -> Iterator[tuple[int, int, int]]:
    """Tensor, first element and end of each run of blocks of one tensor."""
    tensor, size = blocks.view(np.uint32).reshape(-1, 2).T
    edges = np.flatnonzero(np.diff(tensor, prepend=tensor[0] + 1, append=tensor[-1] + 1))
    for first, end in itertools.pairwise(edges):
        yield int(tensor[first]), int(first) * shell.BLOCK, int(end - 1) * shell.BLOCK + int(size[end - 1])


def _bind_update(kernel: UpdateKernel, arrays: Sequence[Array]) -> Callable[[], None]:
    bound, functions = _by_name(kernel, arrays), _functions(kernel)
    hyper, progress, scalars = _tables(kernel.map_module, bound)
    params, grads = (bound[name].view(np.float32) for name in ("params", "grads"))
    slots = {name: bound[name].view(np.float32) for name in kernel.slots}
    members = [member.name for member in shell.struct_of(kernel.map_module, "State").members]
    zero = np.float32(0)

    def run() -> None:
        for tensor, first, end in _runs(bound["blocks"]):
            is_active, group = progress[tensor]
            if not is_active:
                continue
            its_hyper = functions["Hyper"](*(column[group] for column in hyper.values()))
            its_scalars = functions["Scalars"](*(column[tensor] for column in scalars.values()))
            for start in range(first, end, _CHUNK):
                part = slice(start, min(start + _CHUNK, end))
                state = functions["State"](*(slots[name][part] if name in slots else zero for name in members))
                updated = functions["update"](params[part], grads[part], state, its_hyper, its_scalars)
                params[part] = updated.param
                for name, values in slots.items():
                    values[part] = getattr(updated.state, name)

    return run


# Library calls that take the place of cooperative kernels. Each is called with the kernel's parameters and its
# bindings as bytes, and writes the bindings that the kernel writes.


def _floats(raw: Array) -> Array:
    return raw.view(np.float32)


def _matmul(p: Parameters, a: Array, b: Array, c: Array) -> None:
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    left = as_strided(_floats(a), (rows, inner), (4 * p["a_row_stride"], 4 * p["a_inner_stride"]))
    right = as_strided(_floats(b), (inner, columns), (4 * p["b_inner_stride"], 4 * p["b_column_stride"]))
    np.matmul(left, right, out=_floats(c)[: rows * columns].reshape(rows, columns))


def _sum(p: Parameters, values: Array, sums: Array) -> None:
    outer, length, inner, chunk = p["outer"], p["length"], p["inner"], p["chunk"]
    chunks = -(-length // chunk)
    table = _floats(values)[: outer * length * inner].reshape(outer, length, inner)
    result = _floats(sums)[: outer * chunks * inner].reshape(outer, chunks, inner)
    result[:] = np.add.reduceat(table, np.arange(0, length, chunk), axis=1, dtype=np.float64)


def _log_softmax(p: Parameters, values: Array, result: Array) -> None:
    shape = (p["rows"], p["columns"])
    table = _floats(values)[: shape[0] * shape[1]].reshape(shape)
    shifted = table - table.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    _floats(result)[: table.size].reshape(shape)[:] = shifted - log_sum


def _nonfinite(p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> None:
    live = tensors.view(np.uint32).reshape(-1, 2)[:, 1]
    values = _floats(grads)
    for tensor, first, end in _runs(blocks):
        if live[tensor] and not np.isfinite(values[first:end]).all():
            found_inf.view(np.uint32)[0] = 1
            return


_REPLACEMENTS: dict[str, Callable[..., None]] = {
    "matmul": _matmul,
    "sum": _sum,
    "log_softmax": _log_softmax,
    "nonfinite": _nonfinite,
}
