"""Prints the tree as WGSL text that every tool reads the same way.

Parentheses are printed only where WGSL's grammar needs them, and numbers with the fewest digits that give back their
value. The extension `subgroups` is enabled for hosts that require it and left out for those that refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal as OneOf

from .builtins import needs_subgroups
from .numeric import round_f32
from .precedence import CLASSES, IN_TEMPLATES, OPERANDS, UNARY
from .scopes import fail
from .syntax import (
    Alias,
    Assign,
    Attribute,
    Binary,
    Block,
    Break,
    Call,
    CallStatement,
    Constant,
    ConstAssert,
    Continue,
    Declaration,
    Expression,
    For,
    Function,
    GlobalVariable,
    If,
    Import,
    Index,
    Literal,
    LocalDeclaration,
    Loop,
    Member,
    Module,
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
from .tree import walk
from .types import F16, F32, I32, U32
from .vocabulary import MATRIX_EXTENSION, MATRIX_TYPES

__all__ = ["print_expression", "print_wgsl", "refuse_subgroup_matrices"]

_WIDTH = 110
_INDENT = "    "
_FIRST_HEXADECIMAL = 2**24  # larger u32 are bit patterns rather than counts
_LARGEST_F32 = 3.4028234663852886e38
_SMALLEST_NORMAL_F32 = 1.1754943508222875e-38

_ONE_LINERS = (Constant, Override, Alias, GlobalVariable, Import, ConstAssert)


def print_wgsl(module: Module, host: OneOf["naga", "tint"] = "naga") -> str:
    """Return a module as WGSL.

    Args:
        module: parsed, or better linked: only then do all its numbers have the type that their context requires.
        host: "naga" for wgpu and Firefox, "tint" for Chromium; they differ in how extensions are enabled.
    """
    lines = [f"enable {name};" for name in _extensions(module, host)]
    before: Declaration | None = None
    for declaration in module.declarations:
        is_together = isinstance(declaration, _ONE_LINERS) and type(declaration) is type(before)
        if lines and not is_together:
            lines.append("")
        lines += _DECLARATIONS[type(declaration)](declaration)
        before = declaration
    return "\n".join(lines) + "\n"


def _extensions(module: Module, host: str) -> list[str]:
    extensions: set[str] = set()
    for node in walk(module.declarations):
        if isinstance(node, TypeName) and node.name in MATRIX_TYPES:
            extensions.add(MATRIX_EXTENSION)
        if (
            isinstance(node, TypeName) and (node.name == "f16" or (node.name[:3] == "vec" and node.name[-1] == "h"))
        ) or (isinstance(node, Literal) and (node.suffix == "h" or node.type == F16)):
            extensions.add("f16")
        elif (isinstance(node, Call) and node.kind != "function" and needs_subgroups(node.callee.name)) or (
            isinstance(node, Attribute) and node.name == "builtin" and needs_subgroups(_builtin_name(node))
        ):
            extensions.add("subgroups")
    if host == "naga":
        if MATRIX_EXTENSION in extensions:
            refuse_subgroup_matrices(module, "wgpu and Firefox")
        extensions.discard("subgroups")
    return sorted(extensions)


def refuse_subgroup_matrices(module: Module, target: str) -> None:
    """Raise ShaderError if the module has subgroup matrices, which the target lacks."""
    for node in walk(module.declarations):
        if isinstance(node, TypeName) and node.name in MATRIX_TYPES:
            raise fail(
                node.position,
                f"{target} have no subgroup matrices; only Chromium and Dawn do, behind an experimental feature",
            )


def _builtin_name(attribute: Attribute) -> str:
    name = attribute.arguments[0]
    return name.name if isinstance(name, Name) else ""


# Declarations: each function returns lines.


def _struct(declaration: StructDeclaration) -> list[str]:
    members = [f"{_INDENT}{field.name}: {_type(field.type_name)}," for field in declaration.fields]
    return [f"struct {declaration.name} {{", *members, "}"]


def _function(declaration: Function) -> list[str]:
    parameters = [
        f"{_attributes(parameter.attributes)}{parameter.name}: {_type(parameter.type_name)}"
        for parameter in declaration.parameters
    ]
    result = "" if declaration.return_type_name is None else f" -> {_type(declaration.return_type_name)}"
    attributes = [_attributes(declaration.attributes).rstrip()] if declaration.attributes else []
    head = [f"fn {declaration.name}({', '.join(parameters)}){result}"]
    if len(head[0]) + 2 > _WIDTH:
        head = [f"fn {declaration.name}(", *(f"{_INDENT}{parameter}," for parameter in parameters), f"){result}"]
    return [*attributes, *head[:-1], *_braced(head[-1], declaration.body)]


def _global_variable(variable: GlobalVariable) -> list[str]:
    access = ", read_write" if variable.space == "storage" and variable.access == "read_write" else ""
    access = ", read" if variable.space == "storage" and variable.access == "read" else access
    value = "" if variable.value is None else f" = {print_expression(variable.value)}"
    attributes = _attributes(variable.attributes)
    return [f"{attributes}var<{variable.space}{access}> {variable.name}: {_type(variable.type_name)}{value};"]


def _constant(declaration: Constant | Override) -> list[str]:
    keyword = "const" if isinstance(declaration, Constant) else "override"
    return [f"{keyword} {declaration.name}{_annotation(declaration.type_name)}{_initial(declaration.value)};"]


def _alias(declaration: Alias) -> list[str]:
    return [f"alias {declaration.name} = {_type(declaration.type_name)};"]


def _import(declaration: Import) -> list[str]:
    flag, is_wanted = declaration.conditions[-1] if declaration.conditions else ("", True)
    keyword = "if" if len(declaration.conditions) == 1 else "elif"
    condition = f"@{keyword}({flag}) " if flag and is_wanted else "@else " if flag else ""
    return [f"{condition}import {'::'.join(('package', *declaration.path))}::{{{', '.join(declaration.names)}}};"]


def _const_assert(declaration: ConstAssert) -> list[str]:
    return [f"const_assert {print_expression(declaration.condition)};"]


_DECLARATIONS: dict[type, Callable[..., list[str]]] = {
    StructDeclaration: _struct,
    Function: _function,
    GlobalVariable: _global_variable,
    Constant: _constant,
    Override: _constant,
    Alias: _alias,
    Import: _import,
    ConstAssert: _const_assert,
}


def _attributes(attributes: list[Attribute]) -> str:
    return "".join(
        f"@{attribute.name}({', '.join(map(print_expression, attribute.arguments))}) "
        if attribute.arguments
        else f"@{attribute.name} "
        for attribute in attributes
    )


def _annotation(name: TypeName | None) -> str:
    return "" if name is None else f": {_type(name)}"


def _initial(value: Expression | None) -> str:
    return "" if value is None else f" = {print_expression(value)}"


def _type(name: TypeName) -> str:
    if not name.arguments:
        return name.name
    arguments = [
        _type(argument) if isinstance(argument, TypeName) else _operand(argument, IN_TEMPLATES)
        for argument in name.arguments
    ]
    return f"{name.name}<{', '.join(arguments)}>"


# Statements: each function returns lines without indentation.


def _body(block: Block) -> list[str]:
    return [f"{_INDENT}{line}" for statement in block.statements for line in _statement(statement)]


def _braced(head: str, block: Block) -> list[str]:
    """Return a block in braces after its head."""
    body = _body(block)
    return [f"{head} {{", *body, "}"] if body else [f"{head} {{}}"]


def _statement(statement: Statement) -> list[str]:
    return _STATEMENTS[type(statement)](statement)


def _simple(statement: Statement) -> list[str]:
    return [f"{_head(statement)};"]


def _head(statement: Statement) -> str:
    """Return a statement that is also allowed in the head of a `for`, without its semicolon."""
    match statement:
        case LocalDeclaration(keyword=keyword, name=name, type_name=type_name, value=value):
            return f"{keyword} {name}{_annotation(type_name)}{_initial(value)}"
        case Assign(target=None, value=value):
            return f"_ = {print_expression(value)}"
        case Assign(target=target, operator=operator, value=value) if target is not None:
            if operator in ("+", "-") and _is_integer_one(value):
                return f"{print_expression(target)}{operator * 2}"
            return f"{print_expression(target)} {operator}= {print_expression(value)}"
        case CallStatement(call=call):
            return print_expression(call)
    raise AssertionError(type(statement))


def _is_integer_one(node: Expression) -> bool:
    """Return True for the integer 1, which is printed as in ``i++``; floats have no ``++``."""
    return isinstance(node, Literal) and node.value == 1 and node.type in (I32, U32) and not node.suffix


def _block(statement: Block) -> list[str]:
    return ["{", *_body(statement), "}"] if statement.statements else ["{}"]


def _if(statement: If) -> list[str]:
    lines = [f"if {print_expression(statement.condition)} {{", *_body(statement.then)]
    otherwise = statement.otherwise
    if otherwise is None:
        return [*lines, "}"]
    if len(otherwise.statements) == 1 and isinstance(otherwise.statements[0], If):
        first_line, *other_lines = _if(otherwise.statements[0])
        return [*lines, f"}} else {first_line}", *other_lines]
    return [*lines, "} else {", *_body(otherwise), "}"]


def _for(statement: For) -> list[str]:
    initial = "" if statement.initial is None else _head(statement.initial)
    condition = "" if statement.condition is None else f" {print_expression(statement.condition)}"
    update = "" if statement.update is None else f" {_head(statement.update)}"
    before = "" if statement.unrolled is None else f"@unroll({print_expression(statement.unrolled)}) "
    return _braced(f"{before}for ({initial};{condition};{update})", statement.body)


def _while(statement: While) -> list[str]:
    return _braced(f"while {print_expression(statement.condition)}", statement.body)


def _loop(statement: Loop) -> list[str]:
    lines = ["loop {", *_body(statement.body)]
    if statement.continuing is not None:
        lines += [f"{_INDENT}continuing {{", *(f"{_INDENT}{line}" for line in _body(statement.continuing))]
        if statement.break_if is not None:
            lines.append(f"{_INDENT * 2}break if {print_expression(statement.break_if)};")
        lines.append(f"{_INDENT}}}")
    return [*lines, "}"]


def _switch(statement: Switch) -> list[str]:
    lines = [f"switch {print_expression(statement.selector)} {{"]
    for case in statement.cases:
        names = [*map(print_expression, case.selectors), *(["default"] if case.is_default else [])]
        head = "default" if names == ["default"] else f"case {', '.join(names)}"
        lines += [f"{_INDENT}{line}" for line in _braced(f"{head}:", case.body)]
    return [*lines, "}"]


def _return(statement: Return) -> list[str]:
    return ["return;" if statement.value is None else f"return {print_expression(statement.value)};"]


_STATEMENTS: dict[type, Callable[..., list[str]]] = {
    LocalDeclaration: _simple,
    Assign: _simple,
    CallStatement: _simple,
    Block: _block,
    If: _if,
    For: _for,
    While: _while,
    Loop: _loop,
    Switch: _switch,
    Return: _return,
    Break: lambda statement: ["break;"],
    Continue: lambda statement: ["continue;"],
    ConstAssert: _const_assert,
}


# Expressions.


def print_expression(node: Expression) -> str:
    """Return an expression as WGSL."""
    match node:
        case Literal():
            return _literal(node)
        case Name(name=name):
            return name
        case Unary(operator=operator, operand=operand):
            inner = _operand(operand, UNARY)
            # `--x` would be one token.
            return f"-({inner})" if operator == "-" and inner[0] == "-" else f"{operator}{inner}"
        case Binary(operator=operator, left=left, right=right):
            takes_left, takes_right = OPERANDS[CLASSES[operator]]
            if operator == "<":
                takes_right = takes_right - {"shift"}  # `a < b >> c` would begin the template a<b>
            return f"{_operand(left, takes_left)} {operator} {_operand(right, takes_right)}"
        case Call(callee=callee, arguments=arguments):
            return f"{_type(callee)}({_arguments(arguments)})"
        case Index(base=base, index=index):
            return f"{_base(base)}[{print_expression(index)}]"
        case Member(base=base, name=name):
            return f"{_base(base)}.{name}"


def _operand(node: Expression, takes: frozenset[str]) -> str:
    text = print_expression(node)
    kind = CLASSES[node.operator] if isinstance(node, Binary) else "unary"
    return text if kind in takes else f"({text})"


def _base(node: Expression) -> str:
    """Return an expression before `.` or `[`."""
    text = print_expression(node)
    is_primary = isinstance(node, Name | Call | Index | Member)
    return text if is_primary else f"({text})"


def _arguments(arguments: list[Expression]) -> str:
    """Return a list of arguments; a comparison by `<` gets parentheses, as `a < b, c > (d)` would be a template."""
    texts = [print_expression(argument) for argument in arguments]
    for number, argument in enumerate(arguments[:-1]):
        if isinstance(argument, Binary) and argument.operator == "<":
            texts[number] = f"({texts[number]})"
    return ", ".join(texts)


def _literal(node: Literal) -> str:
    value, suffix = node.value, node.suffix
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        is_single = suffix == "f" or node.type == F32
        sign = "-" if math.copysign(1.0, value) < 0 else ""
        return sign + _magnitude(abs(value), is_single) + ("h" if node.type == F16 else suffix)
    if suffix == "i" and value == -(2**31):
        return f"i32({value})"  # 2147483648i is no i32
    suffix = suffix or ("u" if node.type == U32 else "")
    return f"{value:#x}u" if suffix == "u" and value >= _FIRST_HEXADECIMAL else f"{value}{suffix}"


@lru_cache(maxsize=4096)
def _magnitude(value: float, is_single: bool) -> str:
    """Return the fewest digits that give the value back; all digits of a double where tools are known to differ."""
    text = repr(value)
    if is_single and _SMALLEST_NORMAL_F32 <= value < _LARGEST_F32:
        for digits in range(1, 10):
            short = f"{value:.{digits}g}"
            if round_f32(float(short)) == value:
                text = repr(float(short))
                break
    return text if "." in text or "e" in text else f"{text}.0"
