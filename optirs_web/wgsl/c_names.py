"""Translates names and types of WGSL to C.

Every type of WGSL becomes a struct, a union or a scalar, so that all can be assigned, passed and returned, and has
WGSL's layout in memory: a vec3 has a size of twelve bytes and an alignment of sixteen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from .c_dialects import CDialect
from .syntax import Module, StructDeclaration
from .types import F16, Array, Atomic, Pointer, Scalar, Struct, SubgroupMatrix, Type, Vector, align_of

__all__ = ["Names", "Types"]

_LETTERS = {"f32": "f", "i32": "i", "u32": "u", "f16": "h", "bool": "b"}

# Words of C, C++, OpenCL C and CUDA C++ and macros of their headers, except those that WGSL reserves too.
_WORDS = """
and and_eq atomic_cancel bitand bitor bool char compl complex constant double event_t f16 f32 float generic global
half i32 imaginary int int8_t int16_t int32_t int64_t intptr_t kernel local long not not_eq or or_eq pipe private
ptrdiff_t quad read_only read_write reserve_id_t sampler_t short signed size_t u32 uchar uint uint8_t uint16_t
uint32_t uint64_t uintptr_t ulong uniform unsigned ushort void wchar_t write_only xor xor_eq
CHAR_BIT FLT_DIG FLT_EPSILON FLT_MANT_DIG FLT_MAX FLT_MIN FLT_RADIX FP_FAST_FMAF HUGE_VAL HUGE_VALF INFINITY INT_MAX
INT_MIN LONG_MAX LONG_MIN MAXFLOAT NAN SHRT_MAX SHRT_MIN UCHAR_MAX UINT_MAX ULONG_MAX
blockDim blockIdx dim3 gridDim threadIdx warpSize linux unix
"""
_PATTERNS = re.compile(
    r"_|(u?char|u?short|u?int|u?long|float|double|half)\d|vec\d|array\d|cell_|exchanged_|image\d|(CLK|M|CL|FLT|DBL)_"
)


class Names:
    """The C names of a module's names: the same where possible, different where one would hide another."""

    def __init__(self, dialect: CDialect) -> None:
        self.words = frozenset(_WORDS.split()) | dialect.words
        self.module: dict[str, str] = {}
        self.taken: set[str] = set()
        self.scopes: list[dict[str, str]] = []

    def plain(self, name: str) -> str:
        """Return the name, or one like it if it has a meaning in C."""
        name = f"{name.lstrip('_')}_" if name.startswith("_") else name
        return f"{name}_" if name in self.words or _PATTERNS.match(name) else name

    def declare(self, name: str, kind: Literal["file", "function", "variable"]) -> str:
        """Name a declaration of the module.

        Functions and lower-case names of a file get a suffix, as C declares functions with such names.
        """
        text = self.plain(name)
        if kind == "function" or (kind == "file" and text[0].islower() and not text.endswith("_")):
            text += "_"
        while text in self.taken:
            text += "_"
        self.taken.add(text)
        self.module[name] = text
        return text

    def local(self, name: str) -> str:
        """Name a variable of the innermost scope.

        It hides no other name: in C it would do so in its own initializer already.
        """
        self.scopes[-1][name] = text = self.unused(name)
        return text

    def temporary(self, name: str) -> str:
        """Return a new name like this one, for a value that has no name in WGSL."""
        text = self.unused(name)
        self.scopes[-1][f"({text})"] = text
        return text

    def unused(self, name: str) -> str:
        """Return a name that no visible declaration has."""
        text = self.plain(name)
        visible = {local for scope in self.scopes for local in scope.values()} | self.taken
        number = 1
        while text in visible:
            number += 1
            text = f"{self.plain(name)}_{number}"
        return text

    def find(self, name: str) -> str | None:
        """Return the C name of a local; None if there is no local of that name."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)


class Types:
    """The definitions of the types that a text uses, each after those on which it depends."""

    def __init__(self, module: Module, dialect: CDialect, names: Names) -> None:
        self.dialect = dialect
        self.names = names
        self.definitions: dict[str, str] = {}
        self.members: dict[str, dict[str, str]] = {}
        for declaration in module.declarations:
            if isinstance(declaration, StructDeclaration):
                names.declare(declaration.name, "file")

    def name(self, type_: Type) -> str:
        """Return the name of a type, and define it if necessary."""
        match type_:
            case Scalar(name=name):
                if type_ == F16:
                    self.definitions.setdefault(name, self.dialect.half)
                return name
            case Atomic(element=element):
                return element.name
            case Vector(size=size, element=element):
                name = f"vec{size}{_LETTERS[element.name]}"
                return self.defined(name, lambda: self.vector(type_, name))
            case Array(element=element, count=count):
                name = f"array{count}_{self.name(element)}"
                return self.defined(name, lambda: f"typedef struct {{ {self.cell(element)} at[{count}]; }} {name};\n")
            case Struct():
                name = self.struct_name(type_)
                return self.defined(name, lambda: self.struct(type_, name))
            case Pointer() | SubgroupMatrix():
                raise AssertionError(f"{type_} has no name")

    def defined(self, name: str, definition: Callable[[], str]) -> str:
        """Define a type once, after those that its definition names."""
        if name not in self.definitions:
            text = definition()
            self.definitions[name] = text
        return name

    def named(self, word: str) -> None:
        """Define the vector type of that name, for a helper."""
        letter = {letter: name for name, letter in _LETTERS.items()}[word[4]]
        self.name(Vector(int(word[3]), Scalar(letter)))

    def vector(self, type_: Vector, name: str) -> str:
        """Return the definition of a vector: the dialect's own type, or a union of named and numbered components."""
        if name in self.dialect.vectors:
            return f"typedef {self.dialect.vectors[name]} {name};\n"
        element = self.name(type_.element)
        letters = ", ".join("xyzw"[: type_.size])
        aligned = "" if type_.size == 3 or element == "bool" else self.dialect.aligned.format(align_of(type_))
        return f"typedef union {aligned}{{ struct {{ {element} {letters}; }}; {element} at[{type_.size}]; }} {name};\n"

    def is_own(self, type_: Type) -> bool:
        """Return True for a vector type that the dialect provides."""
        return isinstance(type_, Vector) and self.name(type_) in self.dialect.vectors

    def cell(self, element: Type) -> str:
        """Return the name of the element type of a C array: a vec3 is wrapped in a struct with its alignment."""
        name = self.name(element)
        if not self.has_cell(element):
            return name
        cell = f"cell_{name}"
        aligned = self.dialect.aligned.format(align_of(element))
        return self.defined(cell, lambda: f"typedef struct {{ {aligned}{name} value; }} {cell};\n")

    @staticmethod
    def has_cell(element: Type) -> bool:
        """Return True if the elements of an array are wrapped in structs, since their size is not their stride."""
        return isinstance(element, Vector) and element.size == 3

    def struct_name(self, type_: Struct) -> str:
        """Return the name of a struct of the module, or of the result of a compare-and-exchange."""
        if type_.name.startswith("__atomic"):
            return f"exchanged_{type_.members[0].type}"
        return self.names.module[type_.name]

    def struct(self, type_: Struct, name: str) -> str:
        """Return the definition of a struct."""
        lines = []
        for member in type_.members:
            text = self.member(type_, member.name)
            match member.type:
                case Array(element=element, count=None):
                    line = f"{self.cell(element)} {text}[1]"
                case Vector(size=3):
                    line = f"{self.dialect.aligned.format(align_of(member.type))}{self.name(member.type)} {text}"
                case _:
                    line = f"{self.name(member.type)} {text}"
            lines.append(f"    {line};\n")
        return f"typedef struct {{\n{''.join(lines)}}} {name};\n"

    def member(self, type_: Struct, name: str) -> str:
        """Return the C name of a struct's member."""
        if type_.name not in self.members:
            names: dict[str, str] = {}
            for member in type_.members:
                text = self.names.plain(member.name)
                while text in names.values():
                    text += "_"
                names[member.name] = text
            self.members[type_.name] = names
        return self.members[type_.name][name]
