"""Conversions between types (WGSL specification, section 6.1), and predicates of types."""

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

# The types to which an abstract number converts, the preferred one first.
CONVERSIONS: dict[Scalar, tuple[Scalar, ...]] = {
    ABSTRACT_INT: (I32, U32, ABSTRACT_FLOAT, F32, F16),
    ABSTRACT_FLOAT: (F32, F16),
}


def element_of(type_: Type) -> Type:
    """Return the type of a vector's components or of an array's elements; any other type itself."""
    return type_.element if isinstance(type_, Vector | Array) else type_


def with_element(shape: Type, element: Scalar) -> Scalar | Vector:
    """Return the type of the same shape (scalar or vector) over another scalar."""
    return Vector(shape.size, element) if isinstance(shape, Vector) else element


def is_abstract(type_: Type) -> bool:
    """Return True for types whose values exist only in const-expressions."""
    while isinstance(type_, Vector | Array):
        type_ = type_.element
    return type_ in CONVERSIONS


def concrete(type_: Type) -> Type:
    """Return the default of an abstract type, made of i32 or f32; any other type itself."""
    match type_:
        case Scalar():
            return CONVERSIONS[type_][0] if type_ in CONVERSIONS else type_
        case Vector(size, element):
            return Vector(size, CONVERSIONS[element][0]) if element in CONVERSIONS else type_
        case Array(element, count):
            return Array(concrete(element), count)
    return type_


def converts(source: Type, target: Type) -> bool:
    """Return True if a value converts implicitly: types are equal, or an abstract source may become the target."""
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


def join(left: Type, right: Type) -> Type | None:
    """Return the type to which both convert; None if there is none."""
    if left is right:
        return left
    if converts(left, right):
        return right
    return left if converts(right, left) else None


def is_runtime_sized(type_: Type) -> bool:
    """Return True for ``array<T>`` and structs that end in one."""
    match type_:
        case Array(count=None):
            return True
        case Struct(members=members):
            return is_runtime_sized(members[-1].type)
    return False


def holds(type_: Type | None, kind: type[Atomic | SubgroupMatrix]) -> bool:
    """Return True for a type of this kind, and for arrays and structs that contain one at any depth."""
    match type_:
        case Array(element=element):
            return holds(element, kind)
        case Struct(members=members):
            return any(holds(member.type, kind) for member in members)
    return isinstance(type_, kind)


def is_constructible(type_: Type) -> bool:
    """Return True for types of values: they can be passed, returned, and stored in variables of functions."""
    if isinstance(type_, Scalar | Vector):
        return True
    return not (isinstance(type_, Pointer) or is_runtime_sized(type_) or holds(type_, Atomic))


def is_host_shareable(type_: Type) -> bool:
    """Return True for types that a buffer can contain: they contain no bool."""
    match type_:
        case Scalar() | Atomic():
            return type_ != BOOL
        case Vector(element=element) | Array(element=element):
            return is_host_shareable(element)
        case Struct(members=members):
            return all(is_host_shareable(member.type) for member in members)
    return False


def nesting(type_: Type) -> int:
    """Return the nesting depth of arrays and structs; 1 for other types."""
    match type_:
        case Array(element=element):
            return 1 + nesting(element)
        case Struct(members=members):
            return 1 + max(nesting(member.type) for member in members)
    return 1


def scalar_count(type_: Type) -> int:
    """Return the number of scalars in a value; the elements of a runtime-sized array count once."""
    match type_:
        case Vector(size=size):
            return size
        case Array(element=element, count=count):
            return scalar_count(element) * (1 if count is None else count)
        case Struct(members=members):
            return sum(scalar_count(member.type) for member in members)
    return 1
