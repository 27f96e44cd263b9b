"""Optimizers with the diagonal of the Hessian, which Sophia-H estimates, and the diagonal Newton method gets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..errors import ShapeError, UnsupportedError
from ..ops.creation import rand, randn
from ..ops.random_state import checked_seed
from ..runtime.dtypes import FLOAT32
from ..tensors import Tensor, tensor
from .arguments import documented
from .gradients import assign_grads
from .optimizer import Optimizer, Options, Params, Rate, Rule, at_least_zero

__all__ = ["DiagonalNewton", "SophiaH"]

Hvp = Callable[[list[Tensor]], Sequence[Any]]
"""A function of vectors, one for each parameter in the order of the groups, that returns the Hessian's products."""
Diagonal = Callable[[], Sequence[Any]]
"""A function that returns the diagonal of the Hessian: a tensor or array for each parameter in the groups' order."""

_MANY = 2.0**26  # times any multiple of 2^-24 but 0 is more than 1


class _DiagonalHessian(Optimizer):
    """An optimizer whose state has a slot `hessian` that the rule only reads."""

    def _hessians(self) -> list[Tensor]:
        """Return the slot `hessian` of each parameter as a tensor."""
        slots = self._built.slots()
        return [Tensor(slots[number, "hessian"], param.shape, FLOAT32) for number, param in enumerate(self._params())]

    def _step(
        self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None, **more: Any
    ) -> Any:
        result = closure() if closure is not None else None
        if grads is not None:
            assign_grads(self._params(), grads)
        recording = self._built.device.recording
        if recording is None:
            self._update_slots()
        else:
            recording.at_replay.append(self._update_slots)
        super()._step(**more)
        return result

    @abstractmethod
    def _update_slots(self) -> None:
        """Write the slots before a step, or before the replay of one."""

    def _as_tensors(self, values: Sequence[Any], what: str) -> list[Tensor]:
        """Return the results of a callable as tensors, after checking that they have the parameters' shapes."""
        params = self._params()
        tensors = [value if isinstance(value, Tensor) else tensor(value, device=params[0].device) for value in values]
        if [result.shape for result in tensors] != [param.shape for param in params]:
            raise ShapeError(f"{what} must give a tensor for each parameter, of its shape")
        return [result.detach() for result in tensors]


