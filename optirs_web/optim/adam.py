"""Adam and AdamW: one rule."""

from __future__ import annotations

from typing import Unpack

from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule

__all__ = ["Adam", "AdamW"]


@documented
class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, arXiv:1412.6980), as `torch.optim.Adam`.

        exp_avg = beta1 exp_avg + (1 - beta1) g
        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g²
        param = param - lr exp_avg / (1 - beta1^t) / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps)

    where g is the gradient (negated if `maximize`) plus weight_decay param.

    Args:
        weight_decay: L2 penalty, through the gradient; `AdamW` decays the parameter itself.
        amsgrad: divide by the largest exp_avg_sq so far (Reddi et al. 2018, arXiv:1904.09237).

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Adam([w], lr=0.5).step(grads=[[3.0]])
        >>> w.tolist()
        [0.5]
    """

    rule = Rule("adam")
    decoupled_weight_decay = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)


@documented
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), as `torch.optim.AdamW`.

    As `Adam`, but the gradient is left alone and the parameter shrinks by lr weight_decay param.

    Args:
        weight_decay: decoupled.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.AdamW([w], lr=0.5, weight_decay=0.1).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.45
    """

    decoupled_weight_decay = True

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)
