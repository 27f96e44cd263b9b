"""Which names of a declaration stand for something at module scope: the nodes, found without a check."""

from __future__ import annotations

from .syntax import (
    Alias,
    Assign,
    Attribute,
    Binary,
    Block,
    Call,
    CallStatement,
    Constant,
    ConstAssert,
    Declaration,
    Expression,
    For,
    Function,
    GlobalVariable,
    If,
    Index,
    LocalDeclaration,
    Loop,
    Member,
    Name,
    Override,
    Return,
    Statement,
    StructDeclaration,
    Switch,
    TypeName,
    Unary,
    While,
)

__all__ = ["module_references"]

_Scopes = tuple[set[str], ...]
Reference = Name | TypeName


def module_references(one: Declaration) -> list[Reference]:
    """Every `Name` and `TypeName` in it that is not a local: module names, and WGSL's own types and functions.

    The nodes are those of the tree, so that a caller may rename them.
    """
    found: list[Reference] = []
    match one:
        case StructDeclaration(fields=fields):
            for field in fields:
                _type(field.type_name, (), found)
        case Alias(type_name=type_name):
            _type(type_name, (), found)
        case Constant() | Override() | GlobalVariable():
            _type(one.type_name, (), found)
            _expression(one.value, (), found)
            if isinstance(one, GlobalVariable):
                _attributes(one.attributes, found)
        case ConstAssert(condition=condition):
            _expression(condition, (), found)
        case Function():
            _function(one, found)
    return found


# Each adds what it finds to a list. Generators in their place would pass every node on through all levels of the tree.


def _attributes(attributes: list[Attribute], found: list[Reference]) -> None:
    for attribute in attributes:
        if attribute.name != "builtin":
            for argument in attribute.arguments:
                _expression(argument, (), found)


def _function(one: Function, found: list[Reference]) -> None:
    _attributes(one.attributes, found)
    for parameter in one.parameters:
        _type(parameter.type_name, (), found)
    _type(one.return_type_name, (), found)
    _statements(one.body.statements, ({parameter.name for parameter in one.parameters},), found)


def _type(name: TypeName | None, scopes: _Scopes, found: list[Reference]) -> None:
    if name is None:
        return
    for scope in scopes:
        if name.name in scope:
            break
    else:
        found.append(name)
    for argument in name.arguments:
        if isinstance(argument, TypeName):
            _type(argument, scopes, found)
        else:
            _expression(argument, scopes, found)


def _expression(node: Expression | None, scopes: _Scopes, found: list[Reference]) -> None:
    match node:
        case Name(name=name):
            for scope in scopes:
                if name in scope:
                    break
            else:
                found.append(node)
        case Unary(operand=operand):
            _expression(operand, scopes, found)
        case Binary(left=left, right=right):
            _expression(left, scopes, found)
            _expression(right, scopes, found)
        case Call(callee=callee, arguments=arguments):
            _type(callee, scopes, found)
            for argument in arguments:
                _expression(argument, scopes, found)
        case Index(base=base, index=index):
            _expression(base, scopes, found)
            _expression(index, scopes, found)
        case Member(base=base):
            _expression(base, scopes, found)


def _block(block: Block | None, scopes: _Scopes, found: list[Reference]) -> None:
    if block is not None:
        _statements(block.statements, (*scopes, set()), found)


def _statements(statements: list[Statement], scopes: _Scopes, found: list[Reference]) -> None:
    for statement in statements:
        _statement(statement, scopes, found)


def _statement(one: Statement | None, scopes: _Scopes, found: list[Reference]) -> None:
    match one:
        case LocalDeclaration(name=name, type_name=type_name, value=value):
            _type(type_name, scopes, found)
            _expression(value, scopes, found)
            scopes[-1].add(name)
        case Assign(target=target, value=value):
            _expression(target, scopes, found)
            _expression(value, scopes, found)
        case CallStatement(call=call):
            _expression(call, scopes, found)
        case Return(value=value):
            _expression(value, scopes, found)
        case ConstAssert(condition=condition):
            _expression(condition, scopes, found)
        case Block():
            _block(one, scopes, found)
        case If(condition=condition, then=then, otherwise=otherwise):
            _expression(condition, scopes, found)
            _block(then, scopes, found)
            _block(otherwise, scopes, found)
        case For(initial=initial, condition=condition, update=update, body=body):
            inner = (*scopes, set[str]())
            _statement(initial, inner, found)
            _expression(condition, inner, found)
            _statement(update, inner, found)
            _block(body, inner, found)
        case While(condition=condition, body=body):
            _expression(condition, scopes, found)
            _block(body, scopes, found)
        case Loop(body=body, continuing=continuing, break_if=break_if):
            inner = (*scopes, set[str]())
            _statements(body.statements, inner, found)
            inner = (*inner, set[str]())
            if continuing is not None:
                _statements(continuing.statements, inner, found)
            _expression(break_if, inner, found)
        case Switch(selector=selector, cases=cases):
            _expression(selector, scopes, found)
            for case in cases:
                for node in case.selectors:
                    _expression(node, scopes, found)
                _block(case.body, scopes, found)