@documented
class SophiaH(_DiagonalHessian):
    """Sophia with Hutchinson's estimator (Liu et al. 2023, arXiv:2305.14342, algorithms 1 and 3).

        hessian = beta2 hessian + (1 - beta2) v (H v), every `update_interval` steps from the first on
        exp_avg = beta1 exp_avg + (1 - beta1) g
        param = param - lr (clip(exp_avg / max(gamma hessian, eps), clip_threshold) + weight_decay param)

    where H is the Hessian of the loss (negated if `maximize`, as g) and v is random. `optax.contrib.sophia` differs: it
    corrects the bias of exp_avg, and uses an estimate from the next step on.

    Args:
        betas: decay of the averages of the gradient and of the Hessian's diagonal.
        eps: the smallest denominator.
        weight_decay: decoupled.
        gamma: multiplies the Hessian.
        clip_threshold: of each element.
        update_interval: steps from one estimate to the next.
        hvp: called with a vector for each parameter, returns the products of the Hessian with them. For a compiled
            step it is called before the step. Without it, call `update_hessian` every few steps.
        distribution: of v: "gaussian" as in the paper, or "rademacher" (signs), which is exact for a diagonal Hessian.
        seed: of v.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 2.0], device="cpu")
        >>> curvature = ow.tensor([2.0, 4.0], device="cpu")
        >>> optimizer = ow.optim.SophiaH(
        ...     [w], lr=1.0, betas=(0.0, 0.0), gamma=1.0, hvp=lambda v: [curvature * v[0]], distribution="rademacher"
        ... )
        >>> optimizer.step(grads=[[1.0, 8.0]])
        >>> w.tolist()
        [0.5, 1.0]
    """

    rule = Rule("sophia")

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.96, 0.99),
        eps: float = 1e-12,
        weight_decay: float = 0.0,
        gamma: float = 0.01,
        clip_threshold: float = 1.0,
        update_interval: int = 10,
        *,
        hvp: Hvp | None = None,
        distribution: str = "gaussian",
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        if update_interval < 1:
            raise ValueError(f"Invalid update_interval value: {update_interval}")
        if distribution not in ("gaussian", "rademacher"):
            raise ValueError(f"Invalid distribution value: {distribution}")
        self.update_interval = update_interval
        self.hvp = hvp
        self.distribution = distribution
        self.seed = checked_seed(seed)
        self._steps_taken = 0
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "gamma": gamma,
            "clip_threshold": clip_threshold,
        }
        super().__init__(params, defaults, **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "gamma", "clip_threshold")

    def _update_slots(self) -> None:
        if self.hvp is not None and self._steps_taken % self.update_interval == 0:
            self.update_hessian()
        self._steps_taken += 1

    def update_hessian(self, hvp: Hvp | None = None) -> None:
        """Add an estimate to the average of the Hessian's diagonal.

        Args:
            hvp: in place of the optimizer's.

        Raises:
            ValueError: there is none.
            ShapeError: it does not return a tensor for each parameter, of its shape.
            UnsupportedError: a step is being recorded; its replays would all use the same vectors.
        """
        if self._built.device.recording is not None:
            raise UnsupportedError("call update_hessian() outside a compiled step")
        hvp = hvp or self.hvp
        if hvp is None:
            raise ValueError("SophiaH needs hvp, a callable that returns the products of the Hessian with vectors")
        vectors = self._vectors()
        products = self._as_tensors(hvp(vectors), "hvp")
        groups = [group for group in self.param_groups for _ in group["params"]]
        for group, slot, vector, product in zip(groups, self._hessians(), vectors, products, strict=True):
            beta2 = float(group["betas"][1])
            estimate = vector * product * (-1.0 if group["maximize"] else 1.0)
            self._built.device.copy((slot * beta2 + estimate * (1 - beta2)).view, slot.view)

    def _vectors(self) -> list[Tensor]:
        params = self._params()
        first_seed = self.seed + self._steps_taken * len(params)
        make = randn if self.distribution == "gaussian" else _signs
        return [make(param.shape, param.device, seed=first_seed + number) for number, param in enumerate(params)]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._steps_taken = int(max((float(entry["step"]) for entry in state_dict["state"].values()), default=0))


def _signs(shape: Any, device: Any, seed: int) -> Tensor:
    """Return a tensor of 1 and -1, each with probability 1/2."""
    uniform = (rand(shape, device, seed=seed) - 0.5) * _MANY
    is_positive = 1.0 - (1.0 - uniform.relu()).relu()
    return is_positive * 2.0 - 1.0


@documented
class DiagonalNewton(_DiagonalHessian):
    """Newton's method with the diagonal of the Hessian (Becker & LeCun 1988).

        param = param - lr g / (|h| + damping)

    Args:
        damping: the paper's mu: bounds the step where there is no curvature.
        diagonal: returns h, the diagonal of the Hessian, for each parameter; called before every step.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0, 2.0], device="cpu")
        >>> optimizer = ow.optim.DiagonalNewton([w], damping=0.0, diagonal=lambda: [[2.0, 4.0]])
        >>> optimizer.step(grads=[[2.0, 8.0]])
        >>> w.tolist()
        [0.0, 0.0]
    """

    rule = Rule("diagonal_newton")
    needs = "the diagonal of the Hessian"
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1.0,
        damping: float = 1e-4,
        *,
        diagonal: Diagonal | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.diagonal = diagonal
        super().__init__(params, {"lr": lr, "damping": damping}, **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "damping")

    def _update_slots(self) -> None:
        if self.diagonal is None:
            raise ValueError("DiagonalNewton needs diagonal, a callable that returns the diagonal of the Hessian")
        for slot, value in zip(self._hessians(), self._as_tensors(self.diagonal(), "diagonal"), strict=True):
            self._built.device.copy(value.view, slot.view)
