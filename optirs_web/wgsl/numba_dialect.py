"""The operators and built-ins of WGSL in Python that Numba compiles, as a table for `print_python`.

Functions take scalars and named tuples of scalars, and are called in loops, into which LLVM inlines them. Unlike in
NumPy's table, integers are computed in 64 bits and converted to 32, which keeps the low bits for both signs; `~` is not
for conditions; a literal would have 64 bits, so it is never an operand of an f32; and helpers avoid a division of
integers by zero.

Python itself cannot call the functions, since wrappers would take as long to compile again: decorate their `py_func`.

Nothing is compiled with fast-math: products and sums are neither contracted nor regrouped, so that results are equal to
NumPy's bit for bit, and NaN and infinity are kept.
"""

from __future__ import annotations

from .python_dialects import ATOM, COMPARISON, NUMPY, PRODUCT, Dialect, Row

__all__ = ["NUMBA"]

_SHARED = (
    "*", "/ f32", "% f32", "+", "-", "negate", "==", "!=", "<", "<=", ">", ">=", "&", "|", "^", "fma", "floor", "ceil",
    "trunc", "round", "sqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "atan2", "pow", "ldexp", "fract", "extractBits", "insertBits", "any", "all",
)  # fmt: skip
"""Rows of NumPy's table; of `*`, `&` and the like those for f32 and bool."""

_INTEGERS = {"i32": "np.int32", "u32": "np.uint32"}

_NAMES = {"f32": "float32", "i32": "int32", "u32": "uint32"}

_OTHERWISE: dict[str, Row] = {
    **{
        f"{sign} {type_}": (f"{cast}({{0:{level}}} {sign} {{1:{level + 1}}})", ATOM)
        for type_, cast in _INTEGERS.items()
        for sign, (_, level) in ((sign, NUMPY.rows[sign]) for sign in ("*", "+", "-", "&", "|", "^"))
    },
    **{f"~ {type_}": (f"{cast}(~{{0:7}})", ATOM) for type_, cast in _INTEGERS.items()},
    **{
        f"{sign} {type_}": (f"_{name}_{type_}({{0}}, {{1}})", ATOM)
        for type_ in _INTEGERS
        for sign, name in (("/", "divide"), ("%", "remainder"), ("<<", "shift_left"), (">>", "shift_right"))
    },
    "negate i32": ("np.int32(-{0:7})", ATOM),
    "!": ("(not {0})", ATOM),
    "select": ("_select({0}, {1}, {2})", ATOM),
    "min f32": ("_fmin({0}, {1})", ATOM),
    "max f32": ("_fmax({0}, {1})", ATOM),
    "clamp f32": ("_fmin(_fmax({0}, {1}), {2})", ATOM),
    "min": ("_min({0}, {1})", ATOM),
    "max": ("_max({0}, {1})", ATOM),
    "clamp": ("_min(_max({0}, {1}), {2})", ATOM),
    "saturate": ("_saturate({0})", ATOM),
    "step": ("np.float32({1:1} >= {0:1})", ATOM),
    "abs f32": ("abs({0})", ATOM),
    "abs i32": ("_abs_i32({0})", ATOM),
    "abs u32": ("{0:8}", ATOM),
    "sign": ("_sign({0})", ATOM),
    "inverseSqrt": ("np.float32(1.0) / np.sqrt({0})", PRODUCT),
    "mix": ("_mix({0}, {1}, {2})", ATOM),
    "smoothstep": ("_smoothstep({0}, {1}, {2})", ATOM),
    "degrees": ("{0:6} * np.float32(57.29577951308232)", PRODUCT),
    "radians": ("{0:6} * np.float32(0.017453292519943295)", PRODUCT),
    "quantizeToF16": ("_quantize_to_f16({0})", ATOM),
    **{
        f"{name} {type_}": (f"{cast}({helper}({{0}}))", ATOM)
        for type_, cast in _INTEGERS.items()
        for name, helper in (
            ("countOneBits", "_one_bits"),
            ("countLeadingZeros", "_leading_zeros"),
            ("countTrailingZeros", "_trailing_zeros"),
            ("firstTrailingBit", "_first_trailing_bit"),
            ("reverseBits", "_reverse_bits"),
        )
    },
    "firstLeadingBit u32": ("np.uint32(31 - _leading_zeros({0}))", ATOM),
    "firstLeadingBit i32": ("np.int32(31 - _leading_zeros(_max({0}, np.int32(~{0:7}))))", ATOM),
    "i32 f32": ("_i32_of_f32({0})", ATOM),
    "u32 f32": ("_u32_of_f32({0})", ATOM),
    "f32": ("np.float32({0})", ATOM),
    "i32": ("np.int32({0})", ATOM),
    "u32": ("np.uint32({0})", ATOM),
    "bool": ("{0:1} != 0", COMPARISON),
    **{f"bitcast {type_}": (f"np.{name}({{0}})", ATOM) for type_, name in _NAMES.items()},
    **{f"bitcast f32 {type_}": (f"np.{_NAMES[type_]}({{0}}).view(np.float32)", ATOM) for type_ in _INTEGERS},
    **{f"bitcast {type_} f32": (f"np.float32({{0}}).view(np.{_NAMES[type_]})", ATOM) for type_ in _INTEGERS},
}

