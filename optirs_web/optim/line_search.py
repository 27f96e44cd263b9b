"""The strong Wolfe line search (Nocedal & Wright 2006, algorithms 3.5 and 3.6), as torch.optim.LBFGS has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .host_driven import Evaluation
from .vectors import Reading

__all__ = ["Trial", "strong_wolfe"]

_DECREASE, _CURVATURE = 1e-4, 0.9  # Nocedal & Wright's c1 and c2
_GROWTH_LEAST, _GROWTH_MOST = 0.01, 10.0  # of an extrapolated step, relative to the last one
_MARGIN = 0.1  # of a bracket: a step that keeps ending nearer to its ends is moved inside


class Trial(NamedTuple):
    """A step length and the evaluation there."""

    t: float
    at: Evaluation


def _minimum_between(a: Trial, b: Trial, bounds: tuple[float, float] | None = None) -> float:
    """Return the minimum of the cubic with the losses and slopes of two trials (Nocedal & Wright, 3.59), within bounds.

    The middle where it has no minimum.
    """
    if a.t > b.t:
        a, b = b, a
    low, high = bounds or (a.t, b.t)
    middle = (low + high) / 2
    if a.t == b.t:
        return middle
    d1 = a.at.slope + b.at.slope - 3 * (a.at.loss - b.at.loss) / (a.t - b.t)
    square = d1 * d1 - a.at.slope * b.at.slope
    if not (0 <= square < math.inf):
        return middle
    d2 = math.sqrt(square)
    denominator = b.at.slope - a.at.slope + 2 * d2
    if denominator == 0:
        return middle
    return min(max(b.t - (b.t - a.t) * (b.at.slope + d2 - d1) / denominator, low), high)


def strong_wolfe(
    evaluate: Callable[[float], Reading],
    start: Trial,
    t: float,
    largest: float,
    tolerance_change: float,
    most: int,
) -> Reading:
    """Find a step length that satisfies the strong Wolfe conditions.

    Args:
        evaluate: a generator that returns the `Evaluation` at a step length.
        start: at length 0.
        t: the first length to try.
        largest: the largest magnitude in the direction.
        tolerance_change: a bracket that moves no parameter by more is not divided further.
        most: evaluations after the first.

    Returns:
        The `Trial` taken, and the number of evaluations.
    """

    def is_too_high(trial_: Trial) -> bool:
        return trial_.at.loss > start.at.loss + _DECREASE * trial_.t * start.at.slope

    def is_flat(trial_: Trial) -> bool:
        return abs(trial_.at.slope) <= -_CURVATURE * start.at.slope

    # Extrapolate until a minimum is bracketed.
    count = 0
    before, trial = start, Trial(t, (yield from evaluate(t)))
    bracket = [start, trial]
    while count < most:
        bracket = [before, trial]
        if is_too_high(trial) or (count > 1 and trial.at.loss >= before.at.loss):
            break
        if is_flat(trial):
            return trial, count + 1
        if trial.at.slope >= 0:
            break
        bounds = trial.t + _GROWTH_LEAST * (trial.t - before.t), _GROWTH_MOST * trial.t
        t = _minimum_between(before, trial, bounds)
        before, trial = trial, Trial(t, (yield from evaluate(t)))
        count += 1
        bracket = [start, trial]

    # Divide the bracket.
    low = _lower(bracket)
    has_stalled = False
    while count < most and not abs(bracket[1].t - bracket[0].t) * largest < tolerance_change:
        t, has_stalled = _inside(_minimum_between(bracket[0], bracket[1]), bracket, has_stalled)
        trial = Trial(t, (yield from evaluate(t)))
        count += 1
        if is_too_high(trial) or trial.at.loss >= bracket[low].at.loss:
            bracket[1 - low] = trial
            low = _lower(bracket)
            continue
        if is_flat(trial):
            return trial, count + 1
        if trial.at.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = trial
    return bracket[low], count + 1


def _lower(bracket: list[Trial]) -> int:
    return 0 if bracket[0].at.loss <= bracket[1].at.loss else 1


def _inside(t: float, bracket: list[Trial], has_stalled: bool) -> tuple[float, bool]:
    """Return the length, moved away from an end of the bracket if it is the second in a row close to one."""
    low, high = sorted(trial.t for trial in bracket)
    margin = _MARGIN * (high - low)
    if min(high - t, t - low) >= margin:
        return t, False
    if has_stalled or not low < t < high:
        return (high - margin if abs(t - high) < abs(t - low) else low + margin), False
    return t, True
