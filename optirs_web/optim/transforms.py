"""Gradient transforms: what a gradient goes through, on the device, before the optimizer's rule sees it.

An optimizer takes them in order: ``AdamW(params, transforms=[accumulate(4), clip_by_global_norm(1.0)])``. Each is a
WGSL function in front of the rule's own, so that those of elements cost no dispatch; one that measures adds a dispatch
over the gradients, and one for what follows unless `advance` does it. `maximize` negates what comes out.

Gradients of rows (`SparseRows`) go through all but `accumulate`, `add_decayed_weights` and `add_noise`, which change
other rows too. A transform that measures is shown them with all their rows, so that a step then costs as much as one
with whole gradients.

What is gathered for a step and how many numbers were drawn is part of the optimizer's state, as `accumulated`,
`accumulate_calls`, `accumulate_gathered` and `add_noise_draw`; torch's state dicts, which have none, load all the same.
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
"""Says of a parameter whether a transform applies to it."""

NORM_TYPES = {1.0: 1.0, 2.0: 2.0, math.inf: 0.0}


@dataclass(eq=False)
class Transform:
    """One of the transforms that the functions of this module make.

    Attributes:
        stage: what the kernels know of it; None for one that needs none.
        options: numbers by name. Change one, and the next step uses it; a recorded step does so too.
        mask: which parameters it applies to; all if None.
        checks: steps with gradients that are not finite are left out and counted, as with `skip_nonfinite`.
    """

    stage: Stage | None
    options: dict[str, float] = field(default_factory=dict)
    mask: Mask | None = None
    checks: bool = False

    def applies_to(self, param: Parameter) -> bool:
        """Whether it applies to the parameter."""
        return self.mask is None or bool(self.mask(param))


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if not (isinstance(value, Real) and 0 < value <= LARGEST_FLOAT32):  # type: ignore[operator]
            raise ValueError(f"Invalid {name} value: {value}")


def _transform(name: str, options: Mapping[str, float], mask: Mask | None, over: str = "") -> Transform:
    given = tuple(options)
    return Transform(Stage(name, given, over, mask is not None), {key: float(options[key]) for key in given}, mask)


def clip_by_value(limit: float, mask: Mask | None = None) -> Transform:
    """Each element to [-limit, limit], as `torch.nn.utils.clip_grad_value_`.

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
    """Each tensor times min(1, max_norm / (norm + 1e-6)), where the norm is its own.

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
    """All gradients times min(1, max_norm / (norm + 1e-6)), where the norm is that of all (arXiv:1211.5063).

    As `torch.nn.utils.clip_grad_norm_`; in optax the factor is max_norm / norm.

    Args:
        max_norm: the largest norm.
        norm_type: 1, 2, or infinity for the largest magnitude.
        error_if_nonfinite: leave out steps with gradients that are NaN or infinite, so that `check_finite` raises.
        mask: which parameters count, and are clipped.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> clip = ow.optim.transforms.clip_by_global_norm(1.0)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[clip]).step(grads=[[3.0, 4.0]])
        >>> [round(value, 5) for value in w.tolist()]
        [-0.6, -0.8]
    """
    made = _clip_by_norm(max_norm, norm_type, mask, "all")
    made.checks = error_if_nonfinite
    return made


def clip_by_block_rms(threshold: float, mask: Mask | None = None) -> Transform:
    """Each tensor divided by max(1, rms / threshold), where rms is its own root mean square, as in optax.

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
    """Each output row to a norm of at most clipping max(‖row of the parameter‖, eps) (arXiv:2102.06171).

    A row is what a first index selects, as torch lays out the weights of an output; a vector is one row. As
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
    """Takes away the mean of each output row (arXiv:2004.01461), of tensors of two dimensions and more.

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
    """Adds Gaussian noise of variance eta / (1 + t)^gamma, with t from 0 (arXiv:1511.06807).

    The numbers depend on the seed, the step, the parameter's number and the element's index alone: every device draws
    the same, and so does a replay.

    Args:
        eta: the variance of the first step; 0.01, 0.3 and 1 in the paper.
        gamma: how fast it falls.
        seed: an integer from 0 to 2**32 - 1.
        mask: which parameters get noise.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> noise = ow.optim.transforms.add_noise(0.01, seed=1)
        >>> ow.optim.SGD([w], lr=1.0, transforms=[noise]).step(grads=[[0.0, 0.0]])
        >>> all(0.5 < one < 1.5 for one in w.tolist()) and w.tolist() != [1.0, 1.0]
        True
    """
    _positive(eta=eta)
    at_least_zero({"gamma": gamma}, "gamma")
    made = _transform("add_noise", {"eta": eta, "gamma": gamma, "seed": 0}, mask)
    made.options["seed"] = checked_seed(seed, 32)
    return made


def accumulate(every: int, reduction: str = "mean") -> Transform:
    """Gathers the gradients of several calls of `step`; every `every`-th call takes the step.

    Which call that is the device knows, so that one recorded step serves all. A call that is left out because of a
    gradient that is not finite does not count. Transforms before this one see the gradient of each call, those after it
    what was gathered.

    Args:
        every: how many calls make a step.
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
    """Adds weight_decay times the parameter, as `optax.add_decayed_weights`: an L2 penalty.

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
    """Leaves the parameters alone that the mask holds of, as if they had no gradient.

    Example:
        >>> import optirs_web as ow
        >>> params = [ow.Parameter([1.0], device="cpu", name=name) for name in ("head", "body")]
        >>> freeze = ow.optim.transforms.freeze(lambda param: param.name == "body")
        >>> ow.optim.SGD(params, lr=1.0, transforms=[freeze]).step(grads=[[1.0], [1.0]])
        >>> [one.tolist() for one in params]
        [[0.0], [1.0]]
    """
    return Transform(None, {}, mask)


def decay_groups(params: Iterable[Parameter], mask: Mask = _is_matrix, **options: Any) -> list[dict[str, Any]]:
    """Parameter groups with and without weight decay, for the first argument of any optimizer.

    Args:
        params: all parameters.
        mask: which are decayed; by default those of two dimensions and more, so no biases and no scales of norms.
        **options: of both groups.

    Example:
        >>> import optirs_web as ow
        >>> params = [ow.Parameter([[1.0]], device="cpu"), ow.Parameter([1.0], device="cpu")]
        >>> optimizer = ow.optim.AdamW(ow.optim.transforms.decay_groups(params), weight_decay=0.1)
        >>> [group["weight_decay"] for group in optimizer.param_groups]
        [0.1, 0.0]
    """
    everything = list(params)
    decayed = [one for one in everything if mask(one)]
    rest = [one for one in everything if not mask(one)]
    return [{"params": decayed, **options}, {"params": rest, **options, "weight_decay": 0.0}]


def unscale() -> Transform:
    """Division by the scale of the loss; see `optirs_web.optim.GradScaler`, which puts it in front of all others."""
    return Transform(Stage("unscale"))
