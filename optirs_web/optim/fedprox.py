"""FedProx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..errors import UnsupportedError
from .arguments import documented, rule_options
from .optimizer import Options, Params, Rate, Rule
from .options import at_least_zero
from .wrapper import Anchored

__all__ = ["FedProx"]


@documented
class FedProx(Anchored):
    """The local solver of FedProx (Li et al. 2020, arXiv:1812.06127): SGD with a pull towards the global model.

        g = gradient + weight_decay param + mu (param - global_param)
        param = param - lr g        or with momentum, of SGD's form

    With mu = 0 it is the local solver of FedAvg (McMahan et al. 2017, arXiv:1602.05629).

    The global model is a copy of the parameters from the first step, and from each call of `begin_round`.

    Args:
        mu: weight of the proximal term.
        momentum: decay of the buffer; 0 means that there is none.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> opt = ow.optim.FedProx([w], lr=0.5, mu=1.0)
        >>> for _ in range(2):
        ...     opt.step(grads=[[1.0]])
        >>> w.tolist()  # 1 - 0.5, and 0.5 - 0.5 (1 + (0.5 - 1))
        [0.25]
    """

    rule = Rule("fedprox")
    scalars_in_state = ()
    anchor = "global_param"

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        mu: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "mu")

    def begin_round(self) -> None:
        """Make the current parameters the global model: call it after the server's were assigned.

        Raises:
            UnsupportedError: within a compiled step.
        """
        if self._built.device.recording is not None:
            raise UnsupportedError("start a round outside the compiled step")
        self._anchored.clear()
        self._anchor()

    def _step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        self._anchor()
        return super()._step(closure, grads=grads)
