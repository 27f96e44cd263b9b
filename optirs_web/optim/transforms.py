"""Gradient transforms, applied on the device before the optimizer's rule.

An optimizer applies them in order: ``AdamW(params, transforms=[accumulate(4), clip_by_global_norm(1.0)])``. Each is a
WGSL function before the rule's own, so that those of elements take no dispatch; one that measures adds a dispatch over
the gradients, and one for the reduction unless `advance` does it. `maximize` negates the result.

Gradients of rows (`SparseRows`) can be transformed by all but `accumulate`, `add_decayed_weights` and `add_noise`,
which change other rows too. A transform that measures gets them with all their rows, so that a step then costs as much
as one with dense gradients.

Accumulated gradients and the count of random draws are part of the optimizer's state, as `accumulated`,
`accumulate_calls`, `accumulate_gathered` and `add_noise_draw`; torch's state dicts, which have none, can be loaded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

from ..ops.random_state import checked_seed
from ..runtime.rules import Stage
from ..tensors import Parameter
from .options import LARGEST_FLOAT32, at_least_zero

__all__ = [
    "NORM_TYPES",
    "Mask",
    "Transform",
    "accumulate",
    "adaptive_clip",
    "add_decayed_weights",
    "add_noise",
    "centralize",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "decay_groups",
    "freeze",
]

Mask = Callable[[Parameter], bool]
"""A function that returns whether a transform applies to a parameter."""

NORM_TYPES = {1.0: 1.0, 2.0: 2.0, math.inf: 0.0}


@dataclass(eq=False)
class Transform:
    """A transform, made by a function of this module.

    Attributes:
        stage: its stage in the kernels; None for one without code.
        options: numbers by name. Change one, and the next step uses it; a recorded step does so too.
        mask: returns whether it applies to a parameter; None for all.
        checks: steps with gradients that are not finite are skipped and counted, as with `skip_nonfinite`.
    """

    stage: Stage | None
    options: dict[str, float] = field(default_factory=dict)
    mask: Mask | None = None
    checks: bool = False

    def applies_to(self, param: Parameter) -> bool:
        """Return whether it applies to the parameter."""
        return self.mask is None or bool(self.mask(param))


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if not (isinstance(value, Real) and 0 < value <= LARGEST_FLOAT32):  # type: ignore[operator]
            raise ValueError(f"Invalid {name} value: {value}")


def _transform(name: str, options: Mapping[str, float], mask: Mask | None, over: str = "") -> Transform:
    names = tuple(options)
    return Transform(Stage(name, names, over, mask is not None), {key: float(options[key]) for key in names}, mask)


def clip_by_value(limit: float, mask: Mask | None = None) -> Transform:
    """Clip each element to [-limit, limit], as `torch.nn.utils.clip_grad_value_`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> clip = ow.optim.transforms.clip_by_value(1.0)
        >>> ow.optim.SGD([w], lr=0.5, transforms=[clip]).step(grads=[[3.0, -0.5]])
        >>> w.tolist()
        [-0.5, 0.25]
    """
    _positive(limit=limit)
    return _transform("clip_by_value", {"limit": limit}, mask)


def _clip_by_norm(max_norm: float, norm_type: float, mask: Mask | None, over: str) -> Transform:
    _positive(max_norm=max_norm)
    if float(norm_type) not in NORM_TYPES:
        raise ValueError(f"norm_type must be 1, 2 or infinity, not {norm_type}")
    return _transform("clip_by_norm", {"max_norm": max_norm, "norm_type": NORM_TYPES[float(norm_type)]}, mask, over)


def clip_by_norm(max_norm: float, norm_type: float = 2.0, mask: Mask | None = None) -> Transform:
    """Multiply each tensor by min(1, max_norm / (norm + 1e-6)), with the norm of that tensor.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> transform = ow.optim.transforms.clip_by_norm(1.0)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[transform]).step(grads=[[[3.0, 4.0], [0.0, 0.5]]])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[0.403, 0.204], [1.0, 0.9]]
    """
    return _clip_by_norm(max_norm, norm_type, mask, "tensor")


def clip_by_global_norm(
    max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False, mask: Mask | None = None
) -> Transform:
    """Multiply all gradients by min(1, max_norm / (norm + 1e-6)), with the norm of all (arXiv:1211.5063).

    As `torch.nn.utils.clip_grad_norm_`; in optax the factor is max_norm / norm.

    Args:
        max_norm: the largest norm.
        norm_type: 1, 2, or infinity for the largest magnitude.
        error_if_nonfinite: skip steps with gradients that are NaN or infinite, so that `check_finite` raises.
        mask: returns whether a parameter counts, and is clipped; None for all.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> clip = ow.optim.transforms.clip_by_global_norm(1.0)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[clip]).step(grads=[[3.0, 4.0]])
        >>> [round(value, 5) for value in w.tolist()]
        [-0.6, -0.8]
    """
    transform = _clip_by_norm(max_norm, norm_type, mask, "all")
    transform.checks = error_if_nonfinite
    return transform


def clip_by_block_rms(threshold: float, mask: Mask | None = None) -> Transform:
    """Divide each tensor by max(1, rms / threshold), with the root mean square of that tensor, as in optax.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> transform = ow.optim.transforms.clip_by_block_rms(1.0)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[transform]).step(grads=[[[3.0, 4.0], [0.0, 0.5]]])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[-0.194, -0.592], [1.0, 0.801]]
    """
    _positive(threshold=threshold)
    return _transform("clip_by_block_rms", {"threshold": threshold}, mask, "tensor")


def adaptive_clip(clipping: float, eps: float = 1e-3, mask: Mask | None = None) -> Transform:
    """Scale each output row to a norm of at most clipping max(‖row of the parameter‖, eps) (arXiv:2102.06171).

    A row is the slice at a first index, which in torch's layout has the weights of an output; a vector is one row. As
    `optax.adaptive_grad_clip` on the transposed matrix.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> transform = ow.optim.transforms.adaptive_clip(0.5)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[transform]).step(grads=[[[3.0, 4.0], [0.0, 0.5]]])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[0.576, 0.434], [1.0, 0.5]]
    """
    _positive(clipping=clipping, eps=eps)
    return _transform("adaptive_clip", {"clipping": clipping, "eps": eps}, mask, "row")


def _is_matrix(param: Parameter) -> bool:
    return param.ndim > 1


def _is_matrix_and(mask: Mask, param: Parameter) -> bool:
    return _is_matrix(param) and mask(param)


def centralize(mask: Mask | None = None) -> Transform:
    """Subtract the mean of each output row (arXiv:2004.01461), in tensors of two dimensions and more.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> transform = ow.optim.transforms.centralize()
        >>> ow.optim.SGD([w], lr=1.0, transforms=[transform]).step(grads=[[[3.0, 4.0], [0.0, 0.5]]])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[1.5, 0.5], [1.25, 0.75]]
    """
    return _transform("centralize", {}, _is_matrix if mask is None else partial(_is_matrix_and, mask), "row")


def add_noise(eta: float, gamma: float = 0.55, seed: int = 0, mask: Mask | None = None) -> Transform:
    """Add Gaussian noise of variance eta / (1 + t)^gamma, with t from 0 (arXiv:1511.06807).

    The numbers depend on the seed, the step, the parameter's number and the element's index alone: every device draws
    the same, and so does a replay.

    Args:
        eta: the variance of the first step; 0.01, 0.3 and 1 in the paper.
        gamma: how fast it falls.
        seed: an integer from 0 to 2**32 - 1.
        mask: returns whether a parameter's gradient gets noise; None for all.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> noise = ow.optim.transforms.add_noise(0.01, seed=1)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[noise]).step(grads=[[0.0, 0.0]])
        >>> all(0.5 < value < 1.5 for value in w.tolist()) and w.tolist() != [1.0, 1.0]
        True
    """
    _positive(eta=eta)
    at_least_zero({"gamma": gamma}, "gamma")
    transform = _transform("add_noise", {"eta": eta, "gamma": gamma, "seed": 0}, mask)
    transform.options["seed"] = checked_seed(seed, 32)
    return transform


def accumulate(every: int, reduction: str = "mean") -> Transform:
    """Accumulate the gradients of several calls of `step`; every `every`-th call takes the step.

    The device counts the calls, so that one recorded step serves all. A call that is skipped because of a gradient that
    is not finite does not count. Transforms before this one see the gradient of each call, those after it the
    accumulated one.

    Args:
        every: number of calls of a step.
        reduction: "mean" of the gradients, or their "sum".

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0], device="cpu")
        >>> optimizer = ow.optim.SGD([w], lr=1.0, transforms=[ow.optim.transforms.accumulate(2)])
        >>> optimizer.step(grads=[[1.0]]); w.tolist()
        [0.0]
        >>> optimizer.step(grads=[[3.0]]); w.tolist()
        [-2.0]
    """
    if not 1 <= operator.index(every) < 1 << 24:
        raise ValueError(f"a step needs 1 call or more, not {every}")
    if reduction not in ("mean", "sum"):
        raise ValueError(f'a reduction must be "mean" or "sum", not {reduction!r}')
    return _transform("accumulate", {"every": every, "weight": 1 / every if reduction == "mean" else 1.0}, None)


def add_decayed_weights(weight_decay: float, mask: Mask | None = None) -> Transform:
    """Add weight_decay times the parameter, as `optax.add_decayed_weights`: an L2 penalty.

    For decoupled decay of some parameters only see `decay_groups`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> transform = ow.optim.transforms.add_decayed_weights(0.1)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[transform]).step(grads=[[[3.0, 4.0], [0.0, 0.5]]])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[-2.1, -3.1], [0.9, 0.4]]
    """
    _positive(weight_decay=weight_decay)
    return _transform("add_decayed_weights", {"weight_decay": weight_decay}, mask)


def freeze(mask: Mask) -> Transform:
    """Do not update the parameters that the mask selects, as if they had no gradient.

    Example:
        >>> import optirs_web as ow
        >>> params = [ow.Parameter([1.0], device="cpu", name=name) for name in ("head", "body")]
        >>> freeze = ow.optim.transforms.freeze(lambda param: param.name == "body")
        >>> ow.optim.SGD(params, lr=1.0, transforms=[freeze]).step(grads=[[1.0], [1.0]])
        >>> [param.tolist() for param in params]
        [[0.0], [1.0]]
    """
    return Transform(None, {}, mask)


def decay_groups(params: Iterable[Parameter], mask: Mask = _is_matrix, **options: Any) -> list[dict[str, Any]]:
    """Return parameter groups with and without weight decay, for the first argument of any optimizer.

    Args:
        params: all parameters.
        mask: returns whether a parameter is decayed; by default those of two dimensions and more, so no biases and no
            scales of norms.
        **options: of both groups.

    Example:
        >>> import optirs_web as ow
        >>> params = [ow.Parameter([[1.0]], device="cpu"), ow.Parameter([1.0], device="cpu")]
        >>> optimizer = ow.optim.AdamW(ow.optim.transforms.decay_groups(params), weight_decay=0.1)
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.1, 0.0]
    """
    all_params = list(params)
    decayed = [param for param in all_params if mask(param)]
    undecayed = [param for param in all_params if not mask(param)]
    return [{"params": decayed, **options}, {"params": undecayed, **options, "weight_decay": 0.0}]


def unscale() -> Transform:
    """Divide by the scale of the loss; see `optirs_web.optim.GradScaler`, which puts it before all others."""
    return Transform(Stage("unscale"))
