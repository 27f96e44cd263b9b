"""The operators and built-ins of WGSL in each Python dialect, as tables that `print_python` reads.

A row is a template and the precedence level of its result. ``{0:5}`` is the first operand, in parentheses unless its
own level is at least 5; a plain ``{0}`` never needs them. The key is the operator or built-in, then the type
of its first operand, or only the former if it is the same for all types. The rows "<< literal" and ">> literal"
are for shifts by a literal, which is then printed as a plain number below 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .straight import INLINE_SIZE

__all__ = ["ATOM", "FLOAT", "NUMPY", "NUMPY_IN_DOUBLE", "Dialect", "Row"]

COMPARISON, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(9)
"""The precedence levels of Python, the lowest first."""

Row = tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """One of the Python family of targets.

    Attributes:
        header: the beginning of every text: the end of the first comment line, and the imports.
        scalars: by WGSL type its name, which is also called to convert constants.
        rows: the table.
        helpers: functions that rows use; a text contains those it needs.
        library: by name of a function of ``shaders/lib`` the function of Python that replaces it; "" if its first
            argument does.
        decorator: the line before each function.
        inline_size: see `straighten`. Where `select` computes one side only, nothing that one side needs is computed
            before it.
    """

    name: str
    header: str
    scalars: Mapping[str, str]
    rows: Mapping[str, Row]
    helpers: Mapping[str, str]
    library: Mapping[str, str] = field(default_factory=dict)
    decorator: str = ""
    inline_size: int = INLINE_SIZE


_INFIX = {
    "*": PRODUCT, "/ f32": PRODUCT, "+": SUM, "-": SUM, "&": AND, "^": XOR, "|": OR, ">> literal": SHIFT,
    "<< literal": SHIFT, "==": COMPARISON, "!=": COMPARISON, "<": COMPARISON, "<=": COMPARISON,
    ">": COMPARISON, ">=": COMPARISON,
}  # fmt: skip
"""Operators that are the same in Python and WGSL. Comparisons must not chain, so both operands have a higher level."""


def _infix(key: str, level: int) -> Row:
    return f"{{0:{max(level, 1)}}} {key.split()[0]} {{1:{level + 1}}}", level


def _calls(*names: str, **renamed: str) -> dict[str, Row]:
    """Return rows for built-ins that are NumPy functions; `renamed` are those with another name."""
    arity = {"atan2": "{0}, {1}", "pow": "{0}, {1}", "ldexp": "{0}, {1}"}
    pairs = {**{name: name for name in names}, **renamed}
    return {wgsl: (f"np.{numpy}({arity.get(wgsl, '{0}')})", ATOM) for wgsl, numpy in pairs.items()}


_NUMPY_ROWS: dict[str, Row] = {
    **{key: _infix(key, level) for key, level in _INFIX.items()},
    **_calls(
        "abs", "sign", "floor", "ceil", "trunc", "sqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tan",
        "sinh", "cosh", "tanh", "ldexp",
        round="rint", pow="power", asin="arcsin", acos="arccos", atan="arctan", atan2="arctan2",
        asinh="arcsinh", acosh="arccosh", atanh="arctanh",
    ),
    "negate": ("-{0:7}", UNARY),
    "!": ("~{0:7}", UNARY),
    "~": ("~{0:7}", UNARY),
    # Integers. `np.fmod` has the sign of the dividend, as `%` in WGSL has, and is 0 where the divisor is.
    "/ i32": ("_divide_i32({0}, {1})", ATOM),
    "/ u32": ("{0:6} // np.maximum({1}, 1)", PRODUCT),
    "% i32": ("np.fmod({0}, {1})", ATOM),
    "% u32": ("{0:6} % {1:7}", PRODUCT),
    "% f32": ("np.fmod({0}, {1})", ATOM),
    "<< u32": ("{0:4} << ({1:3} & 31)", SHIFT),
    ">> u32": ("{0:4} >> ({1:3} & 31)", SHIFT),
    "<< i32": ("{0:4} << ({1:3} & 31).view(np.int32)", SHIFT),
    ">> i32": ("{0:4} >> ({1:3} & 31).view(np.int32)", SHIFT),
    # Choices. `min` and `max` of a number and a NaN are the number, as in CUDA.
    "select": ("_select({0}, {1}, {2})", ATOM),
    "min f32": ("np.fmin({0}, {1})", ATOM),
    "max f32": ("np.fmax({0}, {1})", ATOM),
    "clamp f32": ("np.fmin(np.fmax({0}, {1}), {2})", ATOM),
    "min": ("np.minimum({0}, {1})", ATOM),
    "max": ("np.maximum({0}, {1})", ATOM),
    "clamp": ("np.minimum(np.maximum({0}, {1}), {2})", ATOM),
    "saturate": ("np.fmin(np.fmax({0}, 0.0), 1.0)", ATOM),
    "step": ("({1:1} >= {0:1}).astype(np.float32)", ATOM),
    "any": ("{0:8}", ATOM),
    "all": ("{0:8}", ATOM),
    # Arithmetic.
    "fma": ("{0:6} * {1:7} + {2:6}", SUM),
    "inverseSqrt": ("1.0 / np.sqrt({0})", PRODUCT),
    "fract": ("_fract({0})", ATOM),
    "mix": ("_mix({0}, {1}, {2})", ATOM),
    "smoothstep": ("_smoothstep({0}, {1}, {2})", ATOM),
    "degrees": ("{0:6} * 57.29577951308232", PRODUCT),
    "radians": ("{0:6} * 0.017453292519943295", PRODUCT),
    "quantizeToF16": ("{0:8}.astype(np.float16).astype(np.float32)", ATOM),
    # Bits.
    "countOneBits u32": ("np.bitwise_count({0}).astype(np.uint32)", ATOM),
    "countLeadingZeros u32": ("_leading_zeros({0})", ATOM),
    "countTrailingZeros u32": ("_trailing_zeros({0})", ATOM),
    "firstLeadingBit u32": ("31 - _leading_zeros({0})", SUM),
    "firstTrailingBit u32": ("_first_trailing_bit({0})", ATOM),
    "reverseBits u32": ("_reverse_bits({0})", ATOM),
    "extractBits": ("_extract_bits({0}, {1}, {2})", ATOM),
    "insertBits": ("_insert_bits({0}, {1}, {2}, {3})", ATOM),
    "firstLeadingBit i32": ("_first_leading_bit_i32({0})", ATOM),
    **{
        f"{name} i32": (f"{helper}({{0:8}}.view(np.uint32)).{cast}(np.int32)", ATOM)
        for name, helper, cast in (
            ("countOneBits", "np.bitwise_count", "astype"),
            ("countLeadingZeros", "_leading_zeros", "view"),
            ("countTrailingZeros", "_trailing_zeros", "view"),
            ("firstTrailingBit", "_first_trailing_bit", "view"),
            ("reverseBits", "_reverse_bits", "view"),
        )
    },
    # Conversions. Out of range is clamped to the nearest value that both types hold, as in WGSL; NaN is 0.
    "i32 f32": ("_truncate({0}, -2147483648.0, 2147483520.0).astype(np.int32)", ATOM),
    "u32 f32": ("_truncate({0}, 0.0, 4294967040.0).astype(np.uint32)", ATOM),
    "i32 u32": ("{0:8}.view(np.int32)", ATOM),
    "u32 i32": ("{0:8}.view(np.uint32)", ATOM),
    "f32": ("{0:8}.astype(np.float32)", ATOM),
    "i32": ("{0:8}.astype(np.int32)", ATOM),
    "u32": ("{0:8}.astype(np.uint32)", ATOM),
    "bool": ("{0:1} != 0", COMPARISON),
    "bitcast f32": ("{0:8}.view(np.float32)", ATOM),
    "bitcast i32": ("{0:8}.view(np.int32)", ATOM),
    "bitcast u32": ("{0:8}.view(np.uint32)", ATOM),
}  # fmt: skip

_IN_DOUBLE = {
    "precise_exp": "exp",
    "precise_log": "log",
    "precise_tanh": "tanh",
    "precise_sin": "sin",
    "precise_cos": "cos",
    "expm1": "expm1",
    "log1p": "log1p",
}
"""NumPy's functions by name of those of ``shaders/lib``. In float64 they take a tenth of the time of the arithmetic in
float32, and are rounded once; in float32 they are up to 4 units in the last place off. NumPy's power is not C's."""

_NUMPY_HELPERS = {
    "_select": """
