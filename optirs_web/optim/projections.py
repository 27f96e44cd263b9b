"""Projections of parameters onto sets, after each step of an optimizer or by a call.

An optimizer takes them among its transforms: ``SGD(params, transforms=[projections.non_negative()])``. All act on each
tensor separately, also after a skipped step, which only matters where rounding moves a point of the set.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from numbers import Real
from typing import Any

from ..launch import apply
from ..ops.arithmetic import multiply
from ..ops.creation import randn
from ..ops.linear import matmul
from ..ops.random_state import checked_seed
from ..ops.reduce import sum as sum_of
from ..ops.shape import reshape
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.program import NotReadyError
from ..runtime.rule_kernels import MeasureKernel
from ..runtime.rules import Rule
from ..tensors import Parameter, Tensor
from .by_identity import ByIdentity
from .in_place import in_place
from .layout import Layout
from .transforms import Mask

__all__ = ["Projection", "box", "l1_ball", "l2_ball", "non_negative", "simplex", "spectral", "sphere"]

_LARGEST = 3.4028234663852886e38


class Projection(ABC):
    """A projection, made by a function of this module.

    Attributes:
        mask: returns whether it applies to a parameter; None for all.
    """

    def __init__(self, mask: Mask | None) -> None:
        self.mask = mask

    def apply(self, params: Sequence[Parameter], live: Sequence[bool] | None = None) -> None:
        """Project these parameters, in place.

        Args:
            params: the parameters.
            live: for each, whether to project it; all by default.
        """
        params = list(params)
        self.apply_to(params, self.selected(params, [True] * len(params) if live is None else live))

    def selected(self, params: Sequence[Parameter], live: Sequence[bool]) -> list[bool]:
        """Return for each parameter whether it is live and the mask selects it."""
        return [
            is_live and (self.mask is None or bool(self.mask(param)))
            for param, is_live in zip(params, live, strict=True)
        ]

    def apply_to(self, params: Sequence[Parameter], selected: Sequence[bool]) -> None:
        """Project the selected parameters."""
        if any(selected):
            self._apply(params, selected)
            for param in compress(params, selected):
                param._version += 1

    @abstractmethod
    def _apply(self, params: Sequence[Parameter], live: Sequence[bool]) -> None: ...


class _ByRule(Projection):
    """A projection by a rule of ``shaders/arena``."""

    def __init__(
        self,
        name: str,
        hyper: Mapping[str, float],
        mask: Mask | None,
        flag: str = "",
        layout_type: type[Layout] = Layout,
    ) -> None:
        super().__init__(mask)
        self.rule = Rule(name, folder="arena")
        self.hyper = dict(hyper)
        self.flags = ((flag, True),) if flag else ()
        self.layout_type = layout_type

    def _apply(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        in_place(self.rule, params, self.layout_type, self.flags).run(live, self.hyper)


_NEWTON_STEPS = 24
"""Steps of Newton's method. A few find the threshold of all but contrived tensors."""


