"""The straight-line form of a map function, and the builder that makes it by value numbering.

It assigns every name once and has no branches; all array targets are printed from it. Expressions are the
nodes of `syntax`; a branch is the call ``select(otherwise, then, condition)``; `&&` and `||` are replaced by
`&` and `|`. A struct is split into its scalar leaves, named by their path: ``state.exp_avg``.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .numeric import wrap
from .syntax import Binary, Call, Expression, Literal, Name, Position, TypeName, Unary
from .typerules import concrete
from .types import BOOL, F32, I32, U32, Scalar, Struct, Type

__all__ = ["Builder", "Straight", "Value", "is_literal", "leaf_names", "type_of"]

Value = tuple[Expression, ...]
"""The leaves of a scalar (a single one) or of a struct, in order: each a `Literal` or a `Name`."""

INLINE_SIZE = 12
"""A value used once is inlined if its expression has at most this many nodes."""


@dataclass(frozen=True, slots=True)
class Straight:
    """A map function as a list of assignments and one result.

    Attributes:
        name: the function's.
        position: of the function in its source.
        parameters: name and type of each; a name in an expression is a parameter, the target of an
            earlier assignment, or a member of one of these (``state.exp_avg``).
        assignments: (name, expression), in order; only calls of functions may be of a struct type.
        result: the returned value; a struct is a construct call of its members, or a name.
    """

    name: str
    position: Position
    parameters: tuple[tuple[str, Type], ...]
    assignments: tuple[tuple[str, Expression], ...]
    result: Expression


def leaf_names(type_: Type, prefix: str = "") -> tuple[tuple[str, Scalar], ...]:
    """Return the path and type of each scalar in a value of a type; `prefix` is the path of the value itself."""
    if isinstance(type_, Struct):
        inner = f"{prefix}." if prefix else ""
        return tuple(leaf for m in type_.members for leaf in leaf_names(m.type, inner + m.name))
    assert isinstance(type_, Scalar)
    return ((prefix, type_),)


def type_of(expression: Expression) -> Type:
    """Return the type that the checker has set; for an abstract type, its default."""
    assert expression.type is not None, f"{expression.position}: the tree has not been checked"
    return concrete(expression.type)


def is_literal(expression: Expression, value: bool | None = None) -> bool:
    """Return True for a literal; with `value`, only for this boolean literal."""
    return isinstance(expression, Literal) and (value is None or expression.value is value)


class Builder:
    """Collects assignments; an expression that was computed before gets the same name.

    Names are ``%0``, ``%1``, … until `finish` replaces them by names from the source.
    """

    def __init__(self, parameters: tuple[tuple[str, Type], ...]) -> None:
        self.parameters = parameters
        self.types: dict[str, Type] = dict(parameters)
        self.definitions: dict[str, Expression] = {}
        self.hints: dict[str, str] = {}
        self._known: dict[object, str] = {}

    def emit(self, expression: Expression) -> Expression:
        """Return a literal or name for the value of an expression, whose operands are literals or names."""
        folded = self._fold(expression)
        if isinstance(folded, Literal | Name):
            return folded
        key = _key(folded)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = f"%{len(self.definitions)}"
            self.definitions[name] = folded
            self.types[name] = type_of(folded)
        return Name(expression.position, name, type=self.types[name])

    def hint(self, value: Expression, word: str) -> None:
        """Set the name that a value has in the source, unless it is set already."""
        if isinstance(value, Name) and value.name in self.definitions:
            self.hints.setdefault(value.name, word)

    def negate(self, condition: Expression) -> Expression:
        """Return ``!condition``."""
        return self.emit(Unary(condition.position, "!", condition, BOOL))

    def either(self, left: Expression, right: Expression) -> Expression:
        """Return ``left | right`` of two conditions."""
        return self.emit(Binary(left.position, "|", left, right, BOOL))

    def select(self, otherwise: Expression, then: Expression, condition: Expression) -> Expression:
        """Return ``select(otherwise, then, condition)``."""
        callee = TypeName(condition.position, "select")
        return self.emit(Call(condition.position, callee, [otherwise, then, condition], "builtin", type_of(then)))

    def assemble(self, type_: Type, leaves: Value) -> Expression:
        """Return the value of a type that has these leaves: a name, if they are the members of one value."""
        if not isinstance(type_, Struct):
            return leaves[0]
        first_leaf, names = leaves[0], [path for path, _ in leaf_names(type_)]
        if isinstance(first_leaf, Name) and first_leaf.name.endswith("." + names[0]):
            whole = first_leaf.name.removesuffix("." + names[0])
            same = all(isinstance(leaf, Name) and leaf.name == f"{whole}.{path}"
                       for leaf, path in zip(leaves, names, strict=True))  # fmt: skip
            if same and self._type_at(whole) == type_:
                return Name(first_leaf.position, whole, type=type_)
        members: list[Expression] = []
        remaining = leaves
        for member in type_.members:
            count = len(leaf_names(member.type))
            members.append(self.assemble(member.type, remaining[:count]))
            remaining = remaining[count:]
        position = first_leaf.position
        return Call(position, TypeName(position, type_.name), members, "construct", type_)

    def finish(self, name: str, position: Position, result: Expression, inline_size: int) -> Straight:
        """Return the function, without unused values, with values used once inlined, and with names from the source."""
        uses = self._uses(result)
        inlined: dict[str, tuple[Expression, int]] = {}
        words: dict[str, str] = {}
        taken = {parameter for parameter, _ in self.parameters}
        assignments = []
        for label, definition in self.definitions.items():
            if label not in uses:
                continue
            expression, size = _rewrite(definition, inlined, words)
            is_result = isinstance(result, Name) and result.name == label
            if uses[label] == 1 and (size <= inline_size or is_result):
                inlined[label] = expression, size
            else:
                words[label] = _unused(self.hints.get(label, "t"), taken)
                assignments.append((words[label], expression))
        final, _ = _rewrite(result, inlined, words)
        return Straight(name, position, self.parameters, tuple(assignments), final)

    def _uses(self, result: Expression) -> Counter[str]:
        """Count the uses of each value that the result needs; a value whose members are used counts as used twice."""
        uses: Counter[str] = Counter()
        work = [result]
        while work:
            for name in _names(work.pop()):
                root, dot, _ = name.partition(".")
                if root in self.definitions:
                    if root not in uses:
                        work.append(self.definitions[root])
                    uses[root] += 2 if dot else 1
        return uses

    def _type_at(self, path: str) -> Type | None:
        root, *members = path.split(".")
        type_ = self.types.get(root)
        for name in members:
            member = type_.member(name) if isinstance(type_, Struct) else None
            type_ = member.type if member else None
        return type_

    def _fold(self, expression: Expression) -> Expression:
        match expression:
            case Unary(operator="!", operand=Name(name=name)):
                inner = self.definitions.get(name)
                return inner.operand if isinstance(inner, Unary) and inner.operator == "!" else expression
            case Unary(operand=Literal() as operand):
                return _fold_unary(expression, operand)
            case Binary(operator="&" | "|" | "&&" | "||", type=Scalar("bool")):
                return _fold_logic(expression)
            case Binary(left=Literal() as left, right=Literal() as right):
                return _fold_binary(expression, left, right)
            case Call(kind="construct", arguments=[Literal() as operand], type=Scalar()):
                return _fold_conversion(expression, operand)
            case Call(callee=TypeName(name="select"), kind="builtin"):
                return self._fold_select(expression)
        return expression

    def _fold_select(self, call: Call) -> Expression:
        otherwise, then, condition = call.arguments
        if is_literal(condition):
            return then if is_literal(condition, True) else otherwise
        if _key(otherwise) == _key(then):
            return then
        if type_of(call) == BOOL:
            if is_literal(then, True):
                return self.either(condition, otherwise)
            if is_literal(otherwise, False):
                return self.emit(Binary(call.position, "&", condition, then, BOOL))
            if is_literal(then, False):
                return self.emit(Binary(call.position, "&", self.negate(condition), otherwise, BOOL))
            if is_literal(otherwise, True):
                return self.either(self.negate(condition), then)
        inner = self.definitions.get(condition.name) if isinstance(condition, Name) else None
        if isinstance(inner, Unary) and inner.operator == "!":
            return self.select(then, otherwise, inner.operand)
        return call


def _key(expression: Expression) -> object:
    match expression:
        case Literal(value=value):
            return ("literal", type_of(expression), repr(value))
        case Name(name=name):
            return name
        case Unary(operator=sign, operand=operand):
            return (sign, _key(operand))
        case Binary(operator=sign, left=left, right=right):
            return (sign, _key(left), _key(right))
        case Call(callee=callee, kind=kind, arguments=arguments):
            return (kind, callee.name, type_of(expression), *map(_key, arguments))
    raise AssertionError(f"{expression.position}: not an expression of the straight-line form")


def _names(expression: Expression) -> Iterator[str]:
    match expression:
        case Name(name=name):
            yield name
        case Unary(operand=operand):
            yield from _names(operand)
        case Binary(left=left, right=right):
            yield from _names(left)
            yield from _names(right)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _names(argument)


def _rewrite(
    expression: Expression, inlined: dict[str, tuple[Expression, int]], words: dict[str, str]
) -> tuple[Expression, int]:
    """Return an expression with values inlined and names replaced by words, and its size in nodes, as `inlined` has."""
    match expression:
        case Name(position, name, type_):
            if name in inlined:
                return inlined[name]
            root, dot, path = name.partition(".")
            return Name(position, words.get(root, root) + dot + path, type_), 1
        case Unary(position, sign, operand, type_):
            inner, size = _rewrite(operand, inlined, words)
            return Unary(position, sign, inner, type_), size + 1
        case Binary(position, sign, left, right, type_):
            new_left, size = _rewrite(left, inlined, words)
            new_right, more = _rewrite(right, inlined, words)
            return Binary(position, sign, new_left, new_right, type_), size + more + 1
        case Call(position, callee, arguments, kind, type_):
            rewritten = [_rewrite(argument, inlined, words) for argument in arguments]
            size = sum(size for _, size in rewritten) + 1
            return Call(position, callee, [argument for argument, _ in rewritten], kind, type_), size
    return expression, 1


def _unused(word: str, taken: set[str]) -> str:
    name, number = word, 1
    while name in taken:
        number += 1
        name = f"{word}_{number}"
    taken.add(name)
    return name


# Folding of literals, by the rules for values at run time.

_INTEGERS = (I32, U32)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        return left
    magnitude = abs(left) // abs(right)
    return magnitude if (left < 0) == (right < 0) else -magnitude


_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right) if right else 0,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": lambda left, right: left << (right & 31), ">>": lambda left, right: left >> (right & 31),
}  # fmt: skip


def _literal(expression: Expression, value: bool | int | float) -> Literal:
    return Literal(expression.position, value, type=type_of(expression))


def _fold_unary(expression: Unary, operand: Literal) -> Expression:
    type_, value = type_of(expression), operand.value
    if expression.operator == "!":
        return _literal(expression, not value)
    if expression.operator == "-" and type_ == F32:
        return _literal(expression, -float(value))
    if type_ in _INTEGERS:
        return _literal(expression, wrap(-int(value) if expression.operator == "-" else ~int(value), type_))
    return expression


def _fold_logic(expression: Binary) -> Expression:
    is_and = expression.operator[0] == "&"
    for operand, other in ((expression.left, expression.right), (expression.right, expression.left)):
        if is_literal(operand):
            return other if is_literal(operand, is_and) else operand
    if _key(expression.left) == _key(expression.right):
        return expression.left
    return Binary(expression.position, expression.operator[0], expression.left, expression.right, BOOL)


def _fold_binary(expression: Binary, left: Literal, right: Literal) -> Expression:
    type_ = type_of(expression)
    if expression.operator in _COMPARISONS:
        return _literal(expression, _COMPARISONS[expression.operator](left.value, right.value))
    if type_ in _INTEGERS:
        value = _ARITHMETIC[expression.operator](int(left.value), int(right.value))
        return _literal(expression, wrap(value, type_))
    return expression


def _fold_conversion(expression: Call, operand: Literal) -> Expression:
    type_, value = type_of(expression), operand.value
    if type_ == BOOL:
        return _literal(expression, bool(value))
    if type_of(operand) == F32:
        return expression
    if type_ in _INTEGERS:
        return _literal(expression, wrap(int(value), type_))
    return _literal(expression, float(value)) if abs(value) <= 2**24 else expression
