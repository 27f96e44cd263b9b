"""Checks of gradient rules: the slopes that `backward` computes against difference quotients of a function's values.

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
"""The relative error that a function's values may be expected to have, at worst and on average over its outputs."""

_FEW = 64
"""Elements up to which all are checked one by one by default."""

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
    directions, in which every element changes by ±`eps`, is compared with the gradient's, and then that along each
    element by itself. A rule that is wrong in one element of thousands changes both directions, and is then located by
    bisection. The inputs should be of a size near 1 and further than 2 `eps` from kinks and ends of the function: this
    step is too large for log(x) at 0.1. A wrong factor of 1.01 is detected, one of 1.001 may not be.

    Args:
        function: of the inputs; returns a tensor or a sequence of tensors.
        inputs: a tensor or a sequence. Tensors that require a gradient are checked; they are not changed.
        eps: the step h, best a power of two.
        atol: the absolute difference allowed, beyond the rounding of the values.
        rtol: the relative difference allowed; along a direction relative to the norm of the gradient.
        raise_exception: raise if they differ, instead of returning False.
        nondet_tol: the difference allowed between values and gradients of two calls with the same inputs.
        fast_mode: True checks directions only; False also every element; None every element of up to 64.

    Returns:
        True; or False, if `raise_exception` is False and they differ.

    Raises:
        GradcheckError: they differ. The message has an input and its element, with both values.
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

    It is `gradcheck` of the gradients as a function of the inputs and of the output's gradient, as
    torch.autograd.gradgradcheck. Inputs are numbered as in `inputs`, and then `grad_outputs`.

    Args:
        function: as in `gradcheck`.
        inputs: as in `gradcheck`.
        grad_outputs: gradients with respect to the function's outputs, one for each output that has a history; random
            if None.
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
    arguments = _sequence(inputs)
    outputs = [output for output in _outputs(function(*arguments)) if output.requires_grad]
    if grad_outputs is None:
        draw = _signed_numbers(seed=1)
        weights = [_on_device(array("f", [next(draw) for _ in range(output.size)]), output) for output in outputs]
    else:
        weights = [gradient.detach() for gradient in _sequence(grad_outputs)]
    for weight in weights:
        weight.requires_grad = True
    count = len(arguments)

    def slopes(*arguments: Any) -> list[Tensor]:
        sources = [
            argument for argument in arguments[:count] if isinstance(argument, Tensor) and argument.requires_grad
        ]
        values = [output for output in _outputs(function(*arguments[:count])) if output.requires_grad]
        parts = (
            part
            for value, weight in zip(values, arguments[count:], strict=True)
            for part in gradients(value, sources, weight, create_graph=True)
        )
        return [part for part in parts if part is not None]

    return gradcheck(
        slopes, [*arguments, *weights], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, fast_mode=fast_mode,
    )  # fmt: skip


class _Settings(NamedTuple):
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    fast_mode: bool | None


class _Slope(NamedTuple):
    """A difference quotient, and its error by the rounding of the values."""

    value: float
    noise: float


