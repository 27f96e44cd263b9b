"""The options of optimizers: what all take, what is refused, and what is derived from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import quoted
from ..tensors import Tensor

if TYPE_CHECKING:
    from .projections import Projection
    from .transforms import Transform

__all__ = [
    "LARGEST_FLOAT32",
    "SMALLEST_8_BIT",
    "SMALLEST_NORMAL",
    "STATE_DTYPES",
    "Options",
    "at_least_zero",
    "derived",
    "fractions",
    "is_number",
    "numbers_of",
    "two_epsilons",
]

LARGEST_FLOAT32 = 3.4028234663852886e38
SMALLEST_NORMAL = 2.0**-126
"""Of float32: smaller numbers are 0 on some devices."""

STATE_DTYPES = ("float32", "float16", "bfloat16", "8bit")
SMALLEST_8_BIT = 4096
"""Elements of the smallest tensor whose state is stored in 8 bits."""

_WORDS = {"lr": "learning rate", "eps": "epsilon value"}
_SMALLEST_LOG = -100.0
"""exp(-100) is 0 in float32, so that beta = 0 needs no infinity."""


class Options(TypedDict, total=False):
    """What every optimizer takes besides the options of its rule.

    skip_nonfinite: leave everything as it is, step counts too, when a gradient is NaN or infinite.
    transforms: what gradients go through first, in order (`optim.transforms`), and what parameters are brought back to
        after a step (`optim.projections`).
    state_dtype: how state is stored: "float32", "float16", "bfloat16" (rounded at random, so that small changes add up)
        or "8bit" (blocks of 256 with a dynamic map, Dettmers et al. 2022, arXiv:2110.02861; tensors of less than 4,096
        elements stay float32); one for all, or a dict by the names of the state. That is state per element: what is
        kept per row and column, roots, eigenbases and projectors are float32, and so are positions and the sums that
        they are made of. "float16" for all stores squares as bfloat16: float16 has no numbers below 6e-8, of which
        gradients of 2e-4 have squares; for rules of one's own that is left to you. State of parameters whose gradients
        are `SparseRows` may have 16 bits: blocks of 8 bits are stored as a whole.
    param_dtype: "bfloat16" has the model compute with numbers of bfloat16. They lie in tensors of float32, as WebGPU
        has no narrower type for them: what is trained is what such weights would be, but memory is not saved.
    rounding: how steps then change them, computed in float32. "master" keeps the lower halves of float32 weights, in 2
        more bytes each; state dicts show these weights whole. "kahan" keeps what rounding cut off, as bfloat16 (Kahan
        summation). What is kept of a weight is dropped when another value is assigned, unless that is itself exact in
        bfloat16: then it may stay, up to half a spacing. "stochastic" keeps nothing, and rounds up or down at random,
        by place and step alone, so that every device and every run does the same.
    maximize: go up instead of down.
    foreach, fused, capturable: torch's; accepted, and without a meaning here: every step is fused.
    """

    skip_nonfinite: bool
    transforms: Sequence[Transform | Projection]
    state_dtype: str | Mapping[str, str]
    param_dtype: str
    rounding: str
    maximize: bool
    foreach: bool | None
    fused: bool | None
    capturable: bool


def is_number(value: object) -> bool:
    """Whether it is a real number of a size that float32 has, of Python's or NumPy's types."""
    try:
        return isinstance(value, Real) and abs(float(value)) <= LARGEST_FLOAT32  # float16 has no such bound
    except OverflowError:
        return False


def at_least_zero(group: Mapping[str, Any], *names: str) -> None:
    """Refuse options that are negative or no number, in torch's words.

    Raises:
        ValueError: the message names the option.
    """
    for name in names:
        value = group[name]
        if not (is_number(value) and value >= 0):
            raise ValueError(f"Invalid {_WORDS.get(name, f'{name} value')}: {value}")


def fractions(group: Mapping[str, Any], *names: str) -> None:
    """Refuse options that are no numbers from 0 to less than 1, in torch's words; `betas` are several.

    Raises:
        ValueError: the message names the option.
    """
    for name in names:
        value = group[name]
        if name != "betas":
            if not _is_fraction(value):
                raise ValueError(f"Invalid {name} value: {value}")
            continue
        if not isinstance(value, (tuple, list)):
            raise ValueError(f"betas must be a tuple of numbers, not {quoted(value)}")
        for index, beta in enumerate(value):
            if not _is_fraction(beta):
                kind = "" if isinstance(beta, Real) else f", a {type(beta).__name__}, where a number is expected"
                raise ValueError(f"Invalid beta parameter at index {index}: {quoted(beta)}{kind}")


def numbers_of(betas: Any) -> Any:
    """Betas that are tensors, or arrays, of one element each as numbers: they are read now, once. Others as they are.

    Raises:
        ValueError: only some are tensors, or one has more elements or none; in torch's words.
    """
    if not isinstance(betas, (tuple, list)):
        return betas
    tensors = [hasattr(one, "shape") and not isinstance(one, Real) for one in betas]
    if not any(tensors):
        return betas
    if not all(tensors):
        raise ValueError("betas must be either all numbers or all tensors")
    for index, one in enumerate(betas):
        if math.prod(one.shape) != 1:
            raise ValueError(f"Tensor betas[{index}] must be 1-element")
    return tuple(float(one.item()) for one in betas)


def two_epsilons(group: Mapping[str, Any]) -> tuple[Any, Any]:
    """`eps` of a group, where it is two numbers.

    Raises:
        ValueError: it is anything else than a tuple or list of two.
    """
    eps = group["eps"]
    if not isinstance(eps, (tuple, list)) or len(eps) != 2:
        raise ValueError(f"Invalid epsilon value: eps must be two numbers, not {quoted(eps)}")
    return eps[0], eps[1]


def _is_fraction(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < 1


def derived(group: Mapping[str, Any], name: str) -> float:
    """A member of Hyper: an option, or what its name says is made of one, in float64 and rounded once."""
    if name.startswith("one_minus_"):
        return 1 - derived(group, name.removeprefix("one_minus_"))
    if name.startswith("log_"):
        value = derived(group, name.removeprefix("log_"))
        return math.log(value) if value else _SMALLEST_LOG
    if name not in group and name.startswith("beta"):
        return float(group["betas"][int(name.removeprefix("beta")) - 1])
    value = group[name]
    if isinstance(value, str):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return 0.0 if isinstance(value, Tensor) else float(value)  # the device takes a tensor's value from there itself
