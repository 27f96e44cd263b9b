"""Prints expressions in C."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .c_dialects import ATOM, UNARY, CDialect
from .c_effects import Effects, root_of
from .c_names import Names, Types
from .c_operations import Operand, Operations
from .print_wgsl import print_expression
from .syntax import Binary, Call, Expression, GlobalVariable, Index, Literal, Member, Name, Position, Unary
from .types import BOOL, F16, F32, I32, U32, Array, Atomic, Pointer, Scalar, Struct, Type, Vector

__all__ = ["Expressions", "type_of"]

_COMPONENTS = dict(zip("rgba", "xyzw", strict=True))


def type_of(node: Expression) -> Type:
    """Return the type of a checked expression."""
    assert node.type is not None, f"{node.position}: not checked"
    return node.type


@dataclass(frozen=True)
class Variable:
    """A variable of the module: `is_pointer` unless it is passed by value, `length` if it has one."""

    name: str
    space: str
    is_pointer: bool
    length: str


class Expressions:
    """Prints expressions of one module."""

    def __init__(
        self, dialect: CDialect, names: Names, types: Types, effects: Effects, robust: bool, where: str
    ) -> None:
        self.dialect = dialect
        self.names = names
        self.types = types
        self.effects = effects
        self.robust = robust
        self.operations = Operations(dialect, types, where)
        self.variables: dict[str, Variable] = {}
        self.made: dict[int, str] = {}  # the variables that hold results of calls, by the `id` of the calls

    def declare(self, variable: GlobalVariable, length: bool) -> None:
        """Name a variable of the module, and its length if it is passed along with one."""
        name = self.names.declare(variable.name, "variable")
        text = self.names.declare(f"{variable.name}_length", "variable") if length else ""
        is_runtime = isinstance(variable.type, Array) and variable.type.count is None
        self.variables[variable.name] = Variable(
            name, variable.space, variable.space != "uniform" and not is_runtime, text
        )

    def variable(self, node: Expression) -> Variable | None:
        """Return the variable of the module that a name refers to; None if it refers to none."""
        if isinstance(node, Name) and self.names.find(node.name) is None:
            return self.variables.get(node.name)
        return None

    def text(self, node: Expression) -> str:
        """Return the text of an expression where it needs no parentheses."""
        return self.operand(node).text

    def operand(self, node: Expression) -> Operand:
        """Return the text of an expression with its precedence, as an operand of another."""
        match node:
            case Literal():
                return self.literal(node)
            case Name(name=name):
                variable = self.variable(node)
                if variable is not None and variable.is_pointer:
                    return Operand(f"*{variable.name}", UNARY)
                return Operand(self.names.find(name) or self.names.module[name])
            case Unary(operator="&", operand=inner):
                return self.address(inner)
            case Unary(operator=operator, operand=inner):
                key = "negate" if operator == "-" else operator
                return self.apply(key, [inner], type_of(node))
            case Binary(operator=operator, left=left, right=right):
                return self.binary(operator, left, right, type_of(node))
            case Index():
                return self.index(node)
            case Member():
                return self.member(node)
            case Call():
                return self.call(node)

    def literal(self, node: Literal) -> Operand:
        """Return a literal that gives the value of its type exactly."""
        value, type_ = node.value, node.type
        if isinstance(value, bool) or type_ == BOOL:
            return Operand("true" if value else "false")
        if type_ == F16:
            bits = int.from_bytes(struct.pack("<e", value), "little")
            self.types.name(F16)
            return Operand(self.dialect.half_literal.format(value=float(value), bits=bits), UNARY)
        if type_ == F32:
            text = f"{print_expression(Literal(node.position, float(value), '', F32))}f"
            return Operand(text, UNARY if text.startswith("-") else ATOM)
        if type_ == U32:
            return Operand(f"{value:#x}u" if value >= 2**24 else f"{value}u")
        assert type_ == I32, f"{node.position}: a literal of {type_}"
        if value == -(2**31):
            return Operand("(-2147483647 - 1)")
        return Operand(str(value), UNARY if value < 0 else ATOM)

    def apply(self, key: str, nodes: list[Expression], result: Type) -> Operand:
        """Return an operator or built-in with these operands."""
        last = nodes[-1] if nodes else None
        is_literal = isinstance(last, Literal) and last.value not in (0, -1)
        operands = [self.operand(node) for node in nodes]
        types = [type_of(node) for node in nodes]
        return self.operations.apply(key, types, result, operands, " literal" if is_literal else "")

    def binary(self, operator: str, left: Expression, right: Expression, result: Type) -> Operand:
        """``x + y``."""
        if operator in ("<<", ">>") and isinstance(right, Literal) and right.value == 0:
            return self.operand(left)
        return self.apply(operator, [left, right], result)

    def compound(self, operator: str, target: Expression, value: Expression) -> str:
        """Return ``target += value`` if the operator does the same in C; otherwise ""."""
        literal = " literal" if isinstance(value, Literal) and value.value not in (0, -1) else ""
        name = f"{operator} {type_of(target)}"
        rows = self.dialect.rows
        template, level = next((rows[key] for key in (f"{name}{literal}", name, operator) if key in rows), ("", 0))
        is_plain = template == f"{{0:{level}}} {operator} {{1:{level + 1}}}" and type_of(target) in (I32, U32, F32)
        return f"{self.text(target)} {operator}= {self.text(value)}" if is_plain else ""

    # Memory.

    def accessed(self, base: Expression) -> str:
        """Return the text before a member's name: a value and a dot, or a pointer and an arrow."""
        variable = self.variable(base)
        if variable is not None and variable.is_pointer and not self.types.is_own(type_of(base)):
            return f"{variable.name}->"
        return f"{self.operand(base):{ATOM}}."

    def index(self, node: Index) -> Operand:
        """``x[i]``, within bounds."""
        base = type_of(node.base)
        if isinstance(base, Vector):
            if isinstance(node.index, Literal):
                return Operand(f"{self.accessed(node.base)}{'xyzw'[int(node.index.value)]}")
            at = self.bounded(node.index, f"{base.size - 1}u")
            if self.types.is_own(base):
                return self.component(node.base, base, at)
            return Operand(f"{self.accessed(node.base)}at[{at}]")
        assert isinstance(base, Array)
        after = ".value" if self.types.has_cell(base.element) else ""
        if base.count is None:
            root = self.variables[root_of(node.base)]
            at = self.bounded(node.index, f"{root.length} - 1u", is_known=False)
            return Operand(f"{self.operand(node.base):{ATOM}}[{at}]{after}")
        return Operand(f"{self.accessed(node.base)}at[{self.bounded(node.index, f'{base.count - 1}u')}]{after}")

    def component(self, base: Expression, type_: Vector, at: str) -> Operand:
        """Return a component, by its number, of a vector type that the dialect provides, which cannot be indexed.

        In memory it is read through a pointer; a value is passed to a function.
        """
        element = self.types.name(type_.element)
        space = self.space_of(base)
        if space is not None:
            return Operand(f"(({space}{element} *)&{self.operand(base):{ATOM}})[{at}]")
        name = self.types.name(type_)
        function = f"_component_{name}"
        if function not in self.operations.functions:
            self.operations.define(function, type_.element, [name, "u32"], f"(({element} *)&a)[b]")
        return Operand(f"{function}({self.text(base)}, {at})")

    def space_of(self, node: Expression) -> str | None:
        """Return the address space of an expression in memory, as it is written before its type; None for a value."""
        while isinstance(node, Index) or (isinstance(node, Member) and isinstance(type_of(node.base), Struct)):
            node = node.base
        if not isinstance(node, Name):
            return None
        variable = self.variable(node)
        if variable is not None:
            return self.dialect.spaces.get(variable.space, "")
        return "" if self.names.find(node.name) is not None else f"{self.dialect.table} "

    def bounded(self, index: Expression, last: str, is_known: bool = True) -> str:
        """Return an index limited to `last`; `is_known`: the checker has verified literals."""
        if isinstance(index, Literal) and (is_known or index.value == 0):
            return f"{index.value}"
        if not self.robust:
            return self.text(index)
        at = self.operand(index)
        if type_of(index) != U32:
            at = self.operations.scalar("u32", [I32], U32, [at])
        return f"min({at}, {last})"

    def member(self, node: Member) -> Operand:
        """``x.name``."""
        base = type_of(node.base)
        if isinstance(base, Struct):
            return Operand(f"{self.accessed(node.base)}{self.types.member(base, node.name)}")
        assert isinstance(base, Vector)
        letters = "".join(_COMPONENTS.get(letter, letter) for letter in node.name)
        if len(letters) == 1:
            return Operand(f"{self.accessed(node.base)}{letters}")
        return self.operations.swizzle(base, letters, self.operand(node.base))

    def address(self, node: Expression) -> Operand:
        """``&x``."""
        variable = self.variable(node)
        if variable is not None:
            return Operand(variable.name)
        return Operand(f"&{self.operand(node):{ATOM}}", UNARY)

    # Calls.

    def call(self, node: Call) -> Operand:
        """Return the call of a function or built-in, or the construction of a value."""
        if id(node) in self.made:
            return Operand(self.made[id(node)])
        if node.kind == "construct":
            return self.construct(node, type_of(node), node.arguments)
        if node.kind == "function":
            arguments = [self.text(argument) for argument in node.arguments]
            arguments += self.extra(node.callee.name)
            return Operand(f"{self.names.module[node.callee.name]}({', '.join(arguments)})")
        return self.builtin(node.callee.name, node)

    def extra(self, function: str) -> list[str]:
        """Return the arguments for the module's variables that a function needs: pointers, each before its length."""
        arguments = []
        for name in self.effects.needs(function):
            variable = self.variables[name]
            arguments += [variable.name, variable.length] if variable.length else [variable.name]
        return arguments

    def construct(self, node: Call, type_: Type, arguments: list[Expression]) -> Operand:
        """``f32(i)``, ``vec3(a, b)``, ``array<f32, 2>(x, y)``, ``State(0.0, 1u)``."""
        if not arguments:
            return self.zero(type_, node.position)
        types = [type_of(argument) for argument in arguments]
        operands = [self.operand(argument) for argument in arguments]
        if isinstance(type_, Scalar):
            return self.operations.scalar(str(type_), types, type_, operands)
        if isinstance(type_, Vector) and any(isinstance(source, Vector) for source in types):
            return operands[0] if types == [type_] else self.operations.called("construct", types, type_, operands)
        if isinstance(type_, Vector) and len(arguments) == 1:
            return self.operations.called("construct", types, type_, operands)
        return self.operations.value(type_, operands)

    def zero(self, type_: Type, position: Position) -> Operand:
        """Return the zero value of a type."""
        if isinstance(type_, Scalar):
            return self.literal(Literal(position, 0, "", type_))
        name = self.types.name(type_)
        if isinstance(type_, Vector) and self.types.is_own(type_):
            return self.operations.value(type_, [self.zero(type_.element, position)])
        return Operand(self.dialect.value.format(type=name, values=self.dialect.zero))

    def builtin(self, name: str, node: Call) -> Operand:
        """Return the call of a built-in function; those that take no address are printed by the rows of the dialect."""
        arguments = node.arguments
        if name == "bitcast":
            return self.apply(f"bitcast {_scalar(type_of(node))}", arguments, type_of(node))
        if name == "arrayLength":
            assert isinstance(arguments[0], Unary)
            return Operand(self.variables[root_of(arguments[0].operand)].length)
        if name == "workgroupUniformLoad":
            return self.uniform_load(arguments[0], type_of(node))
        if name == "atomicCompareExchangeWeak":
            return self.exchange(arguments, type_of(node))
        if name in self.dialect.atomics:
            texts = ", ".join(self.text(argument) for argument in arguments)
            return Operand(f"{self.dialect.atomics[name]}({texts})")
        if name.startswith("atomic") or not arguments:
            return self.operations.row(name, [self.operand(argument) for argument in arguments])
        if name == "select" and any(self.effects.is_impure(argument) for argument in arguments[:2]):
            types = [type_of(argument) for argument in arguments]  # both are computed, whichever is taken
            return self.operations.called(
                "select", types, type_of(node), [self.operand(argument) for argument in arguments]
            )
        return self.apply(name, arguments, type_of(node))

    def exchange(self, arguments: list[Expression], result: Type) -> Operand:
        """Return an ``atomicCompareExchangeWeak``, by a function for its address space that returns a struct."""
        pointer = type_of(arguments[0])
        assert isinstance(pointer, Pointer)
        assert isinstance(pointer.target, Atomic)
        element = self.types.name(pointer.target)
        space = self.dialect.spaces[pointer.space]
        name = f"_exchange_{space.strip().strip('_') + '_' if space else ''}{element}"
        if name not in self.operations.functions:
            exchanged = self.operations.row("compare exchange", [Operand("at"), Operand("old"), Operand("value")])
            value = self.operations.value(result, [Operand("found"), Operand("found == old")])
            before = self.dialect.sharing if pointer.space == "workgroup" else self.dialect.function
            self.operations.functions[name] = (
                f"{before} {self.types.name(result)} {name}"
                f"({space}{element} *at, {element} old, {element} value) {{\n"
                f"    const {element} found = {exchanged};\n    return {value};\n}}\n"
            )
        return Operand(f"{name}({', '.join(self.text(argument) for argument in arguments)})")

    def uniform_load(self, argument: Expression, result: Type) -> Operand:
        """``workgroupUniformLoad``: between barriers."""
        type_ = self.types.name(result)
        name = f"_uniform_load_{type_}"
        if name not in self.operations.functions:
            barrier = self.operations.row("workgroupBarrier", [])
            pointer = f"const {self.dialect.spaces['workgroup']}{type_} *at"
            self.operations.functions[name] = (
                f"{self.dialect.sharing} {type_} {name}({pointer}) {{\n"
                f"    {barrier};\n    const {type_} value = *at;\n    {barrier};\n    return value;\n}}\n"
            )
        return Operand(f"{name}({self.text(argument)})")


def _scalar(type_: Type) -> Type:
    return type_.element if isinstance(type_, Vector) else type_
