"""Schedule-Free SGD and AdamW: one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack

from ..errors import UnsupportedError
from ..runtime.device import Device
from .arguments import documented, rule_options
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["AdamWScheduleFree", "SGDScheduleFree"]


class _ScheduleFree(Optimizer):
    """An optimizer whose parameters are y while training, and the average x in evaluation.

    Attributes:
        train_mode: whether the parameters are y. Also in the state dict's groups.
    """

    rule = Rule("schedule_free")
    scalars_in_state = ("step", "lr_max", "weight_sum", "beta1")
    meanings: ClassVar[Mapping[str, str]] = {
        "warmup_steps": "of a linear warm-up.",
        "r": "power of the step within the weights.",
        "weight_lr_power": "power of the learning rate within the weights.",
    }
    train_mode = True
    _snapshot_mode = True

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "warmup_steps", "r", "weight_lr_power")

    def eval(self) -> None:
        """Set the parameters to the average x, to evaluate or save them. Does nothing if they are x.

        Raises:
            UnsupportedError: a step is being recorded.
        """
        self._swap(False)

    def train(self) -> None:
        """Set the parameters to y, from which training continues. A new optimizer is in this mode, with x and y equal.

        Raises:
            UnsupportedError: a step is being recorded.
        """
        self._swap(True)

    def _swap(self, train_mode: bool) -> None:
        if self._built.device.recording is not None:
            raise UnsupportedError("call train() and eval() outside a compiled step")
        if train_mode != self.train_mode:
            self._built.apply("train" if train_mode else "eval")
            self._note_change([True] * len(self._params()))
            self.train_mode = train_mode

    def _refresh_options(self) -> None:
        if not self.train_mode:
            raise UnsupportedError("the parameters hold the average; call the optimizer's train() before its step()")
        super()._refresh_options()

    def numbered_groups(self) -> list[dict[str, Any]]:
        return [{**group, "train_mode": self.train_mode} for group in super().numbered_groups()]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.train_mode = all(group.get("train_mode", True) for group in state_dict["param_groups"])

    def keeper(self) -> Callable[[Mapping[str, memoryview]], None]:
        keep, mode = super().keeper(), self.train_mode

        def keep_both(contents: Mapping[str, memoryview]) -> None:
            keep(contents)
            self._snapshot_mode = mode

        return keep_both

    def revive(self, device: Device) -> None:
        super().revive(device)
        self.train_mode = self._snapshot_mode


@documented
class SGDScheduleFree(_ScheduleFree):
    """Schedule-Free SGD (Defazio et al. 2024, arXiv:2405.15682), as the authors' `schedulefree`.

        lr_t = lr min(t / warmup_steps, 1)
        w_t = t^r max(lr_1, ..., lr_t)^weight_lr_power
        z = z - lr_t g
        x = x + w_t / (w_1 + ... + w_t) (z - x)
        y = momentum x + (1 - momentum) z

    where g is the gradient at y (negated if `maximize`) plus weight_decay y. The parameters are y; `eval` makes them x,
    and `train` y again. The state has z, and each tensor counts its own steps.

    Args:
        momentum: how near y is to x, between 0 and 1.
        weight_decay: L2 penalty, at y.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([4.0], device="cpu")
        >>> optimizer = ow.optim.SGDScheduleFree([w], lr=1.0, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.step(grads=[[1.0]])
        >>> w.tolist()
        [2.25]
        >>> optimizer.eval()
        >>> w.tolist()
        [2.5]
    """

    adaptive = False

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        if not 0 < group["momentum"] < 1:
            raise ValueError(f"Momentum must be between 0 and 1 exclusive: {group['momentum']}")

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        return super().hyper({**group, "betas": (group["momentum"], 0.0), "eps": 0.0})


@documented
class AdamWScheduleFree(_ScheduleFree):
    """Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as the authors' `schedulefree`.

        exp_avg_sq = beta2 exp_avg_sq + (1 - beta2) g²
        z = z - lr_t (g / (sqrt(exp_avg_sq / (1 - beta2^t)) + eps) + weight_decay y)

    and x and y as for `SGDScheduleFree`, with beta1 for momentum; g is the gradient at y.

    Args:
        betas: how near y is to x, between 0 and 1, and decay of the average of the gradient's square.
        weight_decay: decoupled, at y.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> ow.optim.AdamWScheduleFree([w], lr=0.5).step(grads=[[3.0]])
        >>> round(w.item(), 6)
        0.5
    """

    adaptive = True

    def __init__(
        self,
        params: Params,
        lr: Rate = 0.0025,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(params, rule_options(locals()), **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        if not group["betas"][0] > 0:
            raise ValueError(f"Invalid beta parameter at index 0: {group['betas'][0]}")
