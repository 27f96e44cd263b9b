"""The lint for map functions, which run on array targets too, where every branch becomes a selection of values."""

from __future__ import annotations

from .builtins import has_side_effects
from .scopes import fail
from .syntax import (
    Assign,
    Binary,
    Call,
    Constant,
    For,
    Function,
    GlobalVariable,
    LocalDeclaration,
    Loop,
    Module,
    Name,
    Position,
    StructDeclaration,
    While,
)
from .tree import walk
from .types import Array, Atomic, Scalar, Struct, SubgroupMatrix, Type, Vector

__all__ = ["check_map_module", "is_map_module"]

_COUNTED = "a loop in a map function counts between constants, for (var i = 0; i < 8; i++); use if or break within it"


def is_map_module(module: Module) -> bool:
    """Return True if a module has only pure functions: no entry point and no variable."""
    return not any(
        isinstance(declaration, GlobalVariable) or (isinstance(declaration, Function) and declaration.attributes)
        for declaration in module.declarations
    )


def check_map_module(module: Module) -> None:
    """Raise ShaderError if a declaration uses a feature that map functions cannot."""
    constants = {declaration.name for declaration in module.declarations if isinstance(declaration, Constant)}
    for declaration in module.declarations:
        match declaration:
            case StructDeclaration(type=type_):
                _check_type(type_, declaration.position)
            case Function():
                _check_function(declaration, constants)


def _check_type(type_: Type | None, position: Position) -> None:
    match type_:
        case Vector() | Array() | Atomic() | SubgroupMatrix():
            raise fail(position, f"map functions compute with scalars and structs of scalars, not with {type_}")
        case Scalar(name="f16"):
            raise fail(position, "map functions compute in f32; f16 is for storage")
        case Struct(members=members):
            for member in members:
                _check_type(member.type, position)


def _check_function(function: Function, constants: set[str]) -> None:
    if function.return_type is None:
        raise fail(
            function.position, f"'{function.name}' returns nothing; a map function has a result and no other effect"
        )
    for parameter in function.parameters:
        _check_type(parameter.type, parameter.position)
    _check_type(function.return_type, function.position)
    locals_ = {parameter.name for parameter in function.parameters}
    for node in walk(function.body):
        match node:
            case LocalDeclaration(keyword="const"):
                constants = constants | {node.name}
            case LocalDeclaration(type=type_):
                locals_.add(node.name)
                _check_type(type_, node.position)
            case Call(type=type_):
                if has_side_effects(node.callee.name):
                    raise fail(node.position, f"'{node.callee.name}': a map function cannot meet other invocations")
                _check_type(type_, node.position)
            case While() | Loop():
                raise fail(node.position, _COUNTED)
            case For():
                _check_loop(node, constants - locals_)


def _check_loop(loop: For, constants: set[str]) -> None:
    """Refuse loops other than ``for (var i = A; i < B; i++)`` with constants A and B, where nothing else changes i."""
    match loop.initial, loop.condition, loop.update:
        case (
            LocalDeclaration(keyword="var", name=name, value=start),
            Binary(operator="<" | "<=" | ">" | ">=" | "!=", left=Name(name=compared), right=end),
            Assign(target=Name(name=counted), operator="+" | "-", value=step),
        ) if start is not None and name == compared == counted:
            bounds = (start, end, step)
        case _:
            raise fail(loop.position, _COUNTED)
    for bound in bounds:
        for node in walk(bound):
            if isinstance(node, Name) and node.name not in constants:
                raise fail(node.position, f"'{node.name}' is not constant, but bounds a loop of a map function; "
                           "let a constant bound the loop and break where it is done")  # fmt: skip
            if isinstance(node, Call) and node.kind == "function":
                raise fail(node.position, "a function's result is not constant, but bounds a loop of a map function")
    for node in walk(loop.body):
        if isinstance(node, Assign) and isinstance(node.target, Name) and node.target.name == name:
            raise fail(node.position, f"'{name}' counts the loop; in a map function its body cannot change it")
