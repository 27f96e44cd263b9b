"""The built-in functions of WGSL and their type rules: one table.

A row reads: names, the scalars T may have, its shapes, parameters, result. In a row

- ``T`` is the same type wherever it occurs, ``S`` its scalar; ``u32``, ``vec4f`` and the like are these types;
- ``T:i32`` and ``T:bool`` have T's shape over another scalar;
- ``&atomic``, ``&array`` and ``&workgroup`` are ``&x`` of an atomic in memory that can be written, of a
  runtime-sized array in a storage buffer, and of any workgroup variable; T is the type of its contents;
- ``lane`` is a const-expression of type u32;
- shapes are ``s`` (scalar), ``v`` (vector of any size), ``3`` (vec3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from .typerules import (
    CONCRETE_INTEGERS,
    CONVERSIONS,
    FLOATS,
    NUMBERS,
    converts,
    element_of,
    join,
    with_element,
)
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
    StructMember,
    Type,
    Vector,
)

__all__ = ["BUILTINS", "BUILTIN_VALUES", "Match", "Signature", "has_side_effects", "match", "needs_subgroups"]

_CLASSES: dict[str, tuple[Scalar, ...]] = {
    "float": FLOATS,
    "number": NUMBERS,
    "signed": (ABSTRACT_INT, I32, ABSTRACT_FLOAT, F32, F16),
    "integer": CONCRETE_INTEGERS,
    "bool": (BOOL,),
    "any": (BOOL, *NUMBERS),
    "concrete": (I32, U32, F32, F16),
    "-": (),
}

_TABLE = """
all any                                   bool     sv  T                        bool
select                                    any      sv  T,T,bool                 T
select                                    any      v   T,T,T:bool               T
acos acosh asin asinh atan atanh ceil     float    sv  T                        T
cos cosh degrees exp exp2 floor fract     float    sv  T                        T
inverseSqrt log log2 radians round        float    sv  T                        T
saturate sin sinh sqrt tan tanh trunc     float    sv  T                        T
abs                                       number   sv  T                        T
sign                                      signed   sv  T                        T
atan2 pow step                            float    sv  T,T                      T
max min                                   number   sv  T,T                      T
clamp                                     number   sv  T,T,T                    T
fma smoothstep mix                        float    sv  T,T,T                    T
mix                                       float    v   T,T,S                    T
ldexp                                     float    sv  T,T:i32                  T
countLeadingZeros countOneBits            integer  sv  T                        T
countTrailingZeros reverseBits            integer  sv  T                        T
firstLeadingBit firstTrailingBit          integer  sv  T                        T
extractBits                               integer  sv  T,u32,u32                T
insertBits                                integer  sv  T,T,u32,u32              T
cross                                     float    3   T,T                      T
dot                                       number   v   T,T                      S
length                                    float    sv  T                        S
distance                                  float    sv  T,T                      S
normalize                                 float    v   T                        T
reflect                                   float    v   T,T                      T
faceForward                               float    v   T,T,T                    T
quantizeToF16                             f32      sv  T                        T
dot4U8Packed                              -        -   u32,u32                  u32
dot4I8Packed                              -        -   u32,u32                  i32
pack4x8snorm pack4x8unorm                 -        -   vec4f                    u32
pack4xI8 pack4xI8Clamp                    -        -   vec4i                    u32
pack4xU8 pack4xU8Clamp                    -        -   vec4u                    u32
pack2x16snorm pack2x16unorm pack2x16float -        -   vec2f                    u32
unpack4x8snorm unpack4x8unorm             -        -   u32                      vec4f
unpack4xI8                                -        -   u32                      vec4i
unpack4xU8                                -        -   u32                      vec4u
unpack2x16snorm unpack2x16unorm           -        -   u32                      vec2f
unpack2x16float                           -        -   u32                      vec2f
arrayLength                               -        -   &array                   u32
workgroupUniformLoad                      -        -   &workgroup               T
workgroupBarrier storageBarrier           -        -   -                        -
atomicLoad                                integer  s   &atomic                  T
atomicStore                               integer  s   &atomic,T                -
atomicAdd atomicSub atomicMax atomicMin   integer  s   &atomic,T                T
atomicAnd atomicOr atomicXor              integer  s   &atomic,T                T
atomicExchange                            integer  s   &atomic,T                T
atomicCompareExchangeWeak                 integer  s   &atomic,T,T              exchanged
subgroupAdd subgroupMul                   concrete sv  T                        T
subgroupInclusiveAdd subgroupExclusiveAdd concrete sv  T                        T
subgroupInclusiveMul subgroupExclusiveMul concrete sv  T                        T
subgroupMax subgroupMin                   concrete sv  T                        T
subgroupBroadcastFirst                    concrete sv  T                        T
subgroupAnd subgroupOr subgroupXor        integer  sv  T                        T
subgroupBroadcast quadBroadcast           concrete sv  T,lane                   T
subgroupShuffle subgroupShuffleXor        concrete sv  T,u32                    T
subgroupShuffleUp subgroupShuffleDown     concrete sv  T,u32                    T
subgroupAll subgroupAny                   -        -   bool                     bool
subgroupBallot                            -        -   bool                     vec4u
quadSwapX quadSwapY quadSwapDiagonal      concrete sv  T                        T
"""

_FIXED: dict[str, Type] = {
    "bool": BOOL,
    "lane": U32,
    "u32": U32,
    "i32": I32,
    "vec2f": Vector(2, F32),
    "vec4f": Vector(4, F32),
    "vec4i": Vector(4, I32),
    "vec4u": Vector(4, U32),
}

# The parameters of entry points: @builtin(name).
BUILTIN_VALUES: dict[str, Type] = {
    "global_invocation_id": Vector(3, U32),
    "local_invocation_id": Vector(3, U32),
    "local_invocation_index": U32,
    "workgroup_id": Vector(3, U32),
    "num_workgroups": Vector(3, U32),
    "num_subgroups": U32,
    "subgroup_id": U32,
    "subgroup_size": U32,
    "subgroup_invocation_id": U32,
}


@dataclass(frozen=True, slots=True)
class Signature:
    """One row of the table."""

    scalars: tuple[Scalar, ...]
    shapes: str
    parameters: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"({', '.join(self.parameters)})"


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that fits a call: the types to which the arguments convert, the result's type (or None), and T."""

    parameters: tuple[Type, ...]
    result: Type | None
    variable: Type | None


