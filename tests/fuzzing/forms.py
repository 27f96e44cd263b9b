"""Tables of the expressions for a value of each type; forms are separated by two spaces or line breaks.

{i32}, {u32}, … are values of that type, {I} and {U} literals that are not zero, {N} a literal below 32, {F} a multiple
of 1/4. In the tables of many types {T} is a value of the type, T the type itself, {L} one of its literals; of vectors
{S} is a component, {B} a vector of booleans. Every operation on floats is exact on small multiples of 1/4.
"""

import re

LITERALS = {
    "I": ["1", "2", "3", "-3", "7", "100", "65537", "-2147483647"],
    "U": ["1u", "2u", "3u", "7u", "255u", "65537u", "4294967295u"],
    "N": [str(index) for index in range(32)],
    "F": ["0.0", "1.0", "-1.0", "0.5", "2.25", "-3.75"],
}

_INTEGERS = """
{T} + {T}  {T} - {T}  {T} * {T}  {T} / {T}  {T} % {T}  {T} & {T}  {T} | {T}  {T} ^ {T}  ~{T}
{T} << {u32}  {T} >> {u32}  {T} << {N}u  {T} >> {N}u  {T} * {L}  {T} / {L}  {T} % {L}  T({f32})  T({bool})
min({T}, {T})  max({T}, {T})  select({T}, {T}, {bool})  reverseBits({T})  countOneBits({T})  countLeadingZeros({T})
countTrailingZeros({T})  firstLeadingBit({T})  firstTrailingBit({T})  extractBits({T}, {u32} % 40u, {u32} % 40u)
extractBits({T}, {N}u, {u32})  insertBits({T}, {T}, {u32} % 40u, {u32} % 40u)
"""
_SIGNED = """
-{i32}  abs({i32})  sign({i32})  clamp({i32}, -9, 99)  i32({u32})  bitcast<i32>({u32})
i32(no_nan(bitcast<f32>({u32})))
"""
_UNSIGNED = """
clamp({u32}, 3u, 99u)  u32({i32})  bitcast<u32>({i32})  u32(no_nan(bitcast<f32>({u32})))  bitcast<u32>(f32({u32}))
bitcast<u32>(f32({i32} | 1))  bitcast<u32>(-bitcast<f32>({u32}))  bitcast<u32>(abs(bitcast<f32>({u32})))
bitcast<u32>(select(bitcast<f32>({u32}), bitcast<f32>({u32}), {bool}))
"""
_FLOATS = """
{f32} + {f32}  {f32} - {f32}  {f32} * {f32}  -{f32}  {f32} * {F}  {f32} + {F}  {f32} / 4.0  abs({f32})  sign({f32})
min({f32}, {f32})  max({f32}, {f32})  floor({f32})  ceil({f32})  trunc({f32})  round({f32})  fract({f32})
select({f32}, {f32}, {bool})  f32({i32} % 8)  f32({u32} & 7u)  f32({bool})  clamp({f32}, -2.0, 2.5)  saturate({f32})
step({f32}, {f32})  fma({f32}, {f32}, {f32})  mix({f32}, {f32}, {F})  bounded({f32})  quantizeToF16(bounded({f32}))
ldexp(bounded({f32}), {i32} % 4)
"""
_BOOLEANS = """
!{bool}  {bool} && {bool}  {bool} || {bool}  {bool} & {bool}  {bool} | {bool}  {bool} == {bool}  {bool} != {bool}
select({bool}, {bool}, {bool})  {i32} < {i32}  {i32} == {i32}  {i32} <= {I}  bool({i32})  {u32} >= {u32}  {u32} != {U}
{u32} > {u32}  {f32} < {f32}  {f32} >= {F}  {f32} == {f32}  bool({f32})
"""

