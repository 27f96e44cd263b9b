"""The syntax tree of the WGSL subset.

The parser creates it, the checker sets `Expression.type` (and `Call.kind`), the printers read it.
Nodes are plain data with their position in the source; they have no methods of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal as OneOf

from .types import Struct, Type

__all__ = [
    "Alias",
    "Assign",
    "Attribute",
    "Binary",
    "Block",
    "Break",
    "Call",
    "CallStatement",
    "Case",
    "ConstAssert",
    "Constant",
    "Continue",
    "Declaration",
    "Expression",
    "For",
    "Function",
    "GlobalVariable",
    "If",
    "Import",
    "Index",
    "Literal",
    "LocalDeclaration",
    "Loop",
    "Member",
    "Module",
    "Name",
    "Override",
    "Parameter",
    "Position",
    "Return",
    "Statement",
    "StructDeclaration",
    "StructField",
    "Switch",
    "TypeName",
    "Unary",
    "While",
]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a node: file as shown to the user, line and column from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class _Node:
    """Equality and repr of all nodes; generated for each of thirty classes, they would take half of the import time."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


# Expressions. `type` is None until the checker has run.


@dataclass(slots=True, repr=False, eq=False)
class Literal(_Node):
    """``1``, ``1u``, ``2.5f``, ``true``. `suffix` is "", "i", "u", "f" or "h".

    After the check `value` is one of its `type`: a float, already rounded, for f32. It may be negative.
    """

    position: Position
    value: bool | int | float
    suffix: str = ""
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Name(_Node):
    """A variable, parameter, constant or override."""

    position: Position
    name: str
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Unary(_Node):
    """``-x``, ``!x``, ``~x``, ``&x``."""

    position: Position
    operator: str
    operand: Expression
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Binary(_Node):
    """``x + y``; `position` is that of the operator."""

    position: Position
    operator: str
    left: Expression
    right: Expression
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Call(_Node):
    """``f(x)``, ``max(a, b)``, ``vec4<f32>(...)``, ``f32(i)``, ``bitcast<u32>(x)``, ``State(a, b)``.

    `callee` carries the template arguments (``bitcast<u32>`` is a `TypeName` with one argument).
    `kind` is set by the checker: a user function, a built-in function, or the construction or
    conversion of a value (whose type is then `type`).
    """

    position: Position
    callee: TypeName
    arguments: list[Expression]
    kind: OneOf["function", "builtin", "construct"] | None = None
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Index(_Node):
    """``base[index]``."""

    position: Position
    base: Expression
    index: Expression
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Member(_Node):
    """``base.name``: a struct member, or the swizzle of a vector."""

    position: Position
    base: Expression
    name: str
    type: Type | None = None


Expression = Literal | Name | Unary | Binary | Call | Index | Member


@dataclass(slots=True, repr=False, eq=False)
class TypeName(_Node):
    """A type or a callee as written: ``array<vec4<f32>, 4>``. Arguments are types or expressions."""

    position: Position
    name: str
    arguments: list[TypeName | Expression] = field(default_factory=list)


# Statements.


@dataclass(slots=True, repr=False, eq=False)
class LocalDeclaration(_Node):
    """``let``, ``var`` or ``const`` in a function. `type` is the type of the variable, set by the checker."""

    position: Position
    keyword: OneOf["let", "var", "const"]
    name: str
    type_name: TypeName | None
    value: Expression | None
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Assign(_Node):
    """``target = value`` (operator ""), ``target += value`` ("+"), ``i++`` (as ``i += 1``), ``_ = value`` (None)."""

    position: Position
    target: Expression | None
    operator: str
    value: Expression


@dataclass(slots=True, repr=False, eq=False)
class Block(_Node):
    """``{ … }``."""

    position: Position
    statements: list[Statement]


@dataclass(slots=True, repr=False, eq=False)
class If(_Node):
    """``if condition { … } else { … }``."""

    position: Position
    condition: Expression
    then: Block
    otherwise: Block | None  # an `else if` is a Block that holds one If


@dataclass(slots=True, repr=False, eq=False)
class For(_Node):
    """``for (initial; condition; update) { … }``; `link` writes out each iteration where ``@unroll`` is before it.

    `unrolled` is the condition in ``@unroll(condition)``, which is constant; without one it is the literal true.
    """

    position: Position
    initial: LocalDeclaration | Assign | CallStatement | None
    condition: Expression | None
    update: Assign | CallStatement | None
    body: Block
    unrolled: Expression | None = None


@dataclass(slots=True, repr=False, eq=False)
class While(_Node):
    """``while condition { … }``."""

    position: Position
    condition: Expression
    body: Block