def _read_table(table: str) -> dict[str, tuple[Signature, ...]]:
    rows: dict[str, tuple[Signature, ...]] = {}
    for row in table.strip().splitlines():
        *names, scalars, shapes, parameters, result = row.split()
        signature = Signature(
            _CLASSES.get(scalars, (F32,)),
            shapes,
            tuple(parameters.split(",")) if parameters != "-" else (),
            result,
        )
        for name in names:
            rows[name] = (*rows.get(name, ()), signature)
    return rows


BUILTINS = _read_table(_TABLE)


def needs_subgroups(name: str) -> bool:
    """Return True for the built-in functions and values of the extension ``subgroups``."""
    return name.startswith(("subgroup", "quad")) or name == "num_subgroups"


@cache
def has_side_effects(name: str) -> bool:
    """Return True for built-in functions with side effects: they write memory or synchronize with other invocations."""
    return (
        name.startswith("atomic") or name.endswith("Barrier") or name == "workgroupUniformLoad" or needs_subgroups(name)
    )


def match(name: str, arguments: Sequence[Type], constant: Sequence[bool]) -> Match | str:
    """Return the signature of a built-in function that fits the arguments, or a message that says why none does.

    Args:
        name: one of `BUILTINS`.
        arguments: their types.
        constant: for each, True if it is a const-expression; T is abstract only if all are.
    """
    signatures = [signature for signature in BUILTINS[name] if len(signature.parameters) == len(arguments)]
    if not signatures:
        counts = sorted({len(signature.parameters) for signature in BUILTINS[name]})
        return f"'{name}' takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}"
    for signature in signatures:
        matched = _fit(signature, arguments, all(constant))
        if matched is not None:
            return matched
    types = ", ".join(map(str, arguments))
    available = "; ".join(f"{name}{signature}{_explain(signature)}" for signature in signatures)
    return f"'{name}' does not take ({types}); there is {available}"


