"""Prints map functions as Python that computes on arrays, by the tables in `python_dialects`.

The printed functions take NumPy arrays or NumPy scalars for each scalar parameter, freely mixed and
broadcast, of exactly the type in the WGSL (`np.float32`, `np.int32`, `np.uint32`, `np.bool_`), and named
tuples for structs. Results may be arrays of no dimension where all inputs are scalars, and have the shape of
the inputs on which they depend. Both sides of every branch are evaluated, so meaningless divisions by zero
and the like occur: call the functions under ``np.errstate(all="ignore")``, once for many calls, to have no
warnings. Arguments are never written to, but may be returned unchanged.
"""

from __future__ import annotations

import keyword
import linecache
import re
import struct
from dataclasses import replace
from functools import cache
from typing import Any

from ..errors import UnsupportedError
from .python_dialects import ATOM, NUMPY, Dialect
from .straight import Straight, type_of
from .straighten import straighten
from .syntax import Binary, Call, Expression, Function, Literal, Module, Name, StructDeclaration, TypeName, Unary
from .types import Scalar, Struct, Type

__all__ = ["compile_python", "print_python", "python_name"]

_KEPT = ("np", "jnp", "lax", "njit", "prange", "NamedTuple")


def print_python(module: Module, dialect: Dialect = NUMPY, functions: list[str] | None = None) -> str:
    """Return the Python text of map functions, in the order of the source; the same input gives the same text.

    Args:
        module: checked and linked.
        dialect: the table of operators and built-ins to print by.
        functions: the names of functions to print, with those they call; None for all but entry points.

    Raises:
        ShaderError: one of them is not a map function.
        UnsupportedError: the dialect lacks a built-in that they use.
    """
    of_library = {
        declared.name
        for declared in module.declarations
        if isinstance(declared, Function) and declared.position.file.startswith("shaders/lib/")
    }
    library = {name: function for name, function in dialect.library.items() if name in of_library}
    straight = straighten(module, functions, library, dialect.inline_size)
    return _Printer(module, replace(dialect, library=library), straight).text()


def compile_python(source: str, name: str) -> dict[str, Any]:
    """Run printed text and return its namespace: each function and struct under its name.

    Tracebacks contain `name`, and show the lines of the text.
    """
    file = f"<optirs_web {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": f"optirs_web.generated.{name}"}
    exec(compile(source, file, "exec"), namespace)
    return namespace


@cache
def python_name(name: str) -> str:
    """Return the Python name for a WGSL name, changed if it is a keyword or begins with an underscore."""
    plain = f"{name.lstrip('_')}_" if name.startswith("_") else name
    plain = re.sub(r"\W", lambda match: f"_u{ord(match[0]):x}_", plain, flags=re.ASCII)
    kept = keyword.iskeyword(plain) or keyword.issoftkeyword(plain) or plain in _KEPT
    return f"{plain}_" if kept else plain


class _Operand:
    """The text of an operand; the format ``{:5}`` adds parentheses unless its level is at least 5."""

    def __init__(self, text: str, level: int) -> None:
        self.text = text
        self.level = level

    def __format__(self, spec: str) -> str:
        return f"({self.text})" if spec and self.level < int(spec) else self.text


