"""NovoGrad."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["NovoGrad"]


@documented
class NovoGrad(Optimizer):
    """NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as `optax.novograd`.

        exp_avg_sq = ‖g‖² at the first step, then beta2 exp_avg_sq + (1 - beta2) ‖g‖²
        exp_avg = beta1 exp_avg + g / (sqrt(exp_avg_sq) + eps) + weight_decay param
        param = param - lr exp_avg

    with the norm of each tensor: `exp_avg_sq` is one number for each.

    Args:
        betas: decay of the momentum and of the average of the squared norm.
        weight_decay: decoupled, within the momentum.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> ow.optim.NovoGrad([w], lr=1.25, eps=0.0).step(grads=[[3.0, 4.0]])
        >>> w.tolist()
        [0.25, 0.0]
    """

    rule = Rule("novograd")
    scalars_in_state = ("step", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.95, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)
