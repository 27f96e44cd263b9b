"""K-FAC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Unpack

from ..errors import ShapeError, UnsupportedError
from ..runtime.buffer import View
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor, tensor
from .arguments import documented, rule_options
from .layer_factors import KfacLayout, Layer, layers_of
from .layout import Layout
from .matrices import MatrixOptimizer
from .optimizer import LARGEST_FLOAT32, Options, Params, Rate, Rule, at_least_zero, fractions

__all__ = ["KFAC"]

Statistics = Sequence[Sequence[Any]]
"""A pair for each layer, of tensors or arrays: its inputs, (batch, inputs), and the gradients of its outputs."""


@documented
class KFAC(MatrixOptimizer):
    """Natural gradients by Kronecker factors of each layer's Fisher matrix (Martens & Grosse 2015, arXiv:1503.05671).

        A = (1 - e) A + e E[a aᵀ],  G = (1 - e) G + e E[g gᵀ], with e = max(1 / t, 1 - stat_decay)
        pi² = (tr A / rows of A) / (tr G / rows of G),  r = sqrt(damping + weight_decay)
        D = (G + r / pi I)⁻¹ (gradient + weight_decay param) (A + r pi I)⁻¹
        D = D min(1, sqrt(kl_clip / |Σ lr² D gradient|)), the sum being over all parameters
        momentum_buffer = momentum momentum_buffer + D
        param = param - lr momentum_buffer

    where a are the inputs of a layer, followed by a 1 if it has a bias (A is called A_bar then), and g the gradients
    with respect to its outputs, one for each example. For the Fisher matrix itself, g belong to labels drawn from the
    model's predictions; with those of the data this is the empirical Fisher matrix. pi is 1 where A or G is 0. The
    clipping is that of Ba, Grosse & Martens (2017).

    The inverses are computed on the device by Newton's iteration in float32, for all factors of one size at once, in 50
    dispatches, which end at once in steps that use the inverses so far. Their relative error is about 1e-8 times the
    condition number; to bound that, the damping of a factor is at least 1e-6 of its norm.

    Args:
        params: the parameters of layers in order, or dicts with them as "params": weights, (outputs, inputs), each
            followed by its bias, (outputs,), if it has one.
        momentum: of the preconditioned gradient.
        weight_decay: L2 penalty, through the gradient and the damping.
        damping: Tikhonov's, shared by both factors.
        stat_decay: of the averages, once there are enough statistics.
        kl_clip: the largest change of the model by a step without momentum; None: any.
        update_freq: steps from one computation of the inverses to the next.
        in_first: weights are (inputs, outputs), as in `x @ weight + bias`; the same in all groups.
        statistics: called in each step, after its closure: returns a pair (a, g) for each layer, (batch, inputs) and
            (batch, outputs), where g is the gradient of each example's own loss: `batch` times that of their mean. A
            compiled step records its operations. The squares of each tensor have to sum to less than 3.4e38;
            `skip_nonfinite` skips the steps in which they do not.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[4.0, 4.0]], device="cpu")
        >>> optimizer = ow.optim.KFAC([w], lr=1.0, momentum=0.0, damping=0.0, kl_clip=None)
        >>> optimizer.step(grads=[[[4.0, 16.0]]], statistics=[([[2.0, 0.0], [0.0, 4.0]], [[1.0], [1.0]])])
        >>> [round(x, 3) for x in w.tolist()[0]]
        [2.0, 2.0]

        A tape gives the gradients of the outputs of inner layers along with those of the weights:

        >>> x = ow.tensor([[1.0, 2.0], [3.0, -1.0]], device="cpu")
        >>> w1, w2 = (ow.Parameter(values, device="cpu") for values in ([[0.1, 0.2], [0.3, 0.4]], [[1.0], [-1.0]]))
        >>> optimizer = ow.optim.KFAC([w1, w2], in_first=True)
        >>> with ow.GradientTape() as tape:
        ...     z1 = x @ w1
        ...     hidden = z1.relu()
        ...     z2 = hidden @ w2
        ...     loss = (z2 * z2).mean()
        >>> *grads, g1, g2 = tape.gradient(loss, [w1, w2, z1, z2])
        >>> optimizer.step(grads=grads, statistics=[(x, g1 * 2.0), (hidden, g2 * 2.0)])
    """

    rule = Rule("kfac", over_all=True)
    needs = "statistics of layers"
    layout_type: ClassVar[type[Layout]] = KfacLayout

    def __init__(
        self,
        params: Params,
        lr: Rate = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        damping: float = 1e-3,
        stat_decay: float = 0.95,
        kl_clip: float | None = 1e-3,
        update_freq: int = 10,
        in_first: bool = False,
        *,
        statistics: Callable[[], Statistics] | None = None,
        **options: Unpack[Options],
    ) -> None:
        defaults = rule_options(locals())
        self.statistics = defaults.pop("statistics")
        self._step_statistics: Statistics | None = None
        super().__init__(params, defaults, **options)

    def validate(self, group: Mapping[str, Any]) -> None:
        super().validate(group)
        at_least_zero(group, "damping")
        if group["kl_clip"] is not None and not group["kl_clip"] > 0:
            raise ValueError(f"Invalid kl_clip value: {group['kl_clip']}")
        fractions(group, "stat_decay")
        if not group["update_freq"] >= 1:
            raise ValueError(f"Invalid update_freq value: {group['update_freq']}")
        layers_of(group.get("params", ()), group["in_first"])

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides, and the flags of the layout."""
        return {**super().flags(group), "in_first": bool(group["in_first"])}

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        largest = LARGEST_FLOAT32 if group["kl_clip"] is None else group["kl_clip"]
        return super().hyper({**group, "kl_clip": largest})

    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        grads: Sequence[Any] | None = None,
        statistics: Statistics | None = None,
    ) -> Any:
        """Update the parameters from their gradients. Layers whose weights have none are left alone.

        Args:
            closure: called first; computes the loss and its gradients. Its result is returned.
            grads: gradients to use instead, one for each parameter in the order of the groups.
            statistics: in place of the results of the optimizer's callable.

        Raises:
            ShapeError: a gradient or a statistic has another shape than it should, or there are too few or many.
            ValueError: there are no statistics, or an option of a group is out of range.
        """
        self._step_statistics = statistics
        try:
            return super().step(closure, grads=grads)
        finally:
            self._step_statistics = None
            self._factors.statistics = ()

    @property
    def _factors(self) -> KfacLayout:
        assert isinstance(self._built, KfacLayout)
        return self._built

    def _prepare_step(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        statistics = (
            self._step_statistics if self._step_statistics is not None else self.statistics and self.statistics()
        )
        if statistics is None:
            raise ValueError("KFAC needs statistics, the inputs of each layer and the gradients of its outputs")
        layers = self._factors.layers
        for layer in layers:
            if layer.bias is not None and live[layer.bias] and not live[layer.weight]:
                raise ValueError("the bias of a layer has a gradient, and its weight has none")
        self._factors.statistics = _checked(statistics, layers, params[0])

    def scaled_step(self, scaler: View | None, **kwargs: Any) -> NoReturn:
        raise UnsupportedError("statistics of a scaled loss are scaled too: use KFAC without a GradScaler")

    def unscale_grads(self, scaler: View) -> NoReturn:
        raise UnsupportedError("statistics of a scaled loss are scaled too: use KFAC without a GradScaler")


def _checked(statistics: Statistics, layers: Sequence[Layer], param: Parameter) -> list[tuple[Tensor, Tensor]]:
    """Return the statistics as tensors on the device of a parameter, after checking their shapes."""
    pairs = [tuple(pair) for pair in statistics]
    if len(pairs) != len(layers) or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(f"statistics are a pair (inputs, gradients of the outputs) for each of {len(layers)} layer(s)")
    checked = []
    for number, (layer, pair) in enumerate(zip(layers, pairs, strict=True)):
        a, g = (value.detach() if isinstance(value, Tensor) else tensor(value, param.device, FLOAT32) for value in pair)
        batch = a.shape[0] if a.shape else 0
        if not batch or (a.shape, g.shape) != ((batch, layer.inputs), (batch, layer.outputs)):
            raise ShapeError(
                f"the statistics of layer {number} are (batch, {layer.inputs}) and (batch, {layer.outputs}), "
                f"not {a.shape} and {g.shape}"
            )
        for value in (a, g):
            if value.dtype is not FLOAT32 or value.device is not param.device:
                raise ShapeError(f"the statistics of layer {number} are float32 on {param.device.name}, not {value!r}")
        checked.append((a, g))
    return checked