_VECTORS = "T({S})  T({each})  select({T}, {T}, {bool})  select({T}, {T}, {B})"
_NUMBERS = """
{T} + {T}  {T} - {T}  {T} * {T}  {T} * {S}  {S} + {T}  min({T}, {T})  max({T}, {T})  clamp({T}, T(-2), T(3))
"""
_INTEGER_VECTORS = """
{T} / {T}  {T} % {T}  {T} / {S}  {S} % {T}  {T} & {T}  {T} | {T}  {T} ^ {T}  ~{T}  {T} << {shift}  {T} >> {shift}
countOneBits({T})  firstLeadingBit({T})  insertBits({T}, {T}, {u32} % 40u, {u32} % 40u)
"""
_FLOAT_VECTORS = """
-{T}  abs({T})  floor({T})  fract({T})  fma({T}, {T}, {T})  mix({T}, {T}, {F})  step({T}, {T})  {T} / 4.0
"""
_BOOLEAN_VECTORS = "!{T}  {T} & {T}  {T} | {T}  {T} == {T}"
_BETWEEN = {
    "vec2<i32>": "{vec3<i32>}.zx  -{vec2<i32>}  vec2<i32>({vec2<f32>})",
    "vec3<i32>": "vec3<i32>({vec3<u32>})  bitcast<vec3<i32>>({vec3<u32>})  vec3<i32>({vec2<i32>}, {i32})",
    "vec3<u32>": "{vec4<u32>}.wzy  vec3<u32>({vec3<i32>})  vec3<u32>({vec3<bool>})",
    "vec4<u32>": "unpack4xU8({u32})  vec4<u32>(unpack4xI8({u32}))  vec4<u32>({u32}, {vec3<u32>})  {vec3<u32>}.xyzz",
    "vec2<f32>": "{vec4<f32>}.wx  vec2<f32>({vec2<i32>} % 8)  unpack2x16float(pack2x16float(bounded2({vec2<f32>})))",
    "vec4<f32>": "{vec2<f32>}.yxyx  vec4<f32>({f32}, {vec2<f32>}, {f32})  vec4<f32>({vec4<u32>} & vec4<u32>(7u))",
    "vec3<bool>": "{vec3<i32>} < {vec3<i32>}  {vec3<u32>} != {vec3<u32>}  {vec3<i32>} >= vec3<i32>({i32})",
    "i32": "dot({vec3<i32>}, {vec3<i32>})  dot4I8Packed({u32}, {u32})  {vec2<i32>}.y  {vec3<i32>}[{u32} % 3u]",
    "u32": """pack4xU8({vec4<u32>})  pack4xU8Clamp({vec4<u32>})  pack4xI8(vec4<i32>({vec4<u32>}))  {vec4<u32>}.z
        pack4xI8Clamp(vec4<i32>({vec4<u32>}))  dot4U8Packed({u32}, {u32})  pack2x16float(bounded2({vec2<f32>}))
        pack4x8unorm(unpack4x8unorm({u32}))  dot({vec3<u32>}, {vec3<u32>})  {vec4<u32>}[{u32} & 3u]""",
    "f32": "dot(bounded4({vec4<f32>}), bounded4({vec4<f32>}))  {vec2<f32>}.x  {vec4<f32>}[{u32} & 3u]",
    "bool": "all({vec3<bool>})  any({vec3<bool>})  any({vec2<i32>} == {vec2<i32>})  {vec3<bool>}.z",
}  # fmt: skip

VECTORS = ("vec2<i32>", "vec3<i32>", "vec3<u32>", "vec4<u32>", "vec2<f32>", "vec4<f32>", "vec3<bool>")


def _split(table, **meanings):
    for name, meaning in meanings.items():
        table = table.replace(f"{{{name}}}", meaning)
    return [re.sub(r"\bT\(", f"{meanings.get('name', 'T')}(", form) for form in re.split(r"\s{2,}|\n", table.strip())]


def _of_vectors(type_):
    size, scalar = int(type_[3]), type_[5:-1]
    table = (
        _VECTORS
        + {
            "i32": f"  {_NUMBERS.strip()}  {_INTEGER_VECTORS.strip()}",
            "u32": f"  {_NUMBERS.strip().replace('(-2)', '(2u)').replace('(3)', '(3u)')}  {_INTEGER_VECTORS.strip()}",
            "f32": f"  {_NUMBERS.strip()}  {_FLOAT_VECTORS.strip()}",
            "bool": f"  {_BOOLEAN_VECTORS}",
        }[scalar]
    )
    meanings = {
        "T": f"{{{type_}}}",
        "S": f"{{{scalar}}}",
        "each": ", ".join([f"{{{scalar}}}"] * size),
        "B": "{vec3<bool>}" if size == 3 else f"vec{size}<bool>({', '.join(['{bool}'] * size)})",
        "shift": f"vec{size}<u32>({', '.join(['{u32}'] * size)})",
    }
    return _split(table, name=type_, **meanings)


def _of_integers(type_, literal):
    return _split(_INTEGERS, name=type_, T=f"{{{type_}}}", L=f"{{{literal}}}")


MAPS = {
    "i32": [*_of_integers("i32", "I"), *_split(_SIGNED)],
    "u32": [*_of_integers("u32", "U"), *_split(_UNSIGNED)],
    "f32": _split(_FLOATS),
    "bool": _split(_BOOLEANS),
}
KERNELS = {
    type_: [*MAPS.get(type_, ()), *(_of_vectors(type_) if type_ in VECTORS else ()), *_split(table)]
    for type_, table in _BETWEEN.items()
}
