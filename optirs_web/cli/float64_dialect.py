"""A dialect for `print_python`: a map function over arrays of float64 with NumPy's own mathematics.

An f32 result differs from it by rounding only, of each operation and of `shaders/lib`.
"""

from __future__ import annotations

from dataclasses import replace

from ..wgsl.python_dialects import ATOM, NUMPY

__all__ = ["FLOAT64"]

_BITS_OF_FLOATS = {f"bitcast {to} {of}" for to, of in (("u32", "f32"), ("i32", "f32"), ("f32", "u32"), ("f32", "i32"))}

FLOAT64 = replace(
    NUMPY,
    name="float64",
    header=NUMPY.header + "\n\ndef _rounded(x):\n    return np.float64(np.float32(x))\n",
    scalars={**NUMPY.scalars, "f32": "_rounded"},
    rows={
        **NUMPY.rows,
        "f32": ("{0:8}.astype(np.float64)", ATOM),
        "step": ("({1:1} >= {0:1}).astype(np.float64)", ATOM),
        **dict.fromkeys(_BITS_OF_FLOATS, ("_without_bits({0})", ATOM)),
    },
    helpers={
        **NUMPY.helpers,
        "_log1p": "\ndef _log1p(x):\n    return np.where(x < -1.0, np.nan, np.log1p(x))\n",
        "_first_bits": "\ndef _first_bits(x, mask):\n    return x\n",
        "_replace_bits": """
def _replace_bits(x, bits, condition):
    return np.where(condition, np.uint32(bits).view(np.float32).astype(np.float64), x)
""",
        "_without_bits": """
def _without_bits(x):
    raise NotImplementedError("a float64 has other bits than an f32")
""",
        "_nan": "\ndef _nan():\n    return np.float64(np.nan)\n",
    },
    library={
        "precise_exp": "np.exp",
        "precise_log": "np.log",
        "precise_pow": "np.power",
        "precise_tanh": "np.tanh",
        "precise_sin": "np.sin",
        "precise_cos": "np.cos",
        "expm1": "np.expm1",
        "log1p": "_log1p",
        "is_nan": "np.isnan",
        "is_inf": "np.isinf",
        "is_finite": "np.isfinite",
        "leading_bits": "_first_bits",
        "replace_bits": "_replace_bits",
        "quiet_nan": "_nan",
    },
)
"""Functions that read the bits of floats are replaced; others that do so raise when they run."""
