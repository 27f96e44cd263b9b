"""LAMB."""

from __future__ import annotations

from typing import Unpack

from .optimizer import Optimizer, Options, Params, Rule

__all__ = ["LAMB"]


class LAMB(Optimizer):
    """Layer-wise adaptive moments for batch training (You et al. 2020, arXiv:1904.00962), as `optax.lamb`.

        u = Adam's step without lr + weight_decay param
        param = param - lr (‖param‖ / ‖u‖) u

    with the norms of each tensor; the ratio is 1 where one of them is 0.

    Args:
        params: parameters, or dicts with "params" and options of their own.
        lr: learning rate.
        betas: decay of the averages of the gradient and of its square.
        eps: added to the root.
        weight_decay: decoupled, within the ratio.
        bias_correction: of the averages.
        **options: see `Options`.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([4.0], device="cpu")
        >>> ow.optim.LAMB([w], lr=0.25).step(grads=[[3.0]])
        >>> w.tolist()
        [3.0]
    """

    rule = Rule("lamb")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        **options: Unpack[Options],
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
        }
        super().__init__(params, defaults, **options)
