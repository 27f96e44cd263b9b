"""Averages of parameters over training, stored on the device of the parameters.

    EMA           exponential moving average, bias-corrected, with torch's start, or with a decay that grows
    SWA           equal weights, at calls of your choice (`torch.optim.swa_utils.AveragedModel`)
    PolyakAverage equal weights at every step, or weights that grow polynomially
    soup          the average of several models

`update_parameters` takes two dispatches for any number of parameters, and may be part of a compiled step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from ..errors import CheckpointError, ShapeError, UnsupportedError
from ..hostdata import host_data
from ..ops.arithmetic import add, multiply
from ..recovery import keep_track
from ..runtime.buffer import View
from ..runtime.device import Device
from ..runtime.dtypes import FLOAT32
from ..runtime.rules import Rule
from ..tensors import Parameter, Tensor
from . import state
from .in_place import InPlace
from .layout import Layout

__all__ = ["EMA", "SWA", "Average", "PolyakAverage", "soup"]

_POLYNOMIAL, _EXPONENTIAL, _CORRECTED, _WARM = range(4)
_SMALLEST_LOG = -100.0


class Average:
    """The base class of averages: an average of each parameter.

    Attributes:
        params: the parameters.
    """

    def __init__(self, params: Iterable[Parameter], kind: int, power: float = 0.0, decay: float = 0.0) -> None:
        self.params = list(params)
        if not self.params:
            raise ValueError("an average needs parameters")
        log_decay = math.log(decay) if decay else _SMALLEST_LOG
        self._hyper = {"kind": kind, "power": power, "one_minus_decay": 1 - decay, "log_decay": log_decay}
        self._is_swapped = False
        self._snapshot: tuple[dict[str, Any], bool] | None = None  # the averages, and whether they were swapped
        self._build()
        keep_track(self)

    def _build(self) -> None:
        self._rule = InPlace(Rule("average", folder="arena"), self.params)

    @property
    def _layout(self) -> Layout:
        return self._rule.layout

    @property
    def n_averaged(self) -> int:
        """The number of values in the average. Waits."""
        (raw,) = (self._layout.device.read(views["step"]) for views in self._layout.tensor_views(["step"])[:1])
        return int(raw.cast("f")[0])

    def update_parameters(self) -> None:
        """Add the current values of the parameters to the average.

        Raises:
            UnsupportedError: the parameters hold the averages, as they are swapped.
        """
        self._need_unswapped()
        recording = self._layout.device.recording
        if recording is not None:
            recording.before_replay.append(self._need_unswapped)
        self._rule.run([True] * len(self.params), self._hyper)

    def _need_unswapped(self) -> None:
        if self._is_swapped:
            raise UnsupportedError("the parameters hold their averages; swap back before averaging them")

    def swap(self) -> None:
        """Exchange the parameters and their averages; nothing happens where nothing was averaged yet."""
        if self._layout.device.recording is not None:
            raise UnsupportedError("exchange parameters and averages outside a compiled step")
        self._layout.apply("eval")
        self._is_swapped = not self._is_swapped
        for param in self.params:
            param._version += 1

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Swap parameters and averages within the block.

        Example:
            >>> import optirs_web as ow
            >>> w = ow.Parameter([1.0], device="cpu")
            >>> average = ow.optim.averaging.SWA([w])
            >>> average.update_parameters(); w.assign([3.0]); average.update_parameters()
            >>> with average.swapped():
            ...     print(w.tolist())
            [2.0]
            >>> w.tolist()
            [3.0]
        """
        if self._is_swapped:
            raise UnsupportedError("the parameters already hold their averages")
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def averages(self) -> list[Tensor]:
        """Return copies of the averages."""
        device = self._layout.device
        source = [param.view for param in self.params]
        if not self._is_swapped:
            source = [views["average"] for views in self._layout.tensor_views([])]
        copies = []
        for param, view in zip(self.params, source, strict=True):
            buffer = device.allocate(max(4, view.nbytes))
            copies.append(Tensor(View(buffer, 0, view.nbytes), param.shape, FLOAT32))
            device.copy(view, copies[-1].view)
        return copies

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return the averages, by number of the parameter, and the number of values in them. Waits."""
        self._need_unswapped()
        return self._dict_of(self._layout.device.read_all(self._layout.state_views()))

    def _dict_of(self, contents: Mapping[str, memoryview]) -> dict[str, Any]:
        entries = state.read(self._layout, self.params, ("step",), contents)
        count = int(entries[0]["step"]) if entries else 0
        return {"n_averaged": count, "averages": {number: entry["average"] for number, entry in entries.items()}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state dict.

        Raises:
            CheckpointError: it does not fit these parameters.
        """
        self._need_unswapped()
        try:
            count = operator.index(state_dict["n_averaged"])
            averages = {int(key): host_data(value, FLOAT32) for key, value in state_dict["averages"].items()}
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, UnsupportedError) as error:
            raise CheckpointError('the state dict of an average has "n_averaged" and "averages"') from error
        numbers = range(len(self.params)) if count else range(0)
        if not 0 <= count < 1 << 24 or sorted(averages) != list(numbers):
            raise CheckpointError(f"the state dict has averages of other parameters than 0 to {len(self.params) - 1}")
        for key, value in averages.items():
            shape = self.params[key].shape
            if value.shape != shape:
                raise CheckpointError(f"average {key} has the shape {value.shape}, its parameter {shape}")
        entries = {key: {"step": float(count), "average": value} for key, value in averages.items()}
        state.write(self._layout, ("step",), entries)

    # The interface `recovery.Recoverable`.

    recovery_order: ClassVar[int] = 1

    def recovery_views(self) -> Mapping[str, View]:
        """Return the views of the averages."""
        return self._layout.state_views()

    def keeper(self) -> Any:
        """Return a function that stores the content of these views as the snapshot."""
        return partial(self._keep, self._is_swapped)

    def _keep(self, is_swapped: bool, contents: Mapping[str, memoryview]) -> None:
        self._snapshot = self._dict_of(contents), is_swapped

    @property
    def has_snapshot(self) -> bool:
        """True if there is a snapshot."""
        return self._snapshot is not None

    def revive(self, device: Device) -> None:
        """Continue with the snapshot on the parameters' device, swapped if the parameters are."""
        assert self._snapshot is not None
        averages, was_swapped = self._snapshot
        is_swapped, self._is_swapped = self._is_swapped, False
        self._build()
        self.load_state_dict(averages)
        self._is_swapped = was_swapped
        if is_swapped != was_swapped:
            self.swap()

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        """For `copy.deepcopy` and `pickle`: with the parameters. Waits."""
        contents = self._layout.device.read_all(self._layout.state_views())
        return {**vars(self), "_rule": None, "_snapshot": None, "_state": self._dict_of(contents)}

    def __setstate__(self, content: dict[str, Any]) -> None:
        content = dict(content)
        averages, is_swapped = content.pop("_state"), content.pop("_is_swapped")
        vars(self).update(content, _is_swapped=False)
        self._build()
        self.load_state_dict(averages)
        self._is_swapped = is_swapped
        keep_track(self)


