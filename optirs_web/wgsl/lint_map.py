"""The lint for map functions, which run on array targets too: there every branch is a choice between two values."""

from __future__ import annotations

from .builtins import meets_others
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
    """Whether it holds pure functions only: no entry point, no variable."""
    return not any(
        isinstance(one, GlobalVariable) or (isinstance(one, Function) and one.attributes) for one in module.declarations
    )


def check_map_module(module: Module) -> None:
    """Refuse what a map function may not use."""
    constants = {one.name for one in module.declarations if isinstance(one, Constant)}
    for one in module.declarations:
        match one:
            case StructDeclaration(type=type_):
                _check_type(type_, one.position)
            case Function():
                _check_function(one, constants)


def _check_type(type_: Type | None, position: Position) -> None:
    match type_:
        case Vector() | Array() | Atomic() | SubgroupMatrix():
            raise fail(position, f"map functions compute with scalars and structs of scalars, not with {type_}")
        case Scalar(name="f16"):
            raise fail(position, "map functions compute in f32; f16 is for storage")
        case Struct(members=members):
            for member in members:
                _check_type(member.type, position)


def _check_function(one: Function, constants: set[str]) -> None:
    if one.return_type is None:
        raise fail(one.position, f"'{one.name}' returns nothing; a map function has a result and no other effect")
    for parameter in one.parameters:
        _check_type(parameter.type, parameter.position)
    _check_type(one.return_type, one.position)
    locals_ = {parameter.name for parameter in one.parameters}
    for node in walk(one.body):
        match node:
            case LocalDeclaration(keyword="const"):
                constants = constants | {node.name}
            case LocalDeclaration(type=type_):
                locals_.add(node.name)
                _check_type(type_, node.position)
            case Call(type=type_):
                if meets_others(node.callee.name):
                    raise fail(node.position, f"'{node.callee.name}': a map function cannot meet other invocations")
                _check_type(type_, node.position)
            case While() | Loop():
                raise fail(node.position, _COUNTED)
            case For():
                _check_loop(node, constants - locals_)


def _check_loop(one: For, constants: set[str]) -> None:
    """``for (var i = A; i < B; i++)`` with constants A and B, where nothing else changes i."""
    match one.initial, one.condition, one.update:
        case (
            LocalDeclaration(keyword="var", name=name, value=first),
            Binary(operator="<" | "<=" | ">" | ">=" | "!=", left=Name(name=compared), right=last),
            Assign(target=Name(name=counted), operator="+" | "-", value=step),
        ) if first is not None and name == compared == counted:
            bounds = (first, last, step)
        case _:
            raise fail(one.position, _COUNTED)
    for bound in bounds:
        for node in walk(bound):
            if isinstance(node, Name) and node.name not in constants:
                raise fail(node.position, f"'{node.name}' is not constant, but bounds a loop of a map function; "
                           "let a constant bound the loop and break where it is done")  # fmt: skip
            if isinstance(node, Call) and node.kind == "function":
                raise fail(node.position, "a function's result is not constant, but bounds a loop of a map function")
    for node in walk(one.body):
        if isinstance(node, Assign) and isinstance(node.target, Name) and node.target.name == name:
            raise fail(node.position, f"'{name}' counts the loop; in a map function its body cannot change it")
