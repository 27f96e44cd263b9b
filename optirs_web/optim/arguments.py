"""The arguments of optimizers: what was given for them, and what they mean where most mean the same by them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ..errors import nearest

__all__ = ["documented", "given", "instead_of"]

Class = TypeVar("Class", bound=type[Any])

_MEANINGS = {
    "params": 'parameters, or dicts with "params" and options of their own.',
    "lr": "learning rate; a number, or a tensor of one element.",
    "betas": "decay of the averages of the gradient and of its square: all numbers, or all tensors of one element, "
    "which are read when they are given.",
    "eps": "added to the root.",
    "weight_decay": "L2 penalty.",
    "amsgrad": "divide by the largest exp_avg_sq so far.",
    "decoupled_weight_decay": "shrink the parameter by lr weight_decay param and leave the gradient alone.",
    "**options": "see `Options`.",
    "ValueError": "an option is out of range.",
}
_SECTION = r"(?:^ *{}:\n((?:^ +\S.*\n)+)\n)?"
_SECTIONS = f"{_SECTION.format('Args')}{_SECTION.format('Raises')}^( *)Example:"


def given(names: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the rule among the `locals()` of a constructor: its arguments, in their order."""
    return {name: names[name] for name in names if name not in ("self", "params", "options", "__class__")}


def instead_of(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown option: the one that was meant, or all."""
    known = sorted(known)
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"


def documented(cls: Class) -> Class:
    """Complete Args and Raises of the docstring by what most classes mean, or `meanings` of the class or its base."""
    doc = cls.__doc__ or ""  # there are no docstrings with -OO, and short ones in a page
    found = re.search(_SECTIONS, doc, re.MULTILINE) if "Example:" in doc else None
    if found:
        args, raises, margin = found.groups("")
        own = dict(re.findall(rf"^{margin}    (\S+): (.*(?:\n{margin}     .*)*)", args + raises, re.MULTILINE))
        cls.meanings = {**getattr(cls, "meanings", {}), **own}
        code = cls.__init__.__code__  # it may be that of the base
        names = [*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount], "**options"]
        errors = dict.fromkeys(["ValueError", *(name for name in own if name not in names)])
        meanings = {**_MEANINGS, **cls.meanings}
        lines = []
        for title, section in (("Args", names), ("Raises", errors)):
            lines += [f"{margin}{title}:", *(f"{margin}    {name}: {meanings[name]}" for name in section), ""]
        cls.__doc__ = doc[: found.start()] + "\n".join([*lines, ""]) + doc[found.start(3) :]
    return cls
