"""Parameter groups: the dicts of parameters and options that an optimizer is made of, and the checks of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol

from ..errors import UnsupportedError, quoted
from ..launch import need_one_device
from ..runtime.dtypes import FLOAT32
from ..tensors import Parameter, Tensor
from .arguments import instead_of
from .options import NotANumberError

__all__ = [
    "Params",
    "Rate",
    "Schedules",
    "check_members",
    "check_rate",
    "on_host",
    "option_error",
    "ordered",
    "read_groups",
    "takes_option",
]

Rate = float | Tensor
"""A learning rate: a number, or a tensor of one element whose value each step reads on the device."""

Params = Iterable[Parameter] | Iterable[Mapping[str, Any]] | Iterable[tuple[str, Parameter]]


class Schedules(Protocol):
    """The schedules of an optimizer's options; see `lr_scheduler`."""

    params: set[str]
    """The options that follow a schedule."""

    def notice(self) -> None:
        """Detect options that were changed by other code since the last call."""


def read_groups(groups: Sequence[Any], defaults: Mapping[str, Any], optimizer: str) -> list[dict[str, Any]]:
    """Return groups as an optimizer keeps them: with all options, and the parameters in a list.

    Args:
        groups: dicts with "params" and the options that differ from the defaults.
        defaults: the options of the others.
        optimizer: the name of its class, for messages.

    Raises:
        TypeError: a group is no such dict, has an unknown option, or holds something that is no `Parameter`.
        ValueError: its names do not fit its parameters.
    """
    complete = []
    for group in groups:
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError('a parameter group must be a dict with "params"')
        names, params = _names_and_params(group)
        for name in group:
            if not isinstance(name, str):
                raise TypeError(f"the name of an option must be a string, not {quoted(name)}")
            if not (takes_option(name, defaults) or name in ("params", "param_names")):
                raise TypeError(f"{optimizer} has no option {name}; {instead_of(name, defaults)}")
        for param in params:
            if not isinstance(param, Parameter):
                kind = f"{type(param).__module__}.{type(param).__name__}"
                raise TypeError(
                    f"an optimizer takes optirs_web.Parameter, not {kind} (torch's: optirs_web.interop.torch)"
                )
        complete.append({**defaults, **group, "params": params, **({"param_names": names} if names else {})})
    return complete


def ordered(params: Iterable[Any]) -> list[Any]:
    """Return the parameters, or groups, in a list.

    Raises:
        TypeError: they are in a set, whose order may change from run to run.
    """
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters must have an order, by which their state is saved: pass a list, not a set")
    return list(params)


def takes_option(name: str, defaults: Collection[str]) -> bool:
    """Return whether a group may have this option: one of the optimizer's, or an entry that a schedule adds."""
    kind, _, option = name.partition("_")
    return name in defaults or (
        kind in ("initial", "max", "min", "base") and (option in defaults or option in ("momentum", "beta1"))
    )


def check_members(groups: Sequence[Mapping[str, Any]]) -> None:
    """Check the parameters of all groups of an optimizer, and their names.

    Raises:
        ValueError: there are none, one occurs twice, or names are missing or not unique.
        ShapeError: the parameters are on several devices.
    """
    params = [param for group in groups for param in group["params"]]
    if len({id(param) for param in params}) < len(params):
        raise ValueError("some parameters appear in more than one parameter group, or twice in one")
    if not params:
        raise ValueError("optimizer got an empty parameter list")
    need_one_device("an optimizer", *params)
    names = [name for group in groups for name in group.get("param_names", ())]
    if len(set(names)) < len(names):
        raise ValueError("two parameters have the same name")
    if len({bool(group.get("param_names")) for group in groups if group["params"]}) > 1:
        raise ValueError(_NAMES_MISSING)


_NAMES_MISSING = "all optimizer params should be with/without names. Some param names are missing"


def _names_and_params(group: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Return the names of a group's parameters, from pairs or from `param_names`, if any, and the parameters."""
    params = [group["params"]] if isinstance(group["params"], Tensor) else ordered(group["params"])
    pairs = [param for param in params if isinstance(param, tuple)]
    if pairs and len(pairs) < len(params):
        raise ValueError(_NAMES_MISSING)
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise TypeError("a named parameter must be a pair of a name and a Parameter")
    own_names = group.get("param_names", ())
    own_names = list(own_names) if isinstance(own_names, Iterable) else [own_names]
    if not all(isinstance(name, str) for name in own_names):
        raise TypeError(f"param_names must be strings, not {quoted(group['param_names'])}")
    names = [pair[0] for pair in pairs] or own_names
    if names and (len(names) != len(params) or len(set(names)) < len(names)):
        raise ValueError(f"each parameter needs a name of its own, not {names}")
    return names, [pair[1] for pair in pairs] or params


def check_rate(group: Mapping[str, Any], optimizer: str, takes_tensor: bool) -> None:
    """Check a learning rate that is a tensor; its value is not read.

    Raises:
        ValueError: it is not a float32 tensor of one element on the device of the parameters.
        UnsupportedError: the optimizer takes no tensor.
    """
    lr = group.get("lr")
    if not isinstance(lr, Tensor):
        return
    if lr.size != 1:
        raise ValueError("Tensor lr must be 1-element")
    if lr.dtype is not FLOAT32:
        raise ValueError(f"Tensor lr must be float32, not {lr.dtype}")
    if any(param.device is not lr.device for param in group["params"]):
        raise ValueError("Tensor lr must be on the device of the parameters")
    if not takes_tensor:
        raise UnsupportedError(f"{optimizer} reads lr on the host: pass a number")


def on_host(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with numbers in place of tensors on the device."""
    return {**group, "lr": 1.0} if isinstance(group.get("lr"), Tensor) else group


def option_error(
    error: Exception,
    group: Mapping[str, Any],
    usual: Mapping[str, Any],
    error_of: Callable[[Mapping[str, Any]], Exception | None],
) -> Exception:
    """Return an exception that names the option of a group that caused an error.

    Args:
        error: of the options of the group.
        group: its options.
        usual: the default of each argument of the optimizer, by name.
        error_of: returns the error of some options, or None: with its default, the option that is wrong causes none.
    """
    options = on_host(group)
    for name, default in usual.items():
        if name == "params" or name not in group or str(error_of({**options, name: default})) == str(error):
            continue
        value = group[name]
        is_numeric = isinstance(default, Real) and not isinstance(default, bool)
        if is_numeric and callable(value):
            option = "" if name == "lr" else f", param={name!r}"
            scheduler = f"lr_scheduler.ScheduleLR(optimizer, schedule{option})"
            return NotANumberError(f"{name} must be a number; {scheduler} has it follow a schedule")
        message = str(error) if isinstance(error, ValueError) else f"Invalid {name} value: {value}"
        if is_numeric and not isinstance(value, Real):
            return NotANumberError(f"{message}; {name} must be a number, not a {type(value).__name__}")
        if not isinstance(error, ValueError):
            return ValueError(message)
    return error if isinstance(error, ValueError) else ValueError(f"Invalid options: {error}")
