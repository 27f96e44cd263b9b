"""Prints operators and built-in functions in C: on scalars by a row of the dialect, on vectors by a function."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import UnsupportedError
from .c_dialects import ATOM, UNARY, CDialect
from .c_names import Types
from .types import BOOL, F16, F32, Array, Scalar, Type, Vector

__all__ = ["Operand", "Operations"]

_WORDS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder", "==": "equal", "!=": "differ",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "&": "and", "|": "or", "^": "xor",
    "<<": "shift_left", ">>": "shift_right", "!": "not", "~": "complement",
}  # fmt: skip
_SCALARS = ("bool", "i32", "u32", "f32", "f16")
_WHOLE = ("subgroupBallot", "dot4", "pack", "unpack")
"""Built-ins whose rows take and return whole vectors."""
_WIDTH = 110


class Operand:
    """The text of an expression; the format ``{:9}`` adds parentheses unless its level is at least 9."""

    def __init__(self, text: str, level: int = ATOM) -> None:
        self.text = text
        self.level = level

    def __format__(self, spec: str) -> str:
        return f"({self.text})" if spec and self.level < int(spec) else self.text

    def __str__(self) -> str:
        return self.text


class Operations:
    """Prints operations, and collects the functions for those on vectors, each after those it calls."""

    def __init__(self, dialect: CDialect, types: Types, where: str) -> None:
        self.dialect = dialect
        self.types = types
        self.where = where
        self.functions: dict[str, str] = {}

    def apply(
        self, key: str, types: Sequence[Type], result: Type, operands: Sequence[Operand], suffix: str = ""
    ) -> Operand:
        """Return an operation on values of these types; `suffix` is " literal" if the last operand is a literal."""
        if key.startswith(_WHOLE) or all(isinstance(type_, Scalar) for type_ in (*types, result)):
            return self.scalar(key, types, result, operands, suffix)
        return self.called(key, types, result, operands)

    def scalar(
        self, key: str, types: Sequence[Type], result: Type, operands: Sequence[Operand], suffix: str = ""
    ) -> Operand:
        """Return an operation on scalars, by its row; f16 is computed as f32 and rounded."""
        if F16 in types or result == F16:
            operands = [
                self.row("f32", [operand]) if type_ == F16 else operand
                for type_, operand in zip(types, operands, strict=True)
            ]
            types = [F32 if type_ == F16 else type_ for type_ in types]
            if result != F16:
                return self.scalar(key, types, result, operands, suffix)
            wide = self.scalar("f32" if key == "f16" else key.replace("f16", "f32"), types, F32, operands, suffix)
            return self.row("f16 f32", [wide])
        first_type = str(types[0]) if types else ""
        if key in (first_type, f"bitcast {first_type}"):
            return operands[0]
        for name in (f"{key} {first_type}{suffix}", f"{key} {first_type}", key):
            if name in self.dialect.rows:
                return self.row(name, operands)
        raise UnsupportedError(f"{self.where}: '{key} {first_type}' is not available in {self.dialect.name}")

    def row(self, name: str, operands: Sequence[Operand]) -> Operand:
        """Return the template of a row with these operands."""
        template, level = self.dialect.rows[name]
        if name == "f16 f32":
            self.types.name(F16)
        return operands[0] if template == "{0}" else Operand(template.format(*operands), level)

    def value(self, type_: Type, parts: Sequence[Operand]) -> Operand:
        """Return a vector, array or struct of these components, elements or members."""
        texts = [part.text for part in parts]
        if self.types.is_own(type_):
            return Operand(f"({self.types.name(type_)})({', '.join(texts)})", UNARY)
        if isinstance(type_, Array) and self.types.has_cell(type_.element):
            texts = [f"{{{text}}}" for text in texts]
        values = ", ".join(texts)
        if isinstance(type_, Vector | Array):
            values = f"{{{values}}}"
        return Operand(self.dialect.value.format(type=self.types.name(type_), values=values))

    def called(self, key: str, types: Sequence[Type], result: Type, operands: Sequence[Operand]) -> Operand:
        """Return a call of the function for an operation on these types, which is defined if necessary."""
        word = _WORDS.get(key, key.split(" ")[0])
        names = [self.types.name(type_) for type_ in types]
        prefix = f"{self.types.name(result)}_of" if word in ("construct", "bitcast", *_SCALARS) else word
        name = f"_{prefix}_{'_'.join(names)}"
        if word == "bitcast":
            name = f"_bitcast{name}"
        if name not in self.functions:
            self.define(name, result, names, self.returned(key, types, result))
        return Operand(f"{name}({', '.join(operand.text for operand in operands)})")

    def define(self, name: str, result: Type, parameters: Sequence[str], body: str) -> None:
        """Define a function of parameters a, b, … that returns the expression `body`."""
        declared = ", ".join(f"{type_} {letter}" for type_, letter in zip(parameters, "abcdefgh", strict=False))
        head = f"{self.dialect.function} {self.types.name(result)} {name}({declared}) {{"
        text = f"{head} return {body}; }}\n"
        self.functions[name] = text if len(text) <= _WIDTH else f"{head}\n    return {body};\n}}\n"

    def returned(self, key: str, types: Sequence[Type], result: Type) -> str:
        """Return the expression that the function for an operation returns."""
        if key == "construct":
            return self.joined(types, result)
        method = getattr(self, f"of_{key.lower()}", None)
        if method is not None:
            text: str = method(types).text
            return text
        if isinstance(result, Vector):
            element = result.element
            scalars = self.scalars(types)
            if self.is_operator(key, types, result):
                return f"a {key} b"
            parts = [self.scalar(key, scalars, element, self.parts(n, types)) for n in range(result.size)]
            return self.value(result, parts).text
        return self.scalar(key, types, result, [Operand(letter) for letter in "abcdefgh"[: len(types)]]).text

    def is_operator(self, key: str, types: Sequence[Type], result: Vector) -> bool:
        """Return True if C has the operator for the dialect's own vectors, component by component."""
        template, level = self.dialect.rows.get(f"{key} {self.scalars(types)[0]}", ("", 0))
        is_plain = template == f"{{0:{level}}} {key} {{1:{level + 1}}}"
        return is_plain and self.types.is_own(result) and set(types) <= {result, result.element}

    def scalars(self, types: Sequence[Type]) -> list[Type]:
        """Return the types of the components; for a scalar, its own type."""
        return [type_.element if isinstance(type_, Vector) else type_ for type_ in types]

    def parts(self, number: int, types: Sequence[Type]) -> list[Operand]:
        """Return component `number` of each of the parameters a, b, …; a scalar itself."""
        pairs = zip("abcdefgh", types, strict=False)
        return [
            Operand(f"{letter}.{'xyzw'[number]}" if isinstance(type_, Vector) else letter) for letter, type_ in pairs
        ]

    def joined(self, types: Sequence[Type], result: Type) -> str:
        """Return a vector made of all parameters' components, of one scalar repeated, or of a vector converted."""
        assert isinstance(result, Vector)
        components: list[Operand] = []
        for letter, type_ in zip("abcd", types, strict=False):
            size = type_.size if isinstance(type_, Vector) else 0
            element = type_.element if isinstance(type_, Vector) else type_
            texts = [f"{letter}.{part}" for part in "xyzw"[:size]] if size else [letter]
            components += [
                self.scalar(str(result.element), [element], result.element, [Operand(text)]) for text in texts
            ]
        return self.value(result, components * result.size if len(components) == 1 else components).text

    def swizzle(self, type_: Vector, letters: str, base: Operand) -> Operand:
        """Return a vector of several components of another."""
        name = f"_{letters}_{self.types.name(type_)}"
        result = Vector(len(letters), type_.element)
        if name not in self.functions:
            value = self.value(result, [Operand(f"a.{letter}") for letter in letters])
            self.define(name, result, [self.types.name(type_)], value.text)
        return Operand(f"{name}({base})")

    # Built-ins that are not computed component by component, of parameters a, b, …

    def folded(self, key: str, type_: Type, parts: Sequence[Operand]) -> Operand:
        """Return the operands combined by a binary operation, from the left."""
        total = parts[0]
        for part in parts[1:]:
            total = self.scalar(key, [type_, type_], type_, [total, part])
        return total

    def components(self, types: Sequence[Type], key: str = "") -> list[Operand]:
        """Return the components of ``a``, or those of ``a key b`` if `key` is an operator."""
        vector = types[0]
        assert isinstance(vector, Vector)
        element = vector.element
        pairs = [self.parts(n, types) for n in range(vector.size)]
        return [self.scalar(key, [element, element], element, pair[:2]) if key else pair[0] for pair in pairs]

    def of_any(self, types: Sequence[Type]) -> Operand:
        """Return ``any(a)``."""
        return self.folded("||", BOOL, self.components(types))

    def of_all(self, types: Sequence[Type]) -> Operand:
        """Return ``all(a)``."""
        return self.folded("&&", BOOL, self.components(types))

    def of_dot(self, types: Sequence[Type]) -> Operand:
        """Return the sum of the products of components."""
        element = self.scalars(types)[0]
        return self.folded("+", element, self.components(types, "*"))

    def of_length(self, types: Sequence[Type]) -> Operand:
        """Return the square root of the sum of squares."""
        element = self.scalars(types)[0]
        squares = self.apply("dot", [types[0], types[0]], element, [Operand("a"), Operand("a")])
        return self.scalar("sqrt", [element], element, [squares])

    def of_distance(self, types: Sequence[Type]) -> Operand:
        """Return the length of the difference."""
        difference = self.apply("-", types, types[0], [Operand("a"), Operand("b")])
        return self.apply("length", [types[0]], self.scalars(types)[0], [difference])

    def of_normalize(self, types: Sequence[Type]) -> Operand:
        """Return the vector divided by its length."""
        element = self.scalars(types)[0]
        length = self.apply("length", types, element, [Operand("a")])
        return self.apply("/", [types[0], element], types[0], [Operand("a"), length])

    def of_cross(self, types: Sequence[Type]) -> Operand:
        """Return the cross product."""
        vector = types[0]
        assert isinstance(vector, Vector)
        pair = [vector.element, vector.element]

        def product(left: str, right: str) -> Operand:
            return self.scalar("*", pair, vector.element, [Operand(f"a.{left}"), Operand(f"b.{right}")])

        parts = [self.scalar("-", pair, vector.element, [product(i, j), product(j, i)]) for i, j in ("yz", "zx", "xy")]
        return self.value(vector, parts)

    def of_reflect(self, types: Sequence[Type]) -> Operand:
        """Return ``a - 2 dot(b, a) b``."""
        vector, element = types[0], self.scalars(types)[0]
        a, b = Operand("a"), Operand("b")
        two = self.scalar(str(element), [F32], element, [Operand("2.0f")])
        along = self.scalar("*", [element, element], element, [two, self.apply("dot", types, element, [b, a])])
        return self.apply("-", types, vector, [a, self.apply("*", [element, vector], vector, [along, b])])

    def of_faceforward(self, types: Sequence[Type]) -> Operand:
        """Return ``a`` if ``dot(b, c)`` is negative, otherwise ``-a``."""
        vector, element = types[0], self.scalars(types)[0]
        a, b, c = (Operand(letter) for letter in "abc")
        zero = self.scalar(str(element), [F32], element, [Operand("0.0f")])
        apart = self.scalar("<", [element, element], BOOL, [self.apply("dot", types[1:], element, [b, c]), zero])
        negated = self.apply("negate", [vector], vector, [a])
        return self.apply("select", [vector, vector, BOOL], vector, [negated, a, apart])

    def helpers(self, texts: str) -> list[str]:
        """Return the names of the helper functions that a text uses, directly or through others, in table order."""
        table = self.dialect.helpers
        needed: set[str] = set()
        work = [texts]
        while work:
            fresh = (set(re.findall(r"\b_\w+", work.pop())) & table.keys()) - needed
            needed |= fresh
            work.extend(table[name] for name in fresh)
        for name in needed:
            for word in re.findall(r"\bvec[234][fiuhb]\b", table[name]):
                self.types.named(word)
        return [name for name in table if name in needed]

    def helper(self, name: str) -> str:
        """Return the text of a helper function, with the dialect's qualifier."""
        text = self.dialect.helpers[name]
        return text if text.startswith("template") else f"{self.dialect.function} {text}"
