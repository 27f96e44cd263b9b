"""The tree to WGSL text that every tool reads the same way.

Parentheses are the fewest that WGSL's grammar takes. A number is printed with as many digits as give its type's value
back. The extension `subgroups` is written for the host that asks for it and left out for the one that refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal as OneOf

from .builtins import needs_subgroups
from .numeric import round_f32
from .precedence import CLASSES, IN_TEMPLATES, OPERANDS, UNARY
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

__all__ = ["print_expression", "print_wgsl"]

_WIDTH = 110
_INDENT = "    "
_FIRST_HEXADECIMAL = 2**24  # u32 from here on are rather bits than counts
_LARGEST_F32 = 3.4028234663852886e38
_SMALLEST_NORMAL_F32 = 1.1754943508222875e-38

_ONE_LINERS = (Constant, Override, Alias, GlobalVariable, Import, ConstAssert)


def print_wgsl(module: Module, host: OneOf["naga", "tint"] = "naga") -> str:
    """The module as WGSL.

    Args:
        module: parsed, or better linked: only then are all its numbers of the type their place asks for.
        host: "naga" for wgpu and Firefox, "tint" for Chromium; they differ in how extensions are enabled.
    """
    lines = [f"enable {name};" for name in _extensions(module, host)]
    before: Declaration | None = None
    for one in module.declarations:
        is_together = isinstance(one, _ONE_LINERS) and type(one) is type(before)
        if lines and not is_together:
            lines.append("")
        lines += _DECLARATIONS[type(one)](one)
        before = one
    return "\n".join(lines) + "\n"


def _extensions(module: Module, host: str) -> list[str]:
    found: set[str] = set()
    for node in walk(module.declarations):
        if isinstance(node, TypeName) and node.name in MATRIX_TYPES:
            found.add(MATRIX_EXTENSION)
        if (
            isinstance(node, TypeName) and (node.name == "f16" or (node.name[:3] == "vec" and node.name[-1] == "h"))
        ) or (isinstance(node, Literal) and (node.suffix == "h" or node.type == F16)):
            found.add("f16")
        elif (isinstance(node, Call) and node.kind != "function" and needs_subgroups(node.callee.name)) or (
            isinstance(node, Attribute) and node.name == "builtin" and needs_subgroups(_builtin_name(node))
        ):
            found.add("subgroups")
    if host == "naga":
        if MATRIX_EXTENSION in found:
            from .subgroup_matrices import refuse_subgroup_matrices

            refuse_subgroup_matrices(module, "wgpu and Firefox")
        found.discard("subgroups")
    return sorted(found)


def _builtin_name(attribute: Attribute) -> str:
    name = attribute.arguments[0]
    return name.name if isinstance(name, Name) else ""


# Declarations: each gives its lines.


def _struct(one: StructDeclaration) -> list[str]:
    members = [f"{_INDENT}{field.name}: {_type(field.type_name)}," for field in one.fields]
    return [f"struct {one.name} {{", *members, "}"]


def _function(one: Function) -> list[str]:
    parameters = [
        f"{_attributes(parameter.attributes)}{parameter.name}: {_type(parameter.type_name)}"
        for parameter in one.parameters
    ]
    result = "" if one.return_type_name is None else f" -> {_type(one.return_type_name)}"
    attributes = [_attributes(one.attributes).rstrip()] if one.attributes else []
    head = [f"fn {one.name}({', '.join(parameters)}){result}"]
    if len(head[0]) + 2 > _WIDTH:
        head = [f"fn {one.name}(", *(f"{_INDENT}{parameter}," for parameter in parameters), f"){result}"]
    return [*attributes, *head[:-1], *_braced(head[-1], one.body)]


def _global_variable(one: GlobalVariable) -> list[str]:
    access = ", read_write" if one.space == "storage" and one.access == "read_write" else ""
    access = ", read" if one.space == "storage" and one.access == "read" else access
    value = "" if one.value is None else f" = {print_expression(one.value)}"
    return [f"{_attributes(one.attributes)}var<{one.space}{access}> {one.name}: {_type(one.type_name)}{value};"]


def _constant(one: Constant | Override) -> list[str]:
    keyword = "const" if isinstance(one, Constant) else "override"
    return [f"{keyword} {one.name}{_annotation(one.type_name)}{_initial(one.value)};"]


def _alias(one: Alias) -> list[str]:
    return [f"alias {one.name} = {_type(one.type_name)};"]


def _import(one: Import) -> list[str]:
    flag, is_wanted = one.conditions[-1] if one.conditions else ("", True)
    keyword = "if" if len(one.conditions) == 1 else "elif"
    condition = f"@{keyword}({flag}) " if flag and is_wanted else "@else " if flag else ""
    return [f"{condition}import {'::'.join(('package', *one.path))}::{{{', '.join(one.names)}}};"]


def _const_assert(one: ConstAssert) -> list[str]:
    return [f"const_assert {print_expression(one.condition)};"]


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
        f"@{one.name}({', '.join(map(print_expression, one.arguments))}) " if one.arguments else f"@{one.name} "
        for one in attributes
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


# Statements: each gives its lines, not indented.


def _body(block: Block) -> list[str]:
    return [f"{_INDENT}{line}" for statement in block.statements for line in _statement(statement)]


def _braced(head: str, block: Block) -> list[str]:
    """A block after its head."""
    body = _body(block)
    return [f"{head} {{", *body, "}"] if body else [f"{head} {{}}"]


def _statement(one: Statement) -> list[str]:
    return _STATEMENTS[type(one)](one)


def _simple(one: Statement) -> list[str]:
    return [f"{_head(one)};"]


def _head(one: Statement) -> str:
    """A statement that may stand in the head of a `for`, without its semicolon."""
    match one:
        case LocalDeclaration(keyword=keyword, name=name, type_name=type_name, value=value):
            return f"{keyword} {name}{_annotation(type_name)}{_initial(value)}"
        case Assign(target=None, value=value):
            return f"_ = {print_expression(value)}"
        case Assign(target=target, operator=operator, value=value) if target is not None:
            if operator in ("+", "-") and _is_one(value):
                return f"{print_expression(target)}{operator * 2}"
            return f"{print_expression(target)} {operator}= {print_expression(value)}"
        case CallStatement(call=call):
            return print_expression(call)
    raise AssertionError(type(one))


def _is_one(node: Expression) -> bool:
    """Whether it is the 1 of ``i++``; of floats there is no ``++``."""
    return isinstance(node, Literal) and node.value == 1 and node.type in (I32, U32) and not node.suffix


def _block(one: Block) -> list[str]:
    return ["{", *_body(one), "}"] if one.statements else ["{}"]


def _if(one: If) -> list[str]:
    lines = [f"if {print_expression(one.condition)} {{", *_body(one.then)]
    otherwise = one.otherwise
    if otherwise is None:
        return [*lines, "}"]
    if len(otherwise.statements) == 1 and isinstance(otherwise.statements[0], If):
        first, *rest = _if(otherwise.statements[0])
        return [*lines, f"}} else {first}", *rest]
    return [*lines, "} else {", *_body(otherwise), "}"]


def _for(one: For) -> list[str]:
    initial = "" if one.initial is None else _head(one.initial)
    condition = "" if one.condition is None else f" {print_expression(one.condition)}"
    update = "" if one.update is None else f" {_head(one.update)}"
    before = "" if one.unrolled is None else f"@unroll({print_expression(one.unrolled)}) "
    return _braced(f"{before}for ({initial};{condition};{update})", one.body)


def _while(one: While) -> list[str]:
    return _braced(f"while {print_expression(one.condition)}", one.body)


def _loop(one: Loop) -> list[str]:
    lines = ["loop {", *_body(one.body)]
    if one.continuing is not None:
        lines += [f"{_INDENT}continuing {{", *(f"{_INDENT}{line}" for line in _body(one.continuing))]
        if one.break_if is not None:
            lines.append(f"{_INDENT * 2}break if {print_expression(one.break_if)};")
        lines.append(f"{_INDENT}}}")
    return [*lines, "}"]


def _switch(one: Switch) -> list[str]:
    lines = [f"switch {print_expression(one.selector)} {{"]
    for case in one.cases:
        names = [*map(print_expression, case.selectors), *(["default"] if case.is_default else [])]
        head = "default" if names == ["default"] else f"case {', '.join(names)}"
        lines += [f"{_INDENT}{line}" for line in _braced(f"{head}:", case.body)]
    return [*lines, "}"]


def _return(one: Return) -> list[str]:
    return ["return;" if one.value is None else f"return {print_expression(one.value)};"]


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
    Break: lambda one: ["break;"],
    Continue: lambda one: ["continue;"],
    ConstAssert: _const_assert,
}


# Expressions.


def print_expression(node: Expression) -> str:
    """One expression."""
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
    """What `.` or `[` follows."""
    text = print_expression(node)
    is_primary = isinstance(node, Name | Call | Index | Member)
    return text if is_primary else f"({text})"


def _arguments(arguments: list[Expression]) -> str:
    """In a list, `a < b, c > (d)` would be a template; so a comparison by `<` is held in parentheses."""
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
    """The fewest digits that give the value back; all that a double has where tools are known to differ."""
    text = repr(value)
    if is_single and _SMALLEST_NORMAL_F32 <= value < _LARGEST_F32:
        for digits in range(1, 10):
            short = f"{value:.{digits}g}"
            if round_f32(float(short)) == value:
                text = repr(float(short))
                break
    return text if "." in text or "e" in text else f"{text}.0"
