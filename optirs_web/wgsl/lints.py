"""Refuses valid WGSL that fails on some adapter or target. Each message names the replacement."""

from __future__ import annotations

from collections.abc import Sequence

from .lint_map import check_map_module, is_map_module
from .lint_workgroup import check_workgroup_memory
from .scopes import fail
from .syntax import Binary, Call, Expression, Function, Index, Literal, Member, Module, Name, Position, Unary
from .tree import walk
from .vocabulary import MATRIX_EXTENSION

__all__ = ["INACCURATE", "is_map_module", "lint"]

# Built-ins that are inaccurate on some adapter, and their replacements in shaders/lib/math.wgsl ("" for none).
INACCURATE = {
    "exp": "precise_exp",
    "exp2": "precise_exp",
    "log": "precise_log",
    "log2": "precise_log",
    "pow": "precise_pow",
    "tanh": "precise_tanh",
    "sin": "precise_sin",
    "cos": "precise_cos",
    "tan": "precise_sin",
    "sinh": "expm1",
    "cosh": "precise_exp",
    "asinh": "log1p",
    "acosh": "precise_log",
    "atanh": "log1p",
    "asin": "",
    "acos": "",
    "atan": "",
    "atan2": "",
}


def lint(module: Module) -> None:
    """Check a linked module. Raises ShaderError at the first code that fails on some target."""
    for name in ("subgroups", MATRIX_EXTENSION):
        if name in module.enables:
            raise fail(
                Position(module.file, 1, 1), f"leave `enable {name};` out: it is written for the hosts that ask for it"
            )
    for declaration in module.declarations:
        if isinstance(declaration, Function):
            _check_calls(declaration)
            _check_comparisons(declaration)
    check_workgroup_memory(module)
    if is_map_module(module):
        check_map_module(module)


def _check_calls(function: Function) -> None:
    for node in walk(function.body):
        if isinstance(node, Call) and node.kind == "builtin" and node.callee.name in INACCURATE:
            name = node.callee.name
            better = INACCURATE[name]
            hint = f"import package::lib::math::{better};" if better else "approximate it with arithmetic"
            raise fail(node.position, f"'{name}' is not accurate on every adapter; {hint}")


def _check_comparisons(function: Function) -> None:
    for node in walk(function.body):
        if isinstance(node, Binary) and node.operator in ("==", "!=") and _same(node.left, node.right):
            raise fail(
                node.position,
                "compilers decide this as if NaN did not exist; test for NaN by its bits: "
                "import package::lib::math::is_nan;",
            )


def _same(left: Expression, right: Expression) -> bool:
    """Return True if two expressions have the same source text."""
    match left, right:
        case Literal(), Literal():
            return False
        case Name(name=a), Name(name=b):
            return a == b
        case Unary(operator=a), Unary(operator=b):
            return a == b and _same_parts((left.operand,), (right.operand,))
        case Binary(operator=a), Binary(operator=b):
            return a == b and _same_parts((left.left, left.right), (right.left, right.right))
        case Member(name=a), Member(name=b):
            return a == b and _same(left.base, right.base)
        case Index(), Index():
            return _same_parts((left.base, left.index), (right.base, right.index))
        case Call(), Call():
            return left.callee.name == right.callee.name and _same_parts(left.arguments, right.arguments)
    return False


def _same_parts(left: Sequence[Expression], right: Sequence[Expression]) -> bool:
    """Return True if expressions are pairwise the same; unlike in `_same`, equal literals are."""
    return len(left) == len(right) and all(
        _same(x, y) or (isinstance(x, Literal) and isinstance(y, Literal) and x.value == y.value)
        for x, y in zip(left, right, strict=True)
    )
