"""Cases for `shaders/lib/math.wgsl`: references, arguments, and how errors are counted.

The references are NumPy's float64 functions, which are exact beside f32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

SMALLEST_NORMAL = 2.0**-126
SMALLEST_SUBNORMAL = 2.0**-149
OVERFLOW = 2.0**128


def ulp_error(got_f32: npt.ArrayLike, exact_f64: npt.ArrayLike) -> Float64Array:
    """Errors of f32 results in units of the last place of the exact value; infinite where the kind is wrong.

    A subnormal exact value may be flushed: zero then stands for anything below the smallest normal number.
    Infinity stands for 2^128, so that a result at the overflow boundary is judged by its distance like any
    other. Where the exact value is zero, the sign of a zero counts.
    """
    got = np.clip(np.asarray(got_f32, np.float32).astype(np.float64), -OVERFLOW, OVERFLOW)
    exact = np.clip(np.asarray(exact_f64, np.float64), -OVERFLOW, OVERFLOW)
    magnitude = np.abs(exact)
    _, exponent = np.frexp(np.clip(magnitude, SMALLEST_NORMAL, OVERFLOW / 2))
    distance = np.abs(got - exact) / np.ldexp(1.0, exponent - 24)
    distance_of_flushed = np.maximum(magnitude - SMALLEST_NORMAL, 0.0) / SMALLEST_SUBNORMAL
    error = np.where((got == 0.0) & (magnitude > 0.0), distance_of_flushed, distance)

    both_zero = (got == 0.0) & (exact == 0.0)
    both_nan = np.isnan(got) & np.isnan(exact)
    wrong_sign = both_zero & (np.signbit(got) != np.signbit(exact))
    error = np.where(wrong_sign | (np.isnan(got) != np.isnan(exact)), np.inf, error)
    return np.where(both_nan, 0.0, error)


def _flush(values: Float32Array) -> Float32Array:
    return np.where(np.abs(values) < np.float32(SMALLEST_NORMAL), np.copysign(np.float32(0), values), values)


@dataclass(frozen=True)
class MathCase:
    """A function of math.wgsl, its reference on float64 arrays, and the bound to be kept, in ulp."""

    name: str
    reference: Callable[..., Float64Array]
    ulp_bound: float

    def errors(self, got: npt.ArrayLike, *arguments: Float32Array) -> Float64Array:
        """Errors in ulp of the results for these arguments; a subnormal argument may have counted as zero."""
        error = np.full(np.shape(got), np.inf)
        for chosen in product(*((argument, _flush(argument)) for argument in arguments)):
            with np.errstate(all="ignore"):
                exact = self.reference(*(argument.astype(np.float64) for argument in chosen))
            error = np.minimum(error, ulp_error(got, exact))
        return error


UNARY_CASES = (
    MathCase("precise_exp", np.exp, 2.0),
    MathCase("precise_log", np.log, 2.0),
    MathCase("expm1", np.expm1, 4.0),
    MathCase("log1p", np.log1p, 4.0),
    MathCase("precise_tanh", np.tanh, 4.0),
    MathCase("precise_sin", np.sin, 4.0),
    MathCase("precise_cos", np.cos, 4.0),
)
POW_CASE = MathCase("precise_pow", np.power, 4.0)

# f32 -> bool, exact.
PREDICATES: dict[str, Callable[[Float32Array], npt.NDArray[np.bool_]]] = {
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
}


def _neighbours(values: npt.ArrayLike, reach: int = 3) -> Float32Array:
    """The values, both signs of each, and the floats up to `reach` steps on either side."""
    bits = np.abs(np.asarray(values, np.float32)).view(np.uint32).astype(np.int64)
    near = np.clip(bits[:, None] + np.arange(-reach, reach + 1), 0, 0x7F800000).astype(np.uint32).ravel()
    return np.unique(np.concatenate([near, near | np.uint32(0x80000000)])).view(np.float32)


def special_values() -> Float32Array:
    """Zeros, infinities, NaNs, the ends of the range, and where functions overflow, vanish or change form."""
    ends = [0.0, SMALLEST_NORMAL, 1.0, 2.0, 2.0**24, 2.0**31, 2.0**32, 3.4028234663852886e38, np.inf]
    exponentials = [2.0**-25, 2.0**-24, 0.34657359, 17.328680, 87.336544, 88.722839, 103.27893, 103.97208]
    logarithms = [1 / 3, 2 / 3, 4 / 3, np.sqrt(0.5), np.sqrt(2.0), np.sqrt(0.75), np.sqrt(1.5), np.sqrt(3.0)]
    angles = [*(np.pi / 4 * np.arange(1, 65)), 16367173.0 * 2.0**72, 12919594.0 * 2.0**46]
    nans = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF], np.uint32)
    near = _neighbours([*ends, *exponentials, *logarithms, *angles, 0.55, 9.010913, 0.5, 3.0])
    return np.concatenate([near, nans.view(np.float32)])


def f32_samples(count: int, seed: int = 0) -> Float32Array:
    """The special values, then one random bit pattern from each of `count` equal parts of all 2^32.

    From 512 on, every exponent of either sign is among them.
    """
    random = np.random.default_rng(seed)
    bounds = np.arange(count + 1, dtype=np.uint64) * np.uint64(2**32) // np.uint64(count)
    width = np.diff(bounds).astype(np.float64)
    bits = bounds[:-1] + (random.random(count) * width).astype(np.uint64)
    return np.concatenate([special_values(), bits.astype(np.uint32).view(np.float32)])


def _concatenate(*parts: npt.ArrayLike) -> Float32Array:
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


def _pairs(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[Float32Array, Float32Array]:
    """Every value of the first with every value of the second."""
    grids = np.meshgrid(np.asarray(first, np.float32), np.asarray(second, np.float32))
    return grids[0].ravel(), grids[1].ravel()


def _in_range_powers(count: int, random: np.random.Generator) -> tuple[Float32Array, Float32Array]:
    """Bases over all exponents, and near 1, with exponents whose results are in range or just outside."""
    any_base = random.integers(1, 0x7F800000, count, np.uint32).view(np.float32)
    near_one = 1.0 + random.choice([-1.0, 1.0], count) * 2.0 ** random.uniform(-24, -1, count)
    base = np.asarray(np.where(np.arange(count) % 2 == 0, any_base, near_one), np.float32)
    log2_base = np.log2(base.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = random.uniform(-152.0, 130.0, count) / log2_base
    return base, np.asarray(np.nan_to_num(exponent).clip(-1e38, 1e38), np.float32)


def pow_samples(count: int, seed: int = 0) -> tuple[Float32Array, Float32Array]:
    """Bases and exponents: the grid of special values, what optimizers raise, then `count` at random.

    Of the random pairs, half have results in range, a quarter are negative bases with integer exponents, and
    a quarter are any two bit patterns.
    """
    random = np.random.default_rng(seed)
    nans_and_others = _concatenate(special_values()[-6:], [0.999, -0.9, 10.0, -7.0, 1e30, -1e-30])
    edges = _concatenate(_neighbours([0.0, 1.0, 2.0, np.inf], 2), _neighbours([0.5, 3.0, 2.0**24], 1))
    grid = _pairs(*[_concatenate(edges, nans_and_others)] * 2)
    steps = np.concatenate([np.arange(1, 2001), 2 ** np.arange(11, 25)])
    beta_powers = _pairs([0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999], steps)
    decays = _pairs(steps, [-0.8, -0.5, 0.5, 0.75])

    quarter = count // 4
    in_range = _in_range_powers(count - 2 * quarter, random)
    negative_base = -(2.0 ** random.uniform(-8, 8, quarter))
    integer_powers = negative_base, random.integers(-40, 41, quarter)
    anything = random.integers(0, 2**32, (2, quarter), np.uint32).view(np.float32)
    bases, exponents = zip(grid, beta_powers, decays, in_range, integer_powers, anything, strict=True)
    return _concatenate(*bases), _concatenate(*exponents)