class _Point:
    """A function at a point: its gradient there, and its slopes in any direction."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any]) -> None:
        self.function = function
        self.inputs = inputs
        self.checked = [
            index for index, value in enumerate(inputs) if isinstance(value, Tensor) and value.requires_grad
        ]
        if not self.checked:
            raise UnsupportedError("gradcheck needs an input that requires a gradient: tensor(..., requires_grad=True)")
        self.sources: list[Tensor] = [inputs[index] for index in self.checked]
        self.sizes = [source.size for source in self.sources]
        self.values = [_floats(content) for content in read_together(self.sources)]
        self.weights: Lists = []

    def gradient(self) -> tuple[Lists, Lists]:
        """Return the function's values, and the gradient of their weighted sum with respect to each checked input."""
        leaves = [source.detach() for source in self.sources]
        for leaf in leaves:
            leaf.requires_grad = True
        outputs = _outputs(self.function(*self._with(leaves)))
        draw = _signed_numbers(seed=0)
        self.weights = [[next(draw) for _ in range(output.size)] for output in outputs]
        totals = [[0.0] * size for size in self.sizes]
        parts: list[tuple[int, Tensor]] = []
        for output, weights in zip(outputs, self.weights, strict=True):
            if output.requires_grad:
                input_gradients = gradients(output, leaves, _on_device(array("f", weights), output), retain_graph=True)
                parts += [(index, gradient) for index, gradient in enumerate(input_gradients) if gradient is not None]
        read = iter(read_together([*outputs, *(gradient for _, gradient in parts)]))
        values = [list(_floats(next(read))) for _ in outputs]
        for index, _ in parts:
            totals[index] = [a + b for a, b in zip(totals[index], _floats(next(read)), strict=True)]
        return values, totals

    def _with(self, tensors: Sequence[Tensor]) -> list[Any]:
        arguments = list(self.inputs)
        for index, item in zip(self.checked, tensors, strict=True):
            arguments[index] = item
        return arguments

    def slopes(self, directions: Sequence[Lists], eps: float) -> Iterator[_Slope]:
        """Yield the slope along each direction, which has a number for every element of every checked input."""
        weights_per_point = max(1, sum(map(len, self.weights)))
        count = max(1, min(_BATCH, _BATCH_FLOATS // weights_per_point) // len(_STENCIL))
        for start in range(0, len(directions), count):
            batch = directions[start : start + count]
            moved = [
                self._moved(direction, steps * eps) for direction in batch for steps, _ in _STENCIL
            ]  # uploaded first
            outputs = [_outputs(self.function(*self._with(inputs))) for inputs in moved]
            read = iter(read_together([output for outputs_of_point in outputs for output in outputs_of_point]))
            for number in range(len(batch)):
                point_outputs = outputs[number * len(_STENCIL) : (number + 1) * len(_STENCIL)]
                yield self._quotient(
                    [[_floats(next(read)) for _ in outputs_of_point] for outputs_of_point in point_outputs], eps
                )

    def _moved(self, direction: Lists, distance: float) -> list[Tensor]:
        moved = []
        for source, values, steps in zip(self.sources, self.values, direction, strict=True):
            moved_input = source.detach()
            if any(steps):
                moved_input = _on_device(
                    array("f", [a + distance * b for a, b in zip(values, steps, strict=True)]), source
                )
            moved_input.requires_grad = True
            moved.append(moved_input)
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
    repeated = point.gradient()
    for kind, numbers, again in (("values", values, repeated[0]), ("gradients", gradient, repeated[1])):
        for a, b in zip(_flat(numbers), _flat(again), strict=True):
            if a != b and not abs(a - b) <= settings.nondet_tol and not (math.isnan(a) and math.isnan(b)):
                raise GradcheckError(
                    f"two calls with the same inputs gave different {kind}, {a} and {b}: differences cannot check "
                    "such a function. Seed its random numbers inside it, or raise nondet_tol"
                )
    draw = _signed_numbers(seed=2)
    directions = [
        [[math.copysign(1.0, next(draw)) for _ in range(size)] for size in point.sizes] for _ in range(_DIRECTIONS)
    ]
    for direction, slope in zip(directions, point.slopes(directions, settings.eps), strict=True):
        wrong = _difference(slope, gradient, direction, _elements(point), settings)
        if wrong is not None:
            _locate(point, gradient, direction, wrong, settings)
    total = sum(point.sizes)
    if settings.fast_mode is False or (settings.fast_mode is None and total <= _FEW):
        _compare_elements(point, gradient, settings)


def _compare_elements(point: _Point, gradient: Lists, settings: _Settings) -> None:
    elements = _elements(point)
    slopes = point.slopes([_only(point, {position}) for position in elements], settings.eps)
    wrong = []
    for (index, element), slope in zip(elements, slopes, strict=True):
        got = gradient[index][element]
        bound = settings.atol + settings.rtol * abs(slope.value) + slope.noise
        if not abs(got - slope.value) <= bound:
            wrong.append((index, element, got, slope, bound))
    if wrong:
        index, element, got, slope, bound = wrong[0]
        raise GradcheckError(
            f"{_message(point, index, element, got, slope, bound)}; {len(wrong)} of {len(elements)} differ"
        )


class _Wrong(NamedTuple):
    """Both slopes along these elements of a direction, and the bound on their difference that they exceed."""

    elements: Sequence[tuple[int, int]]
    got: float
    slope: _Slope
    bound: float


def _locate(point: _Point, gradient: Lists, direction: Lists, wrong: _Wrong, settings: _Settings) -> None:
    """Locate a wrong slope along a direction by bisection of its elements, and raise the error."""
    while len(wrong.elements) > 1:
        middle = len(wrong.elements) // 2
        for elements in (wrong.elements[:middle], wrong.elements[middle:]):
            chosen = set(elements)
            steps = [
                [step if (index, element) in chosen else 0.0 for element, step in enumerate(steps_of_input)]
                for index, steps_of_input in enumerate(direction)
            ]
            (slope,) = point.slopes([steps], settings.eps)
            difference = _difference(slope, gradient, direction, elements, settings)
            if difference is not None:
                wrong = difference
                break
        else:
            break
    if len(wrong.elements) == 1:
        raise GradcheckError(_message(point, *wrong.elements[0], wrong.got, wrong.slope, wrong.bound))
    first, last = (
        f"input {point.checked[index]} at {_index(point.sources[index].shape, element)}"
        for index, element in (wrong.elements[0], wrong.elements[-1])
    )
    raise GradcheckError(
        f"the slope in a random direction of the elements from {first} to {last}: backward gives {wrong.got:.7g}, "
        f"central differences give {wrong.slope.value:.7g} ± {wrong.bound:.2g}"
    )


def _difference(
    slope: _Slope, gradient: Lists, direction: Lists, elements: Sequence[tuple[int, int]], settings: _Settings
) -> _Wrong | None:
    """Compare the slopes along these elements of a direction; None if they agree."""
    parts = [gradient[index][element] for index, element in elements]
    signs = [direction[index][element] for index, element in elements]
    got = math.fsum(a * b for a, b in zip(parts, signs, strict=True)) if all(map(math.isfinite, parts)) else math.nan
    if len(elements) == 1:  # as the derivative by the element, in whichever direction it was changed
        got, slope = got * signs[0], _Slope(slope.value * signs[0], slope.noise)
    norm = math.sqrt(sum(part * part for part in parts))
    bound = settings.atol + settings.rtol * max(norm, abs(slope.value)) + slope.noise
    return None if abs(got - slope.value) <= bound else _Wrong(elements, got, slope, bound)


def _message(point: _Point, index: int, element: int, got: float, slope: _Slope, bound: float) -> str:
    at = _index(point.sources[index].shape, element)
    return (
        f"the gradient of input {point.checked[index]} at element {at}: backward gives {got:.7g}, central differences "
        f"give {slope.value:.7g} ± {bound:.2g}"
    )


def _elements(point: _Point) -> list[tuple[int, int]]:
    return [(index, element) for index, size in enumerate(point.sizes) for element in range(size)]


def _only(point: _Point, chosen: set[tuple[int, int]]) -> Lists:
    return [[float((index, element) in chosen) for element in range(size)] for index, size in enumerate(point.sizes)]


def _index(shape: tuple[int, ...], element: int) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        element, coordinate = divmod(element, size)
        index.append(coordinate)
    return tuple(reversed(index))


def _sequence(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _outputs(value: Any) -> list[Tensor]:
    """Return the outputs that can have gradients."""
    tensors = [value_ for value_ in _sequence(value) if isinstance(value_, Tensor)]
    _need_full_precision(tensors)
    return [item for item in tensors if item.dtype is FLOAT32]


def _need_full_precision(values: Sequence[Any]) -> None:
    """Check that no tensor has 16 bits, whose rounding is larger than the differences to compare.

    Raises:
        UnsupportedError: one has.
    """
    for value in values:
        if isinstance(value, Tensor) and value.dtype.itemsize < 4:
            raise UnsupportedError(f"gradcheck compares differences in float32, not {value!r}; check without autocast")


def _flat(lists: Lists) -> Iterator[float]:
    for row in lists:
        yield from row


def _floats(read: memoryview) -> array[float]:
    return array("f", bytes(read) if read.nbytes else b"")


def _on_device(values: array[float], like: Tensor) -> Tensor:
    content = memoryview(values).cast("B") if values else memoryview(b"")
    return tensor(HostData(content, like.shape, FLOAT32), device=like.device)


def _signed_numbers(seed: int) -> Iterator[float]:
    """Yield numbers of magnitudes from 1/2 to 3/2 and either sign, exact in float32, the same at every call."""
    from random import Random

    draw = Random(seed)
    while True:
        number = draw.randrange(1 << 12)
        yield (0.5 + (number >> 1) / (1 << 11)) * (1.0 if number & 1 else -1.0)


def read_together(tensors: Sequence[Tensor]) -> list[memoryview]:
    """Return the values of float32 tensors on one device, as `Tensor.read`, with one wait for all."""
    nbytes = [4 * item.size for item in tensors]
    if not sum(nbytes):
        return [item.read() for item in tensors]
    device = tensors[0].device
    buffer = device.allocate(sum(nbytes))
    starts = [sum(nbytes[:index]) for index in range(len(nbytes))]
    for item, start, size in zip(tensors, starts, nbytes, strict=True):
        device.copy(item.view, View(buffer, start, size))
    raw = device.read(View(buffer, 0, sum(nbytes)))
    return [
        item.dtype.cast(raw[start : start + size], item.shape)
        for item, start, size in zip(tensors, starts, nbytes, strict=True)
    ]
