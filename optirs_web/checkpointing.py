"""Gradient checkpointing: what lies between is computed again in the backward pass instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from . import ops
from .autograd import grad_enabled, gradients, no_grad, record, sources_of
from .errors import UnsupportedError
from .ops.random_state import drawn_again, draws_so_far
from .runtime.dtypes import DType
from .tensors import Tensor

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call `function`, keep only its result, and call it again when gradients are asked for.

    Memory is taken for what one call needs at a time, not for all of a model; each such call costs a second forward
    pass (Chen et al. 2016, "Training deep nets with sublinear memory cost"). Parameters that the function uses get
    their gradients too, and random numbers (dropout) are the same in both calls.

    Args:
        function: of tensors and other values; returns one tensor, and does the same each time.
        arguments: what it is called with.

    Raises:
        UnsupportedError: the function returns something else than a tensor, or no argument is a tensor.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([2.0, 3.0], device="cpu")
        >>> block = lambda x: (x * w).exp().relu()
        >>> ow.checkpoint(block, ow.ones((2,), device="cpu")).sum().backward()
        >>> [round(value, 3) for value in w.grad.tolist()]
        [7.389, 20.086]
    """
    if not grad_enabled():
        return function(*arguments)
    device = next((one.device for one in arguments if isinstance(one, Tensor)), None)
    if device is None:
        raise UnsupportedError("a checkpointed function needs at least one tensor")
    drawn = draws_so_far(device)

    precision = ops.autocast_to()

    def call() -> Tensor:
        with _as_at_first(precision):
            result = function(*arguments)
        if not isinstance(result, Tensor):
            raise UnsupportedError(f"a checkpointed function must return one tensor, not {type(result).__name__}")
        return result

    result, sources = sources_of(call)
    if not sources:
        return result
    again = _Again(call, sources, drawn)
    rules = [(one, lambda g, _, number=number: again.gradient(g, number)) for number, one in enumerate(sources)]
    return record(result.detach(), *rules)


def _as_at_first(precision: DType | None) -> AbstractContextManager[Any]:
    """Products take the operands that they took in the first call. A cast from outside would hide its parameter."""
    if precision is None and ops.autocast_to() is None:
        return nullcontext()
    from .precision import autocast

    return autocast("bfloat16" if precision is None else precision, enabled=precision is not None, cache_enabled=False)


class _Again:
    """Computes the gradients of all sources at the first one that is asked for."""

    def __init__(self, call: Callable[[], Tensor], sources: list[Tensor], drawn: int) -> None:
        self._call = call
        self._sources = sources
        self._drawn = drawn
        self._given: Tensor | None = None
        self._found: dict[int, Tensor] = {}

    def gradient(self, g: Tensor, number: int) -> Tensor:
        """Of source `number`, for the gradient `g` of the result."""
        if self._given is not g or number not in self._found:
            self._given = g
            self._found = self._compute(g)
        found = self._found.pop(number)
        if not self._found:
            self._given = None
        return found

    def _compute(self, g: Tensor) -> dict[int, Tensor]:
        creates_graph = grad_enabled()
        with drawn_again(g.device, self._drawn):
            result, _ = sources_of(self._call)
        found = gradients(result, self._sources, g, create_graph=creates_graph)
        with no_grad():
            return {
                number: ops.zeros(source.shape, device=source.device) if one is None else one
                for number, (one, source) in enumerate(zip(found, self._sources, strict=True))
            }
