"""Lookahead, and Ranger: Lookahead around RAdam."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..runtime.buffer import View
from ..runtime.interrupts import Uninterrupted
from .arguments import documented
from .optimizer import Optimizer, Options, Params, Rule
from .options import at_least_zero
from .radam import RAdam
from .wrapper import Anchored, Wrapper

__all__ = ["Lookahead", "Ranger"]


class Lookahead(Anchored, Wrapper):
    """Lookahead (Zhang et al. 2019, arXiv:1907.08610): k steps forward, 1 step back, with any optimizer of the library.

        every k steps:   slow_param = slow_param + alpha (param - slow_param)
                         param = slow_param

    The steps are counted on the device, so that a recorded step needs no host. The inner optimizer keeps its state when
    the parameters return to the slow weights. The parameters are the fast weights: assigned values count.

    Args:
        optimizer: the inner optimizer, which takes the steps.
        k: steps from one update of the slow weights to the next.
        alpha: step size of the slow weights.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> opt = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.25), k=2)
        >>> for _ in range(2):
        ...     opt.step(grads=[[1.0]])
        >>> w.tolist()
        [0.75]
    """

    wrapped_rule = Rule("lookahead")
    prefix = "lookahead_"
    scalars_in_state = ("slow_step",)
    anchor = "slow_param"

    def __init__(self, optimizer: Optimizer, k: int = 5, alpha: float = 0.5) -> None:
        skip = getattr(optimizer, "_skip_nonfinite", False)
        super().__init__(optimizer, {"k": k, "alpha": alpha}, skip_nonfinite=skip)

    def check_options(self, options: Mapping[str, Any]) -> None:
        at_least_zero(options, "k", "alpha")
        if not 1 <= options["k"] < 1 << 24 or options["k"] % 1:  # which float32 can count
            raise ValueError(f"Invalid k value: {options['k']}")
        if options["alpha"] > 1:
            raise ValueError(f"Invalid alpha value: {options['alpha']}")

    def _step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        result = None
        if closure is not None and not isinstance(self.optimizer, Wrapper):  # which may call it more than once
            result, closure = closure(), None
        self._anchor()
        with Uninterrupted():  # two steps that count together
            if self._step_scaler is not None:
                self.optimizer.scaled_step(*self._step_scaler, grads=grads)
            elif closure is None:
                self.optimizer.step(grads=grads)
            else:
                result = self.optimizer.step(closure, grads=grads)
            super()._step()
        return result

    _step_scaler: tuple[View | None] | None = None

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> Any:
        self._step_scaler = (scaler,)
        try:
            return Optimizer.scaled_step(self, scaler, **kwargs)  # it skips the steps that the inner one skips
        finally:
            self._step_scaler = None


@documented
class Ranger(Lookahead):
    """RAdam (Liu et al. 2020, arXiv:1908.03265) within Lookahead (Zhang et al. 2019, arXiv:1907.08610).

    The combination and its defaults are Less Wright's (2019). See `RAdam` and `Lookahead`.

    Args:
        alpha: how far the slow weights move towards the parameters.
        k: steps from one update of the slow weights to the next.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.Ranger([w], lr=0.25).step(grads=[[3.0]])
        >>> w.tolist()
        [0.25]
    """

    rule = Lookahead.wrapped_rule
    prefix = ""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        alpha: float = 0.5,
        k: int = 6,
        betas: tuple[float, float] = (0.95, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **options: Unpack[Options],
    ) -> None:
        inner = RAdam(params, lr, betas, eps, weight_decay, decoupled_weight_decay, **options)
        super().__init__(inner, k, alpha)
