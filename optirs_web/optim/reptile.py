"""Reptile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .optimizer import Optimizer, Rule
from .options import at_least_zero
from .wrapper import Wrapper

__all__ = ["Reptile"]


class Reptile(Wrapper):
    """Reptile (Nichol et al. 2018, arXiv:1803.02999): parameters from which a few steps suffice for any task.

        for each task:  param_task = param after `inner_steps` steps of the inner optimizer on its gradients
        param = param + epsilon mean(param_task - param)

    Every inner step computes a gradient of its own, by the task's closure. The inner optimizer keeps its state from
    task to task, as in the paper.

    Args:
        optimizer: the inner optimizer, which takes the inner steps.
        epsilon: how far the parameters move towards the mean of the tasks'.
        inner_steps: number of steps on each task.

    Raises:
        ValueError: an option is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0], device="cpu")
        >>> opt = ow.optim.Reptile(ow.optim.SGD([w], lr=0.25), epsilon=0.5, inner_steps=2)
        >>> def task(optimum):
        ...     def closure():
        ...         loss = ((w - optimum) * (w - optimum)).sum()
        ...         loss.backward()
        ...         return loss
        ...     return closure
        >>> losses = opt.step([task(1.0), task(3.0)])  # which lead to 0.75 and 2.25
        >>> w.tolist()
        [0.75]
    """

    wrapped_rule = Rule("reptile")
    prefix = "reptile_"
    scalars_in_state = ()
    is_saved = False

    def __init__(self, optimizer: Optimizer, epsilon: float = 0.1, inner_steps: int = 5) -> None:
        self._tasks = 1
        super().__init__(optimizer, {"epsilon": epsilon, "inner_steps": inner_steps})

    def check_options(self, options: Mapping[str, Any]) -> None:
        at_least_zero(options, "epsilon", "inner_steps")
        if options["inner_steps"] < 1 or options["inner_steps"] % 1:
            raise ValueError(f"Invalid inner_steps value: {options['inner_steps']}")

    def _unprefixed_options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._unprefixed_options(group), "tasks": self._tasks}

    def step(
        self,
        closure: Callable[[], Any] | Sequence[Callable[[], Any]] | None = None,
        *,
        grads: Sequence[Any] | None = None,
    ) -> Any:
        """Take a step over one task or several.

        Args:
            closure: for each task a function that computes the loss and its gradients. It is called before each inner
                step, with no gradients before; `reptile_inner_steps` of the first group is the number of these steps.
            grads: not for this optimizer.

        Returns:
            The last result of the closure; a list of these if a list was passed.

        Raises:
            TypeError: there is no closure.
        """
        return super().step(closure, grads=grads)  # type: ignore[arg-type]

    def _step(self, closure: Any = None, *, grads: Sequence[Any] | None = None) -> Any:
        tasks = [closure] if callable(closure) else list(closure or ())
        if not tasks or grads is not None:
            raise TypeError("Reptile computes a gradient before each inner step: call step(closure), or step(closures)")
        params, slots = self._params(), self._built.slots()
        for number, param in enumerate(params):
            param.device.copy(param.view, slots[number, "meta_param"])
        self._tasks = len(tasks)
        recording = params[0].device.recording
        if recording is not None:
            recording.before_replay.append(lambda: setattr(self, "_tasks", len(tasks)))
        losses = []
        try:
            for task in tasks:
                for _ in range(int(self.param_groups[0][self.prefix + "inner_steps"])):
                    self.zero_grad()
                    loss = task()
                    self.optimizer.step()
                losses.append(loss)
                self._dispatch_all()
        except BaseException:
            if recording is None:  # restore the initial parameters
                for number, param in enumerate(params):
                    param.device.copy(slots[number, "meta_param"], param.view)
                self._note_change([True] * len(params))
                self._write_state({})
            raise
        return losses[0] if callable(closure) else losses
