"""Sharpness-aware minimization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..runtime.interrupts import Uninterrupted
from .optimizer import Optimizer, Rule
from .options import at_least_zero
from .wrapper import Wrapper

__all__ = ["SAM"]


class SAM(Wrapper):
    """Sharpness-aware minimization (Foret et al. 2021, arXiv:2010.01412) around any optimizer of the library.

        e = rho g / ‖g‖                          adaptive (Kwon et al. 2021, arXiv:2102.11600):
        step with the gradient at param + e      e = rho param² g / ‖|param| g‖

    with the norm over all tensors, which stays on the device. The parameters return to exactly what they were before
    the inner optimizer steps.

    Args:
        optimizer: the inner optimizer, which takes the steps.
        rho: distance within which the worst parameters are searched.
        adaptive: a distance that does not depend on the scale of the parameters; rho is about ten times as large then.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0], device="cpu")
        >>> opt = ow.optim.SAM(ow.optim.SGD([w], lr=0.25), rho=0.5)
        >>> def closure():
        ...     loss = (w * w).sum()
        ...     loss.backward()
        ...     return loss
        >>> opt.step(closure).item(), w.tolist()
        (9.0, [1.25])
    """

    wrapped_rule = Rule("sam", over_all=True)
    prefix = "sam_"
    scalars_in_state = ()
    is_saved = False

    def __init__(self, optimizer: Optimizer, rho: float = 0.05, adaptive: bool = False) -> None:
        # Not skip_nonfinite: after a non-finite gradient the next one is not finite either; the inner optimizer checks.
        super().__init__(optimizer, {"rho": rho, "adaptive": adaptive})

    def check_options(self, options: Mapping[str, Any]) -> None:
        at_least_zero(options, "rho")

    def step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        """Take a step.

        Args:
            closure: computes the loss and its gradients. It is called twice, each time with no gradients before.
            grads: not for this optimizer.

        Returns:
            The first result of the closure.

        Raises:
            TypeError: there is no closure.
        """
        return super().step(closure, grads=grads)

    def _step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        if closure is None or grads is not None:
            raise TypeError(
                "SAM needs the gradient at two points: call step(closure), or first_step() and second_step()"
            )
        self.zero_grad()
        result = closure()
        has_moved = False
        try:
            with Uninterrupted():
                self.first_step(zero_grad=True)
                has_moved = True
            closure()
            with Uninterrupted():
                has_moved = False
                self.second_step()
        except BaseException:
            if has_moved and self._built.device.recording is None:
                self._restore()
            raise
        return result

    def first_step(self, zero_grad: bool = False) -> None:
        """Move to the worst parameters nearby, along the current gradients.

        Args:
            zero_grad: set the gradients to None afterwards.
        """
        super()._step()
        slots = self._built.slots()
        for number, param in enumerate(self._params()):
            if param._grad is None:  # it has not moved, and `second_step` restores this copy
                param.device.copy(param.view, slots[number, "old_param"])
        if zero_grad:
            self.zero_grad()

    def second_step(self, zero_grad: bool = False) -> None:
        """Restore the parameters from before `first_step`, and step with the current gradients.

        Args:
            zero_grad: set the gradients to None afterwards.
        """
        self._restore()
        self.optimizer.step()
        if zero_grad:
            self.zero_grad()

    def _restore(self) -> None:
        self._built.apply("restore")
        self._note_change([True] * len(self._params()))
