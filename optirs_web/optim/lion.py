"""Lion and Signum: one rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, fractions

__all__ = ["Lion", "Signum"]


@documented
class Lion(Optimizer):
    """Evolved sign momentum (Chen et al. 2023, arXiv:2302.06675), as `optax.lion`.

        param = param - lr (sign(beta1 exp_avg + (1 - beta1) g) + weight_decay param)
        exp_avg = beta2 exp_avg + (1 - beta2) g

    Args:
        lr: learning rate; 3 to 10 times smaller than Adam's.
        betas: decay of the average within the sign, and of the one that is kept.
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Lion([w], lr=0.25).step(grads=[[3.0]])
        >>> w.tolist()
        [0.75]
    """

    rule = Rule("lion")
    scalars_in_state = ()
    use_momentum = True

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)


@documented
class Signum(Optimizer):
    """The sign of the averaged gradient (Bernstein et al. 2018, arXiv:1802.04434), as `optax.signum`.

        exp_avg = momentum exp_avg + (1 - momentum) g
        param = param - lr (sign(exp_avg) + weight_decay param)

    Lion with two equal betas.

    Args:
        momentum: decay of the average; 0 is signSGD, and needs no state.
        weight_decay: decoupled, as in the paper's experiments.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Signum([w], lr=0.25).step(grads=[[-3.0]])
        >>> w.tolist()
        [1.25]
    """

    rule = Rule("lion")
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        fractions(group, "momentum")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        return super().hyper({**group, "betas": (group["momentum"], group["momentum"])})