@dataclass(slots=True, repr=False, eq=False)
class Loop(_Node):
    """``loop { … continuing { … break if condition; } }``."""

    position: Position
    body: Block
    continuing: Block | None
    break_if: Expression | None


@dataclass(slots=True, repr=False, eq=False)
class Case(_Node):
    """``case 1, 2: { … }`` or ``default: { … }``."""

    position: Position
    selectors: list[Expression]  # empty for `default` alone
    is_default: bool
    body: Block


@dataclass(slots=True, repr=False, eq=False)
class Switch(_Node):
    """``switch selector { … }``."""

    position: Position
    selector: Expression
    cases: list[Case]


@dataclass(slots=True, repr=False, eq=False)
class Return(_Node):
    """``return value;``."""

    position: Position
    value: Expression | None


@dataclass(slots=True, repr=False, eq=False)
class Break(_Node):
    """``break;``, of a loop or a switch."""

    position: Position


@dataclass(slots=True, repr=False, eq=False)
class Continue(_Node):
    """``continue;``."""

    position: Position


@dataclass(slots=True, repr=False, eq=False)
class CallStatement(_Node):
    """``f(x);``."""

    position: Position
    call: Call


@dataclass(slots=True, repr=False, eq=False)
class ConstAssert(_Node):
    """Both a statement and a declaration."""

    position: Position
    condition: Expression


Statement = (
    LocalDeclaration
    | Assign
    | Block
    | If
    | For
    | While
    | Loop
    | Switch
    | Return
    | Break
    | Continue
    | CallStatement
    | ConstAssert
)


# Declarations at module scope.


@dataclass(slots=True, repr=False, eq=False)
class Attribute(_Node):
    """``@group(0)``, ``@builtin(global_invocation_id)``, ``@workgroup_size(64, 1)``."""

    position: Position
    name: str
    arguments: list[Expression]


@dataclass(slots=True, repr=False, eq=False)
class StructField(_Node):
    """``name: type``."""

    position: Position
    name: str
    type_name: TypeName


@dataclass(slots=True, repr=False, eq=False)
class StructDeclaration(_Node):
    """`type` is the Struct that it declares, set by the checker."""

    position: Position
    name: str
    fields: list[StructField]
    type: Struct | None = None


@dataclass(slots=True, repr=False, eq=False)
class Parameter(_Node):
    """``name: type`` of a function; an entry point's has ``@builtin(...)``."""

    position: Position
    name: str
    type_name: TypeName
    attributes: list[Attribute] = field(default_factory=list)
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Function(_Node):
    """`return_type` None: returns nothing. An entry point has the attribute ``compute``."""

    position: Position
    name: str
    parameters: list[Parameter]
    return_type_name: TypeName | None
    body: Block
    attributes: list[Attribute] = field(default_factory=list)
    return_type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class GlobalVariable(_Node):
    """``@group(0) @binding(0) var<storage, read_write> name: type;``, or a workgroup or private variable.

    `space` is "storage", "uniform", "workgroup" or "private"; `access` is "read" or "read_write".
    """

    position: Position
    space: str
    access: str
    name: str
    type_name: TypeName
    attributes: list[Attribute] = field(default_factory=list)
    value: Expression | None = None
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Constant(_Node):
    """``const name: type = value;``."""

    position: Position
    name: str
    type_name: TypeName | None
    value: Expression
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Override(_Node):
    """``override amsgrad: bool = false;``: a flag or size that the linker replaces with a `Constant`."""

    position: Position
    name: str
    type_name: TypeName | None
    value: Expression | None
    type: Type | None = None


@dataclass(slots=True, repr=False, eq=False)
class Alias(_Node):
    """``alias name = type;``."""

    position: Position
    name: str
    type_name: TypeName


@dataclass(slots=True, repr=False, eq=False)
class Import(_Node):
    """``import package::lib::math::{precise_exp, log1p};`` as in WESL. `path` is ("lib", "math").

    Not WGSL: the linker replaces it with the functions and all on which they depend. `conditions` must all hold:
    ("A", True) after ``@if(A)``; ("A", False) and ("B", True) after an ``@elif(B)`` that follows it; both False after
    ``@else``.
    """

    position: Position
    path: tuple[str, ...]
    names: list[str]
    conditions: tuple[tuple[str, bool], ...] = ()


Declaration = StructDeclaration | Function | GlobalVariable | Constant | Override | Alias | Import | ConstAssert


@dataclass(slots=True, repr=False, eq=False)
class Module(_Node):
    """One file, or after linking one complete shader. `enables` are the names of ``enable`` directives."""

    file: str
    enables: list[str]
    declarations: list[Declaration]
