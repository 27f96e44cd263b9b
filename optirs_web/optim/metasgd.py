"""Meta-SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from ..autograd import no_grad, set_grad
from ..errors import ShapeError, UnsupportedError
from ..ops.arithmetic import clone, multiply
from ..ops.creation import zeros
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor, tensor
from .arguments import documented
from .gradients import assign_grads
from .optimizer import Optimizer, Options, Params, Rule
from .options import at_least_zero

__all__ = ["MetaSGD"]

HessianProduct = Callable[[list[Tensor]], Sequence[Any]]


@documented
class MetaSGD(Optimizer):
    """Meta-SGD (Li et al. 2017, arXiv:1707.09835): SGD with a learning rate for each element, which is learned too.

        step:       adapted = param - alpha support_gradient
        meta_step:  param = param - meta_lr (query_gradient - H alpha query_gradient)
                    alpha = alpha + meta_lr support_gradient query_gradient

    with the gradient of the support loss at param, that of the query loss at adapted, and the Hessian H of the support
    loss at param. Without `hvp` the term with H is left out, which is the first-order approximation (Finn et al. 2017,
    arXiv:1703.03400).

    Steps alone are SGD with the learned rates: adapt to a new task with them.

    Args:
        lr: the initial alpha.
        meta_lr: learning rate of the parameters and of alpha, in `meta_step`.
        hvp: computes the products of the Hessian of the support loss at the current parameters with some tensors, one
            for each parameter in the order of the groups: a list of tensors or arrays.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> opt = ow.optim.MetaSGD([w], lr=0.5, meta_lr=0.25)
        >>> opt.step(grads=[[1.0]])
        >>> opt.meta_step(grads=[[2.0]])
        >>> w.tolist(), opt.state[w]["alpha"].tolist()
        ([0.5], [1.0])
    """

    rule = Rule("metasgd")
    scalars_in_state = ()

    def __init__(
        self,
        params: Params,
        lr: float = 0.01,
        meta_lr: float = 1e-3,
        hvp: HessianProduct | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.hvp = hvp
        self.second_order = hvp is not None
        self._has_stepped = False
        super().__init__(params, {"lr": lr, "meta_lr": meta_lr}, **options)

    def _checked_state_dtype(self, requested: str | Mapping[str, str]) -> dict[str, str]:
        kinds = super()._checked_state_dtype(requested)
        if any(kind != "float32" for kind in kinds.values()):
            raise UnsupportedError("MetaSGD keeps its state as float32")
        return kinds

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "meta_lr")

    def _step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        result = closure() if closure is not None else None
        if grads is not None:
            assign_grads(self._params(), grads)
        self._fill_in()
        super()._step()
        self._has_stepped = True
        return result

    def _fill_in(self) -> None:
        """Set missing gradients to zero, so that the step records the initial value of every parameter."""
        for param in self._params():
            if param.grad is None:
                set_grad(param, zeros(param.shape, param.device))

    def meta_step(self, closure: Callable[[], Any] | None = None, *, grads: Sequence[Any] | None = None) -> Any:
        """Update alpha and the parameters from before the last `step`, with the gradients of the query loss after it.

        Args:
            closure: called first; zeroes the gradients, computes the query loss and its gradients. Its result is
                returned.
            grads: gradients to use instead, as in `step`.

        Raises:
            RuntimeError: there was no step before.
            ShapeError: `hvp` returned tensors of other shapes.
        """
        if not self._has_stepped:
            raise RuntimeError("meta_step() needs a step before it: call step() on the support loss first")
        result = closure() if closure is not None else None
        params = self._params()
        if grads is not None:
            assign_grads(params, grads)
        self._fill_in()
        if self.hvp is not None:
            self._multiply_by_hessian(params)
        self._built.apply("restore")
        self._note_change([True] * len(params))
        return result

    def _multiply_by_hessian(self, params: Sequence[Parameter]) -> None:
        """Fill the slot `curvature` by `hvp`, with the parameters from before the step; it may overwrite gradients."""
        assert self.hvp is not None
        views = self._built.slots()
        slots = [
            {name: Tensor(views[number, name], param.shape, FLOAT32) for name in self.rule.state}
            for number, param in enumerate(params)
        ]
        with no_grad():
            gradients = [clone(param.grad) for param in params if param.grad is not None]
            vectors = [multiply(slot["alpha"], gradient) for slot, gradient in zip(slots, gradients, strict=True)]
            adapted = [clone(param) for param in params if param.device.recording is None]
        for param, slot in zip(params, slots, strict=True):
            param.assign(slot["initial_param"])
        try:
            self._fill_curvature(self.hvp(vectors), params, slots)
        except BaseException:
            for param, value in zip(params, adapted, strict=False):
                param.assign(value)
            raise
        finally:
            for param, gradient in zip(params, gradients, strict=True):
                set_grad(param, gradient)

    @staticmethod
    def _fill_curvature(
        results: Sequence[Any], params: Sequence[Parameter], slots: Sequence[Mapping[str, Tensor]]
    ) -> None:
        products = list(results)
        if len(products) != len(params):
            raise ShapeError(f"hvp gave {len(products)} tensors for {len(params)} parameters")
        for param, slot, product in zip(params, slots, products, strict=True):
            vector = product if isinstance(product, Tensor) else tensor(product, device=param.device, dtype=FLOAT32)
            if vector.shape != param.shape:
                raise ShapeError(f"hvp gave the shape {vector.shape} for a parameter of {param.shape}")
            param.device.copy(vector.view, slot["curvature"].view)
