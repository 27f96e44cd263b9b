"""FTRL-Proximal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero
from .options import LARGEST_FLOAT32, SMALLEST_NORMAL

__all__ = ["FTRL"]


@documented
class FTRL(Optimizer):
    """Follow the proximally regularized leader (McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches").

        z = z + g - (sqrt(n + g²) - sqrt(n)) / lr param
        n = n + g²
        param = 0 where |z| <= lambda1, otherwise (sign(z) lambda1 - z) / ((beta + sqrt(n)) / lr + lambda2)

    In the state z is `linear` and n `accumulator`, as in TensorFlow. n begins at 0. z begins at -beta / lr param, which
    is 0, as in the paper, for a parameter that begins at 0; otherwise beta pulls towards the initial parameter. With
    beta = 0 the first step discards it; then a parameter does not change until the square of a gradient, whose sum is
    n, is more than 0 in float32 (gradients above 1e-22).

    Args:
        lr: the paper's alpha.
        beta: added to the root.
        lambda1: L1 penalty; makes parameters exactly 0.
        lambda2: L2 penalty.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0, 0.0], device="cpu")
        >>> ow.optim.FTRL([w], lr=0.5, lambda1=1.0).step(grads=[[3.0, 0.5]])
        >>> w.tolist()
        [-0.25, 0.0]
    """

    rule = Rule("ftrl")
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 0.1,
        beta: float = 1.0,
        lambda1: float = 0.0,
        lambda2: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "beta", "lambda1", "lambda2")
        lr = group["lr"]
        if not (lr >= SMALLEST_NORMAL and max(1.0, group["beta"]) / lr <= LARGEST_FLOAT32):
            raise ValueError(f"Invalid learning rate: {lr}; beta / lr is a number of float32")
