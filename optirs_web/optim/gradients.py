"""Gradients that are passed to a step become the `grad` of the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd import as_gradient, set_grad
from ..errors import ShapeError
from ..ops.arithmetic import clone
from ..sparse import SparseRows
from ..tensors import Parameter, Tensor
from .state import shape_of

__all__ = ["assign_grads"]


def assign_grads(params: Sequence[Parameter], grads: Sequence[Any]) -> None:
    """Set the gradients of parameters: all of them, or none if one does not fit.

    Args:
        params: the parameters.
        grads: for each a tensor, an array, nested lists, `SparseRows` or None.

    Raises:
        ShapeError: there are too few or many, or one has another shape than its parameter.
    """
    grads = list(grads)
    if len(grads) != len(params):
        raise ShapeError(f"{len(grads)} gradients were given for {len(params)} parameters")
    pairs = list(zip(params, grads, strict=True))
    for param, grad in pairs:
        shape = param.shape if grad is None else shape_of(grad)
        if shape != param.shape:
            raise ShapeError(f"a gradient has the shape {shape}, its parameter {param.shape}")
    gradients = [
        grad if grad is None or isinstance(grad, SparseRows) else as_gradient(param, grad) for param, grad in pairs
    ]
    # A gradient in an arena could be overwritten by one that is assigned before it.
    arenas = {param._home.arena.grads for param, grad in pairs if param._home and not isinstance(grad, SparseRows)}
    gradients = [
        clone(gradient) if isinstance(gradient, Tensor) and gradient.view.buffer in arenas else gradient
        for gradient in gradients
    ]
    for param, gradient in zip(params, gradients, strict=True):
        set_grad(param, gradient)
