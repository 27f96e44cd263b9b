"""The results that WGSL allows for operations on f32: intervals in float64, made of the exact ones of its operands.

Each operation is computed at the ends of its operands' intervals and widened by the accuracy that WGSL, or
`shaders/lib/math.wgsl`, states for it. So a result lies within where products are contracted with sums, where numbers
below the smallest normal one are flushed to zero, and, in `regrouping()`, where sums are regrouped.
"""

from contextlib import contextmanager
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np

TINY = 2.0**-126
LARGEST = float(np.finfo(np.float32).max)


class Interval(NamedTuple):
    """The range of f32 values, element by element; both ends are NaN where the value is certainly NaN.

    Attributes:
        low, high: the ends, float64.
        free: anything is allowed: it depends on the rounding whether the value is finite, or a number at all.
        special: something that it was computed of was no finite number. WGSL lets an adapter assume that this never
            happens; our other targets keep to IEEE 754.
    """

    low: np.ndarray
    high: np.ndarray
    free: np.ndarray
    special: np.ndarray


def exactly(values):
    """The interval of f32 values that are given; a subnormal one may count as zero."""
    values = np.asarray(values, np.float32).astype(np.float64)
    return _flushed(Interval(values, values, np.zeros(values.shape, bool), ~np.isfinite(values)))


def _flushed(x):
    """Any subnormal number is as good as any other and as zero: comparisons take some for others."""
    near = (x.low < TINY) & (x.high > -TINY) & ~((x.low == 0.0) & (x.high == 0.0))
    return x._replace(
        low=np.where(near, np.fmin(x.low, -TINY), x.low), high=np.where(near, np.fmax(x.high, TINY), x.high)
    )


def widened(x, ulps, of_finite):
    """By so many units in the last place of the larger end.

    Where that overflows, `of_finite` saying that the operands did not, anything is allowed: a product of which a sum is
    made may not have been rounded.
    """
    size = np.fmax(np.abs(x.low), np.abs(x.high))
    _, exponent = np.frexp(np.clip(np.nan_to_num(size, nan=1.0), TINY, LARGEST))
    by = np.where(np.isfinite(size), ulps * np.ldexp(1.0, exponent - 24), 0.0)
    overflows = size + by > LARGEST
    free = x.free | (overflows & of_finite) | (np.isinf(size) & (x.low != x.high))
    return _flushed(Interval(x.low - by, x.high + by, free, x.special | overflows))


def at_ends(function, ulps):
    """Return the operation on intervals of a function whose extremes are at the ends of its operands."""

    def apply(*operands):
        with np.errstate(all="ignore"):
            ends = np.stack([function(*corner) for corner in product(*((x.low, x.high) for x in operands))])
            is_nan = np.isnan(ends)
            low, high = np.fmin.reduce(ends), np.fmax.reduce(ends)
            free = reduce(np.logical_or, [x.free for x in operands]) | (is_nan.any(0) & ~is_nan.all(0))
            special = reduce(np.logical_or, [x.special for x in operands]) | is_nan.any(0)
            of_finite = reduce(np.logical_and, [np.isfinite(x.low) & np.isfinite(x.high) for x in operands])
            return widened(Interval(low, high, free, special), ulps, of_finite)

    return apply


_regrouped = False


@contextmanager
def regrouping():
    """Within, sums of three and more may be of any two first, as WGSL lets an adapter have it."""
    global _regrouped
    _regrouped = True
    try:
        yield
    finally:
        _regrouped = False


def _sum(function):
    plain = at_ends(function, 1)

    def apply(a, b):
        result = plain(a, b)
        if not _regrouped:
            return result
        # Of three, any two make at most twice the largest, whose last place is at most 2^-23 of that. It is an operand
        # of some sum here, and each sum is widened by its own.
        size = reduce(np.fmax, [np.abs(end) for x in (a, b, result) for end in (x.low, x.high)])
        by = np.where(np.isfinite(size), size * 2.0**-22, 0.0)
        return result._replace(low=result.low - by, high=result.high + by)

    return apply


def _choice(function):
    plain = at_ends(function, 0)

    def apply(a, b):
        """A subnormal number may be taken for zero, and given unchanged."""
        result = plain(a, b)
        near = [(x.low < TINY) & (x.high > -TINY) & ((x.low != 0.0) | (x.high != 0.0)) for x in (a, b)]
        near = (near[0] | near[1]) & (result.low < TINY) & (result.high > -TINY)
        return result._replace(
            low=np.where(near, np.fmin(result.low, -TINY), result.low),
            high=np.where(near, np.fmax(result.high, TINY), result.high),
        )

    return apply


