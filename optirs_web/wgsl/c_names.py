"""Names and types of WGSL in C.

Every type of WGSL is a struct, a union or a scalar there, so that all can be assigned, passed and returned, and lies in
memory as WGSL lays it out: a vec3 is twelve bytes long and stands at multiples of sixteen.
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

# Words of C, C++, OpenCL C and CUDA C++ and macros of their headers, but for those that WGSL keeps to itself too.
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
    """What every name of a module is in C: itself where it can be, and different where two would hide one another."""

    def __init__(self, dialect: CDialect) -> None:
        self.words = frozenset(_WORDS.split()) | dialect.words
        self.module: dict[str, str] = {}
        self.taken: set[str] = set()
        self.scopes: list[dict[str, str]] = []

    def plain(self, name: str) -> str:
        """The name, or one like it that means nothing in C."""
        name = f"{name.lstrip('_')}_" if name.startswith("_") else name
        return f"{name}_" if name in self.words or _PATTERNS.match(name) else name

    def declare(self, name: str, kind: Literal["file", "function", "variable"]) -> str:
        """A name of the module; C has functions of its own in files, and their names begin small."""
        text = self.plain(name)
        if kind == "function" or (kind == "file" and text[0].islower() and not text.endswith("_")):
            text += "_"
        while text in self.taken:
            text += "_"
        self.taken.add(text)
        self.module[name] = text
        return text

    def local(self, name: str) -> str:
        """A name of the innermost scope. It hides nothing: in C it would do so in its own initial value already."""
        self.scopes[-1][name] = text = self.unused(name)
        return text

    def temporary(self, name: str) -> str:
        """A name like this one for what WGSL has no name for."""
        text = self.unused(name)
        self.scopes[-1][f"({text})"] = text
        return text

    def unused(self, name: str) -> str:
        """A name that nothing has which can be seen here."""
        text = self.plain(name)
        visible = {one for scope in self.scopes for one in scope.values()} | self.taken
        number = 1
        while text in visible:
            number += 1
            text = f"{self.plain(name)}_{number}"
        return text

    def find(self, name: str) -> str | None:
        """What a local is called; None if it is none."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)


class Types:
    """The definitions of the types that a text uses, each after those that it stands on."""

    def __init__(self, module: Module, dialect: CDialect, names: Names) -> None:
        self.dialect = dialect
        self.names = names
        self.definitions: dict[str, str] = {}
        self.members: dict[str, dict[str, str]] = {}
        for one in module.declarations:
            if isinstance(one, StructDeclaration):
                names.declare(one.name, "file")

    def name(self, type_: Type) -> str:
        """The name of a type, which is defined if it has to be."""
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
        """Define the vector of that name, for a helper."""
        letter = {letter: name for name, letter in _LETTERS.items()}[word[4]]
        self.name(Vector(int(word[3]), Scalar(letter)))

    def vector(self, type_: Vector, name: str) -> str:
        """The dialect's own; or a union of the components by their letters and by their numbers."""
        if name in self.dialect.vectors:
            return f"typedef {self.dialect.vectors[name]} {name};\n"
        element = self.name(type_.element)
        letters = ", ".join("xyzw"[: type_.size])
        aligned = "" if type_.size == 3 or element == "bool" else self.dialect.aligned.format(align_of(type_))
        return f"typedef union {aligned}{{ struct {{ {element} {letters}; }}; {element} at[{type_.size}]; }} {name};\n"

    def is_own(self, type_: Type) -> bool:
        """Whether it is a vector that the dialect has itself."""
        return isinstance(type_, Vector) and self.name(type_) in self.dialect.vectors

    def cell(self, element: Type) -> str:
        """What an array is made of: its elements, but vec3 in structs that keep their distance."""
        name = self.name(element)
        if not self.has_cell(element):
            return name
        cell = f"cell_{name}"
        aligned = self.dialect.aligned.format(align_of(element))
        return self.defined(cell, lambda: f"typedef struct {{ {aligned}{name} value; }} {cell};\n")

    @staticmethod
    def has_cell(element: Type) -> bool:
        """Whether the elements of an array are kept apart."""
        return isinstance(element, Vector) and element.size == 3

    def struct_name(self, type_: Struct) -> str:
        """A struct of the module, or what a compare-and-exchange gives."""
        if type_.name.startswith("__atomic"):
            return f"exchanged_{type_.members[0].type}"
        return self.names.module[type_.name]

    def struct(self, type_: Struct, name: str) -> str:
        """The members in order."""
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
        """What a member is called."""
        if type_.name not in self.members:
            found: dict[str, str] = {}
            for member in type_.members:
                text = self.names.plain(member.name)
                while text in found.values():
                    text += "_"
                found[member.name] = text
            self.members[type_.name] = found
        return self.members[type_.name][name]
