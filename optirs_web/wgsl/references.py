"""Which names of a declaration stand for something at module scope: the nodes, found without a check."""

from __future__ import annotations

from collections.abc import Iterator

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
    Import,
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


def module_references(one: Declaration) -> Iterator[Reference]:
    """Every `Name` and `TypeName` in it that is not a local: module names, and WGSL's own types and functions.

    The nodes are those of the tree, so that a caller may rename them.
    """
    match one:
        case StructDeclaration(fields=fields):
            for field in fields:
                yield from _type(field.type_name, ())
        case Alias(type_name=type_name):
            yield from _type(type_name, ())
        case Constant() | Override() | GlobalVariable():
            yield from _type(one.type_name, ())
            yield from _expression(one.value, ())
            if isinstance(one, GlobalVariable):
                yield from _attributes(one.attributes)
        case ConstAssert(condition=condition):
            yield from _expression(condition, ())
        case Function():
            yield from _function(one)
        case Import():
            return


def _attributes(attributes: list[Attribute]) -> Iterator[Reference]:
    for attribute in attributes:
        if attribute.name != "builtin":
            for argument in attribute.arguments:
                yield from _expression(argument, ())


def _function(one: Function) -> Iterator[Reference]:
    yield from _attributes(one.attributes)
    for parameter in one.parameters:
        yield from _type(parameter.type_name, ())
    yield from _type(one.return_type_name, ())
    yield from _statements(one.body.statements, ({parameter.name for parameter in one.parameters},))


def _type(name: TypeName | None, scopes: _Scopes) -> Iterator[Reference]:
    if name is None:
        return
    if not any(name.name in scope for scope in scopes):
        yield name
    for argument in name.arguments:
        yield from _type(argument, scopes) if isinstance(argument, TypeName) else _expression(argument, scopes)


def _expression(node: Expression | None, scopes: _Scopes) -> Iterator[Reference]:
    match node:
        case Name(name=name):
            if not any(name in scope for scope in scopes):
                yield node
        case Unary(operand=operand):
            yield from _expression(operand, scopes)
        case Binary(left=left, right=right):
            yield from _expression(left, scopes)
            yield from _expression(right, scopes)
        case Call(callee=callee, arguments=arguments):
            yield from _type(callee, scopes)
            for argument in arguments:
                yield from _expression(argument, scopes)
        case Index(base=base, index=index):
            yield from _expression(base, scopes)
            yield from _expression(index, scopes)
        case Member(base=base):
            yield from _expression(base, scopes)


def _block(block: Block | None, scopes: _Scopes) -> Iterator[Reference]:
    if block is not None:
        yield from _statements(block.statements, (*scopes, set()))


def _statements(statements: list[Statement], scopes: _Scopes) -> Iterator[Reference]:
    for statement in statements:
        yield from _statement(statement, scopes)


def _statement(one: Statement | None, scopes: _Scopes) -> Iterator[Reference]:
    match one:
        case LocalDeclaration(name=name, type_name=type_name, value=value):
            yield from _type(type_name, scopes)
            yield from _expression(value, scopes)
            scopes[-1].add(name)
        case Assign(target=target, value=value):
            yield from _expression(target, scopes)
            yield from _expression(value, scopes)
        case CallStatement(call=call):
            yield from _expression(call, scopes)
        case Return(value=value):
            yield from _expression(value, scopes)
        case ConstAssert(condition=condition):
            yield from _expression(condition, scopes)
        case Block():
            yield from _block(one, scopes)
        case If(condition=condition, then=then, otherwise=otherwise):
            yield from _expression(condition, scopes)
            yield from _block(then, scopes)
            yield from _block(otherwise, scopes)
        case For(initial=initial, condition=condition, update=update, body=body):
            inner = (*scopes, set[str]())
            yield from _statement(initial, inner)
            yield from _expression(condition, inner)
            yield from _statement(update, inner)
            yield from _block(body, inner)
        case While(condition=condition, body=body):
            yield from _expression(condition, scopes)
            yield from _block(body, scopes)
        case Loop(body=body, continuing=continuing, break_if=break_if):
            inner = (*scopes, set[str]())
            yield from _statements(body.statements, inner)
            inner = (*inner, set[str]())
            if continuing is not None:
                yield from _statements(continuing.statements, inner)
            yield from _expression(break_if, inner)
        case Switch(selector=selector, cases=cases):
            yield from _expression(selector, scopes)
            for case in cases:
                for node in case.selectors:
                    yield from _expression(node, scopes)
                yield from _block(case.body, scopes)
