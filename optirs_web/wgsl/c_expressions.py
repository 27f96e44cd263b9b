"""Expressions in C."""

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
    """The type of a checked expression."""
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
        self.made: dict[int, str] = {}  # calls by the `id` of their nodes, and what holds their results

    def declare(self, one: GlobalVariable, length: bool) -> None:
        """Note a variable of the module and, if it has one, its length."""
        name = self.names.declare(one.name, "variable")
        text = self.names.declare(f"{one.name}_length", "variable") if length else ""
        is_runtime = isinstance(one.type, Array) and one.type.count is None
        self.variables[one.name] = Variable(name, one.space, one.space != "uniform" and not is_runtime, text)

    def variable(self, node: Expression) -> Variable | None:
        """The variable of the module that a name means."""
        if isinstance(node, Name) and self.names.find(node.name) is None:
            return self.variables.get(node.name)
        return None

    def text(self, node: Expression) -> str:
        """An expression where nothing binds it."""
        return self.operand(node).text

    def operand(self, node: Expression) -> Operand:
        """An expression as an operand of another."""
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
        """A number of its type, every bit of it."""
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
        """An operator or built-in with these operands."""
        last = nodes[-1] if nodes else None
        is_literal = isinstance(last, Literal) and last.value not in (0, -1)
        operands = [self.operand(one) for one in nodes]
        types = [type_of(one) for one in nodes]
        return self.operations.apply(key, types, result, operands, " literal" if is_literal else "")

    def binary(self, operator: str, left: Expression, right: Expression, result: Type) -> Operand:
        """``x + y``."""
        if operator in ("<<", ">>") and isinstance(right, Literal) and right.value == 0:
            return self.operand(left)
        return self.apply(operator, [left, right], result)

    def compound(self, operator: str, target: Expression, value: Expression) -> str:
        """``target += value``, where C means the same by it; otherwise ""."""
        literal = " literal" if isinstance(value, Literal) and value.value not in (0, -1) else ""
        name = f"{operator} {type_of(target)}"
        rows = self.dialect.rows
        template, level = next((rows[key] for key in (f"{name}{literal}", name, operator) if key in rows), ("", 0))
        is_plain = template == f"{{0:{level}}} {operator} {{1:{level + 1}}}" and type_of(target) in (I32, U32, F32)
        return f"{self.text(target)} {operator}= {self.text(value)}" if is_plain else ""

    # Memory.

    def place(self, base: Expression) -> str:
        """What stands before a member: a value and a dot, or a pointer and an arrow."""
        variable = self.variable(base)
        if variable is not None and variable.is_pointer and not self.types.is_own(type_of(base)):
            return f"{variable.name}->"
        return f"{self.operand(base):{ATOM}}."

    def index(self, node: Index) -> Operand:
        """``x[i]``, within bounds."""
        base = type_of(node.base)
        if isinstance(base, Vector):
            if isinstance(node.index, Literal):
                return Operand(f"{self.place(node.base)}{'xyzw'[int(node.index.value)]}")
            at = self.bounded(node.index, f"{base.size - 1}u")
            if self.types.is_own(base):
                return self.component(node.base, base, at)
            return Operand(f"{self.place(node.base)}at[{at}]")
        assert isinstance(base, Array)
        after = ".value" if self.types.has_cell(base.element) else ""
        if base.count is None:
            root = self.variables[root_of(node.base)]
            at = self.bounded(node.index, f"{root.length} - 1u", is_known=False)
            return Operand(f"{self.operand(node.base):{ATOM}}[{at}]{after}")
        return Operand(f"{self.place(node.base)}at[{self.bounded(node.index, f'{base.count - 1}u')}]{after}")

    def component(self, base: Expression, type_: Vector, at: str) -> Operand:
        """One of a vector of the dialect's own, which has none by their numbers: of a place, or of a value."""
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
        """What stands before the type of a place; None if it is none, but a value."""
        while isinstance(node, Index) or (isinstance(node, Member) and isinstance(type_of(node.base), Struct)):
            node = node.base
        if not isinstance(node, Name):
            return None
        variable = self.variable(node)
        if variable is not None:
            return self.dialect.spaces.get(variable.space, "")
        return "" if self.names.find(node.name) is not None else f"{self.dialect.table} "

    def bounded(self, index: Expression, last: str, is_known: bool = True) -> str:
        """An index that is at most `last`; `is_known`: the checker has seen that a literal is."""
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
            return Operand(f"{self.place(node.base)}{self.types.member(base, node.name)}")
        assert isinstance(base, Vector)
        letters = "".join(_COMPONENTS.get(letter, letter) for letter in node.name)
        if len(letters) == 1:
            return Operand(f"{self.place(node.base)}{letters}")
        return self.operations.swizzle(base, letters, self.operand(node.base))

    def address(self, node: Expression) -> Operand:
        """``&x``."""
        variable = self.variable(node)
        if variable is not None:
            return Operand(variable.name)
        return Operand(f"&{self.operand(node):{ATOM}}", UNARY)

    # Calls.

    def call(self, node: Call) -> Operand:
        """Of a function, a built-in or a type."""
        if id(node) in self.made:
            return Operand(self.made[id(node)])
        if node.kind == "construct":
            return self.construct(node, type_of(node), node.arguments)
        if node.kind == "function":
            arguments = [self.text(one) for one in node.arguments]
            arguments += self.extra(node.callee.name)
            return Operand(f"{self.names.module[node.callee.name]}({', '.join(arguments)})")
        return self.builtin(node.callee.name, node)

    def extra(self, function: str) -> list[str]:
        """The variables of the module that a function needs: pointers, and lengths behind them."""
        found = []
        for name in self.effects.needs(function):
            variable = self.variables[name]
            found += [variable.name, variable.length] if variable.length else [variable.name]
        return found

    def construct(self, node: Call, type_: Type, arguments: list[Expression]) -> Operand:
        """``f32(i)``, ``vec3(a, b)``, ``array<f32, 2>(x, y)``, ``State(0.0, 1u)``."""
        if not arguments:
            return self.zero(type_, node.position)
        given = [type_of(one) for one in arguments]
        operands = [self.operand(one) for one in arguments]
        if isinstance(type_, Scalar):
            return self.operations.scalar(str(type_), given, type_, operands)
        if isinstance(type_, Vector) and any(isinstance(one, Vector) for one in given):
            return operands[0] if given == [type_] else self.operations.called("construct", given, type_, operands)
        if isinstance(type_, Vector) and len(arguments) == 1:
            return self.operations.called("construct", given, type_, operands)
        return self.operations.value(type_, operands)

    def zero(self, type_: Type, position: Position) -> Operand:
        """The zero value."""
        if isinstance(type_, Scalar):
            return self.literal(Literal(position, 0, "", type_))
        name = self.types.name(type_)
        if isinstance(type_, Vector) and self.types.is_own(type_):
            return self.operations.value(type_, [self.zero(type_.element, position)])
        return Operand(self.dialect.value.format(type=name, values=self.dialect.zero))

    def builtin(self, name: str, node: Call) -> Operand:
        """A built-in function, by its rows but for those that take an address."""
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
            texts = ", ".join(self.text(one) for one in arguments)
            return Operand(f"{self.dialect.atomics[name]}({texts})")
        if name.startswith("atomic") or not arguments:
            return self.operations.row(name, [self.operand(one) for one in arguments])
        if name == "select" and any(self.effects.is_impure(one) for one in arguments[:2]):
            types = [type_of(one) for one in arguments]  # both are computed, whichever is taken
            return self.operations.called("select", types, type_of(node), [self.operand(one) for one in arguments])
        return self.apply(name, arguments, type_of(node))

    def exchange(self, arguments: list[Expression], result: Type) -> Operand:
        """``atomicCompareExchangeWeak``, which gives a struct; a function for each address space."""
        pointer = type_of(arguments[0])
        assert isinstance(pointer, Pointer)
        assert isinstance(pointer.target, Atomic)
        element = self.types.name(pointer.target)
        space = self.dialect.spaces[pointer.space]
        name = f"_exchange_{space.strip().strip('_') + '_' if space else ''}{element}"
        if name not in self.operations.functions:
            found = self.operations.row("compare exchange", [Operand("at"), Operand("old"), Operand("value")])
            value = self.operations.value(result, [Operand("found"), Operand("found == old")])
            before = self.dialect.sharing if pointer.space == "workgroup" else self.dialect.function
            self.operations.functions[name] = (
                f"{before} {self.types.name(result)} {name}"
                f"({space}{element} *at, {element} old, {element} value) {{\n"
                f"    const {element} found = {found};\n    return {value};\n}}\n"
            )
        return Operand(f"{name}({', '.join(self.text(one) for one in arguments)})")

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
