"""Clipping of gradients outside an optimizer, as in `torch.nn.utils`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..errors import UnsupportedError
from ..ops.creation import zeros
from ..runtime.buffer import View
from ..runtime.rules import Rule
from ..tensors import Parameter, Tensor
from .in_place import GradLayout, in_place
from .transforms import NORM_TYPES

__all__ = ["clip_grad_norm_", "clip_grad_value_"]

Params = Parameter | Iterable[Parameter]


class _CheckedLayout(GradLayout):
    """A layout that reads the norm, and raises if it is not finite, before gradients are changed."""

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        norm = self.device.read(self.tensor_views(["norm"])[0]["norm"]).cast("f")[0]
        if not math.isfinite(norm):
            raise RuntimeError(
                "The total norm for gradients from `parameters` is non-finite, so it cannot be clipped. To disable "
                "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
            )


def clip_grad_norm_(
    parameters: Params,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that the norm of all is at most `max_norm`, as `torch.nn.utils.clip_grad_norm_`.

    They are multiplied by min(1, max_norm / (norm + 1e-6)), in 4 dispatches for any number of tensors. As a transform
    of an optimizer (`transforms.clip_by_global_norm`) it takes one.

    Args:
        parameters: a parameter or several; those without a gradient are left alone.
        max_norm: the largest norm.
        norm_type: 1, 2, or infinity for the largest magnitude.
        error_if_nonfinite: wait for the norm, and raise if it is NaN or infinite.
        foreach: accepted as torch does, without effect.

    Returns:
        The norm before, as a tensor without axes.

    Raises:
        RuntimeError: see `error_if_nonfinite`.
        UnsupportedError: `error_if_nonfinite` in a compiled step.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> w.grad = [3.0, 4.0]
        >>> ow.optim.clip_grad_norm_([w], max_norm=1.0).item()
        5.0
        >>> [round(value, 5) for value in w.grad.tolist()]
        [0.6, 0.8]
    """
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if float(norm_type) not in NORM_TYPES:
        raise ValueError(f"norm_type must be 1, 2 or infinity, not {norm_type}")
    live = [param.grad is not None for param in params]
    if not any(live):
        return zeros((), params[0].device if params else None)
    if error_if_nonfinite and params[0].device.recording is not None:
        raise UnsupportedError(
            "error_if_nonfinite reads the norm, which a compiled step cannot; use the transform clip_by_global_norm, "
            "and check_finite() outside"
        )
    layout_type = _CheckedLayout if error_if_nonfinite else GradLayout
    clip = in_place(Rule("clip_grad_norm", over_all=True, folder="arena"), params, layout_type)
    clip.run(live, {"max_norm": float(max_norm), "norm_type": NORM_TYPES[float(norm_type)]})
    return clip.scalar("norm")


def clip_grad_value_(parameters: Params, clip_value: float, foreach: bool | None = None) -> None:
    """Clip each element of the gradients to [-clip_value, clip_value], in place, as `torch.nn.utils.clip_grad_value_`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> w.grad = [3.0, -0.5]
        >>> ow.optim.clip_grad_value_([w], 1.0); w.grad.tolist()
        [1.0, -0.5]
    """
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    live = [param.grad is not None for param in params]
    if any(live):
        clip = in_place(Rule("clip_grad_value", folder="arena"), params, GradLayout)
        clip.run(live, {"limit": float(clip_value)})
