"""Adam for gradients of some rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from .arguments import documented
from .optimizer import Optimizer, Options, Params, Rate, Rule
from .sparse_layout import SparseLayout

__all__ = ["SparseAdam"]


@documented
class SparseAdam(Optimizer):
    """Adam (Kingma & Ba 2015, arXiv:1412.6980) of the rows that a gradient has, as `torch.optim.SparseAdam`.

        exp_avg = exp_avg + (1 - beta1) (g - exp_avg)
        exp_avg_sq = exp_avg_sq + (1 - beta2) (g² - exp_avg_sq)
        param = param - lr sqrt(1 - beta2^t) / (1 - beta1^t) exp_avg / (sqrt(exp_avg_sq) + eps)

    in the rows of the gradient g (negated if `maximize`); the others keep values and averages. t counts the
    steps of the whole parameter. Unlike in Adam, eps is added before the bias is corrected.

    Args:
        params: parameters, or dicts with "params" and options of their own. Their gradients are `SparseRows`.
        maximize: increase the loss instead of decreasing it.

    Raises:
        ValueError: an option is out of range; unlike in Adam, lr and eps may not be 0.
        UnsupportedError: at a step, if a gradient is dense.

    Example:
        >>> import optirs_web as ow
        >>> table = ow.Parameter([[1.0, 1.0], [1.0, 1.0]], device="cpu")
        >>> grad = ow.SparseRows([1], [[3.0, -3.0]], table.shape, device="cpu")
        >>> ow.optim.SparseAdam([table], lr=0.5).step(grads=[grad])
        >>> [[round(value, 6) for value in row] for row in table.tolist()]
        [[1.0, 1.0], [0.5, 1.5]]
    """

    rule = Rule("sparse_adam")
    layout_type = SparseLayout
    takes_dense = False
    needs = "gradients of some rows"

    def __init__(  # type: ignore[misc]  # torch has maximize at this place
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps}, maximize=maximize, **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        for name, words in (("lr", "learning rate"), ("eps", "epsilon value")):
            if not group[name] > 0:
                raise ValueError(f"Invalid {words}: {group[name]}")

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        return True
