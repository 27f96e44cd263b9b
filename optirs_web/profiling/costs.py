"""Bytes and operations of a kernel, computed from its bindings and its code. Nothing here is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ..kernel import Kernel as Form
from ..lower.maps import binding_of
from ..runtime.blocked_products import BlockedProductKernel
from ..runtime.form_kernels import FormKernel
from ..runtime.kernels import CooperativeKernel, GeneratedKernel, Kernel
from ..runtime.map_kernels import FusedKernel, MapKernel
from ..runtime.packed_kernels import PackedKernel
from ..runtime.timing import Work
from ..wgsl import syntax
from ..wgsl.shell import BLOCK
from ..wgsl.straighten import straighten
from ..wgsl.tree import walk
from ..wgsl.types import BOOL

__all__ = ["Costs", "costs_of", "operations_of_function"]

Parameters = Mapping[str, Any]


class Costs(NamedTuple):
    """Bytes and operations of a kernel or of a copy.

    Attributes:
        bytes_read: of the buffers that it reads, each counted once.
        bytes_written: of the buffers that it writes.
        operations: on numbers; None where it is not known.
        parameters: the kernel's, by name.
    """

    bytes_read: int
    bytes_written: int
    operations: int | None
    parameters: dict[str, Any]


def costs_of(work: Work) -> Costs:
    """Return the costs of a kernel, or of a copy.

    Bytes are those of the views that are bound, so an upper bound where a kernel reads only some of them (strided
    operands, tensors of an arena that are left out), and a lower one where it reads them again after the cache has
    evicted them (the tiles of a product). What an optimizer's rule writes counts as read, too: most of it is updated in
    place.

    Operations are 2 rows columns inner for products, one for each element and reduction of rows, and for map
    functions what `operations_of_function` counts, for each element. A causal mask does not reduce them.
    """
    kernel = work.kernel
    if kernel is None:
        return Costs(sum(work.sizes), sum(work.sizes), 0, {})
    names = [name for name, _ in kernel.parameters]
    values = dict(zip(names, kernel.unpack(work.parameters), strict=True))
    base = kernel.base if isinstance(kernel, PackedKernel) else kernel
    kinds = kernel.kinds if isinstance(kernel, PackedKernel) else ("",) * len(work.sizes)
    reads, writes = _read_and_written(base)
    sizes = dict(zip((binding.name for binding in base.bindings), work.sizes, strict=True))
    written = [sizes[name] for name in writes]
    wide = {name: size * (2 if kind else 1) for (name, size), kind in zip(sizes.items(), kinds, strict=True)}
    operations = _operations(base, values, wide, max((wide[name] for name in writes), default=0))
    return Costs(sum(sizes[name] for name in reads), sum(written), operations, values)


# The bindings that are read, and those that are written.


@cache
def _read_and_written(kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the bindings that a kernel reads, and of those that it writes."""
    written = tuple(binding.name for binding in kernel.bindings if binding.writes)
    only_written: set[str] = set()
    if kernel.overwrites:
        only_written = set(written)
    elif isinstance(kernel, MapKernel):
        before = {binding_of(read.array) for read in kernel.form.reads}
        only_written = set(written) - before
    elif not isinstance(kernel, GeneratedKernel | BlockedProductKernel):
        only_written = set(written) - _read_in(kernel.module)
    return tuple(binding.name for binding in kernel.bindings if binding.name not in only_written), written


def _read_in(module: syntax.Module) -> set[str]:
    """Return the names that occur in expressions, not only as targets of assignments."""
    names = set()
    stored_to = set()
    for node in walk(module):
        if isinstance(node, syntax.Assign) and node.operator == "":
            target = node.target
            while isinstance(target, syntax.Index | syntax.Member):
                target = target.base
            stored_to.add(id(target))
        elif isinstance(node, syntax.Name) and id(node) not in stored_to:  # the target comes after its assignment
            names.add(node.name)
    return names


# Operations.


def _products(p: Parameters, rows: str, sizes: Mapping[str, int], written: int) -> int:
    """Return the number of matrix products of a kernel, from the size of its table or of what it writes in bytes."""
    return sizes["products"] // 20 if "products" in sizes else written // (4 * p[rows] * p["columns"])


def _of_matmul(p: Parameters, sizes: Mapping[str, int], written: int) -> int:
    return int(2 * p["rows"] * p["columns"] * p["inner"] * _products(p, "rows", sizes, written))


def _of_convolution(p: Parameters, _: Mapping[str, int], __: int) -> int:
    return int(2 * p["groups"] * p["rows"] * p["columns"] * p["inner"] * p["images"])