def _select(otherwise, then, condition):
    if condition.ndim == 0:
        return then if condition else otherwise
    if then.dtype.itemsize != 4:
        return np.where(condition, then, otherwise)
    mask = np.negative(condition.view(np.int8)).astype(np.int32)  # no branch that a processor guesses
    bits = otherwise.view(np.int32)
    return ((bits ^ then.view(np.int32)) & mask ^ bits).view(then.dtype)
""",
    "_divide_i32": """
def _divide_i32(a, b):
    divisor = np.where(b == 0, np.int32(1), b)
    return (a - np.fmod(a, divisor)) // divisor
""",
    "_truncate": """
def _truncate(x, low, high):
    return np.where(np.isnan(x), np.float32(0), np.minimum(np.maximum(x, low), high))
""",
    "_fract": """
def _fract(x):
    return x - np.floor(x)
""",
    "_mix": """
def _mix(a, b, t):
    return a * (1.0 - t) + b * t
""",
    "_smoothstep": """
def _smoothstep(low, high, x):
    t = np.fmin(np.fmax((x - low) / (high - low), 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)
""",
    "_leading_zeros": """
def _leading_zeros(x):
    for shift in (1, 2, 4, 8, 16):
        x = x | x >> shift
    return 32 - np.bitwise_count(x).astype(np.uint32)
""",
    "_trailing_zeros": """
def _trailing_zeros(x):
    return np.bitwise_count(~x & (x - 1)).astype(np.uint32)
""",
    "_first_trailing_bit": """
def _first_trailing_bit(x):
    return np.where(x == 0, np.uint32(0xFFFFFFFF), np.bitwise_count(~x & (x - 1)).astype(np.uint32))
""",
    "_first_leading_bit_i32": """
def _first_leading_bit_i32(x):
    bits = np.where(x < 0, ~x, x).view(np.uint32)
    return (31 - _leading_zeros(bits)).view(np.int32)
""",
    "_reverse_bits": """
def _reverse_bits(x):
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        x = (x >> shift & mask) | (x & mask) << shift
    return x
""",
    "_bit_field": """
def _bit_field(offset, count):
    offset = np.minimum(offset, 32)
    return offset, np.minimum(count, 32 - offset)
""",
    "_extract_bits": """
def _extract_bits(x, offset, count):
    offset, count = _bit_field(offset, count)
    wide = x.astype(np.int64) >> offset
    span = np.int64(1) << count
    low = wide & (span - 1)
    if x.dtype == np.int32:
        low = np.where((low & (span >> 1)) != 0, low - span, low)
    return low.astype(x.dtype)
""",
    "_insert_bits": """
def _insert_bits(x, bits, offset, count):
    offset, count = _bit_field(offset, count)
    mask = ((np.int64(1) << count) - 1) << offset
    return (x & ~mask | bits.astype(np.int64) << offset & mask).astype(x.dtype)
""",
}

NUMPY = Dialect(
    name="numpy",
    header='Call under np.errstate(all="ignore").\nfrom typing import NamedTuple\n\nimport numpy as np\n',
    scalars={"f32": "np.float32", "i32": "np.int32", "u32": "np.uint32", "bool": "np.bool_"},
    rows=_NUMPY_ROWS,
    helpers=_NUMPY_HELPERS,
    library={"is_finite": "np.isfinite", "is_inf": "np.isinf", "is_nan": "np.isnan"},
)
"""The dialect for arrays, with the arithmetic of ``shaders/lib``."""

NUMPY_IN_DOUBLE = replace(
    NUMPY,
    helpers={
        **NUMPY.helpers,
        **{
            f"_{name}": f"""
def _{name}(x, out=None):
    if out is None:
        return np.{name}(x, dtype=np.float64).astype(np.float32)
    return np.{name}(x, out=out, dtype=np.float64, casting="same_kind")
"""
            for name in _IN_DOUBLE.values()
        },
    },
    library={**NUMPY.library, **{name: f"_{function}" for name, function in _IN_DOUBLE.items()}},
)
"""The dialect for arrays in which NumPy's functions, in float64, take the place of the arithmetic; see `_IN_DOUBLE`."""

_FLOAT_ROWS: dict[str, Row] = {
    **{key: _infix(key, level) for key, level in _INFIX.items()},
    **{f"{sign} u32": (f"({{0:6}} {sign} {{1:7}}) & 0xFFFFFFFF", AND) for sign in ("+", "-", "*")},
    "<< literal": ("({0:4} << {1}) & 0xFFFFFFFF", AND),
    "negate": ("-{0:7}", UNARY),
    "!": ("{0:1} == False", COMPARISON),
    "abs": ("abs({0})", ATOM),
    "floor": ("float(math.floor({0}))", ATOM),
    "sqrt": ("math.sqrt({0})", ATOM),
    "select": ("({1} if {2} else {0})", ATOM),
    "min": ("min({0}, {1})", ATOM),
    "max": ("max({0}, {1})", ATOM),
    "clamp": ("min(max({0}, {1}), {2})", ATOM),
    "f32": ("float({0})", ATOM),
    "u32": ("int({0})", ATOM),
}

FLOAT = Dialect(
    name="float",
    header="Scalars only, in float64.\nimport math\nfrom typing import NamedTuple\n",
    scalars={"f32": "float", "i32": "int", "u32": "int", "bool": "bool"},
    rows=_FLOAT_ROWS,
    helpers={
        "_log1p": "\ndef _log1p(x):\n    return math.log1p(x) if x > -1.0 else -math.inf\n",
    },
    library={
        "precise_exp": "math.exp",
        "precise_log": "math.log",
        "precise_pow": "math.pow",
        "precise_sin": "math.sin",
        "precise_cos": "math.cos",
        "expm1": "math.expm1",
        "log1p": "_log1p",
    },
    inline_size=1 << 30,
)
"""The dialect for single numbers on the host: Python floats, which round less than f32. It needs no NumPy."""