add, subtract, multiply = _sum(np.add), _sum(np.subtract), at_ends(np.multiply, 1)
minimum, maximum = _choice(np.fmin), _choice(np.fmax)
negate, floor, ceil, trunc = (at_ends(function, 0) for function in (np.negative, np.floor, np.ceil, np.trunc))
round_, sign = at_ends(np.rint, 0), at_ends(np.sign, 0)
square_root, inverse_root = at_ends(np.sqrt, 4), at_ends(lambda x: 1.0 / np.sqrt(x), 4)
exp, log, expm1, log1p = at_ends(np.exp, 2), at_ends(np.log, 2), at_ends(np.expm1, 4), at_ends(np.log1p, 4)
tanh = at_ends(np.tanh, 4)
degrees = at_ends(lambda x: x * 57.29577951308232, 2)
radians = at_ends(lambda x: x * 0.017453292519943295, 2)
_quotient = at_ends(np.divide, 3)
_power = at_ends(np.power, 4)
_half = at_ends(lambda x: x.astype(np.float16).astype(np.float64), 0)


def divide(a, b):
    """WGSL states the accuracy for divisors that are not very large or small; zero may have either sign."""
    size = np.fmin(np.abs(b.low), np.abs(b.high))
    outside = (b.low <= 0.0) & (b.high >= 0.0) | (size < TINY) | (np.fmax(np.abs(b.low), np.abs(b.high)) > 2.0**126)
    result = _quotient(a, b)
    return result._replace(free=result.free | outside, special=result.special | outside)


def power(x, y):
    """The power of an x that is not negative. In C99, 1 to any power and any number to the power 0 are 1, NaNs too."""
    result = _power(x, y)
    maybe_one = (np.isnan(y.low) & (x.low <= 1.0) & (x.high >= 1.0)) | (
        np.isnan(x.low) & (y.low <= 0.0) & (y.high >= 0.0)
    )
    return result._replace(free=result.free | maybe_one)


def absolute(x):
    """The absolute value."""
    result = at_ends(np.abs, 0)(x)
    return result._replace(low=np.where((x.low < 0.0) & (x.high > 0.0), 0.0, np.maximum(result.low, 0.0)))


def fma(a, b, c):
    """In one rounding or two."""
    return add(multiply(a, b), c)


def _union(a, b):
    free = a.free | b.free | (np.isnan(a.low) != np.isnan(b.low))
    return Interval(np.fmin(a.low, b.low), np.fmax(a.high, b.high), free, a.special | b.special)


def mix(a, b, t):
    """By either of the formulas that WGSL gives."""
    one = exactly(np.float32(1.0))
    return _union(add(multiply(a, subtract(one, t)), multiply(b, t)), add(a, multiply(subtract(b, a), t)))


def clamp(x, low, high):
    """`low` and `high` are numbers."""
    return minimum(maximum(x, exactly(np.float32(low))), exactly(np.float32(high)))


def fract(x):
    """Return x - floor(x); from 0 to 1 where the floor is not certain."""
    whole = floor(x)
    part = subtract(x, whole)
    is_sure = (whole.low == whole.high) | np.isnan(x.low)
    bounded = part._replace(low=np.where(is_sure, part.low, 0.0), high=np.where(is_sure, part.high, 1.0))
    return bounded._replace(low=np.clip(bounded.low, 0.0, 1.0), high=np.clip(bounded.high, 0.0, 1.0))


def half(x):
    """Rounded to f16, within its range; f16's subnormal numbers may be flushed too."""
    result = _half(clamp(x, -60000.0, 60000.0))
    near = (result.low < 2.0**-14) & (result.high > -(2.0**-14))
    return result._replace(
        low=np.where(near, np.fmin(result.low, 0.0), result.low),
        high=np.where(near, np.fmax(result.high, 0.0), result.high),
    )


def _wave(function):
    def apply(x):
        with np.errstate(all="ignore"):
            middle, reach = (x.low + x.high) / 2, (x.high - x.low) / 2
            value = function(middle)
            low, high = np.maximum(value - reach, -1.0), np.minimum(value + reach, 1.0)
            return widened(Interval(low, high, x.free, x.special), 4, np.isfinite(middle))

    return apply


sin, cos = _wave(np.sin), _wave(np.cos)


def choose(condition, yes, no):
    """The first where the condition holds."""
    return Interval(*(np.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def outside(interval, got, *, may_assume_finite):
    """Where results are none that the interval allows.

    Args:
        got: float32.
        may_assume_finite: leave out what depends on infinities and NaNs.
    """
    value = np.asarray(got, np.float32).astype(np.float64)
    with np.errstate(invalid="ignore"):
        is_within = (value >= interval.low) & (value <= interval.high)
    is_right = np.where(np.isnan(interval.low), np.isnan(value), is_within)
    return ~is_right & ~interval.free & ~(interval.special & may_assume_finite)
