"""The operators and built-ins of WGSL in jax.numpy, as a table for `print_python`.

Types are exact and of 32 bits, whether JAX allows 64 or not. Functions take arrays, tracers or NumPy scalars, are free
of branches on values, and can be compiled, vectorized and sharded. Unlike in NumPy's table, `select` is `jnp.where`,
bits are reinterpreted by `lax.bitcast_convert_type`, and integers are divided by `lax`, which rounds to zero.

XLA contracts ``a * b + c``, divides by constants as multiplication with their reciprocals, and may flush subnormals,
all of which WGSL allows; and it computes ``a / b / c`` as ``a / (b * c)``, which WGSL does not where the product is out
of range. It keeps NaN and infinity. It would remove a conversion to 16 bits and back; compile with `XLA_OPTIONS`.
"""

from __future__ import annotations

from .python_dialects import ATOM, NUMPY, PRODUCT, SHIFT, SUM, UNARY, Dialect, Row

__all__ = ["JAX", "XLA_OPTIONS"]

XLA_OPTIONS = {"xla_allow_excess_precision": False}
"""Options of XLA with which a conversion to 16 bits and back rounds, and is not removed."""

_OTHERWISE: dict[str, Row] = {
    "/ u32": ("{0:6} // jnp.maximum({1}, 1)", PRODUCT),
    "% i32": ("_remainder({0}, {1})", ATOM),
    "% u32": ("_remainder({0}, {1})", ATOM),
    "<< i32": ("{0:4} << _bits_i32({1:3} & 31)", SHIFT),
    ">> i32": ("{0:4} >> _bits_i32({1:3} & 31)", SHIFT),
    "* i32": ("_multiply_i32({0}, {1})", ATOM),
    "abs i32": ("_abs_i32({0})", ATOM),
    "select": ("jnp.where({2}, {1}, {0})", ATOM),
    "min f32": ("jnp.fmin({0}, {1})", ATOM),
    "max f32": ("jnp.fmax({0}, {1})", ATOM),
    "!": ("jnp.logical_not({0})", ATOM),
    "~": ("~{0:7}", UNARY),
    "quantizeToF16": ("lax.reduce_precision({0}, 5, 10)", ATOM),
    "countOneBits": ("lax.population_count({0})", ATOM),
    "countLeadingZeros": ("lax.clz({0})", ATOM),
    "countTrailingZeros": ("_trailing_zeros({0})", ATOM),
    "firstLeadingBit u32": ("31 - lax.clz({0})", SUM),
    "firstLeadingBit i32": ("31 - lax.clz(jnp.where({0:8} < 0, ~{0:8}, {0}))", SUM),
    "firstTrailingBit": ("_first_trailing_bit({0})", ATOM),
    "reverseBits u32": ("_reverse_bits({0})", ATOM),
    "reverseBits i32": ("_bits_i32(_reverse_bits(_bits_u32({0})))", ATOM),
    "extractBits": ("_extract_bits({0}, {1}, {2})", ATOM),
    "insertBits": ("_insert_bits({0}, {1}, {2}, {3})", ATOM),
    "i32 u32": ("_bits_i32({0})", ATOM),
    "u32 i32": ("_bits_u32({0})", ATOM),
    "bitcast f32": ("_bits_f32({0})", ATOM),
    "bitcast i32": ("_bits_i32({0})", ATOM),
    "bitcast u32": ("_bits_u32({0})", ATOM),
}

_BY_OTHERS = {
    "countOneBits u32", "countLeadingZeros u32", "countTrailingZeros u32", "firstTrailingBit u32",
    "countOneBits i32", "countLeadingZeros i32", "countTrailingZeros i32", "firstTrailingBit i32",
}  # fmt: skip
"""Rows of NumPy's table for one type that are replaced by a row for all types."""

_HELPERS = {
    "_remainder": """
def _remainder(a, b):
    return lax.rem(*jnp.broadcast_arrays(a, jnp.where(b == 0, b.dtype.type(1), b)))
""",
    "_divide_i32": """
def _divide_i32(a, b):
    return lax.div(*jnp.broadcast_arrays(a, jnp.where(b == 0, b.dtype.type(1), b)))
""",
    # For i32, XLA assumes that x * x and abs(x) are not negative, which is wrong where they overflow.
    "_multiply_i32": """
def _multiply_i32(a, b):
    return _bits_i32(_bits_u32(a) * _bits_u32(b))
""",
    "_abs_i32": """
def _abs_i32(x):
    bits = _bits_u32(x)
    return _bits_i32(jnp.where(x < 0, 0 - bits, bits))
""",
    "_trailing_zeros": """
def _trailing_zeros(x):
    return lax.population_count(~x & (x - 1))
""",
    "_first_trailing_bit": """
def _first_trailing_bit(x):
    return jnp.where(x == 0, ~jnp.zeros_like(x), lax.population_count(~x & (x - 1)))
""",
    "_reverse_bits": NUMPY.helpers["_reverse_bits"],
    "_bit_field": """
def _bit_field(offset, count):
    offset = jnp.minimum(offset, 32)
    return offset, jnp.minimum(count, 32 - offset)
""",
    # A shift by 32 returns 0, or the sign of an i32.
    "_extract_bits": """
def _extract_bits(x, offset, count):
    offset, count = _bit_field(offset, count)
    x, offset, count = jnp.broadcast_arrays(x, offset.astype(x.dtype), count.astype(x.dtype))
    shift = lax.shift_right_arithmetic if x.dtype == jnp.int32 else lax.shift_right_logical
    return jnp.where(count == 0, jnp.zeros_like(x), shift(lax.shift_left(x, 32 - count - offset), 32 - count))
""",
    "_insert_bits": """
def _insert_bits(x, bits, offset, count):
    offset, count = _bit_field(offset, count)
    x, bits, offset, count = jnp.broadcast_arrays(x, bits, offset.astype(x.dtype), count.astype(x.dtype))
    ones = lax.shift_right_logical(jnp.full_like(x, -1 if x.dtype == jnp.int32 else 0xFFFFFFFF), 32 - count)
    mask = lax.shift_left(ones, offset)
    return (x & ~mask) | (lax.shift_left(bits, offset) & mask)
""",
    **{
        f"_bits_{name}": f"""
def _bits_{name}(x):
    return lax.bitcast_convert_type(x, jnp.{type_})
"""
        for name, type_ in (("f32", "float32"), ("i32", "int32"), ("u32", "uint32"))
    },
}


def _in_jax(text: str) -> str:
    return text.replace("np.", "jnp.")


def _rows() -> dict[str, Row]:
    taken = {key: (_in_jax(template), level) for key, (template, level) in NUMPY.rows.items() if key not in _BY_OTHERS}
    return {**taken, **_OTHERWISE}


JAX = Dialect(
    name="jax",
    header=(
        "Call under jax.jit.\nfrom typing import NamedTuple\n\n"
        "import jax.numpy as jnp\nimport numpy as np\nfrom jax import lax\n"
    ),
    scalars={"f32": "np.float32", "i32": "np.int32", "u32": "np.uint32", "bool": "np.bool_"},
    rows=_rows(),
    helpers={name: _HELPERS.get(name, _in_jax(text)) for name, text in {**NUMPY.helpers, **_HELPERS}.items()},
)
"""The dialect for XLA. Constants are NumPy's scalars, so that a text can be loaded without a device."""
