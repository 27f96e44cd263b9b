"""The arguments of optimizers' constructors, and the descriptions of those that most optimizers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ..errors import nearest

__all__ = ["documented", "instead_of", "rule_options"]

Class = TypeVar("Class", bound=type[Any])

_MEANINGS = {
    "params": 'parameters, or dicts with "params" and options of their own.',
    "lr": "learning rate; a number, or a tensor of one element.",
    "betas": "decay of the averages of the gradient and of its square: all numbers, or all tensors of one element, "
    "which are read when they are passed.",
    "eps": "added to the root.",
    "weight_decay": "L2 penalty.",
    "amsgrad": "divide by the largest exp_avg_sq so far.",
    "decoupled_weight_decay": "shrink the parameter by lr weight_decay param and leave the gradient alone.",
    "**options": "see `Options`.",
    "ValueError": "an option is out of range.",
}
_SECTION = r"(?:^ *{}:\n((?:^ +\S.*\n)+)\n)?"
_SECTIONS = f"{_SECTION.format('Args')}{_SECTION.format('Raises')}^( *)Example:"


def rule_options(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the rule from the `locals()` of a constructor: its arguments, in their order."""
    return {name: names[name] for name in names if name not in ("self", "params", "options", "__class__")}


def instead_of(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown option: the most similar known one, or all of them."""
    known = sorted(known)
    near = nearest(name, known)
    return f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"


def documented(cls: Class) -> Class:
    """Complete Args and Raises of a docstring by the shared descriptions, or `meanings` of the class or its base."""
    doc = cls.__doc__ or ""  # there are no docstrings with -OO
    sections = re.search(_SECTIONS, doc, re.MULTILINE) if "Example:" in doc else None
    if sections:
        args, raises, margin = sections.groups("")
        class_meanings = dict(
            re.findall(rf"^{margin}    (\S+): (.*(?:\n{margin}     .*)*)", args + raises, re.MULTILINE)
        )
        cls.meanings = {**getattr(cls, "meanings", {}), **class_meanings}
        code = cls.__init__.__code__  # it may be that of the base
        names = [*code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount], "**options"]
        errors = dict.fromkeys(["ValueError", *(name for name in class_meanings if name not in names)])
        meanings = {**_MEANINGS, **cls.meanings}
        text_lines = []
        for title, section in (("Args", names), ("Raises", errors)):
            text_lines += [f"{margin}{title}:", *(f"{margin}    {name}: {meanings[name]}" for name in section), ""]
        cls.__doc__ = doc[: sections.start()] + "\n".join([*text_lines, ""]) + doc[sections.start(3) :]
    return cls
