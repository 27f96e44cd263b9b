"""DoG and LDoG: one rule, over all tensors or for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .distance import above_zero
from .optimizer import Optimizer, Options, Params, Rule

__all__ = ["DoG", "LDoG"]


@documented
class DoG(Optimizer):
    """Distance over gradients (Ivgi et al. 2023, arXiv:2302.12022), as `optax.contrib.dog`.

        max_dist = reps_rel (1 + ‖x0‖) at the first step, then max(max_dist, ‖param - x0‖)
        param = param - lr max_dist / sqrt(Σ ‖g‖² + eps) g

    where x0 is the initial param, and g is the gradient plus weight_decay param. The norms are over all tensors that
    have a gradient in the step, the sum over all steps. The authors recommend to average the parameters.

    Args:
        lr: multiplies the estimated learning rate; leave it at 1.
        reps_rel: the first distance, relative to 1 + the norm of the parameters.
        eps: added to the sum of squared norms.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, 4.0], device="cpu")
        >>> ow.optim.DoG([w], reps_rel=0.5).step(grads=[[4.0, -3.0]])
        >>> [round(value, 6) for value in w.tolist()]
        [0.6, 5.8]
    """

    rule = Rule("dog", over_all=True)
    scalars_in_state = ("step", "max_dist", "sum_sq_norm_grads")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        reps_rel: float = 1e-6,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        above_zero(group, "reps_rel")


@documented
class LDoG(DoG):
    """Layer-wise distance over gradients (Ivgi et al. 2023, arXiv:2302.12022): `DoG` with the norms of each tensor.

    Example:
        >>> import optirs_web as ow
        >>> w, b = ow.Parameter([3.0, 4.0], device="cpu"), ow.Parameter([3.0], device="cpu")
        >>> ow.optim.LDoG([w, b], reps_rel=0.5).step(grads=[[4.0, -3.0], [7.0]])
        >>> [round(value, 6) for value in (*w.tolist(), b.item())]
        [0.6, 5.8, 1.0]
    """

    rule = Rule("dog")
