"""The options of optimizers: those that all have, their checks, and the hyper-parameters derived from them."""

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
    "NotANumberError",
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


class NotANumberError(TypeError, ValueError):
    """An option is no number, or no flag. It is a ValueError, too, as those of options out of range are."""


class Options(TypedDict, total=False):
    """The options of every optimizer besides those of its rule.

    skip_nonfinite: skip a step, and do not count it, when a gradient is NaN or infinite.
    transforms: transforms of the gradients, in order (`optim.transforms`), and projections of the parameters after a
        step (`optim.projections`).
    state_dtype: how state is stored: "float32", "float16", "bfloat16" (rounded at random, so that small changes add up)
        or "8bit" (blocks of 256 with a dynamic map, Dettmers et al. 2022, arXiv:2110.02861; tensors of less than 4,096
        elements stay float32); one for all, or a dict by the names of the state. That is state per element: state per
        row and column, roots, eigenbases and projectors are float32, and so are copies of parameters and the sums from
        which they are computed. "float16" for all stores squares as bfloat16: float16 has no numbers below 6e-8, and
        gradients below 2e-4 have such squares; for rules of your own there is no such exception. State of parameters
        whose gradients are `SparseRows` may have 16 bits, not 8, which are stored in whole blocks.
    param_dtype: "bfloat16" rounds the model's parameters to bfloat16. They are stored in tensors of float32, as WebGPU
        has no narrower type for them: training is that of such weights, but memory is not saved.
    rounding: how steps then change them, computed in float32; only with `param_dtype`. "master", the default, keeps the
        lower 16 bits of float32 weights, in 2 more bytes each; state dicts show these weights whole. "kahan" keeps the
        rounding error, as bfloat16 (Kahan summation). Both are dropped when another value is assigned to a weight,
        unless that value is itself exact in bfloat16: then they may remain, up to half a spacing. "stochastic" keeps
        nothing, and rounds up or down at random, by index and step alone, so that every device and every run does the
        same.
    maximize: increase the loss instead of decreasing it.
    foreach, fused, capturable: accepted as torch does, without effect: every step is fused.
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
    """Return whether a value is a real number within the range of float32, of Python's or NumPy's types."""
    try:
        return isinstance(value, Real) and abs(float(value)) <= LARGEST_FLOAT32  # float16 has no such bound
    except OverflowError:
        return False


def at_least_zero(group: Mapping[str, Any], *names: str) -> None:
    """Check that options are numbers from 0, with torch's messages.

    Raises:
        ValueError: one is not; the message names it.
    """
    for name in names:
        value = group[name]
        if not (is_number(value) and value >= 0):
            raise ValueError(f"Invalid {_WORDS.get(name, f'{name} value')}: {value}")


def fractions(group: Mapping[str, Any], *names: str) -> None:
    """Check that options are numbers from 0 to less than 1, with torch's messages; `betas` are several.

    Raises:
        ValueError: one is not; the message names it.
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
    """Return betas as numbers: those that are tensors or arrays of one element are read now, once.

    Raises:
        ValueError: only some are tensors, or one has more elements or none; with torch's messages.
    """
    if not isinstance(betas, (tuple, list)):
        return betas
    tensors = [hasattr(beta, "shape") and not isinstance(beta, Real) for beta in betas]
    if not any(tensors):
        return betas
    if not all(tensors):
        raise ValueError("betas must be either all numbers or all tensors")
    for index, beta in enumerate(betas):
        if math.prod(beta.shape) != 1:
            raise ValueError(f"Tensor betas[{index}] must be 1-element")
    return tuple(float(beta.item()) for beta in betas)


def two_epsilons(group: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the two numbers of a group's `eps`.

    Raises:
        ValueError: it is no tuple or list of two.
    """
    eps = group["eps"]
    if not isinstance(eps, (tuple, list)) or len(eps) != 2:
        raise ValueError(f"Invalid epsilon value: eps must be two numbers, not {quoted(eps)}")
    return eps[0], eps[1]


def _is_fraction(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < 1


def derived(group: Mapping[str, Any], name: str) -> float:
    """Return a member of Hyper: an option, or a value derived from one by its name, in float64 and rounded once."""
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
    return 0.0 if isinstance(value, Tensor) else float(value)  # the device copies a tensor's value itself
