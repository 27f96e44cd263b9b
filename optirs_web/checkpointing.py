"""Gradient checkpointing: activations are computed again in the backward pass instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from . import ops
from .autograd import grad_enabled, gradients, no_grad, record, sources_of
from .errors import UnsupportedError
from .ops.calls import autocast_to
from .ops.random_state import drawn_again, draws_so_far
from .runtime.dtypes import DType
from .tensors import Tensor

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call `function`, keep only its result, and call it again when gradients are computed.

    Memory is needed for the activations of one call at a time, not for all of a model; each such call costs a second
    forward pass (Chen et al. 2016, "Training deep nets with sublinear memory cost"). Parameters that the function uses
    get their gradients too, and random numbers (dropout) are the same in both calls.

    Args:
        function: of tensors and other values; returns one tensor, and computes the same at each call.
        arguments: its arguments.

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
    device = next((argument.device for argument in arguments if isinstance(argument, Tensor)), None)
    if device is None:
        raise UnsupportedError("a checkpointed function needs at least one tensor")
    drawn = draws_so_far(device)

    precision = autocast_to()

    def call() -> Tensor:
        with _same_precision(precision):
            result = function(*arguments)
        if not isinstance(result, Tensor):
            raise UnsupportedError(f"a checkpointed function must return one tensor, not {type(result).__name__}")
        return result

    result, sources = sources_of(call)
    if not sources:
        return result
    recomputation = _Recomputation(call, sources, drawn)
    rules = [
        (source, lambda g, _, number=number: recomputation.gradient(g, number)) for number, source in enumerate(sources)
    ]
    return record(result.detach(), *rules)


def _same_precision(precision: DType | None) -> AbstractContextManager[Any]:
    """Return a context in which products have the type of the first call, and cast parameters again.

    A cast from outside would hide its parameter.
    """
    if precision is None and autocast_to() is None:
        return nullcontext()
    from .precision import autocast  # once it is loaded, operations look for 16-bit operands

    return autocast("bfloat16" if precision is None else precision, enabled=precision is not None, cache_enabled=False)


class _Recomputation:
    """The gradients of all sources, computed at the first request."""

    def __init__(self, call: Callable[[], Tensor], sources: list[Tensor], drawn: int) -> None:
        self._call = call
        self._sources = sources
        self._drawn = drawn
        self._gradient: Tensor | None = None
        self._source_gradients: dict[int, Tensor] = {}

    def gradient(self, g: Tensor, number: int) -> Tensor:
        """Return the gradient of source `number` for the gradient `g` of the result."""
        if self._gradient is not g or number not in self._source_gradients:
            self._gradient = g
            self._source_gradients = self._compute(g)
        gradient = self._source_gradients.pop(number)
        if not self._source_gradients:
            self._gradient = None
        return gradient

    def _compute(self, g: Tensor) -> dict[int, Tensor]:
        creates_graph = grad_enabled()
        with drawn_again(g.device, self._drawn):
            result, _ = sources_of(self._call)
        source_gradients = gradients(result, self._sources, g, create_graph=creates_graph)
        with no_grad():
            return {
                number: ops.zeros(source.shape, device=source.device) if gradient is None else gradient
                for number, (gradient, source) in enumerate(zip(source_gradients, self._sources, strict=True))
            }
