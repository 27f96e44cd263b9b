"""Schedules as values: what an option is after so many steps. `lr_scheduler.ScheduleLR` has an optimizer follow one.

The first thirteen and `join_schedules` are optax's, with its names and arguments; `warmup`, `noisy`, `curriculum` and
`layerwise_decay` are those of OptiRS. `formulas` has what all are composed of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, TypeVar

from ..errors import quoted
from ..ops.random_state import checked_seed
from .formulas import Curve, Schedule, call, delayed, geometric, hold, joined, ramp
from .lr_scheduler.arguments import check_all

__all__ = [
    "Schedule",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "curriculum",
    "exponential_decay",
    "join_schedules",
    "layerwise_decay",
    "linear_onecycle_schedule",
    "linear_schedule",
    "noisy",
    "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
    "polynomial_schedule",
    "sgdr_schedule",
    "warmup",
    "warmup_constant_schedule",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]

Function = TypeVar("Function", bound=Callable[..., Schedule])


def _of_numbers(function: Function) -> Function:
    """Return the function with a check of its arguments: finite numbers, and not 0 where that is divided by."""

    @wraps(function)
    def make(*args: Any, **kwargs: Any) -> Schedule:
        check_all(function.__name__, {**dict(zip(function.__code__.co_varnames, args, strict=False)), **kwargs})
        return function(*args, **kwargs)

    return make  # type: ignore[return-value]


# optax's.


@_of_numbers
def constant_schedule(value: float) -> Schedule:
    """Always the same.

    Example:
        >>> from optirs_web.optim.schedules import constant_schedule
        >>> [round(value, 3) for value in constant_schedule(0.1).values(2)]
        [0.1, 0.1]
    """
    return hold(value)


@_of_numbers
def polynomial_schedule(
    init_value: float, end_value: float, power: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """(init - end) (1 - t / steps)^power + end, where t begins to count at `transition_begin` and ends at `steps`.

    Example:
        >>> from optirs_web.optim.schedules import polynomial_schedule
        >>> [round(value, 3) for value in polynomial_schedule(1.0, 0.0, power=2.0, transition_steps=2).values(4)]
        [1.0, 0.25, 0.0, 0.0]
    """
    if transition_steps <= 0:
        return constant_schedule(init_value)
    return delayed(ramp(init_value, end_value, transition_steps, power=power), max(transition_begin, 0))


@_of_numbers
def linear_schedule(init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0) -> Schedule:
    """A polynomial one of power 1.

    Example:
        >>> from optirs_web.optim.schedules import linear_schedule
        >>> [round(value, 3) for value in linear_schedule(1.0, 0.5, transition_steps=2).values(4)]
        [1.0, 0.75, 0.5, 0.5]
    """
    return polynomial_schedule(init_value, end_value, 1.0, transition_steps, transition_begin)


@_of_numbers
def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Init rate^(t / steps), not beyond `end_value`; with `staircase` the exponent is rounded down.

    Example:
        >>> from optirs_web.optim.schedules import exponential_decay
        >>> [round(value, 3) for value in exponential_decay(1.0, transition_steps=1, decay_rate=0.5).values(4)]
        [1.0, 0.5, 0.25, 0.125]
    """
    if transition_steps <= 0 or decay_rate == 0:
        return constant_schedule(init_value)
    first = init_value
    if end_value is not None:
        first = max(first, end_value) if decay_rate < 1 else min(first, end_value)
    decay = geometric(init_value, decay_rate, transition_steps, end_value, staircase)
    return joined([(0, hold(first)), (max(transition_begin, 0), decay)])


