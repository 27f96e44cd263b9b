"""Products of which map functions compute an operand block by block, for devices on which a library multiplies.

Neither the operand nor the product before what follows it is ever in memory as a whole. Shaders compute an operand once
for each tile that reads it, so devices with shaders keep it instead.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import NamedTuple

from ..errors import UnsupportedError
from ..lower.maps import VALUE, binding_of
from ..wgsl import syntax
from .kernels import Binding, CooperativeKernel, Kernel
from .launches import Launch
from .map_kernels import MapKernel, map_kernel
from .mapped import Mapped, form_of

__all__ = ["PRODUCT", "BlockedProductKernel", "Layout", "blocked_product", "can_follow", "layout_of"]

_LEAST, _BLOCK = 1 << 15, 1 << 16
"""The fewest elements of an operand that is computed by blocks, and the most of a block, to stay in a cache."""

_SMALL, _LEAST_ROWS, _LEAST_ROWS_OF_LARGE = 1 << 16, 128, 1024
"""The fewest rows of a block where the other operand, or the sum, has at most `_SMALL` elements; and otherwise."""

_LEAST_BLOCKS, _MOST_BLOCKS = 4, 64
"""With fewer the blocks would take about the memory that the operand does; more take longer to bind."""


PRODUCT = binding_of(VALUE)
"""The binding of what follows a product that is the product."""


class Layout(NamedTuple):
    """A contiguous operand of a product as blocks of rows of its buffer.

    Attributes:
        rows: of the buffer.
        width: elements of a row.
        block: rows of a block.
        adds: the rows are the inner axis, so that products of blocks are added.
    """

    rows: int
    width: int
    block: int
    adds: bool


def layout_of(launch: Launch, operand: str, before: Mapped) -> Layout | None:
    """Return the blocks in which map functions can compute an operand; None where they cannot.

    Args:
        launch: of the kernel `matmul`.
        operand: "a" or "b".
        before: the functions.
    """
    values = dict(zip((name for name, _ in launch.kernel.parameters), map(int, launch.parameters), strict=True))
    rows, columns, inner = values["rows"], values["columns"], values["inner"]
    across, stride = (rows, "row_stride") if operand == "a" else (columns, "column_stride")
    strides = values[f"{operand}_{stride}"], values[f"{operand}_inner_stride"]
    is_whole = before.size == across * inner and values[f"{operand}_start"] == 0
    if before.size < _LEAST or launch.views[-1].nbytes != 4 * rows * columns or not is_whole or _needs_place(before):
        return None
    if strides == (1, across):
        count, width, adds, again = inner, across, True, rows * columns
    elif strides == (inner, 1) and operand == "a":
        count, width, adds, again = rows, inner, False, inner * columns
    else:
        return None
    most = min(_BLOCK // width, count // _LEAST_BLOCKS)
    least = max(_LEAST_ROWS if again <= _SMALL else _LEAST_ROWS_OF_LARGE, -(-count // _MOST_BLOCKS))
    unit = _row_of(before)
    step = unit // math.gcd(unit, width)  # so that a block ends where an index of the functions' first axis does
    block = max(most // step, -(-least // step)) * step
    return Layout(count, width, block, adds) if count >= _LEAST_BLOCKS * block else None


def _needs_place(expression: Mapped) -> bool:
    """Return whether functions depend on where among all an element is, which a block does not know."""
    return expression.uses_index or any(tensor.spans for tensor in expression.tensors)


def _row_of(expression: Mapped) -> int:
    """Return the elements for an index of the first axis of the kernel that is generated for an expression."""
    _, places, parameters = form_of(expression)
    return math.prod(map(int, parameters[1 : places.rank]))


def can_follow(layout: Layout, after: Mapped) -> bool:
    """Return whether map functions can compute their part of a product for each block."""
    columns = after.size // layout.rows
    return not layout.adds and not _needs_place(after) and layout.block * columns % _row_of(after) == 0


class BlockedProductKernel(Kernel):
    """A product with map functions before an operand, and perhaps after it. There is no shader of it.

    Attributes:
        base: the kernel `matmul`.
        operand: "a" or "b".
        before: what computes the operand.
        after: what takes the product, its `VALUE`; None if nothing does.
        layout: the blocks.
    """

    def __init__(
        self,
        base: CooperativeKernel,
        operand: str,
        before: MapKernel,
        after: MapKernel | None,
        layout: Layout,
    ) -> None:
        """Use `blocked_product`, which makes each kernel once."""
        self.base = base
        self.operand = operand
        self.before = before
        self.after = after
        self.layout = layout
        self.name = "+".join(kernel.name for kernel in (before, base, after) if kernel is not None)
        self.overwrites = after is None or after.overwrites

    @property
    def module(self) -> syntax.Module:
        """Raise UnsupportedError: no device has it as a shader."""
        raise UnsupportedError(f"'{self.name}' runs where a library multiplies, and has no shader")

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """The tensors of `before`, the other operand, the tensors of `after`, and the results."""
        *operands, result = self.base.bindings
        others = [binding for binding in operands if binding.name != self.operand]
        before = [_prefixed("before", binding) for binding in self.before.bindings[:-1]]
        if self.after is None:
            return (*before, *others, result)
        after = [_prefixed("after", binding) for binding in self.after.bindings if binding.name != PRODUCT]
        return (*before, *others, *after)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The parameters of the product, then those of the map functions."""
        before = [(f"before_{name}", type_) for name, type_ in self.before.parameters]
        after = [(f"after_{name}", type_) for name, type_ in self.after.parameters] if self.after is not None else []
        return (*self.base.parameters, *before, *after)


def _prefixed(prefix: str, binding: Binding) -> Binding:
    return binding._replace(name=f"{prefix}_{binding.name}")


@cache
def _kernel(
    base: CooperativeKernel, operand: str, before: MapKernel, after: MapKernel | None, layout: Layout
) -> BlockedProductKernel:
    return BlockedProductKernel(base, operand, before, after, layout)


def blocked_product(launch: Launch, operand: str, before: Mapped, after: Mapped | None, layout: Layout) -> Launch:
    """Return a launch that does all of it.

    Args:
        launch: of the kernel `matmul`.
        operand: "a" or "b".
        before: computes the operand.
        after: what follows the product, which is its `VALUE`; None for nothing.
        layout: the blocks.
    """
    kernel, (*operands, result) = launch.kernel, launch.views
    assert isinstance(kernel, CooperativeKernel)
    form, places, parameters = form_of(before)
    preceding = map_kernel(form, places)
    parameters = [*launch.parameters, before.size, *parameters]
    views = [*(tensor.view for tensor in before.tensors), operands[1 if operand == "a" else 0]]
    if after is None:
        made = _kernel(kernel, operand, preceding, None, layout)
        return Launch(made, (*views, result), launch.grid, tuple(parameters))
    form, places, following = form_of(after)
    made = _kernel(kernel, operand, preceding, map_kernel(form, places), layout)
    views += [*(tensor.view for tensor in after.tensors), *(output.view for output in after.outputs)]
    return Launch(made, tuple(views), launch.grid, (*parameters, after.size, *following))
