"""Checks subgroup matrices, an experimental extension of Chromium's WebGPU, which only Dawn compiles.

Their types and functions are those of Dawn in 2026::

    subgroup_matrix_left<T, COLUMNS, ROWS>          (_right, _result)
    subgroupMatrixLoad<MATRIX, row_major>(&array, first, stride) -> MATRIX
    subgroupMatrixStore<row_major>(&array, first, matrix, stride)
    subgroupMatrixMultiply<T>(left, right) -> subgroup_matrix_result<T, COLUMNS, ROWS>
    subgroupMatrixMultiplyAccumulate(left, right, result) -> the type of the result

The stride is from one row to the next, or from one column to the next if the layout is ``col_major``. All invocations
of a subgroup call them with the same arguments; that, and whether an adapter has the size, is not checked here.
Elements are f32 or f16; Dawn has integers too, which no kernel needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .scopes import Operand, fail
from .syntax import Call, TypeName, Unary
from .types import F16, F32, U32, Array, Pointer, Scalar, SubgroupMatrix, Type

if TYPE_CHECKING:
    from .expressions import ExpressionChecker

__all__ = ["MatrixCalls", "matrix_named"]

_ELEMENTS = (F32, F16)
_LAYOUTS = ("row_major", "col_major")


def matrix_named(name: TypeName, checker: ExpressionChecker) -> SubgroupMatrix:
    """Return the type that a name such as ``subgroup_matrix_left<f32, 8, 8>`` refers to."""
    if len(name.arguments) != 3:
        raise fail(name.position, f"'{name.name}' needs its elements, columns and rows: {name.name}<f32, 8, 8>")
    element, *sizes = name.arguments
    assert isinstance(element, TypeName)
    type_ = checker.resolve(element)
    if type_ not in _ELEMENTS or not isinstance(type_, Scalar):
        raise fail(element.position, f"the elements of a subgroup matrix are f32 or f16 here, not {type_}")
    columns, rows = (checker.constant_integer(size, "the size of a subgroup matrix") for size in sizes)  # type: ignore[arg-type]
    if columns < 1 or rows < 1:
        raise fail(name.position, f"a subgroup matrix cannot have {rows} rows and {columns} columns")
    return SubgroupMatrix(name.name.rpartition("_")[2], type_, columns, rows)


class MatrixCalls:
    """The rules for calls of the extension's functions."""

    def __init__(self, checker: ExpressionChecker, argument: Callable[[Unary], Operand]) -> None:
        self.checker = checker
        self.argument = argument

    def call(self, node: Call) -> Operand | None:
        """Check a call and return its result; None for a store."""
        node.kind = "builtin"
        name, count = node.callee.name, {"subgroupMatrixMultiply": 2, "subgroupMatrixStore": 4}.get(node.callee.name, 3)
        if len(node.arguments) != count:
            raise fail(node.position, f"'{name}' takes {count} arguments, not {len(node.arguments)}")
        type_ = getattr(self, name.removeprefix("subgroupMatrix").lower())(node)
        node.type = type_
        return None if type_ is None else Operand(node, type_)

    def load(self, node: Call) -> SubgroupMatrix:
        """``subgroupMatrixLoad<MATRIX, row_major>(&array, first, stride)``."""
        if len(node.callee.arguments) != 2:
            raise fail(node.position, "write subgroupMatrixLoad<MATRIX, row_major>(&array, first, stride)")
        matrix, layout = self.written(node.callee, 0), self.written(node.callee, 1)
        type_ = self.checker.resolve(matrix)
        if not isinstance(type_, SubgroupMatrix):
            raise fail(matrix.position, f"what is loaded must be a subgroup matrix, not {type_}")
        self.in_memory(node, layout, type_.element, "read")
        self.convert(node, 2, U32)
        return type_

    def store(self, node: Call) -> None:
        """``subgroupMatrixStore<row_major>(&array, first, matrix, stride)``."""
        if len(node.callee.arguments) != 1:
            raise fail(node.position, "write subgroupMatrixStore<row_major>(&array, first, matrix, stride)")
        self.in_memory(node, self.written(node.callee, 0), self.matrix(node, 2).element, "read_write")
        self.convert(node, 3, U32)

    def multiply(self, node: Call) -> SubgroupMatrix:
        """``subgroupMatrixMultiply<T>(left, right)``."""
        if len(node.callee.arguments) != 1:
            raise fail(node.position, "write subgroupMatrixMultiply<T>(left, right), where T is the result's elements")
        element = self.checker.resolve(self.written(node.callee, 0))
        if element not in _ELEMENTS or not isinstance(element, Scalar):
            raise fail(node.position, f"the elements of a subgroup matrix are f32 or f16 here, not {element}")
        return self.product(node, element)

    def multiplyaccumulate(self, node: Call) -> SubgroupMatrix:
        """``subgroupMatrixMultiplyAccumulate(left, right, result)``."""
        before = self.matrix(node, 2, "result")
        type_ = self.product(node, before.element)
        if type_ != before:
            raise fail(node.arguments[2].position, f"the sum must be {type_}, but this is {before}")
        return type_

    def product(self, node: Call, element: Scalar) -> SubgroupMatrix:
        """Return the type of the product of the first two arguments."""
        left, right = self.matrix(node, 0, "left"), self.matrix(node, 1, "right")
        if left.columns != right.rows or left.element != right.element:
            raise fail(node.position, f"there is no product of {left} and {right}")
        return SubgroupMatrix("result", element, right.columns, left.rows)

    def written(self, callee: TypeName, number: int) -> TypeName:
        """Return an argument of the template list."""
        argument = callee.arguments[number]
        assert isinstance(argument, TypeName)
        return argument

    def matrix(self, node: Call, number: int, kind: str = "") -> SubgroupMatrix:
        """Return the type of an argument, which must be a matrix, of this kind unless it is ""."""
        operand = self.checker.value(node.arguments[number])
        node.arguments[number] = operand.node
        if not isinstance(operand.type, SubgroupMatrix) or kind not in ("", operand.type.kind):
            expected = f"a subgroup_matrix_{kind}" if kind else "a subgroup matrix"
            raise fail(
                operand.node.position,
                f"argument {number + 1} of '{node.callee.name}' must be {expected}, but this is {operand.type}",
            )
        return operand.type

    def in_memory(self, node: Call, layout: TypeName, element: Scalar, access: str) -> None:
        """Check the layout, the array and the first element of a matrix in memory."""
        if layout.name not in _LAYOUTS:
            raise fail(layout.position, f"the layout must be {' or '.join(_LAYOUTS)}, not {layout.name}")
        operand = self.argument(node.arguments[0])  # type: ignore[arg-type]
        match operand.type:
            case Pointer("storage" | "workgroup", Array(stored), allowed) if stored == element:
                if access in ("read", allowed):
                    self.convert(node, 1, U32)
                    return
        memory = "storage or workgroup memory" + (" that can be written" if access == "read_write" else "")
        raise fail(node.arguments[0].position, f"'{node.callee.name}' needs &array of {element} in {memory}")

    def convert(self, node: Call, number: int, type_: Type) -> None:
        """Convert an argument to a type."""
        operand = self.checker.value(node.arguments[number])
        role = f"argument {number + 1} of '{node.callee.name}'"
        node.arguments[number] = self.checker.convert(operand, type_, role).node
