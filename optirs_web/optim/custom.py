"""Optimizers from a user's own WGSL."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from inspect import Parameter as Argument, Signature
from numbers import Real
from pathlib import Path
from typing import Any, Unpack

from ..errors import ShaderError
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, RuleKernel, SettleKernel, UpdateKernel
from ..wgsl import rule_shell
from ..wgsl.lints import lint
from ..wgsl.slot_storage import is_largest
from .optimizer import Optimizer, Options, Params, Rule

__all__ = ["from_wgsl"]

_TAKEN = frozenset(("name", "over_all", "param_names", "params", "self", "source", *Options.__annotations__))
"""Names of options that every optimizer has, or that are arguments of `from_wgsl`."""


def from_wgsl(
    source: str | os.PathLike[str], *, name: str | None = None, over_all: bool = False, **defaults: Any
) -> type[Optimizer]:
    """Make an optimizer class from a rule in WGSL, which runs on every device as the library's own do.

    The rule declares `struct Hyper`, `struct Updated { param: f32, state: State }`, and

        fn update(param: f32, grad: f32, state: State, h: Hyper, s: Scalars) -> Updated

    It may omit parameters that it does not need, and `struct State` if it keeps nothing per element. With
    `struct Scalars { step: f32 }` the tensor's steps are counted in `s.step`, from 1. ``shaders/README.md`` describes
    `advance`, which makes other scalars, and `struct Measured` with `measure` and `settle`. State begins at zero.

    Args:
        source: WGSL, or the path of a file with it. It may import from the library: `import package::lib::math::exp;`.
        name: of the class; by default that of the file, or "Rule".
        over_all: the measures of the rule are summed over all tensors, not over each.
        **defaults: the options and their default values. Each member of Hyper is one of them, or derived from one:
            `beta1` from `betas`, `one_minus_X` and `log_X` from X. So is each override.

    Returns:
        A subclass of `Optimizer`, to be called with parameters and options.

    Raises:
        ShaderError: the WGSL is wrong, with file, line and column; or it lacks a part.
        TypeError: a member of Hyper or an override is no option, or has a name that is taken; `betas` are no numbers.
        OSError: the file cannot be read.

    Example:
        >>> import optirs_web as ow
        >>> Sign = ow.optim.from_wgsl('''
        ...     struct Hyper { lr: f32 }
        ...     struct Updated { param: f32 }
        ...     fn update(param: f32, grad: f32, h: Hyper) -> Updated { return Updated(param - h.lr * sign(grad)); }
        ... ''', lr=0.1)
        >>> w = ow.Parameter([1.0, 1.0], device="cpu")
        >>> Sign([w], lr=0.5).step(grads=[[3.0, -0.1]])
        >>> w.tolist()
        [0.5, 1.5]
    """
    text, title = _read(source)
    rule = Rule(name or title, text, over_all)
    if not rule.hyper:
        raise ShaderError("struct Hyper needs at least one member", file=rule.name, line=1, column=1)
    _check(rule)
    betas = defaults.get("betas", (0.9,))
    if not (isinstance(betas, (tuple, list)) and betas and all(isinstance(beta, Real) for beta in betas)):
        raise TypeError(f"betas must be a tuple of numbers, such as betas=(0.9,), not {betas!r}")
    members = {member: _option_of(member, defaults) for member in (*rule.hyper, *rule.flags)}
    reserved = _TAKEN.intersection((*members, *members.values(), *defaults)) | ({"betas"} & members.keys())
    if reserved:
        raise TypeError(f"a rule cannot have an option or a member of Hyper called '{min(reserved)}': use another name")
    for member, option in members.items():
        if option not in defaults:
            raise TypeError(f"'{member}' of the rule has no option; pass its default, such as {member}=0.0")
        if option == "betas" and not 1 <= int(member.rpartition("beta")[2]) <= len(betas):
            raise TypeError(f"'{member}' of the rule is not among the betas {betas!r}")

    class Rules(Optimizer):
        __doc__ = f"The rule '{rule.name}'."
        __signature__ = Signature(
            [
                Argument("params", Argument.POSITIONAL_OR_KEYWORD),
                *(
                    Argument(option_name, Argument.KEYWORD_ONLY, default=value)
                    for option_name, value in defaults.items()
                ),
                Argument("options", Argument.VAR_KEYWORD),
            ]
        )

        def __init__(self, params: Params, **options: Unpack[Options]) -> None:
            own = {key: options.pop(key, value) for key, value in defaults.items()}  # type: ignore[misc]
            super().__init__(params, own, **options)

        def __reduce_ex__(self, protocol: Any) -> Any:
            """Pickle the text of the rule, from which the class is made again, as it is in no module."""
            if type(self) is not Rules:
                return super().__reduce_ex__(protocol)
            return _unpickled, (text, rule.name, over_all, defaults), self.__getstate__()

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            copied = memo[id(self)] = type(self).__new__(type(self))
            copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
            return copied

    Rules.rule = rule
    Rules.beta_count = len(defaults.get("betas", ()))
    Rules.scalars_in_state = rule.scalars
    Rules.__name__ = Rules.__qualname__ = rule.name
    return Rules


def _unpickled(text: str, name: str, over_all: bool, defaults: Mapping[str, Any]) -> Optimizer:
    kind = from_wgsl(text, name=name, over_all=over_all, **defaults)
    return kind.__new__(kind)


def _check(rule: Rule) -> None:
    """Compile the kernels of a rule, and raise the ShaderError that a step would raise."""
    reserved = [member for member in rule.state if member in rule_shell.RESERVED or is_largest(member)]
    if reserved:
        message = f"State cannot have a member '{min(reserved)}': use another name"
        raise ShaderError(message, file=rule.name, line=1, column=1)
    kernels: list[RuleKernel] = [UpdateKernel.of(rule, ()), AdvanceKernel.of(rule, (), False)]
    if rule.measures:
        kernels += [MeasureKernel.of(rule, ()), SettleKernel.of(rule, ())]
    for kernel in kernels:
        lint(kernel.map_module)
        _ = kernel.module


def _read(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the text of the rule, and the name of its file or "Rule"."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source, "Rule"
    path = Path(source)
    return path.read_text("utf-8"), path.stem


def _option_of(member: str, options: Mapping[str, Any]) -> str:
    for prefix in ("one_minus_", "log_", "use_"):
        if member not in options:
            member = member.removeprefix(prefix)
    is_beta = member not in options and member.removeprefix("beta").isdigit()
    return "betas" if is_beta else member
