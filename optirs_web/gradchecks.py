"""Checks of gradient rules against differences: what `backward` says a function's slope is, and what its values say.

Made for float32. Values are exact to 2⁻²⁴ of their size, so differences over a small step are noise; over a step of
1/32 the fourth-order central difference, (-f(x+2h) + 8 f(x+h) - 8 f(x-h) + f(x-2h)) / 12h (Fornberg 1988, "Generation
of finite difference formulas on arbitrarily spaced grids"), errs by h⁴/30 of the fifth derivative, 3e-8 of it, and by
about 3e-6 of the values from their rounding. A power of two, for which x + h is exact for most x.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .autograd import gradients
from .errors import GradcheckError, UnsupportedError
from .hostdata import HostData
from .runtime.buffer import View
from .runtime.dtypes import FLOAT32
from .tensors import Tensor, tensor

__all__ = ["gradcheck", "gradgradcheck", "read_together"]

_EPS = 2.0**-5
_ATOL = 1e-4
_RTOL = 1e-3
_STENCIL = ((2, -1.0), (1, 8.0), (-1, -8.0), (-2, 1.0))  # steps, and their weights over 12 h
_ROUNDING = 2.0**-23
"""Of a value: what a function may be expected to be off by, at worst and on average over its outputs."""

_FEW = 64
"""Elements up to which all are tried one by one unless told otherwise."""

_DIRECTIONS = 2
_BATCH = 64
"""Evaluations whose values are read together."""

_BATCH_FLOATS = 1 << 22

Lists = list[list[float]]


def gradcheck(
    function: Callable[..., Any], inputs: Tensor | Sequence[Any], *, eps: float = _EPS, atol: float = _ATOL,
    rtol: float = _RTOL, raise_exception: bool = True, nondet_tol: float = 0.0, fast_mode: bool | None = None,
) -> bool:  # fmt: skip
    """Compare the gradients of a function with fourth-order central differences, as torch.autograd.gradcheck.

    The function's values are weighted at random and summed in float64 on the host. Their slope along two random
    directions, in which every element moves by ±`eps`, is compared with the gradient's, and then that along each
    element by itself. A rule that is wrong in one element of thousands changes both directions, and is then searched
    for by halves. The inputs should be of a size near 1 and further than 2 `eps` from where the function has a kink
    or an end: the same step suits no log(x) at 0.1. A wrong factor of 1.01 is found, one of 1.001 may not be.

    Args:
        function: of the inputs; returns a tensor or a sequence of tensors.
        inputs: a tensor or a sequence. Those tensors are checked that require a gradient; they are not changed.
        eps: the step h, best a power of two.
        atol: how far the two may lie apart at least, beyond the rounding of the values.
        rtol: how far, relative to the difference; along a direction relative to the norm of the gradient.
        raise_exception: raise if they differ, instead of returning False.
        nondet_tol: how far values and gradients of two calls with the same inputs may lie apart.
        fast_mode: True checks directions only; False also every element; None every element of up to 64.

    Returns:
        True; or False, if `raise_exception` is False and they differ.

    Raises:
        GradcheckError: they differ. It names an input and its element, with both values.
        UnsupportedError: no input requires a gradient, the function returns no float32 tensors, or one has 16 bits.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[0.5, 2.0]], device="cpu", requires_grad=True)
        >>> ow.gradcheck(lambda x: x * x * x, x)
        True
        >>> ow.gradcheck(lambda x: x * x.detach(), x, raise_exception=False)
        False
    """
    _need_full_precision(_sequence(inputs))
    try:
        _check(_Point(function, _sequence(inputs)), _Settings(eps, atol, rtol, nondet_tol, fast_mode))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    function: Callable[..., Any], inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None, *, eps: float = _EPS, atol: float = _ATOL,
    rtol: float = _RTOL, raise_exception: bool = True, nondet_tol: float = 0.0, fast_mode: bool | None = None,
) -> bool:  # fmt: skip
    """Compare the second derivatives of a function with central differences of its gradients.

    `gradcheck` of the function that gives the gradients, of the inputs and of the gradient that goes in: as
    torch.autograd.gradgradcheck. Inputs are counted as in `inputs`, and then `grad_outputs`.

    Args:
        function: as in `gradcheck`.
        inputs: as in `gradcheck`.
        grad_outputs: gradients with respect to what the function returns, one for each output that has a history; at
            random if None.
        eps: as in `gradcheck`.
        atol: as in `gradcheck`.
        rtol: as in `gradcheck`.
        raise_exception: as in `gradcheck`.
        nondet_tol: as in `gradcheck`.
        fast_mode: as in `gradcheck`.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([[0.5, 2.0]], device="cpu", requires_grad=True)
        >>> ow.gradgradcheck(lambda x: x * x * x, x)
        True
    """
    given = _sequence(inputs)
    outputs = [one for one in _outputs(function(*given)) if one.requires_grad]
    if grad_outputs is None:
        draw = _signed_numbers(seed=1)
        weights = [_on_device(array("f", [next(draw) for _ in range(one.size)]), one) for one in outputs]
    else:
        weights = [one.detach() for one in _sequence(grad_outputs)]
    for one in weights:
        one.requires_grad = True
    count = len(given)

    def slopes(*arguments: Any) -> list[Tensor]:
        sources = [one for one in arguments[:count] if isinstance(one, Tensor) and one.requires_grad]
        values = [one for one in _outputs(function(*arguments[:count])) if one.requires_grad]
        parts = (
            part
            for value, weight in zip(values, arguments[count:], strict=True)
            for part in gradients(value, sources, weight, create_graph=True)
        )
        return [part for part in parts if part is not None]

    return gradcheck(
        slopes, [*given, *weights], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, fast_mode=fast_mode,
    )  # fmt: skip


class _Settings(NamedTuple):
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    fast_mode: bool | None


class _Slope(NamedTuple):
    """A difference quotient, and what the rounding of the values it was made of may have changed."""

    value: float
    noise: float


class _Point:
    """A function at a point: its gradient there, and its slopes in any direction."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any]) -> None:
        self.function = function
        self.inputs = inputs
        self.checked = [at for at, one in enumerate(inputs) if isinstance(one, Tensor) and one.requires_grad]
        if not self.checked:
            raise UnsupportedError("gradcheck needs an input that requires a gradient: tensor(..., requires_grad=True)")
        self.sources: list[Tensor] = [inputs[at] for at in self.checked]
        self.sizes = [one.size for one in self.sources]
        self.values = [_floats(one) for one in read_together(self.sources)]
        self.weights: Lists = []

    def gradient(self) -> tuple[Lists, Lists]:
        """The function's values, and the gradient of their weighted sum with respect to each checked input."""
        leaves = [one.detach() for one in self.sources]
        for one in leaves:
            one.requires_grad = True
        outputs = _outputs(self.function(*self._with(leaves)))
        draw = _signed_numbers(seed=0)
        self.weights = [[next(draw) for _ in range(one.size)] for one in outputs]
        totals = [[0.0] * size for size in self.sizes]
        parts: list[tuple[int, Tensor]] = []
        for output, weights in zip(outputs, self.weights, strict=True):
            if output.requires_grad:
                found = gradients(output, leaves, _on_device(array("f", weights), output), retain_graph=True)
                parts += [(at, one) for at, one in enumerate(found) if one is not None]
        read = iter(read_together([*outputs, *(one for _, one in parts)]))
        values = [list(_floats(next(read))) for _ in outputs]
        for at, _ in parts:
            totals[at] = [a + b for a, b in zip(totals[at], _floats(next(read)), strict=True)]
        return values, totals

    def _with(self, tensors: Sequence[Tensor]) -> list[Any]:
        arguments = list(self.inputs)
        for at, one in zip(self.checked, tensors, strict=True):
            arguments[at] = one
        return arguments

    def slopes(self, directions: Sequence[Lists], eps: float) -> Iterator[_Slope]:
        """Along each direction, which has a number for every element of every checked input; none where it rests."""
        each = max(1, sum(map(len, self.weights)))
        count = max(1, min(_BATCH, _BATCH_FLOATS // each) // len(_STENCIL))
        for first in range(0, len(directions), count):
            batch = directions[first : first + count]
            moved = [self._moved(one, steps * eps) for one in batch for steps, _ in _STENCIL]  # uploaded first
            outputs = [_outputs(self.function(*self._with(one))) for one in moved]
            read = iter(read_together([one for several in outputs for one in several]))
            for number in range(len(batch)):
                several = outputs[number * len(_STENCIL) : (number + 1) * len(_STENCIL)]
                yield self._quotient([[_floats(next(read)) for _ in one] for one in several], eps)

    def _moved(self, direction: Lists, by: float) -> list[Tensor]:
        moved = []
        for source, values, steps in zip(self.sources, self.values, direction, strict=True):
            one = source.detach()
            if any(steps):
                one = _on_device(array("f", [a + by * b for a, b in zip(values, steps, strict=True)]), source)
            one.requires_grad = True
            moved.append(one)
        return moved

    def _quotient(self, stencil: Sequence[Sequence[array[float]]], eps: float) -> _Slope:
        terms, squares = [], 0.0
        for output, weights in enumerate(self.weights):
            for element, weight in enumerate(weights):
                values = [point[output][element] for point in stencil]
                if min(values) != max(values):  # also where one is NaN
                    change = sum(factor * value for (_, factor), value in zip(_STENCIL, values, strict=True))
                    terms.append(weight * change)
                    squares += (weight * max(map(abs, values))) ** 2
        return _Slope(sum(terms) / (12 * eps), _ROUNDING * math.sqrt(squares) / eps)


def _check(point: _Point, settings: _Settings) -> None:
    values, gradient = point.gradient()
    if not point.weights:
        raise UnsupportedError("gradcheck needs a function that returns float32 tensors")
    again = point.gradient()
    for what, first, second in (("values", values, again[0]), ("gradients", gradient, again[1])):
        for a, b in zip(_flat(first), _flat(second), strict=True):
            if a != b and not abs(a - b) <= settings.nondet_tol and not (math.isnan(a) and math.isnan(b)):
                raise GradcheckError(
                    f"two calls with the same inputs gave different {what}, {a} and {b}: differences cannot check "
                    "such a function. Seed its random numbers inside it, or raise nondet_tol"
                )
    draw = _signed_numbers(seed=2)
    directions = [
        [[math.copysign(1.0, next(draw)) for _ in range(size)] for size in point.sizes] for _ in range(_DIRECTIONS)
    ]
    for direction, slope in zip(directions, point.slopes(directions, settings.eps), strict=True):
        wrong = _difference(slope, gradient, direction, _places(point), settings)
        if wrong is not None:
            _locate(point, gradient, direction, wrong, settings)
    total = sum(point.sizes)
    if settings.fast_mode is False or (settings.fast_mode is None and total <= _FEW):
        _compare_elements(point, gradient, settings)


def _compare_elements(point: _Point, gradient: Lists, settings: _Settings) -> None:
    places = _places(point)
    slopes = point.slopes([_only(point, {one}) for one in places], settings.eps)
    wrong = []
    for (at, element), slope in zip(places, slopes, strict=True):
        got = gradient[at][element]
        bound = settings.atol + settings.rtol * abs(slope.value) + slope.noise
        if not abs(got - slope.value) <= bound:
            wrong.append((at, element, got, slope, bound))
    if wrong:
        at, element, got, slope, bound = wrong[0]
        raise GradcheckError(f"{_told(point, at, element, got, slope, bound)}; {len(wrong)} of {len(places)} differ")


class _Wrong(NamedTuple):
    """Both slopes along these elements of a direction, and the bound that they break."""

    places: Sequence[tuple[int, int]]
    got: float
    slope: _Slope
    bound: float


def _locate(point: _Point, gradient: Lists, direction: Lists, wrong: _Wrong, settings: _Settings) -> None:
    """Raise what is wrong along a direction: by halves of its elements, until one is left or both halves agree."""
    while len(wrong.places) > 1:
        half = len(wrong.places) // 2
        for places in (wrong.places[:half], wrong.places[half:]):
            chosen = set(places)
            steps = [
                [step if (at, element) in chosen else 0.0 for element, step in enumerate(one)]
                for at, one in enumerate(direction)
            ]
            (slope,) = point.slopes([steps], settings.eps)
            found = _difference(slope, gradient, direction, places, settings)
            if found is not None:
                wrong = found
                break
        else:
            break
    if len(wrong.places) == 1:
        raise GradcheckError(_told(point, *wrong.places[0], wrong.got, wrong.slope, wrong.bound))
    first, last = (
        f"input {point.checked[at]} at {_index(point.sources[at].shape, element)}"
        for at, element in (wrong.places[0], wrong.places[-1])
    )
    raise GradcheckError(
        f"the slope in a random direction of the elements from {first} to {last}: backward gives {wrong.got:.7g}, "
        f"central differences give {wrong.slope.value:.7g} ± {wrong.bound:.2g}"
    )


def _difference(
    slope: _Slope, gradient: Lists, direction: Lists, places: Sequence[tuple[int, int]], settings: _Settings
) -> _Wrong | None:
    """What is wrong with the slope along these elements of a direction."""
    parts = [gradient[at][element] for at, element in places]
    signs = [direction[at][element] for at, element in places]
    got = math.fsum(a * b for a, b in zip(parts, signs, strict=True)) if all(map(math.isfinite, parts)) else math.nan
    if len(places) == 1:  # told as the derivative by the element, whichever way it was moved
        got, slope = got * signs[0], _Slope(slope.value * signs[0], slope.noise)
    norm = math.sqrt(sum(one * one for one in parts))
    bound = settings.atol + settings.rtol * max(norm, abs(slope.value)) + slope.noise
    return None if abs(got - slope.value) <= bound else _Wrong(places, got, slope, bound)


def _told(point: _Point, at: int, element: int, got: float, slope: _Slope, bound: float) -> str:
    where = _index(point.sources[at].shape, element)
    return (
        f"the gradient of input {point.checked[at]} at element {where}: backward gives {got:.7g}, central differences "
        f"give {slope.value:.7g} ± {bound:.2g}"
    )


def _places(point: _Point) -> list[tuple[int, int]]:
    return [(at, element) for at, size in enumerate(point.sizes) for element in range(size)]


def _only(point: _Point, chosen: set[tuple[int, int]]) -> Lists:
    return [[float((at, element) in chosen) for element in range(size)] for at, size in enumerate(point.sizes)]


def _index(shape: tuple[int, ...], element: int) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        element, one = divmod(element, size)
        index.append(one)
    return tuple(reversed(index))


def _sequence(one_or_more: Any) -> list[Any]:
    return list(one_or_more) if isinstance(one_or_more, (list, tuple)) else [one_or_more]


def _outputs(value: Any) -> list[Tensor]:
    """Those that can have gradients."""
    tensors = [one for one in _sequence(value) if isinstance(one, Tensor)]
    _need_full_precision(tensors)
    return [one for one in tensors if one.dtype is FLOAT32]


def _need_full_precision(values: Sequence[Any]) -> None:
    """Refuse tensors of 16 bits, whose rounding is larger than the differences that are to be compared."""
    for one in values:
        if isinstance(one, Tensor) and one.dtype.itemsize < 4:
            raise UnsupportedError(f"gradcheck compares differences in float32, not {one!r}; check without autocast")


def _flat(lists: Lists) -> Iterator[float]:
    for one in lists:
        yield from one


def _floats(read: memoryview) -> array[float]:
    return array("f", bytes(read) if read.nbytes else b"")


def _on_device(values: array[float], like: Tensor) -> Tensor:
    content = memoryview(values).cast("B") if values else memoryview(b"")
    return tensor(HostData(content, like.shape, FLOAT32), device=like.device)


def _signed_numbers(seed: int) -> Iterator[float]:
    """Numbers of sizes from 1/2 to 3/2 and either sign, exact in float32, the same at every call."""
    from random import Random

    draw = Random(seed)
    while True:
        number = draw.randrange(1 << 12)
        yield (0.5 + (number >> 1) / (1 << 11)) * (1.0 if number & 1 else -1.0)


def read_together(tensors: Sequence[Tensor]) -> list[memoryview]:
    """The values of tensors of one device, as `Tensor.read` gives them, with one wait for all. They are float32."""
    nbytes = [4 * one.size for one in tensors]
    if not sum(nbytes):
        return [one.read() for one in tensors]
    device = tensors[0].device
    buffer = device.allocate(sum(nbytes))
    starts = [sum(nbytes[:at]) for at in range(len(nbytes))]
    for one, start, size in zip(tensors, starts, nbytes, strict=True):
        device.copy(one.view, View(buffer, start, size))
    raw = device.read(View(buffer, 0, sum(nbytes)))
    return [
        one.dtype.cast(raw[start : start + size], one.shape)
        for one, start, size in zip(tensors, starts, nbytes, strict=True)
    ]
