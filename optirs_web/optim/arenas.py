"""Parameters move into arenas, where one dispatch reaches them all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..runtime.arena import Arena, Home, split_sizes
from ..tensors import Parameter, Tensor

__all__ = ["home_of", "move_into_arenas"]


def home_of(param: Parameter) -> Home:
    """The place of a parameter that was moved."""
    assert param._home is not None
    return param._home


def move_into_arenas(params: Sequence[Parameter], kinds: Sequence[Hashable]) -> None:
    """Give every parameter that has no place yet one in an arena; those of one kind share one."""
    device = params[0].device
    for kind in dict.fromkeys(kinds):
        homeless = [one for one, its_kind in zip(params, kinds, strict=True) if its_kind == kind and not one._home]
        if not homeless:
            continue
        for members in split_sizes(device, [one.size for one in homeless]):
            arena = Arena(device, [homeless[index].size for index in members])
            if any(isinstance(homeless[index]._grad, Tensor) for index in members):
                _ = arena.grads  # all memory that is needed, before anything moves
            for place, index in enumerate(members):
                _move(homeless[index], Home(arena, place))


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
        place = home.grad_view()
        param.device.copy(param._grad.view, place)
        param._grad = Tensor(place, param.shape, param.dtype)