@_of_numbers
def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0) -> Schedule:
    """Init ((1 - alpha) ((1 + cos(pi t / steps)) / 2)^exponent + alpha), constant after the steps.

    Raises:
        ValueError: decay_steps is not positive.

    Example:
        >>> from optirs_web.optim.schedules import cosine_decay_schedule
        >>> [round(value, 3) for value in cosine_decay_schedule(1.0, decay_steps=4).values(6)]
        [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    if not decay_steps > 0:
        raise ValueError(f"The cosine_decay_schedule requires positive decay_steps, got decay_steps={decay_steps}.")
    if exponent == 0:
        return constant_schedule(init_value)
    end = alpha * init_value
    return joined([(0, ramp(init_value, end, decay_steps, "cosine", exponent)), (decay_steps, hold(end))])


def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """From each boundary on, times its scale.

    Raises:
        ValueError: a scale is negative.

    Example:
        >>> from optirs_web.optim.schedules import piecewise_constant_schedule
        >>> [round(value, 3) for value in piecewise_constant_schedule(1.0, {1: 0.5, 3: 0.1}).values(5)]
        [1.0, 0.5, 0.5, 0.05, 0.05]
    """
    bounds, values = _scaled("piecewise_constant_schedule", init_value, boundaries_and_scales)
    return joined(zip(bounds, map(hold, values), strict=True))


def piecewise_interpolate_schedule(
    interpolate_type: str, init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """From one boundary to the next a "linear" or "cosine" curve, between values that are scaled at each.

    Raises:
        ValueError: a scale is negative, or it is another type.

    Example:
        >>> from optirs_web.optim.schedules import piecewise_interpolate_schedule
        >>> [round(value, 3) for value in piecewise_interpolate_schedule("linear", 1.0, {2: 0.5, 4: 2.0}).values(6)]
        [1.0, 0.75, 0.5, 0.75, 1.0, 1.0]
    """
    if interpolate_type not in ("linear", "cosine"):
        raise ValueError("`interpolate_type` must be either 'cosine' or 'linear'")
    curve: Any = interpolate_type
    bounds, values = _scaled("piecewise_interpolate_schedule", init_value, boundaries_and_scales)
    curves = [
        (begin, ramp(value, after, end - begin, curve))
        for (begin, end), (value, after) in zip(itertools.pairwise(bounds), itertools.pairwise(values), strict=True)
    ]
    return joined([*curves, (bounds[-1], hold(values[-1]))])


def _scaled(name: str, value: float, scales: Mapping[int, float] | None) -> tuple[list[int], list[float]]:
    """The boundaries, 0 first, and the value from each on."""
    ordered = sorted((scales or {}).items())
    if any(scale < 0 for _, scale in ordered):
        raise ValueError(f"`{name}` expects non-negative scale factors")
    values = itertools.accumulate((scale for _, scale in ordered), lambda a, b: a * b, initial=value)
    return [0, *(begin for begin, _ in ordered)], list(values)


@_of_numbers
def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle (Smith & Topin 2017, arXiv:1708.07120) in three straight lines: up, down, and down to nearly nothing.

    Raises:
        ValueError: transition_steps is not positive.

    Example:
        >>> from optirs_web.optim.schedules import linear_onecycle_schedule
        >>> [round(value, 3) for value in linear_onecycle_schedule(10, 1.0).values(11)]
        [0.04, 0.36, 0.68, 1.0, 0.808, 0.616, 0.424, 0.232, 0.04, 0.02, 0.0]
    """
    scales = {pct_start: div_factor, pct_final: 1 / div_factor, 1: 1 / final_div_factor}
    return _one_cycle("linear", transition_steps, peak_value / div_factor, scales)


@_of_numbers
def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: float,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """One cycle in two cosine curves: up, and down to nearly nothing.

    Raises:
        ValueError: transition_steps is not positive.

    Example:
        >>> from optirs_web.optim.schedules import cosine_onecycle_schedule
        >>> [round(value, 3) for value in cosine_onecycle_schedule(10, 1.0).values(11)]
        [0.04, 0.28, 0.76, 1.0, 0.95, 0.812, 0.611, 0.389, 0.188, 0.05, 0.0]
    """
    scales = {pct_start: div_factor, 1: 1 / (div_factor * final_div_factor)}
    return _one_cycle("cosine", transition_steps, peak_value / div_factor, scales)


def _one_cycle(curve: Curve, steps: int, value: float, scales: Mapping[float, float]) -> Schedule:
    """Scaled at these shares of the steps."""
    if steps <= 0:  # optax says "linear" of both
        raise ValueError("A linear onecycle schedule was set with a non-positive `transition_steps`")
    return piecewise_interpolate_schedule(curve, value, {int(at * steps): scale for at, scale in scales.items()})


@_of_numbers
def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """A straight line, and then constant.

    Example:
        >>> from optirs_web.optim.schedules import warmup_constant_schedule
        >>> [round(value, 3) for value in warmup_constant_schedule(0.0, 1.0, warmup_steps=2).values(4)]
        [0.0, 0.5, 1.0, 1.0]
    """
    return linear_schedule(init_value, peak_value, warmup_steps)


@_of_numbers
def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """A straight line, and then cosine decay, for `decay_steps` together.

    Example:
        >>> from optirs_web.optim.schedules import warmup_cosine_decay_schedule
        >>> schedule = warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=6)
        >>> [round(value, 3) for value in schedule.values(8)]
        [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    alpha = 0.0 if peak_value == 0 else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return _line_to(init_value, peak_value, warmup_steps, decay)


@_of_numbers
def warmup_exponential_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """A straight line, and then exponential decay.

    Example:
        >>> from optirs_web.optim.schedules import warmup_exponential_decay_schedule
        >>> schedule = warmup_exponential_decay_schedule(0.0, 1.0, warmup_steps=2, transition_steps=1, decay_rate=0.5)
        >>> schedule.values(5)
        [0.0, 0.5, 1.0, 0.5, 0.25]
    """
    decay = exponential_decay(peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value)
    return _line_to(init_value, peak_value, warmup_steps, decay)


def _line_to(init_value: float, peak_value: float, steps: int, decay: Schedule) -> Schedule:
    return join_schedules([linear_schedule(init_value, peak_value, steps), decay], [steps])


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Warm restarts (Loshchilov & Hutter 2017, arXiv:1608.03983): several `warmup_cosine_decay_schedule`.

    Example:
        >>> from optirs_web.optim.schedules import sgdr_schedule
        >>> cycle = {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 1, "decay_steps": 3}
        >>> [round(value, 3) for value in sgdr_schedule([cycle, cycle]).values(6)]
        [0.0, 1.0, 0.5, 0.0, 1.0, 0.5]
    """
    cycles = list(cosine_kwargs)
    ends = list(itertools.accumulate(cycle["decay_steps"] for cycle in cycles))
    return join_schedules([warmup_cosine_decay_schedule(**cycle) for cycle in cycles], ends[:-1])


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One after the other; each counts from the boundary at which it takes over.

    Raises:
        ValueError: it is not one boundary less than schedules, or one of several is noisy.

    Example:
        >>> from optirs_web.optim.schedules import constant_schedule, join_schedules, linear_schedule
        >>> join_schedules([linear_schedule(0.0, 1.0, 2), constant_schedule(0.5)], [2]).values(4)
        [0.0, 0.5, 0.5, 0.5]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(f"{len(schedules)} schedules need {len(schedules) - 1} boundaries, not {len(boundaries)}")
    if any(schedule.is_noisy for schedule in schedules):
        raise ValueError("make the joined schedule noisy, not its parts")
    return joined(zip([0, *boundaries], schedules, strict=True))


