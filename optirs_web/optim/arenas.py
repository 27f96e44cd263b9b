"""The move of parameters into arenas, shared buffers over which one dispatch updates all of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..runtime.arena import Arena, Home, split_sizes
from ..tensors import Parameter, Tensor

__all__ = ["home_of", "move_into_arenas"]


def home_of(param: Parameter) -> Home:
    """Return the arena, and the index in it, of a parameter that was moved."""
    assert param._home is not None
    return param._home


def move_into_arenas(params: Sequence[Parameter], kinds: Sequence[Hashable]) -> None:
    """Move every parameter that is not in an arena yet into one; those of one kind share arenas."""
    device = params[0].device
    for kind in dict.fromkeys(kinds):
        unplaced = [
            param for param, param_kind in zip(params, kinds, strict=True) if param_kind == kind and not param._home
        ]
        if not unplaced:
            continue
        for members in split_sizes(device, [param.size for param in unplaced]):
            arena = Arena(device, [unplaced[index].shape for index in members])
            if any(isinstance(unplaced[index]._grad, Tensor) for index in members):
                _ = arena.grads  # all memory that is needed, before anything moves
            for position, index in enumerate(members):
                _move(unplaced[index], Home(arena, position))


def _move(param: Parameter, home: Home) -> None:
    target = home.param_view()
    param.device.copy(param.view, target)
    param.view.buffer.retired = True
    param.view = target
    param._home = home
    if param._grad_view is not None:
        param._grad_view.buffer.retired = True
        param._grad_view = None
    if isinstance(param._grad, Tensor):
        grad_view = home.grad_view()
        param.device.copy(param._grad.view, grad_view)
        param._grad = Tensor(grad_view, param.shape, param.dtype)