class EMA(Average):
    """Exponential moving average.

        average = decay average + (1 - decay) param

    Args:
        params: the parameters.
        decay: from 0 to less than 1.
        bias_correction: divide by the sum of the weights so far: the weight of the newest value is
            (1 - decay) / (1 - decay^t). Without it the first value counts as in `torch.optim.swa_utils.get_ema_avg_fn`.
        warmup: a decay of at most (1 + t) / (10 + t) at the t-th value, instead of the correction.

    Raises:
        ValueError: the decay is out of range.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([1.0], device="cpu")
        >>> average = ow.optim.averaging.EMA([w], decay=0.5)
        >>> average.update_parameters(); w.assign([4.0]); average.update_parameters()
        >>> average.averages()[0].tolist()
        [3.0]
    """

    def __init__(
        self, params: Iterable[Parameter], decay: float = 0.999, bias_correction: bool = True, warmup: bool = False
    ) -> None:
        if not 0 <= float(decay) < 1:
            raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
        kind = _WARM if warmup else _CORRECTED if bias_correction else _EXPONENTIAL
        super().__init__(params, kind, decay=float(decay))


class SWA(Average):
    """Stochastic weight averaging (Izmailov et al. 2018, arXiv:1803.05407): the mean of the values taken.

    As `torch.optim.swa_utils.AveragedModel`: call `update_parameters` once per epoch or cycle.

    Args:
        params: the parameters.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0], device="cpu")
        >>> average = ow.optim.averaging.SWA([w])
        >>> for value in (1.0, 2.0, 6.0):
        ...     w.assign([value])
        ...     average.update_parameters()
        >>> [value.tolist() for value in average.averages()]
        [[3.0]]
    """

    def __init__(self, params: Iterable[Parameter]) -> None:
        super().__init__(params, _POLYNOMIAL)


class PolyakAverage(Average):
    """The mean of all iterates (Polyak & Juditsky 1992), or one that weighs later ones more.

    Args:
        params: the parameters.
        power: the weight of the newest of t values is (power + 1) / (t + power) (Shamir & Zhang 2013, arXiv:1212.1824);
            0 gives equal weights.

    Raises:
        ValueError: the power is negative.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([0.0], device="cpu")
        >>> average = ow.optim.averaging.PolyakAverage([w], power=1.0)
        >>> for value in (1.0, 2.0, 6.0):
        ...     w.assign([value])
        ...     average.update_parameters()
        >>> round(average.averages()[0].item(), 4)
        3.8333
    """

    def __init__(self, params: Iterable[Parameter], power: float = 0.0) -> None:
        if not 0 <= float(power) < math.inf:
            raise ValueError(f"Invalid power value: {power}")
        super().__init__(params, _POLYNOMIAL, power=float(power))


def soup(models: Sequence[Sequence[Tensor]], weights: Sequence[float] | None = None) -> list[Tensor]:
    """The average of several models' parameters (Wortsman et al. 2022, arXiv:2203.05482).

    Args:
        models: lists of parameters, alike in shape.
        weights: one for each model; equal by default. They are divided by their sum.

    Raises:
        ShapeError: the lists differ in length or shapes.
        ValueError: there are no models, or other weights than models.

    Example:
        >>> import optirs_web as ow
        >>> models = [[ow.Parameter([1.0], device="cpu")], [ow.Parameter([3.0], device="cpu")]]
        >>> ow.optim.averaging.soup(models)[0].tolist()
        [2.0]
    """
    if not models:
        raise ValueError("a soup needs at least one model")
    shares = [1.0] * len(models) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(models) or not sum(shares) > 0:
        raise ValueError(f"{len(models)} models need as many weights with a sum above 0, not {weights}")
    shapes = [[tensor.shape for tensor in model] for model in models]
    if any(model_shapes != shapes[0] for model_shapes in shapes):
        raise ShapeError("the models have parameters of different shapes")
    result = []
    for tensors in zip(*models, strict=True):
        parts = [multiply(tensor.detach(), share / sum(shares)) for tensor, share in zip(tensors, shares, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = add(total, part)
        result.append(total)
    return result