class _NewtonLayout(Layout):
    """A layout that measures and settles several times."""

    def _before_update(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        for _ in range(_NEWTON_STEPS - 1):
            for shard in self.shards:
                self.run_over(shard, MeasureKernel.of(self.rule, shard.flags), shared)
            self.run(self._settle, shared, len(self.groups))


def _positive(**values: Any) -> None:
    for name, value in values.items():
        if not (isinstance(value, Real) and 0 < float(value) < math.inf):
            raise ValueError(f"Invalid {name} value: {value}")


def box(lower: float, upper: float, mask: Mask | None = None) -> Projection:
    """A projection of each element to [lower, upper].

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.5, -2.0], device="cpu")
        >>> ow.optim.projections.box(-1.0, 1.0).apply([w]); w.tolist()
        [0.5, -1.0]
    """
    if not lower <= upper:
        raise ValueError(f"a box from {lower} to {upper} is empty")
    return _ByRule("project_box", {"lower": max(lower, -_LARGEST), "upper": min(upper, _LARGEST)}, mask)


def non_negative(mask: Mask | None = None) -> Projection:
    """A projection of negative elements to 0.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> ow.optim.projections.non_negative().apply([w])
        >>> [round(value, 3) for value in w.tolist()]
        [3.0, 0.0]
    """
    return box(0.0, math.inf, mask)


def l2_ball(radius: float = 1.0, mask: Mask | None = None) -> Projection:
    """A projection of each tensor to a Euclidean norm of at most `radius`.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> ow.optim.projections.l2_ball(1.0).apply([w])
        >>> [round(value, 3) for value in w.tolist()]
        [0.6, -0.8]
    """
    _positive(radius=radius)
    return _ByRule("project_l2", {"radius": radius}, mask)


def sphere(radius: float = 1.0, mask: Mask | None = None) -> Projection:
    """A projection of each tensor to a Euclidean norm of `radius`; a tensor of zeros is not changed.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> ow.optim.projections.sphere(10.0).apply([w])
        >>> [round(value, 3) for value in w.tolist()]
        [6.0, -8.0]
    """
    _positive(radius=radius)
    return _ByRule("project_l2", {"radius": radius}, mask, "sphere")


def l1_ball(radius: float = 1.0, mask: Mask | None = None) -> Projection:
    """A projection of each tensor to the nearest one whose magnitudes sum to at most `radius` (Duchi et al. 2008).

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([3.0, -4.0], device="cpu")
        >>> ow.optim.projections.l1_ball(2.0).apply([w])
        >>> [round(value, 3) for value in w.tolist()]
        [0.5, -1.5]
    """
    _positive(radius=radius)
    return _ByRule("project_l1", {"total": radius}, mask, "ball", _NewtonLayout)


def simplex(total: float = 1.0, mask: Mask | None = None) -> Projection:
    """A projection of each tensor to the nearest non-negative one whose sum is `total` (Duchi et al. 2008).

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.5, 1.0, -2.0], device="cpu")
        >>> ow.optim.projections.simplex().apply([w]); w.tolist()
        [0.25, 0.75, 0.0]
    """
    _positive(total=total)
    return _ByRule("project_l1", {"total": total}, mask, "", _NewtonLayout)


def spectral(limit: float = 1.0, iterations: int = 1, seed: int = 0, mask: Mask | None = None) -> Projection:
    """A division of each matrix so that its largest singular value is at most about `limit`.

    A tensor of more dimensions is the matrix of its rows; those of fewer are left alone. The value is that of a power
    iteration (Miyato et al. 2018, arXiv:1802.05957), which is at most the largest one and continues from call to call.
    It takes about ten dispatches for each matrix and iteration.

    Args:
        limit: the largest singular value.
        iterations: at each call.
        seed: of the first vector.
        mask: returns whether it applies to a parameter; None for all.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([[3.0, 0.0], [0.0, 0.5]], device="cpu")
        >>> ow.optim.projections.spectral(1.0, iterations=20).apply([w])
        >>> [[round(value, 3) for value in row] for row in w.tolist()]
        [[1.0, 0.0], [0.0, 0.167]]
    """
    _positive(limit=limit)
    if operator.index(iterations) < 1:
        raise ValueError(f"a power iteration needs 1 or more iterations, not {iterations}")
    return _Spectral(float(limit), iterations, checked_seed(seed), mask)


class _Spectral(Projection):
    def __init__(self, limit: float, iterations: int, seed: int, mask: Mask | None) -> None:
        super().__init__(mask)
        self.limit, self.iterations, self.seed = limit, iterations, seed
        self._vectors: ByIdentity[tuple[Device, Tensor]] = ByIdentity()

    def _vector(self, param: Parameter) -> Tensor:
        """Return the left vector of the parameter, in memory of its own."""
        device, vector = self._vectors.get(param) or (None, None)
        if device is param.device and vector is not None:
            return vector
        if param.device.recording is not None:
            raise NotReadyError(partial(self._prepare, param))
        return self._make_vector(param)

    def _prepare(self, param: Parameter) -> None:
        self._make_vector(param)

    def _make_vector(self, param: Parameter) -> Tensor:
        rows = param.shape[0]
        start = randn((1, rows), param.device, seed=self.seed)
        buffer = param.device.allocate_zeroed(4 * rows)
        vector = Tensor(View.whole(buffer), (1, rows), FLOAT32)
        param.device.copy(start.view, vector.view)
        self._vectors.set(param, (param.device, vector))
        return vector

    def _apply(self, params: Sequence[Parameter], live: Sequence[bool]) -> None:
        for param in compress(params, live):
            if param.ndim > 1 and param.size:
                self._limit(param)

    def _limit(self, param: Parameter) -> None:
        left = self._vector(param)
        matrix = reshape(param.detach(), (param.shape[0], -1))
        row = left
        for _ in range(self.iterations):
            right = _unit(matmul(row, matrix))
            image = matmul(right, matrix.T)
            squared = sum_of(multiply(image, image))
            row = apply("spectral", "over_norm", image, squared)
        param.device.copy(row.view, left.view)
        limited = apply("spectral", "limit_spectral_norm", param.detach(), squared, self.limit)
        param.device.copy(limited.view, param.view)


def _unit(vector: Tensor) -> Tensor:
    return apply("spectral", "over_norm", vector, sum_of(multiply(vector, vector)))
