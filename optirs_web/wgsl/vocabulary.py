"""The words of WGSL: keywords, reserved words, predeclared types, and the names that this subset refuses."""

from __future__ import annotations

from functools import cache

__all__ = [
    "KEYWORDS",
    "MATRIX_EXTENSION",
    "MATRIX_FUNCTIONS",
    "MATRIX_TYPES",
    "PREDECLARED_TYPES",
    "REFUSED_ATTRIBUTES",
    "REFUSED_NAMES",
    "RESERVED_WORDS",
    "TEMPLATED",
    "refusal",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    """
    alias break case const const_assert continue continuing default diagnostic discard else enable false fn for
    if let loop override requires return struct switch true var while
    """
)

# Words that WGSL reserves: no tool accepts them as names.
RESERVED_WORDS = _words(
    """
    NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast catch
    class co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast
    consteval constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum
    explicit export extends extern external fallthrough filter final finally friend from fxgroup get goto
    groupshared highp impl implements import inline instanceof interface layout lowp macro macro_rules match
    mediump meta mod module move mut mutable namespace new nil noexcept noinline nointerpolation non_coherent
    noncoherent noperspective null nullptr of operator package packoffset partition pass patch pixelfragment
    precise precision premerge priv protected pub public readonly ref regardless register reinterpret_cast
    require resource restrict self set shared sizeof smooth snorm static static_assert static_cast std
    subroutine super target template this thread_local throw trait try type typedef typeid typename typeof union
    unless unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield
    """
)

# Chromium's experimental extension, which only Dawn compiles; see `subgroup_matrices`.
MATRIX_EXTENSION = "chromium_experimental_subgroup_matrix"
MATRIX_TYPES = ("subgroup_matrix_left", "subgroup_matrix_right", "subgroup_matrix_result")
MATRIX_FUNCTIONS = (
    "subgroupMatrixLoad", "subgroupMatrixStore", "subgroupMatrixMultiply", "subgroupMatrixMultiplyAccumulate"
)  # fmt: skip

# Names that take a template list, and the kinds of its arguments.
TEMPLATED: dict[str, tuple[str, ...]] = {
    "array": ("type", "expression"),
    "atomic": ("type",),
    "bitcast": ("type",),
    "vec2": ("type",),
    "vec3": ("type",),
    "vec4": ("type",),
    **dict.fromkeys(MATRIX_TYPES, ("type", "expression", "expression")),
    "subgroupMatrixLoad": ("type", "type"),
    "subgroupMatrixMultiply": ("type",),
    "subgroupMatrixStore": ("type",),
}

SCALAR_TYPES = ("bool", "i32", "u32", "f32", "f16")
VECTOR_ALIASES = {
    f"vec{size}{letter}": (size, scalar)
    for size in (2, 3, 4)
    for letter, scalar in (("i", "i32"), ("u", "u32"), ("f", "f32"), ("h", "f16"))
}
PREDECLARED_TYPES = frozenset(
    (*SCALAR_TYPES, *VECTOR_ALIASES, "vec2", "vec3", "vec4", "array", "atomic", *MATRIX_TYPES)
)

_MATRIX = "matrices are not in the subset; write arrays or vectors and the products in full"
_POINTER = "pointers are not in the subset, except `&x` as an argument of a built-in; pass values and return them"
_TEXTURE = "textures and samplers are not in the subset; use storage buffers"
_DERIVATIVE = "derivatives exist in fragment shaders only; this subset is for compute shaders"
_STRUCT_RESULT = "its result is a built-in struct, which not every target has; import precise_ldexp, trunc or fract"

REFUSED_NAMES: dict[str, str] = {
    **{f"mat{c}x{r}{t}": _MATRIX for c in (2, 3, 4) for r in (2, 3, 4) for t in ("", "f", "h")},
    "transpose": _MATRIX,
    "determinant": _MATRIX,
    "ptr": _POINTER,
    "sampler": _TEXTURE,
    "sampler_comparison": _TEXTURE,
    "textureBarrier": _TEXTURE,
    "frexp": _STRUCT_RESULT,
    "modf": _STRUCT_RESULT,
    "discard": "fragment shaders are not in the subset; return from the invocation instead",
    "f64": "64-bit floats are not in WGSL; use f32",
    "i64": "64-bit integers are not in WGSL; use two u32",
    "u64": "64-bit integers are not in WGSL; use two u32",
}

REFUSED_ATTRIBUTES: dict[str, str] = {
    "vertex": "only compute shaders are in the subset; write @compute @workgroup_size(64)",
    "fragment": "only compute shaders are in the subset; write @compute @workgroup_size(64)",
    "align": "members take their natural offset; add a padding member instead",
    "size": "members take their natural offset; add a padding member instead",
    "id": "overrides are set by name when the module is linked; leave the attribute out",
    "diagnostic": "diagnostic filters are not in the subset; leave the attribute out",
    "location": "only compute shaders are in the subset; use storage buffers",
    "interpolate": "only compute shaders are in the subset; use storage buffers",
    "invariant": "only compute shaders are in the subset; leave the attribute out",
    "must_use": "leave the attribute out",
    "const": "leave the attribute out",
}


@cache
def refusal(name: str) -> str | None:
    """Return why the subset refuses a predeclared name and what to write instead; None for names that it has."""
    if name in REFUSED_NAMES:
        return REFUSED_NAMES[name]
    if name.startswith("texture"):
        return _TEXTURE
    if name.startswith(("dpdx", "dpdy", "fwidth")):
        return _DERIVATIVE
    return None