# The quotient of two integers of 32 bits is exact enough in float64: it never rounds up to the next integer. Bits are
# counted in integers of 64 bits, of which the upper half is zero.
_HELPERS = {
    "_select": """
def _select(otherwise, then, condition):
    return then if condition else otherwise
""",
    "_min": """
def _min(a, b):
    return b if b < a else a
""",
    "_max": """
def _max(a, b):
    return b if b > a else a
""",
    "_fmin": """
def _fmin(a, b):
    return b if (b < a) | (a != a) else a
""",
    "_fmax": """
def _fmax(a, b):
    return b if (b > a) | (a != a) else a
""",
    "_abs_i32": """
def _abs_i32(x):
    return np.int32(-x if x < 0 else x)
""",
    "_sign": """
def _sign(x):
    one = type(x)(1)
    return one if x > 0 else (type(x)(-1) if x < 0 else (type(x)(0) if x == 0 else x))
""",
    "_divide_i32": """
def _divide_i32(a, b):
    return np.int32(np.int64(a / (b if b != 0 else np.int32(1))))
""",
    "_divide_u32": """
def _divide_u32(a, b):
    # By the reciprocal, which a loop over one divisor takes once. Exact: with the half, what is cut off lies at least
    # 0.5 / b from a whole number, and rounding moves it by less than 2**-19 / b.
    return np.uint32(np.int64((a + 0.5) * (1.0 / (b if b != 0 else np.uint32(1)))))
""",
    "_remainder_i32": """
def _remainder_i32(a, b):
    divisor = b if b != 0 else np.int32(1)
    return np.int32(a - np.int64(a / divisor) * divisor)
""",
    "_remainder_u32": """
def _remainder_u32(a, b):
    divisor = b if b != 0 else np.uint32(1)
    return np.uint32(np.int64(a) - np.int64((a + 0.5) * (1.0 / divisor)) * np.int64(divisor))
""",
    "_shift_left_i32": """
def _shift_left_i32(x, count):
    return np.int32(np.int64(x) << (np.int64(count) & 31))
""",
    "_shift_left_u32": """
def _shift_left_u32(x, count):
    return np.uint32(np.int64(x) << (np.int64(count) & 31))
""",
    "_shift_right_i32": """
def _shift_right_i32(x, count):
    return np.int32(np.int64(x) >> (np.int64(count) & 31))
""",
    "_shift_right_u32": """
def _shift_right_u32(x, count):
    return np.uint32(np.int64(x) >> (np.int64(count) & 31))
""",
    "_saturate": """
def _saturate(x):
    return _fmin(_fmax(x, np.float32(0)), np.float32(1))
""",
    "_fract": NUMPY.helpers["_fract"],
    "_mix": """
def _mix(a, b, t):
    return a * (np.float32(1) - t) + b * t
""",
    "_smoothstep": """
def _smoothstep(low, high, x):
    t = _saturate((x - low) / (high - low))
    return t * t * (np.float32(3) - np.float32(2) * t)
""",
    "_quantize_to_f16": """
def _quantize_to_f16(x):
    bits = np.int64(np.float32(x).view(np.uint32))
    size = bits & 0x7FFFFFFF
    tiny = (abs(x) + np.float32(0.5)) - np.float32(0.5)
    rounded = (size + 0xFFF + (size >> 13 & 1)) & 0x7FFFE000
    rounded = np.int64(np.float32(tiny).view(np.uint32)) if size < 0x38800000 else rounded
    rounded = 0x7F800000 if rounded >= 0x47800000 else rounded
    rounded = 0x7FC00000 if size > 0x7F800000 else rounded
    return np.uint32(rounded | bits & 0x80000000).view(np.float32)
""",
    "_i32_of_f32": """
def _i32_of_f32(x):
    known = np.float32(0) if x != x else x
    return np.int32(_min(_max(known, np.float32(-2147483648)), np.float32(2147483520)))
""",
    "_u32_of_f32": """
def _u32_of_f32(x):
    known = np.float32(0) if x != x else x
    return np.uint32(np.int64(_min(_max(known, np.float32(0)), np.float32(4294967040))))
""",
    "_word": """
def _word(x):
    return np.int64(x) & 0xFFFFFFFF
""",
    "_one_bits": """
def _one_bits(x):
    bits = _word(x)
    bits = bits - (bits >> 1 & 0x55555555)
    bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333)
    bits = bits + (bits >> 4) & 0x0F0F0F0F
    return bits * 0x01010101 >> 24 & 0xFF
""",
    "_leading_zeros": """
def _leading_zeros(x):
    bits = _word(x)
    for shift in (1, 2, 4, 8, 16):
        bits = bits | bits >> shift
    return 32 - _one_bits(bits)
""",
    "_trailing_zeros": """
def _trailing_zeros(x):
    bits = _word(x)
    return _one_bits(~bits & (bits - 1))
""",
    "_first_trailing_bit": """
def _first_trailing_bit(x):
    return _trailing_zeros(x) if x != 0 else -1
""",
    "_reverse_bits": """
def _reverse_bits(x):
    bits = _word(x)
    bits = bits >> 1 & 0x55555555 | (bits & 0x55555555) << 1
    bits = bits >> 2 & 0x33333333 | (bits & 0x33333333) << 2
    bits = bits >> 4 & 0x0F0F0F0F | (bits & 0x0F0F0F0F) << 4
    bits = bits >> 8 & 0x00FF00FF | (bits & 0x00FF00FF) << 8
    return bits >> 16 | (bits & 0xFFFF) << 16
""",
    "_bit_field": """
def _bit_field(offset, count):
    first = min(np.int64(offset), 32)
    return first, min(np.int64(count), 32 - first)
""",
    "_extract_bits": """
def _extract_bits(x, offset, count):
    first, wanted = _bit_field(offset, count)
    span = np.int64(1) << wanted
    low = np.int64(x) >> first & span - 1
    is_negative = (np.int64(type(x)(-1)) < 0) & (low & span >> 1 != 0)
    return type(x)(low - span if is_negative else low)
""",
    "_insert_bits": """
def _insert_bits(x, bits, offset, count):
    first, wanted = _bit_field(offset, count)
    mask = ((np.int64(1) << wanted) - 1) << first
    return type(x)(np.int64(x) & ~mask | np.int64(bits) << first & mask)
""",
}

_DECORATOR = "@_compiled\n"

NUMBA = Dialect(
    name="numba",
    header=(
        "Scalars, for loops.\nfrom typing import NamedTuple\n\nimport numpy as np\nfrom numba import njit, prange\n\n"
        '_compiled = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)\n'
    ),
    scalars=NUMPY.scalars,
    rows={**{key: NUMPY.rows[key] for key in _SHARED}, **_OTHERWISE},
    helpers={name: f"\n{_DECORATOR}{text.lstrip()}" for name, text in _HELPERS.items()},
    decorator=_DECORATOR,
)
"""The dialect of functions for loops that Numba compiles."""