def _of_convolution_quads(p: Parameters, _: Mapping[str, int], written: int) -> int:
    return int(2 * p["inner"] * written // 4)


def _of_convolution_band(p: Parameters, _: Mapping[str, int], written: int) -> int:
    return int(2 * 9 * p["channels"] * written // 4)


def _of_attention(p: Parameters, sizes: Mapping[str, int], written: int) -> int:
    """Two products: of queries and keys, and of their weights and the values."""
    pairs = p["own_rows"] * p["other_rows"] * _products(p, "own_rows", sizes, written)
    return int(2 * pairs * (p["depth"] + p["columns"] - p["first_column"]))


def _of_attention_grad(p: Parameters, sizes: Mapping[str, int], written: int) -> int:
    """A third product: of the gradient and the values."""
    pairs = p["own_rows"] * p["other_rows"] * _products(p, "own_rows", sizes, written)
    return _of_attention(p, sizes, written) + int(2 * pairs * p["value_depth"])


_COUNTS: dict[str, Callable[[Parameters, Mapping[str, int], int], int]] = {
    "attention": _of_attention,
    "attention_grad": _of_attention_grad,
    "batched_matmul": _of_matmul,
    "convolution": _of_convolution,
    "convolution_band": _of_convolution_band,
    "convolution_quads": _of_convolution_quads,
    "matmul": _of_matmul,
}
"""Operations of cooperative kernels, from their parameters and from the bytes of their bindings and of the largest that
they write."""


def _operations(kernel: Kernel, values: Parameters, sizes: Mapping[str, int], written: int) -> int | None:
    match kernel:
        case MapKernel(form=form):
            return int(values["size"]) * _per_element_of_form(form)
        case GeneratedKernel() if "blocks" in sizes:  # of an arena; each has 8 bytes in the table
            return sizes["blocks"] // 8 * BLOCK * _per_element(kernel, getattr(kernel, "part", ""))
        case FormKernel(form=form):
            return kernel.elements(values) * _per_element_of_form(form)
        case CooperativeKernel(name=name) if name in _COUNTS:
            return _COUNTS[name](values, sizes, written)
        case FusedKernel(base=base, hook=hook, form=form):
            operations = _operations(base, values, sizes, written)
            if operations is None:
                return None
            elements = written // 4 if hook.function == "stored" else base.elements(values)
            return operations + elements * _per_element_of_form(form)
        case BlockedProductKernel(base=base, before=before, after=after, layout=layout):
            operations = _COUNTS[base.name](values, sizes, written)
            for functions, elements in ((before, layout.rows * layout.width), (after, written // 4)):
                if functions is not None:
                    operations += elements * _per_element_of_form(functions.form)
            return operations
    return None


@cache
def _per_element_of_form(form: Form) -> int:
    """Return the operations for an element: of functions that are called for each, and one for each reduction."""
    called = [part.function for value, part in form.computed if not form.level_of_call(value)]
    return sum(bool(part.over) for _, part in form.computed) + sum(
        operations_of_function(form.map_module, function) for function in called
    )


@cache
def _per_element(kernel: GeneratedKernel, function: str) -> int:
    declared = {
        declaration.name for declaration in kernel.map_module.declarations if isinstance(declaration, syntax.Function)
    }
    return operations_of_function(kernel.map_module, function) if function in declared else 0


def operations_of_function(module: syntax.Module, function: str) -> int:
    """Return the operations of one call of a map function, with its loops unrolled and both sides of branches taken.

    Each arithmetic operator and each call of a function of WGSL counts as one (`fma` as two); comparisons, choices and
    conversions count as none.
    """
    lines = straighten(module, [function])
    counts = {name: _Counted() for name in lines}
    for name, line in lines.items():
        for expression in (*(value for _, value in line.assignments), line.result):
            counts[name].add(expression)
    total: dict[str, int] = {}

    def total_of(name: str) -> int:
        if name not in total:
            total[name] = counts[name].operations + sum(map(total_of, counts[name].calls))
        return total[name]

    return total_of(function)


class _Counted:
    """The operations of a function's own expressions, and the names of the functions that it calls."""

    def __init__(self) -> None:
        self.operations = 0
        self.calls: list[str] = []

    def add(self, expression: syntax.Expression) -> None:
        for node in walk(expression):
            match node:
                case syntax.Binary(type=type_) | syntax.Unary(type=type_):
                    self.operations += type_ != BOOL
                case syntax.Call(kind="builtin", callee=callee):
                    self.operations += {"select": 0, "bitcast": 0, "fma": 2}.get(callee.name, 1)
                case syntax.Call(kind="function", callee=callee):
                    self.calls.append(callee.name)
