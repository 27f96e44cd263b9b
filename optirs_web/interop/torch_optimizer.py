"""`torch.optim.Optimizer` over torch parameters, with one of our optimizers behind it.

The groups are torch's, so that torch's schedulers, `clip_grad_norm_`, hooks, DistributedDataParallel, Accelerate and
Trainer work unchanged. The step and the state are those of our optimizer, on `cpu`, or on `cuda` where the parameters
are on an NVIDIA GPU.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import optim
from ..errors import CheckpointError, UnsupportedError
from ..optim.host_driven import HostDriven
from ..optim.options import Options
from ..tensors import Parameter, Tensor
from . import torch_memory as memory
from .torch import to_torch
from .torch_places import SharedParameter, check, check_apart, collect_grads, remember, shared_parameter

__all__ = ["TorchOptimizer", "made_for_torch"]

_WORDS = ("params", "param_names")
_TORCHS_OWN = {"foreach": None, "capturable": False, "differentiable": False, "fused": None}


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install torch", name=error.name) from error


@functools.cache
def _base() -> Any:
    """Return the base class of all of them, derived from torch's and ours."""
    return type("Optimizer", (TorchOptimizer, _torch().optim.Optimizer), {"__module__": f"{__package__}.torch"})


def made_for_torch(name: str) -> Any:
    """Return the class of that name for torch; "Optimizer" is the base class of all of them.

    Raises:
        ImportError: torch is not installed.
    """
    if name == "Optimizer":
        return _base()
    ours = getattr(optim, name)
    about = (
        f"`optirs_web.optim.{name}` over torch parameters; see there, and `docs/interop.md`.\n\n{inspect.getdoc(ours)}"
    )
    signature = inspect.signature(ours)
    members = {"ours": ours, "__doc__": about, "__module__": f"{__package__}.torch", "__signature__": signature}
    return type(name, (_base(),), members)


