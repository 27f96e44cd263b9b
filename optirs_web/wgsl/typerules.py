"""What may be done with a type: conversions (WGSL specification, section 6.1) and the classes of plain types."""

from __future__ import annotations

from .types import (
    ABSTRACT_FLOAT,
    ABSTRACT_INT,
    BOOL,
    F16,
    F32,
    I32,
    U32,
    Array,
    Atomic,
    Pointer,
    Scalar,
    Struct,
    SubgroupMatrix,
    Type,
    Vector,
)

__all__ = [
    "CONCRETE_INTEGERS",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "concrete",
    "converts",
    "element_of",
    "holds",
    "is_abstract",
    "is_constructible",
    "is_host_shareable",
    "is_runtime_sized",
    "join",
    "nesting",
    "scalar_count",
    "with_element",
]

FLOATS = (ABSTRACT_FLOAT, F32, F16)
CONCRETE_INTEGERS = (I32, U32)
INTEGERS = (ABSTRACT_INT, *CONCRETE_INTEGERS)
NUMBERS = (*INTEGERS, *FLOATS)

# What an abstract number may become, the best first.
CONVERSIONS: dict[Scalar, tuple[Scalar, ...]] = {
    ABSTRACT_INT: (I32, U32, ABSTRACT_FLOAT, F32, F16),
    ABSTRACT_FLOAT: (F32, F16),
}


def element_of(type_: Type) -> Type:
    """The scalar of a vector, the element of an array; a scalar is its own."""
    return type_.element if isinstance(type_, Vector | Array) else type_


def with_element(shape: Type, element: Scalar) -> Scalar | Vector:
    """A type of the same shape (scalar or vector) over another scalar."""
    return Vector(shape.size, element) if isinstance(shape, Vector) else element


def is_abstract(type_: Type) -> bool:
    """Whether values of the type exist only before the shader runs."""
    while isinstance(type_, Vector | Array):
        type_ = type_.element
    return type_ in CONVERSIONS


def concrete(type_: Type) -> Type:
    """What an abstract type becomes where nothing else is asked: i32 or f32."""
    match type_:
        case Scalar():
            return CONVERSIONS[type_][0] if type_ in CONVERSIONS else type_
        case Vector(size, element):
            return Vector(size, CONVERSIONS[element][0]) if element in CONVERSIONS else type_
        case Array(element, count):
            return Array(concrete(element), count)
    return type_


def converts(source: Type, target: Type) -> bool:
    """Whether a value converts without being told to: equal types, or an abstract one to what it may become."""
    if source == target:
        return True
    match source, target:
        case Scalar(), Scalar():
            return target in CONVERSIONS.get(source, ())
        case Vector(size, element), Vector(other_size, other):
            return size == other_size and converts(element, other)
        case Array(inner, count), Array(other_inner, other_count):
            return count == other_count and converts(inner, other_inner)
    return False


def join(first: Type, second: Type) -> Type | None:
    """The type that both convert to; None if there is none."""
    if converts(first, second):
        return second
    return first if converts(second, first) else None


def is_runtime_sized(type_: Type) -> bool:
    """``array<T>``, or a struct that ends in one."""
    match type_:
        case Array(count=None):
            return True
        case Struct(members=members):
            return is_runtime_sized(members[-1].type)
    return False


def holds(type_: Type | None, kind: type[Atomic | SubgroupMatrix]) -> bool:
    """Return whether a type is of this kind, or has a part that is: an element, or a member at any depth."""
    match type_:
        case Array(element=element):
            return holds(element, kind)
        case Struct(members=members):
            return any(holds(member.type, kind) for member in members)
    return isinstance(type_, kind)


def is_constructible(type_: Type) -> bool:
    """Whether it can be a value: passed, returned, held in a variable of a function."""
    return not (isinstance(type_, Pointer) or is_runtime_sized(type_) or holds(type_, Atomic))


def is_host_shareable(type_: Type) -> bool:
    """Whether it can lie in a buffer: it holds no bool."""
    match type_:
        case Scalar() | Atomic():
            return type_ != BOOL
        case Vector(element=element) | Array(element=element):
            return is_host_shareable(element)
        case Struct(members=members):
            return all(is_host_shareable(member.type) for member in members)
    return False


def nesting(type_: Type) -> int:
    """How deep arrays and structs nest."""
    match type_:
        case Array(element=element):
            return 1 + nesting(element)
        case Struct(members=members):
            return 1 + max(nesting(member.type) for member in members)
    return 1


def scalar_count(type_: Type) -> int:
    """How many scalars a value holds; the elements of a runtime-sized array count once."""
    match type_:
        case Vector(size=size):
            return size
        case Array(element=element, count=count):
            return scalar_count(element) * (1 if count is None else count)
        case Struct(members=members):
            return sum(scalar_count(member.type) for member in members)
    return 1
