"""What makes an optimizer of ours one of torch's: `torch.optim.Optimizer` over torch parameters, ours behind it.

The groups are torch's, so that torch's schedulers, `clip_grad_norm_`, hooks, DistributedDataParallel, Accelerate and
Trainer stay as they are. The step, and the state, are those of the optimizer of ours, on `cpu`, or on `cuda` where
the parameters lie on a GPU of NVIDIA.
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
from .torch_places import Place, bring_grads, check, check_apart, place_of, remember

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
    """The base of all: both torch's and ours."""
    return type("Optimizer", (TorchOptimizer, _torch().optim.Optimizer), {"__module__": f"{__package__}.torch"})


def made_for_torch(name: str) -> Any:
    """The class of that name for torch; "Optimizer" is the base of all of them.

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
    """The half that is ours of an optimizer for torch.

    A torch parameter is moved into memory of ours when the optimizer is made (`torch_places`): it stays the same
    object, and becomes contiguous. Gradients that autograd makes elsewhere, as after ``zero_grad()``, are copied once a
    step; after ``zero_grad(set_to_none=False)`` autograd adds to them in our memory, and nothing is copied.

    Args:
        params: torch parameters, pairs of names and parameters, or dicts; for what is made around another optimizer
            (SAM, Lookahead, ...) that one, one of these.
        args: as for the optimizer of ours.
        differentiable: False: a step has no history.
        options: as for the optimizer of ours; `foreach`, `fused` and `capturable` have no effect. Functions (`hvp`,
            `diagonal`, `statistics`) are given torch tensors, and return some.

    Attributes:
        ours: the class of the optimizer behind it.
        param_groups: torch's. Options that the optimizer does not know are left alone.
        optimizer: the one that it was made around, if it was.

    Raises:
        UnsupportedError: a parameter is not of float32, not dense, neither on the processor nor on a GPU of NVIDIA, or
            shares its memory.
        DeviceNotAvailableError: parameters lie on a GPU, and there is no device `cuda`; the message says why.
    """

    ours: Any
    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]
    optimizer: TorchOptimizer | None
    _inner: optim.Optimizer
    _places: list[Place]

    def __init__(self, params: Any, *args: Any, differentiable: bool = False, **options: Any) -> None:
        if differentiable:
            raise UnsupportedError("steps have no history here: differentiable=True is not supported")
        self.optimizer = params if isinstance(params, TorchOptimizer) else None
        groups = params.param_groups if isinstance(params, TorchOptimizer) else params
        _torch_half(self).__init__(groups, {})
        accepted = inspect.signature(self.ours).parameters
        if "options" not in accepted:
            options = {name: one for name, one in options.items() if name in accepted or name not in _TORCHS_OWN}
        given = inspect.signature(self.ours).bind(params, *args, **options).arguments
        args = tuple(map(self._for_ours, args))
        named = {name: self._for_ours(one) for name, one in options.items()}
        if self.optimizer is not None:
            self._places = self.optimizer._places
            self._inner = self.ours(self.optimizer._inner, *args, **named)
            self.param_groups = self.optimizer.param_groups
        else:
            self._places = self._find_places(self.param_groups)
            known = {*accepted, *Options.__annotations__}
            self._inner = self.ours(self._groups_for_ours(self.param_groups, self._places, known), *args, **named)
        rates = {name: one for name, one in given.items() if name == "lr" and isinstance(one, _torch().Tensor)}
        own = {name: options.get(name, value) for name, value in _TORCHS_OWN.items()}
        self.defaults = {**self._inner.defaults, **own, **rates}
        self._fill_in_options(self.param_groups)
        self._bring()

    def _fill_in_options(self, groups: list[dict[str, Any]]) -> None:
        """Show the options of ours, but for those that the groups have."""
        for group, its in zip(groups, self._inner.param_groups[-len(groups) :], strict=True):
            filled = {**self.defaults, **{name: one for name, one in its.items() if name not in self.defaults}}
            for name, value in filled.items():
                if name not in _WORDS:
                    group.setdefault(name, value)

    # Between torch's words and ours.

    def _params(self) -> list[Any]:
        return [one for group in self.param_groups for one in group["params"]]

    def _names(self) -> Iterator[str]:
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names") or [
                f"parameter {at} of group {number}" for at in range(len(group["params"]))
            ]
            yield from names

    def _find_places(self, groups: list[dict[str, Any]]) -> list[Place]:
        named = list(zip(self._params(), self._names(), strict=True))
        new = {id(one) for group in groups for one in group["params"]}
        for one, name in named:
            check(one, name)
        check_apart(named)
        places = [place_of(one, name) for one, name in named if id(one) in new]
        self._take(places)
        return places

    @staticmethod
    def _take(places: list[Place]) -> None:
        """What ours does from now on sees what torch has written so far."""
        if places:
            memory.take(places[0].ours.device)

    def _for_ours(self, value: Any) -> Any:
        if isinstance(value, _torch().Tensor):
            return _number(value)
        return functools.partial(self._ask, value) if callable(value) else value

    @staticmethod
    def _groups_for_ours(groups: list[dict[str, Any]], places: list[Place], known: set[str]) -> list[dict[str, Any]]:
        rest = iter(places)
        made = []
        for group in groups:
            kept = {name: _number(one) for name, one in group.items() if name in known or name == "param_names"}
            kept = {name: one for name, one in kept.items() if name not in _TORCHS_OWN}
            made.append({**kept, "params": [next(rest).ours for _ in group["params"]]})
        return made

    def _take_options(self) -> None:
        for group, its in zip(self.param_groups, self._inner.param_groups, strict=True):
            its.update({name: _number(group[name]) for name in its if name in group and name not in _WORDS})

    def _bring(self) -> None:
        """See to it that torch's parameters and ours are the same memory."""
        params = self._params()
        if len(params) != len(self._places):
            raise UnsupportedError("parameters are added by add_param_group, not in param_groups")
        for place, one, name in zip(self._places, params, self._names(), strict=True):
            place.bring(one, name)
        self._take(self._places)

    # Steps.

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step with the gradients of the torch parameters. Parameters without one are left alone.

        Args:
            closure: called first, with gradients enabled; zeroes the gradients, computes the loss and its gradients.

        Returns:
            What the closure returned.

        Raises:
            UnsupportedError: a parameter has been given data that cannot be stepped here, as by ``model.cuda()``.
        """
        return self._run(self._inner.step, *(() if closure is None else (closure,)))

    def _run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call something of our optimizer; what is callable among the arguments computes gradients in torch."""
        with _torch().no_grad():
            self._bring()
            self._take_options()
            bring_grads(self._places, self._params())
            try:
                return call(*(self._evaluated(one) for one in args), **kwargs)
            finally:
                self._publish()

    def _publish(self) -> None:
        """Have the work done, and tell torch that its parameters have changed."""
        memory.give(self._places[0].ours.device)
        _torch().autograd.graph.increment_version(self._params())

    def _evaluated(self, given: Any) -> Any:
        """A closure of torch's, as our optimizer calls it."""
        if isinstance(given, (list, tuple)):
            return [self._evaluated(one) for one in given]
        if not callable(given):
            return given

        def evaluate() -> Any:
            self._publish()
            params = self._params()
            for place, one in zip(self._places, params, strict=True):
                if place.ours._grad is None:  # ours were zeroed
                    one.grad = None
            with _torch().enable_grad():
                result = given()
            self._bring()
            bring_grads(self._places, params)
            if isinstance(result, _torch().Tensor) and isinstance(self._inner, HostDriven):
                return result.detach()
            return result

        return evaluate

    def _ask(self, theirs: Callable[..., Any], *args: Any) -> Any:
        """Call a function of torch tensors with tensors of ours."""
        self._publish()
        with _torch().enable_grad():
            return _as_ours(theirs(*(_as_torch(one) for one in args)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; or, with `set_to_none=False`, make those that exist zero, in our memory."""
        _torch_half(self).zero_grad(set_to_none)
        if not set_to_none:
            for place, one in zip(self._places, self._params(), strict=True):
                place.share_grad(one)

    def __getattr__(self, name: str) -> Any:
        """What an optimizer has beside steps: `train` and `eval`, `update_hessian`, `first_step`, ..."""
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
            places = self._find_places([group])
            (ours,) = self._groups_for_ours([group], places, {*self._inner.defaults})
            self._inner.add_param_group(ours)
        except BaseException:
            del self.param_groups[-1]
            raise
        self._places.extend(places)
        self._fill_in_options([group])
        self._bring()

    @property
    def state(self) -> Mapping[Any, Any]:
        """The state by torch parameter, in torch's names: copies, as they are at the call."""
        params, found = self._params(), self._inner.state_dict()["state"]
        return defaultdict(dict, {params[number]: entry for number, entry in to_torch(found).items()})

    @state.setter
    def state(self, value: Mapping[Any, Any]) -> None:
        if value:
            raise UnsupportedError("set the state with load_state_dict")
        if "_inner" in vars(self):
            self._inner.load_state_dict({"state": {}, "param_groups": self._inner.numbered_groups()})

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's form: it loads into torch's optimizer of that name. Copies."""
        made: dict[str, Any] = _torch_half(self).state_dict()
        for packed, its in zip(made["param_groups"], self._inner.numbered_groups(), strict=True):
            for name, value in its.items():
                packed.setdefault(name, value)
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state dict of this optimizer, of ours, or of torch's of that name. All of it, or nothing.

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
            groups = [{name: _number(one) for name, one in group.items()} for group in state_dict["param_groups"]]
        except (AttributeError, KeyError, TypeError) as error:
            raise CheckpointError('a state dict has "state" and "param_groups", which have "params"') from error
        self._take_options()
        self._take(self._places)
        self._inner.load_state_dict({**state_dict, "param_groups": groups})
        for group, loaded in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update(copy.deepcopy({name: one for name, one in loaded.items() if name not in _WORDS}))
        for hook in hooks._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # Copies: torch's parameters and ours are copied beside each other, and then share memory again.

    def __getstate__(self) -> dict[str, Any]:
        names = ("defaults", "param_groups", "optimizer", "_inner")
        return {name: vars(self)[name] for name in names}

    def __setstate__(self, content: dict[str, Any]) -> None:
        _torch_half(self).__setstate__(content)
        self.defaults.setdefault("differentiable", False)
        if self.optimizer is not None:
            self._places = self.optimizer._places
            return
        self._places = []
        for one, ours in zip(self._params(), self._inner._params(), strict=True):
            self._places.append(Place.over(one, ours))
            remember(one, self._places[-1])


_MORE = ("check_finite", "skipped_steps")


def _torch_half(one: TorchOptimizer) -> Any:
    return super(TorchOptimizer, one)


def _number(value: Any) -> Any:
    """An option as ours has it: a number for a torch tensor of one element."""
    if not hasattr(value, "item") or isinstance(value, (Tensor, Parameter)):
        return value
    if math.prod(value.shape) != 1:
        raise ValueError(f"an option is a number or a tensor of one element, not of shape {tuple(value.shape)}")
    return value.item()


def _as_torch(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_torch(one) for one in value]
    return memory.shown(value) if isinstance(value, Tensor) else value


def _as_ours(value: Any) -> Any:
    """What torch computed, as it is given to our optimizer: what lies on a GPU stays there."""
    if isinstance(value, (list, tuple)):
        return [_as_ours(one) for one in value]
    return memory.as_ours(value) if isinstance(value, _torch().Tensor) else value
