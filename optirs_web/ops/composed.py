"""Gradient rules of operations that have kernels for their gradients: higher derivatives through a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import ref

from ..autograd import grad_enabled, pulled_back, record
from ..tensor_class import Tensor

__all__ = ["composed_gradients", "once", "record_composed"]

_Value = TypeVar("_Value")


def once(compute: Callable[[Tensor, Tensor], _Value]) -> Callable[[Tensor, Tensor], _Value]:
    """Return a function that computes its value for a gradient at the first call, and keeps it for the next calls."""
    cached: list[tuple[ref[Tensor], _Value]] = []

    def get(g: Tensor, y: Tensor) -> _Value:
        if not cached or cached[0][0]() is not g:
            cached[:] = [(ref(g), compute(g, y))]
        return cached[0][1]

    return get


def composed_gradients(formula: Callable[..., Tensor], inputs: Sequence[Tensor], g: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a formula of differentiable operations, with a history if gradients are recorded now."""
    gradients = pulled_back(formula, inputs, g)
    return tuple(gradients if grad_enabled() else [gradient.detach() for gradient in gradients])


def record_composed(result: Tensor, formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Note that a kernel has computed `formula(*inputs)`, whose gradients are the formula's."""
    all_gradients = once(lambda g, _: composed_gradients(formula, inputs, g))

    def rule_of(number: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda g, y: all_gradients(g, y)[number]

    edges: list[tuple[Any, Callable[[Tensor, Tensor], Tensor]]]
    edges = [(operand, rule_of(number)) for number, operand in enumerate(inputs)]
    return record(result, *edges)