class TorchOptimizer:
    """Our part of an optimizer for torch.

    A torch parameter is moved into memory of ours when the optimizer is made (`torch_places`): it stays the same
    object, and becomes contiguous. Gradients that autograd allocates, as after ``zero_grad()``, are copied once a step;
    after ``zero_grad(set_to_none=False)`` autograd adds to them in our memory, and nothing is copied.

    Args:
        params: torch parameters, pairs of names and parameters, or dicts; for an optimizer that wraps another one
            (SAM, Lookahead, ...) the wrapped optimizer, one of these.
        args: as for the optimizer of ours.
        differentiable: False: a step has no history.
        options: as for the optimizer of ours; `foreach`, `fused` and `capturable` have no effect. Functions (`hvp`,
            `diagonal`, `statistics`) take and return torch tensors.

    Attributes:
        ours: the class of the optimizer behind it.
        param_groups: torch's. Options that the optimizer does not know are left alone.
        optimizer: the wrapped optimizer, or None.

    Raises:
        UnsupportedError: a parameter is not of float32, not dense, neither on the processor nor on a GPU of NVIDIA, or
            shares its memory.
        DeviceNotAvailableError: parameters are on a GPU, and there is no device `cuda`; the message says why.
    """

    ours: Any
    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]
    optimizer: TorchOptimizer | None
    _inner: optim.Optimizer
    _shared: list[SharedParameter]

    def __init__(self, params: Any, *args: Any, differentiable: bool = False, **options: Any) -> None:
        if differentiable:
            raise UnsupportedError("steps have no history here: differentiable=True is not supported")
        self.optimizer = params if isinstance(params, TorchOptimizer) else None
        groups = params.param_groups if isinstance(params, TorchOptimizer) else params
        _torch_half(self).__init__(groups, {})
        accepted = inspect.signature(self.ours).parameters
        if "options" not in accepted:
            options = {name: value for name, value in options.items() if name in accepted or name not in _TORCHS_OWN}
        bound = inspect.signature(self.ours).bind(params, *args, **options).arguments
        args = tuple(map(self._for_ours, args))
        named = {name: self._for_ours(value) for name, value in options.items()}
        if self.optimizer is not None:
            self._shared = self.optimizer._shared
            self._inner = self.ours(self.optimizer._inner, *args, **named)
            self.param_groups = self.optimizer.param_groups
        else:
            self._shared = self._share_parameters(self.param_groups)
            names = {*accepted, *Options.__annotations__}
            self._inner = self.ours(self._groups_for_ours(self.param_groups, self._shared, names), *args, **named)
        rates = {name: value for name, value in bound.items() if name == "lr" and isinstance(value, _torch().Tensor)}
        torchs_own = {name: options.get(name, value) for name, value in _TORCHS_OWN.items()}
        self.defaults = {**self._inner.defaults, **torchs_own, **rates}
        self._fill_in_options(self.param_groups)
        self._synchronize()

    def _fill_in_options(self, groups: list[dict[str, Any]]) -> None:
        """Add the options of our groups to torch's groups, where they are not set."""
        for group, ours in zip(groups, self._inner.param_groups[-len(groups) :], strict=True):
            filled = {**self.defaults, **{name: value for name, value in ours.items() if name not in self.defaults}}
            for name, value in filled.items():
                if name not in _WORDS:
                    group.setdefault(name, value)

    # Conversions between torch's parameters and options, and ours.

    def _params(self) -> list[Any]:
        return [param for group in self.param_groups for param in group["params"]]

    def _names(self) -> Iterator[str]:
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names") or [
                f"parameter {index} of group {number}" for index in range(len(group["params"]))
            ]
            yield from names

    def _share_parameters(self, groups: list[dict[str, Any]]) -> list[SharedParameter]:
        named = list(zip(self._params(), self._names(), strict=True))
        new = {id(param) for group in groups for param in group["params"]}
        for param, name in named:
            check(param, name)
        check_apart(named)
        shared = [shared_parameter(param, name) for param, name in named if id(param) in new]
        self._take(shared)
        return shared

    @staticmethod
    def _take(shared: list[SharedParameter]) -> None:
        """Order our work from now on after torch's work so far."""
        if shared:
            memory.take(shared[0].ours.device)

    def _for_ours(self, value: Any) -> Any:
        if isinstance(value, _torch().Tensor):
            return _number(value)
        return functools.partial(self._call_theirs, value) if callable(value) else value

    @staticmethod
    def _groups_for_ours(
        groups: list[dict[str, Any]], shared: list[SharedParameter], names: set[str]
    ) -> list[dict[str, Any]]:
        remaining = iter(shared)
        converted = []
        for group in groups:
            options = {name: _number(value) for name, value in group.items() if name in names or name == "param_names"}
            options = {name: value for name, value in options.items() if name not in _TORCHS_OWN}
            converted.append({**options, "params": [next(remaining).ours for _ in group["params"]]})
        return converted

    def _take_options(self) -> None:
        for group, ours in zip(self.param_groups, self._inner.param_groups, strict=True):
            ours.update({name: _number(group[name]) for name in ours if name in group and name not in _WORDS})

    def _synchronize(self) -> None:
        """Make torch's parameters and ours share memory, where they do not any more."""
        params = self._params()
        if len(params) != len(self._shared):
            raise UnsupportedError("parameters are added by add_param_group, not in param_groups")
        for shared, param, name in zip(self._shared, params, self._names(), strict=True):
            shared.synchronize(param, name)
        self._take(self._shared)

    # Steps.

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step with the gradients of the torch parameters. Parameters without one are left alone.

        Args:
            closure: called first, with gradients enabled; zeroes the gradients, computes the loss and its gradients.

        Returns:
            What the closure returned.

        Raises:
            UnsupportedError: a parameter has new data that cannot be stepped here, for example after ``model.cuda()``.
        """
        return self._run(self._inner.step, *(() if closure is None else (closure,)))

    def _run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of our optimizer; callables among the arguments compute gradients in torch."""
        with _torch().no_grad():
            self._synchronize()
            self._take_options()
            collect_grads(self._shared, self._params())
            try:
                return call(*(self._evaluated(arg) for arg in args), **kwargs)
            finally:
                self._publish()

    def _publish(self) -> None:
        """Order torch's work after ours, and mark torch's parameters as changed."""
        memory.give(self._shared[0].ours.device)
        _torch().autograd.graph.increment_version(self._params())

    def _evaluated(self, value: Any) -> Any:
        """Return a closure of torch's as one that our optimizer can call."""
        if isinstance(value, (list, tuple)):
            return [self._evaluated(item) for item in value]
        if not callable(value):
            return value

        def evaluate() -> Any:
            self._publish()
            params = self._params()
            for shared, param in zip(self._shared, params, strict=True):
                if shared.ours._grad is None:  # ours were zeroed
                    param.grad = None
            with _torch().enable_grad():
                result = value()
            self._synchronize()
            collect_grads(self._shared, params)
            if isinstance(result, _torch().Tensor) and isinstance(self._inner, HostDriven):
                return result.detach()
            return result

        return evaluate

    def _call_theirs(self, theirs: Callable[..., Any], *args: Any) -> Any:
        """Call a function of torch tensors with tensors of ours."""
        self._publish()
        with _torch().enable_grad():
            return _as_ours(theirs(*(_as_torch(arg) for arg in args)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None; or, with `set_to_none=False`, to zero in our memory, where they exist."""
        _torch_half(self).zero_grad(set_to_none)
        if not set_to_none:
            for shared, param in zip(self._shared, self._params(), strict=True):
                shared.share_grad(param)

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of our optimizer: `train`, `eval`, `update_hessian`, `first_step`, ..."""
        inner = vars(self).get("_inner")
        is_more = not name.startswith("_") and (not hasattr(optim.Optimizer, name) or name in _MORE)
        if inner is None or not is_more or not hasattr(type(inner), name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        value = getattr(inner, name)
        return functools.partial(self._run, value) if callable(value) else value

    # Groups and state.

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as torch does.

        Raises:
            UnsupportedError: a parameter is of a kind that cannot be stepped here.
            ValueError: an option is out of range, or a parameter is in another group already.
        """
        _torch_half(self).add_param_group(param_group)
        if "_inner" not in vars(self):
            return
        try:
            group = self.param_groups[-1]
            shared = self._share_parameters([group])
            (ours,) = self._groups_for_ours([group], shared, {*self._inner.defaults})
            self._inner.add_param_group(ours)
        except BaseException:
            del self.param_groups[-1]
            raise
        self._shared.extend(shared)
        self._fill_in_options([group])
        self._synchronize()

    @property
    def state(self) -> Mapping[Any, Any]:
        """The state by torch parameter, in torch's names: copies, as they are at the call."""
        params, state = self._params(), self._inner.state_dict()["state"]
        return defaultdict(dict, {params[number]: entry for number, entry in to_torch(state).items()})

    @state.setter
    def state(self, value: Mapping[Any, Any]) -> None:
        if value:
            raise UnsupportedError("set the state with load_state_dict")
        if "_inner" in vars(self):
            self._inner.load_state_dict({"state": {}, "param_groups": self._inner.numbered_groups()})

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's form: it loads into torch's optimizer of that name. Copies."""
        packed_state: dict[str, Any] = _torch_half(self).state_dict()
        for packed, ours in zip(packed_state["param_groups"], self._inner.numbered_groups(), strict=True):
            for name, value in ours.items():
                packed.setdefault(name, value)
        return packed_state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of this optimizer, of ours, or of torch's of that name: all of it, or nothing.

        Raises:
            CheckpointError: the groups, options, shapes or names do not fit this optimizer.
        """
        hooks: Any = self
        if not isinstance(state_dict, Mapping):
            raise CheckpointError(f"a state dict must be a dict, not a {type(state_dict).__name__}")
        state_dict = dict(state_dict)
        for hook in hooks._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        try:
            groups = [{name: _number(value) for name, value in group.items()} for group in state_dict["param_groups"]]
        except (AttributeError, KeyError, TypeError) as error:
            raise CheckpointError('a state dict has "state" and "param_groups", which have "params"') from error
        self._take_options()
        self._take(self._shared)
        self._inner.load_state_dict({**state_dict, "param_groups": groups})
        for group, loaded in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update(copy.deepcopy({name: value for name, value in loaded.items() if name not in _WORDS}))
        for hook in hooks._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # Copies: torch's parameters and ours are copied separately, and then share memory again.

    def __getstate__(self) -> dict[str, Any]:
        names = ("defaults", "param_groups", "optimizer", "_inner")
        return {name: vars(self)[name] for name in names}

    def __setstate__(self, content: dict[str, Any]) -> None:
        _torch_half(self).__setstate__(content)
        self.defaults.setdefault("differentiable", False)
        if self.optimizer is not None:
            self._shared = self.optimizer._shared
            return
        self._shared = []
        for param, ours in zip(self._params(), self._inner._params(), strict=True):
            self._shared.append(SharedParameter.over(param, ours))
            remember(param, self._shared[-1])


_MORE = ("check_finite", "skipped_steps")


def _torch_half(optimizer: TorchOptimizer) -> Any:
    return super(TorchOptimizer, optimizer)


def _number(value: Any) -> Any:
    """Return an option for our optimizer: a number for a torch tensor of one element."""
    if not hasattr(value, "item") or isinstance(value, (Tensor, Parameter)):
        return value
    if math.prod(value.shape) != 1:
        raise ValueError(f"an option is a number or a tensor of one element, not of shape {tuple(value.shape)}")
    return value.item()


def _as_torch(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_torch(item) for item in value]
    return memory.shown(value) if isinstance(value, Tensor) else value


def _as_ours(value: Any) -> Any:
    """Convert results of torch for our optimizer; tensors on a GPU share their memory."""
    if isinstance(value, (list, tuple)):
        return [_as_ours(item) for item in value]
    return memory.as_ours(value) if isinstance(value, _torch().Tensor) else value
