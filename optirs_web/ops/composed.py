"""Gradient rules of operations that have kernels for their gradients: higher derivatives through a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import ref

from ..autograd import enable_grad, grad_enabled, record
from ..tensors import Tensor

__all__ = ["composed_gradients", "once", "record_composed"]

_Value = TypeVar("_Value")


def once(compute: Callable[[Tensor, Tensor], _Value]) -> Callable[[Tensor, Tensor], _Value]:
    """A rule whose value for a gradient is computed by the first that asks, and kept for those that ask next."""
    found: list[tuple[ref[Tensor], _Value]] = []

    def get(g: Tensor, y: Tensor) -> _Value:
        if not found or found[0][0]() is not g:
            found[:] = [(ref(g), compute(g, y))]
        return found[0][1]

    return get


def composed_gradients(formula: Callable[..., Tensor], inputs: Sequence[Tensor], g: Tensor) -> tuple[Tensor, ...]:
    """The gradients of a formula of differentiable operations, with a history of their own if one is left now."""
    from ..derivatives import vjp

    leaves_history = grad_enabled()
    with enable_grad():
        found = vjp(formula, *inputs)[1](g)
    return found if leaves_history else tuple(one.detach() for one in found)


def record_composed(result: Tensor, formula: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Note that a kernel has computed `formula(*inputs)`, whose gradients are the formula's."""
    all_gradients = once(lambda g, _: composed_gradients(formula, inputs, g))

    def rule_of(number: int) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda g, y: all_gradients(g, y)[number]

    edges: list[tuple[Any, Callable[[Tensor, Tensor], Tensor]]]
    edges = [(one, rule_of(number)) for number, one in enumerate(inputs)]
    return record(result, *edges)