# OptiRS's.


def warmup(
    schedule: Schedule, steps: int, curve: Curve | Literal["constant"] = "linear", init_value: float = 0.0
) -> Schedule:
    """Return a schedule of `steps` steps from `init_value` to the first value of `schedule`, followed by `schedule`.

    With the curve "constant" these steps stay at `init_value`.

    Raises:
        ValueError: an exponential curve begins or ends at 0.

    Example:
        >>> from optirs_web.optim.schedules import constant_schedule, warmup
        >>> [round(value, 3) for value in warmup(constant_schedule(1.0), 4, "cosine").values(6)]
        [0.0, 0.146, 0.5, 0.854, 1.0, 1.0]
    """
    peak = schedule(0)
    if curve == "exponential" and init_value * peak <= 0:
        raise ValueError("an exponential warm-up needs two values of the same sign, and not from 0")
    first = constant_schedule(init_value) if curve == "constant" else ramp(init_value, peak, steps, curve)
    return join_schedules([first, schedule], [steps])


def noisy(
    schedule: Schedule,
    distribution: Literal["uniform", "gaussian", "cyclical", "decaying"],
    first: float,
    second: float = 0.0,
    steps: int = 1,
    lowest: float = 0.0,
    seed: int = 0,
) -> Schedule:
    """Add noise, which is the same for the same seed and count, and not beneath `lowest`.

    Args:
        schedule: what is added to.
        distribution: "uniform" from `first` to `second`; "gaussian" of the mean `first` and the deviation `second`;
            "cyclical", a sine of the amplitude `first` and the period `steps`; "decaying", uniform from -a to a, where
            a goes from `first` to `second` in `steps`.
        first: see there.
        second: see there.
        steps: see there.
        lowest: the smallest value.
        seed: from 0 to 2^24 - 1.

    Raises:
        ValueError: the seed or the distribution is none of these.

    Example:
        >>> from optirs_web.optim.schedules import constant_schedule, noisy
        >>> [round(value, 3) for value in noisy(constant_schedule(1.0), "cyclical", 0.1, steps=4).values(5)]
        [1.0, 1.1, 1.0, 0.9, 1.0]
    """
    kinds = ("uniform", "gaussian", "cyclical", "decaying")
    if distribution not in kinds:
        raise ValueError(f"noise is {', '.join(kinds)}, not {quoted(distribution)}")
    constants = (kinds.index(distribution), first, second, steps, lowest, checked_seed(seed, 24))
    return replace(call("noise", *constants, base=schedule.parts), is_noisy=True)


def curriculum(
    stages: Sequence[tuple[float, int]],
    transition: Literal["immediate", "smooth"] = "immediate",
    blend_steps: int = 0,
) -> Schedule:
    """Values for so many steps each: the last one stays. "smooth" blends `blend_steps` into each next one by a cosine.

    See `lr_scheduler.CurriculumLR` for stages that are ended by hand.

    Example:
        >>> from optirs_web.optim.schedules import curriculum
        >>> [round(value, 3) for value in curriculum([(1.0, 2), (0.1, 2)]).values(5)]
        [1.0, 1.0, 0.1, 0.1, 0.1]
    """
    members: list[tuple[float, Schedule]] = []
    begin, before = 0, stages[0][0]
    for value, steps in stages:
        blend = blend_steps if begin and transition == "smooth" else 0
        if blend:
            members.append((begin, ramp(before, value, blend, "cosine")))
        members.append((begin + blend, hold(value)))
        begin, before = begin + steps, value
    return joined(members)


def layerwise_decay(layers: int, decay: float) -> list[float]:
    """A factor for each layer, 1 for the last, `decay` times the next for each before it (ViT's): for `ScheduleLR`.

    Example:
        >>> from optirs_web.optim.schedules import layerwise_decay
        >>> layerwise_decay(3, 0.5)
        [0.25, 0.5, 1.0]
    """
    return [decay ** (layers - 1 - number) for number in range(layers)]
