"""The types of the WGSL subset, and their layout in memory (WGSL specification, section 14.4)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ABSTRACT_FLOAT",
    "ABSTRACT_INT",
    "BOOL",
    "F16",
    "F32",
    "I32",
    "U32",
    "Array",
    "Atomic",
    "Pointer",
    "Scalar",
    "Struct",
    "StructMember",
    "SubgroupMatrix",
    "Type",
    "Vector",
    "align_of",
    "member_offsets",
    "size_of",
]


@dataclass(frozen=True, slots=True)
class Scalar:
    """bool, i32, u32, f32, f16, or one of the two abstract types that literals have."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Vector:
    """``vec2<T>`` to ``vec4<T>``."""

    size: int
    element: Scalar

    def __str__(self) -> str:
        return f"vec{self.size}<{self.element}>"


@dataclass(frozen=True, slots=True)
class Array:
    """``array<T, N>``, or ``array<T>`` with ``count`` None: only the last member of a storage buffer."""

    element: Type
    count: int | None

    def __str__(self) -> str:
        return f"array<{self.element}>" if self.count is None else f"array<{self.element}, {self.count}>"


@dataclass(frozen=True, slots=True)
class Atomic:
    """``atomic<u32>`` or ``atomic<i32>``."""

    element: Scalar

    def __str__(self) -> str:
        return f"atomic<{self.element}>"


@dataclass(frozen=True, slots=True)
class SubgroupMatrix:
    """``subgroup_matrix_left<T, COLUMNS, ROWS>`` and the like: each invocation of a subgroup has a part of it.

    Attributes:
        kind: "left" or "right" for a factor, "result" for a sum of products.
    """

    kind: str
    element: Scalar
    columns: int
    rows: int

    def __str__(self) -> str:
        return f"subgroup_matrix_{self.kind}<{self.element}, {self.columns}, {self.rows}>"


@dataclass(frozen=True, slots=True)
class StructMember:
    """``name: type``."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct; two are equal if their names and members are."""

    name: str
    members: tuple[StructMember, ...]

    def member(self, name: str) -> StructMember | None:
        """Return the member of that name, or None."""
        return next((member for member in self.members if member.name == name), None)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Pointer:
    """``ptr<space, T>``: only as the operand of built-ins such as ``atomicAdd(&x, 1)`` and ``arrayLength(&x)``."""

    space: str
    target: Type
    access: str

    def __str__(self) -> str:
        return f"ptr<{self.space}, {self.target}>"


Type = Scalar | Vector | Array | Atomic | Struct | Pointer | SubgroupMatrix

BOOL = Scalar("bool")
I32 = Scalar("i32")
U32 = Scalar("u32")
F32 = Scalar("f32")
F16 = Scalar("f16")
ABSTRACT_INT = Scalar("abstract-int")
ABSTRACT_FLOAT = Scalar("abstract-float")


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def align_of(type_: Type) -> int:
    """Return the alignment in bytes of a host-shareable type."""
    match type_:
        case Scalar(name="f16"):
            return 2
        case Scalar() | Atomic():
            return 4
        case Vector(size=size, element=element):
            return (2 if size == 2 else 4) * align_of(element)
        case Array(element=element):
            return align_of(element)
        case Struct(members=members):
            return max(align_of(member.type) for member in members)
    raise ValueError(f"{type_} has no layout in memory")


def size_of(type_: Type) -> int:
    """Return the size in bytes of a host-shareable type with a fixed size."""
    match type_:
        case Scalar() | Atomic():
            return align_of(type_)
        case Vector(size=size, element=element):
            return size * size_of(element)
        case Array(element=element, count=int() as count):
            return count * _round_up(size_of(element), align_of(element))
        case Struct(members=members):
            end = member_offsets(type_)[-1] + size_of(members[-1].type)
            return _round_up(end, align_of(type_))
    raise ValueError(f"{type_} has no fixed size in memory")


def member_offsets(struct: Struct) -> tuple[int, ...]:
    """Return the offset in bytes of each member, in order."""
    offsets = []
    end = 0
    for member in struct.members:
        offset = _round_up(end, align_of(member.type))
        offsets.append(offset)
        end = offset + (0 if isinstance(member.type, Array) and member.type.count is None else size_of(member.type))
    return tuple(offsets)