class _Printer:
    def __init__(self, module: Module, dialect: Dialect, straights: dict[str, Straight]) -> None:
        self.file = module.file
        self.dialect = dialect
        self.straights = straights
        self.structs = _structs(module, straights)
        self.constants: dict[tuple[str, str], str] = {}
        self.locals: dict[str, str] = {}

    def text(self) -> str:
        self.distinct([*self.straights, *self.structs])
        functions = [self.function(straight) for straight in self.straights.values()]
        structs = [self.struct(struct_) for struct_ in self.structs.values()]
        constants = [
            f"{name} = {self.dialect.scalars[type_]}({number})"
            for (type_, number), name in sorted(self.constants.items(), key=lambda item: item[1])
        ]
        head = f"# {self.file} for {self.dialect.name}, printed by optirs_web. {self.dialect.header}"
        if constants:
            head += "\n" + "\n".join(constants) + "\n"
        helpers = self.helpers("".join(functions))
        return head + "".join(f"\n\n{part}" for part in (*structs, *helpers, *functions))

    def distinct(self, names: list[str]) -> None:
        """Refuse different names that have the same `python_name`: ``_x`` and ``x_``."""
        taken: dict[str, str] = {}
        for name in names:
            other = taken.setdefault(python_name(name), name)
            if other != name:
                raise UnsupportedError(f"{self.file}: '{other}' and '{name}' are one name in Python; rename one")

    def helpers(self, text: str) -> list[str]:
        """Return the helper functions that the text uses, directly or through others, in the order of the table."""
        needed: set[str] = set()
        work = [text]
        while work:
            words = set(re.findall(r"\b_\w+", work.pop()))
            fresh = (words & self.dialect.helpers.keys()) - needed
            needed |= fresh
            work.extend(self.dialect.helpers[name] for name in fresh)
        return [body.lstrip("\n") for name, body in self.dialect.helpers.items() if name in needed]

    def struct(self, struct_: Struct) -> str:
        self.distinct([member.name for member in struct_.members])
        fields = []
        for member in struct_.members:
            type_ = member.type
            kind = self.dialect.scalars[type_.name] if isinstance(type_, Scalar) else python_name(str(type_))
            fields.append(f"    {python_name(member.name)}: {kind}\n")
        return f"class {python_name(struct_.name)}(NamedTuple):\n" + "".join(fields)

    def function(self, straight: Straight) -> str:
        taken = {python_name(name) for name in (*self.straights, *self.structs)}
        self.locals = {}
        for name in (*(name for name, _ in straight.parameters), *(name for name, _ in straight.assignments)):
            word = python_name(name)
            while word in taken:
                word += "_"
            taken.add(word)
            self.locals[name] = word
        parameters = ", ".join(self.locals[name] for name, _ in straight.parameters)
        lines = [f"{self.dialect.decorator}def {python_name(straight.name)}({parameters}):  # {straight.position}\n"]
        for name, value in straight.assignments:
            lines.append(f"    {self.locals[name]} = {self.expression(value).text}\n")
        lines.append(f"    return {self.expression(straight.result).text}\n")
        return "".join(lines)

    def expression(self, expression: Expression) -> _Operand:
        match expression:
            case Literal():
                return _Operand(self.constant(expression), ATOM)
            case Name(name=name):
                root, *members = name.split(".")
                return _Operand(".".join([self.locals[root], *map(python_name, members)]), ATOM)
            case Unary(operator=sign, operand=operand):
                return self.row("negate" if sign == "-" else sign, expression, [operand])
            case Binary(operator=sign, left=left, right=right):
                return self.row(sign, expression, [left, right])
            case Call(callee=TypeName(name=name), kind=kind, arguments=arguments):
                if kind == "function" or isinstance(expression.type, Struct):
                    callee = self.dialect.library.get(name) if kind == "function" else None
                    if callee == "":
                        return self.expression(arguments[0])
                    values = ", ".join(self.expression(argument).text for argument in arguments)
                    return _Operand(f"{callee or python_name(name)}({values})", ATOM)
                if kind == "construct":
                    name = str(type_of(expression))
                elif name == "bitcast":
                    name = f"bitcast {type_of(expression)}"
                return self.row(name, expression, arguments)
        raise AssertionError(f"{expression.position}: not an expression of the straight-line form")

    def row(self, key: str, expression: Expression, operands: list[Expression]) -> _Operand:
        """Return the template of an operator or built-in with these operands."""
        rows, last = self.dialect.rows, operands[-1]
        if isinstance(last, Literal) and f"{key} literal" in rows:
            template, level = rows[f"{key} literal"]
            amount = _Operand(str(int(last.value) & 31), ATOM)
            return _Operand(template.format(self.expression(operands[0]), amount), level)
        typed = f"{key} {type_of(operands[0])}"
        if typed not in rows and key not in rows:
            position = f"{expression.position}: '{typed}'"
            raise UnsupportedError(f"{position} is not available in {self.dialect.name}")
        template, level = rows[typed] if typed in rows else rows[key]
        return _Operand(template.format(*map(self.expression, operands)), level)

    def constant(self, literal: Literal) -> str:
        """Return the name of the module-level constant for a literal."""
        type_ = str(type_of(literal))
        number = _short_f32(float(literal.value)) if type_ == "f32" else repr(literal.value)
        words = re.sub(r"\W", "_", number.replace("-", "m").replace("+", ""))
        return self.constants.setdefault((type_, number), f"_{type_[0]}_{words}")


def _structs(module: Module, straights: dict[str, Straight]) -> dict[str, Struct]:
    """Return the structs of parameters and results, in the order of the source, each after those of its members."""
    needed: dict[str, Struct] = {}

    def add(type_: Type | None, structs: dict[str, Struct]) -> None:
        if isinstance(type_, Struct):
            for member in type_.members:
                add(member.type, structs)
            structs.setdefault(type_.name, type_)

    for straight in straights.values():
        for type_ in (type_of(straight.result), *(type_ for _, type_ in straight.parameters)):
            add(type_, needed)
    ordered: dict[str, Struct] = {}
    for declaration in module.declarations:
        if isinstance(declaration, StructDeclaration) and declaration.name in needed:
            add(declaration.type, ordered)
    return ordered


def _short_f32(value: float) -> str:
    """Return the shortest decimal that rounds to this f32, as in ``0.1``."""
    bits = struct.pack("<f", value)
    for digits in range(1, 10):
        text = repr(float(f"{value:.{digits}g}"))
        try:
            if struct.pack("<f", float(text)) == bits:
                return text
        except OverflowError:
            continue
    return repr(value)
