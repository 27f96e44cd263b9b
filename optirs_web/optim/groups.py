"""The parameter groups of an optimizer, and the hyper-parameters and flags that its rule gets from their options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from numbers import Real
from typing import Any, ClassVar, Protocol

from ..errors import UnsupportedError
from ..ops.launch import need_one_device
from ..runtime.dtypes import FLOAT32
from ..runtime.rules import Flags, Rule
from ..tensors import Parameter, Tensor
from .arguments import instead_of
from .options import LARGEST_FLOAT32, at_least_zero, derived, fractions, is_number, numbers_of

__all__ = ["Grouped", "Params", "Rate", "on_host"]

Rate = float | Tensor
"""A learning rate: a number, or a tensor of one element whose value each step reads on the device."""

Params = Iterable[Parameter] | Iterable[Mapping[str, Any]] | Iterable[tuple[str, Parameter]]


class NotANumberError(TypeError, ValueError):
    """An option is no number, or no flag. It is a ValueError, too, as those of options out of range are."""


class Schedules(Protocol):
    """The schedules of an optimizer's options; see `lr_scheduler`."""

    params: set[str]
    """The options that follow a schedule."""

    def notice(self) -> None:
        """Detect options that were changed by other code since the last call."""


class Grouped(ABC):
    """An optimizer's groups, and the conversion of their options to a rule's Hyper and overrides."""

    rule: ClassVar[Rule]
    beta_count: ClassVar[int] = 2
    """The number of `betas`, if the optimizer has any."""

    takes_tensor_lr: ClassVar[bool] = True
    """`lr` may be a tensor, which the host does not read."""

    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]
    _schedules: Schedules | None

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name not in ("params", "param_names")]
        return "\n".join([*lines, ")"])

    # Options of a rule.

    def validate(self, group: Mapping[str, Any]) -> None:
        """Raise ValueError if an option of the group is out of range."""
        at_least_zero(group, *(name for name in ("lr", "eps", "weight_decay", "momentum") if name in group))
        if "betas" in group:
            fractions(group, "betas")
            if len(group["betas"]) != self.beta_count:
                raise ValueError(
                    f"betas must be {self.beta_count} number{'s' * (self.beta_count != 1)}, not {group['betas']}"
                )

    def flags(self, group: Mapping[str, Any]) -> dict[str, bool]:
        """Return the rule's overrides."""
        return {name: self._flag(group, name) for name in self.rule.flags}

    def _flag(self, group: Mapping[str, Any], name: str) -> bool:
        option = name.removeprefix("use_")
        if option not in group:
            return bool(getattr(self, name))
        value = group[option]
        if not (value is None or is_number(value) or getattr(value, "shape", None) == ()):
            raise NotANumberError(f"Invalid {option} value: {value!r}")
        return bool(value) or (self._schedules is not None and option in self._schedules.params)

    def hyper(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the rule's Hyper."""
        return {name: derived(group, name) for name in self.rule.hyper}

    def changes_rows_alone(self, group: Mapping[str, Any]) -> bool:
        """Return whether a step with `SparseRows` as gradients changes those rows alone; otherwise they are made dense.

        Raises:
            UnsupportedError: the optimizer takes no `SparseRows`, or none with the options of the group.
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"
        )

    # Groups.

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group: a dict with "params", and options that differ from the defaults.

        Raises:
            ValueError: an option is out of range, or a parameter is in another group already.
            TypeError: "params" holds something that is no `Parameter`, or an option is unknown.
        """
        count = len(self.param_groups)
        self._append_groups([group])
        try:
            self._rebuild()
        except BaseException:
            del self.param_groups[count:]
            raise

    def _append_groups(self, groups: Sequence[Any]) -> None:
        """Add all groups, or none if one is invalid."""
        seen = {id(param) for param in self._params()}
        added = []
        for group in groups:
            if not isinstance(group, Mapping) or "params" not in group:
                raise TypeError('a parameter group must be a dict with "params"')
            names, params = _names_and_params(group)
            for name in group:
                if not (self._knows(name) or name in ("params", "param_names")):
                    raise TypeError(f"{type(self).__name__} has no option {name}; {instead_of(name, self.defaults)}")
            for param in params:
                if not isinstance(param, Parameter):
                    kind = f"{type(param).__module__}.{type(param).__name__}"
                    raise TypeError(
                        f"an optimizer takes optirs_web.Parameter, not {kind} (torch's: optirs_web.interop.torch)"
                    )
                if id(param) in seen:
                    raise ValueError("some parameters appear in more than one parameter group, or twice in one")
                seen.add(id(param))
            added.append({**self.defaults, **group, "params": params, **({"param_names": names} if names else {})})
            self._check(added[-1])
        params_of_all = [param for group in [*self.param_groups, *added] for param in group["params"]]
        if not params_of_all:
            raise ValueError("optimizer got an empty parameter list")
        need_one_device("an optimizer", *params_of_all)
        names_of_all = [name for group in [*self.param_groups, *added] for name in group.get("param_names", ())]
        if len(set(names_of_all)) < len(names_of_all):
            raise ValueError("two parameters have the same name")
        named = {bool(group.get("param_names")) for group in [*self.param_groups, *added] if group["params"]}
        if len(named) > 1:
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        self.param_groups.extend(added)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise an error if an option of the group cannot be used; the value of a tensor lr is not read.

        Betas that are tensors become numbers.
        """
        if "betas" in group:
            group["betas"] = numbers_of(group["betas"])
        lr = group.get("lr")
        if isinstance(lr, Tensor):
            if lr.size != 1:
                raise ValueError("Tensor lr must be 1-element")
            if lr.dtype is not FLOAT32:
                raise ValueError(f"Tensor lr must be float32, not {lr.dtype}")
            if any(param.device is not lr.device for param in group["params"]):
                raise ValueError("Tensor lr must be on the device of the parameters")
            if not self.takes_tensor_lr:
                raise UnsupportedError(f"{type(self).__name__} reads lr on the host: pass a number")
        options = on_host(group)
        error = self._fault(options)
        if error is None:
            return
        for name, parameter in signature(type(self)).parameters.items():
            if name == "params" or name not in group:
                continue
            if str(self._fault({**options, name: parameter.default})) == str(error):
                continue  # it is another option
            value, default = group[name], parameter.default
            is_numeric = isinstance(default, Real) and not isinstance(default, bool)
            if is_numeric and callable(value):
                more = "" if name == "lr" else f", param={name!r}"
                way = f"lr_scheduler.ScheduleLR(optimizer, schedule{more})"
                raise NotANumberError(f"{name} must be a number; {way} has it follow a schedule") from None
            words = str(error) if isinstance(error, ValueError) else f"Invalid {name} value: {value}"
            if is_numeric and not isinstance(value, Real):
                raise NotANumberError(f"{words}; {name} must be a number, not a {type(value).__name__}") from None
            if not isinstance(error, ValueError):
                raise ValueError(words) from error
        if isinstance(error, ValueError):  # it names the option
            raise error
        raise ValueError(f"Invalid options: {error}") from error

    def _fault(self, group: Mapping[str, Any]) -> Exception | None:
        """Return the error of a group's options, or None."""
        try:
            self.flags(group)
            self.validate(group)
            for name, value in self.hyper(group).items():
                if not -LARGEST_FLOAT32 <= value <= LARGEST_FLOAT32:
                    return OverflowError(f"{name} is {value}")
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            return error
        return None

    def _rates(self) -> dict[int, Tensor]:
        """Return the learning rates that are tensors, by number of the group."""
        groups = enumerate(self.param_groups)
        return {number: lr for number, group in groups if isinstance(lr := group.get("lr"), Tensor)}

    def _knows(self, name: str) -> bool:
        """Return whether a group may have this option: one of the rule, or an entry that a schedule adds."""
        kind, _, option = name.partition("_")
        return name in self.defaults or (
            kind in ("initial", "max", "min", "base") and (option in self.defaults or option in ("momentum", "beta1"))
        )

    def _params(self) -> list[Parameter]:
        return [param for group in self.param_groups for param in group["params"]]

    def _flags(self) -> list[Flags]:
        """Return the flags of each group."""
        return [
            tuple(sorted({**self.flags(on_host(group)), "maximize": self._flag(group, "maximize")}.items()))
            for group in self.param_groups
        ]

    @abstractmethod
    def _rebuild(self) -> None: ...


def on_host(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with numbers in place of tensors on the device."""
    return {**group, "lr": 1.0} if isinstance(group.get("lr"), Tensor) else group


def _names_and_params(group: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Return the names of a group's parameters, from pairs or from `param_names`, if any, and the parameters."""
    params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
    pairs = [param for param in params if isinstance(param, tuple)]
    if pairs and len(pairs) < len(params):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise TypeError("a named parameter must be a pair of a name and a Parameter")
    names = [pair[0] for pair in pairs] or list(group.get("param_names", ()))
    if names and (len(names) != len(params) or len(set(names)) < len(names)):
        raise ValueError(f"each parameter needs a name of its own, not {names}")
    return names, [pair[1] for pair in pairs] or params
