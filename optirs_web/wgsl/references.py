"""Finds the names in a declaration that refer to module scope, in a tree that need not be checked."""

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


def module_references(declaration: Declaration) -> list[Reference]:
    """Return every `Name` and `TypeName` that is not a local: module names, and WGSL's own types and functions.

    The nodes are those of the tree, so that a caller may rename them.
    """
    references: list[Reference] = []
    match declaration:
        case StructDeclaration(fields=fields):
            for field in fields:
                _expression(field.type_name, (), references)
        case Alias(type_name=type_name):
            _expression(type_name, (), references)
        case Constant() | Override() | GlobalVariable():
            _expression(declaration.type_name, (), references)
            _expression(declaration.value, (), references)
            if isinstance(declaration, GlobalVariable):
                _attributes(declaration.attributes, references)
        case ConstAssert(condition=condition):
            _expression(condition, (), references)
        case Function():
            _function(declaration, references)
    return references


# Each function appends to a list. Generators would pass every node through all levels of the tree.


def _attributes(attributes: list[Attribute], references: list[Reference]) -> None:
    for attribute in attributes:
        if attribute.name != "builtin":
            for argument in attribute.arguments:
                _expression(argument, (), references)


def _function(function: Function, references: list[Reference]) -> None:
    _attributes(function.attributes, references)
    for parameter in function.parameters:
        _expression(parameter.type_name, (), references)
    _expression(function.return_type_name, (), references)
    _statements(function.body.statements, ({parameter.name for parameter in function.parameters},), references)


def _expression(root: Expression | TypeName | None, scopes: _Scopes, references: list[Reference]) -> None:
    work: list[Expression | TypeName | None] = [root]  # a stack: a call for each node would take longer
    while work:
        match node := work.pop():
            case Name(name=name) | TypeName(name=name):
                for scope in scopes:
                    if name in scope:
                        break
                else:
                    references.append(node)
                if isinstance(node, TypeName):
                    work += reversed(node.arguments)
            case Unary(operand=operand):
                work.append(operand)
            case Binary(left=left, right=right):
                work += (right, left)
            case Call(callee=callee, arguments=arguments):
                work += reversed(arguments)
                work.append(callee)
            case Index(base=base, index=index):
                work += (index, base)
            case Member(base=base):
                work.append(base)


def _block(block: Block | None, scopes: _Scopes, references: list[Reference]) -> None:
    if block is not None:
        _statements(block.statements, (*scopes, set()), references)


def _statements(statements: list[Statement], scopes: _Scopes, references: list[Reference]) -> None:
    for statement in statements:
        _statement(statement, scopes, references)


def _statement(statement: Statement | None, scopes: _Scopes, references: list[Reference]) -> None:
    match statement:
        case LocalDeclaration(name=name, type_name=type_name, value=value):
            if type_name is not None:
                _expression(type_name, scopes, references)
            if value is not None:
                _expression(value, scopes, references)
            scopes[-1].add(name)
        case Assign(target=target, value=value):
            _expression(target, scopes, references)
            _expression(value, scopes, references)
        case CallStatement(call=call):
            _expression(call, scopes, references)
        case Return(value=value):
            _expression(value, scopes, references)
        case ConstAssert(condition=condition):
            _expression(condition, scopes, references)
        case Block():
            _block(statement, scopes, references)
        case If(condition=condition, then=then, otherwise=otherwise):
            _expression(condition, scopes, references)
            _block(then, scopes, references)
            if otherwise is not None:
                _block(otherwise, scopes, references)
        case For(initial=initial, condition=condition, update=update, body=body, unrolled=unrolled):
            _expression(unrolled, scopes, references)
            inner = (*scopes, set[str]())
            _statement(initial, inner, references)
            _expression(condition, inner, references)
            _statement(update, inner, references)
            _block(body, inner, references)
        case While(condition=condition, body=body):
            _expression(condition, scopes, references)
            _block(body, scopes, references)
        case Loop(body=body, continuing=continuing, break_if=break_if):
            inner = (*scopes, set[str]())
            _statements(body.statements, inner, references)
            inner = (*inner, set[str]())
            if continuing is not None:
                _statements(continuing.statements, inner, references)
            _expression(break_if, inner, references)
        case Switch(selector=selector, cases=cases):
            _expression(selector, scopes, references)
            for case in cases:
                for node in case.selectors:
                    _expression(node, scopes, references)
                _block(case.body, scopes, references)