def _explain(signature: Signature) -> str:
    if not {"T", "S", "&atomic"} & set(signature.parameters):
        return ""
    shapes = {"sv": "scalars and vectors", "v": "vectors", "3": "vec3", "s": "scalars"}[signature.shapes]
    concrete = [scalar for scalar in signature.scalars if scalar not in CONVERSIONS]
    return f" with T {shapes} of {', '.join(map(str, concrete))}"


def _fit(signature: Signature, arguments: Sequence[Type], all_constant: bool) -> Match | None:
    variable: Type | None = None
    if signature.parameters and signature.parameters[0].startswith("&"):
        variable = _pointed(signature.parameters[0], arguments[0])
        if variable is None:
            return None
    if "T" in signature.parameters:
        variable = _bind(signature, arguments, variable, all_constant)
        if variable is None:
            return None
    parameters: list[Type] = []
    for kind, argument in zip(signature.parameters, arguments, strict=True):
        parameter = argument if kind.startswith("&") else _type(kind, variable)
        if parameter is None or not converts(argument, parameter):
            return None
        parameters.append(parameter)
    return Match(tuple(parameters), _type(signature.result, variable), variable)


def _bind(signature: Signature, arguments: Sequence[Type], bound: Type | None, all_constant: bool) -> Type | None:
    """Return T: the type to which all arguments of type T convert, over a scalar that the signature allows, or None."""
    variable = bound
    for kind, argument in zip(signature.parameters, arguments, strict=True):
        if kind == "T":
            variable = argument if variable is None else join(variable, argument)
        elif kind == "S" and variable is not None and isinstance(argument, Scalar):
            scalar = join(element_of(variable), argument)
            variable = with_element(variable, scalar) if isinstance(scalar, Scalar) else None
        if not isinstance(variable, Scalar | Vector):
            return None
    if not isinstance(variable, Scalar | Vector) or not _shape_fits(signature.shapes, variable):
        return None
    scalar = element_of(variable)
    assert isinstance(scalar, Scalar)
    for candidate in (scalar, *CONVERSIONS.get(scalar, ())):
        if candidate in signature.scalars and (all_constant or candidate not in CONVERSIONS):
            return with_element(variable, candidate)
    return None


def _shape_fits(shapes: str, type_: Type) -> bool:
    if isinstance(type_, Vector):
        return "v" in shapes or str(type_.size) in shapes
    return "s" in shapes


def _pointed(kind: str, argument: Type) -> Type | None:
    """Return the type that ``&x`` points to; None if it is not the kind of pointer that the signature takes."""
    match kind, argument:
        case "&atomic", Pointer(target=Atomic(element), access="read_write"):
            return element
        case "&array", Pointer(space="storage", target=Array(count=None) as array):
            return array
        case "&workgroup", Pointer(space="workgroup", target=target):
            return target.element if isinstance(target, Atomic) else target
    return None


def _type(kind: str, variable: Type | None) -> Type | None:
    """Return the type that a word of the table stands for; `variable` is T."""
    if kind in _FIXED:
        return _FIXED[kind]
    if variable is None or kind == "-":
        return None
    if kind == "exchanged":
        members = (StructMember("old_value", variable), StructMember("exchanged", BOOL))
        return Struct(f"__atomic_compare_exchange_result<{variable}>", members)
    if kind == "S":
        return element_of(variable)
    scalar = _FIXED.get(kind.removeprefix("T:"))
    return with_element(variable, scalar) if isinstance(scalar, Scalar) else variable
