"""The rules of optimizers; `rule_kernels` has their kernels.

A rule is a WGSL file of map functions over `Hyper`, `Scalars` and `State`; see ``shaders/README.md``. Its parts:

    advance              once per tensor, before anything else
    measure, settle      a sum over each tensor (or all), and what follows from it, once per tensor
    prepare, adapt       every element before that, where the optimizer's layout runs them
    update               every element
    measure_lines, settle_row, settle_column, settle_matrix   per row and column; see `wgsl.factored_shell`
    other names          on call, over every element of the tensors that have taken a step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ShaderError
from ..wgsl import (
    link,
    live_slots,
    package_loader,
    parse,
    syntax,
)
from ..wgsl.dependence import RULE_PARTS
from ..wgsl.line_lookup import LINE_STRUCTS
from ..wgsl.scopes import fail
from ..wgsl.shell import struct_of

if TYPE_CHECKING:
    from ..wgsl.transform_glue import Member

__all__ = ["KEPT", "Flags", "Rule", "Stage", "Stored"]

_STRUCTS = ("Hyper", "Scalars", "State", "Measured", *LINE_STRUCTS.values(), "LineMeasured")

Flags = tuple[tuple[str, Any], ...]
"""The overrides of a rule, and what else of a group decides its layout, sorted by name. `maximize` is not the
rule's: the gradient is negated for it."""

Stored = tuple[tuple[str, str], ...]
"""How slots are stored that are not float32: name and kind of `wgsl.slot_storage`; and how parameters are kept, as
"param" and kind of `wgsl.param_storage`."""


@dataclass(frozen=True)
class Stage:
    """A gradient transform in front of a rule; see `wgsl.transform_glue`.

    Attributes:
        name: the file in ``shaders/transforms``.
        options: the members of its struct that the host sets.
        over: what it measures: "all" tensors, each "tensor", each "row", or nothing.
        masked: it applies to some tensors only.
    """

    name: str
    options: tuple[str, ...] = ()
    over: str = ""
    masked: bool = False

    @property
    def members(self) -> int:
        """How many its struct has."""
        return len(_members(self.name))


@dataclass(frozen=True)
class Rule:
    """The update of an optimizer in WGSL, with the gradient transforms in front of it.

    Attributes:
        name: the file in ``shaders/optimizers``; or, with `text`, what to call it.
        text: a user's own WGSL.
        over_all: what it measures is summed over all tensors, not over each.
        stages: what the gradient goes through first.
        folder: where the file is.
    """

    name: str
    text: str | None = None
    over_all: bool = False
    stages: tuple[Stage, ...] = ()
    folder: str = "optimizers"

    def __post_init__(self) -> None:
        if self.text is not None:
            for function in ("Hyper", "Updated", "update"):
                if function not in self._declared:
                    raise ShaderError(f"a rule declares '{function}'", file=self.name, line=1, column=1)

    @property
    def _source(self) -> syntax.Module:
        return package_loader()((self.folder, self.name)) if self.text is None else _parse(self.text, self.name)

    @cached_property
    def _declared(self) -> frozenset[str]:
        named = (syntax.Function, syntax.StructDeclaration, syntax.Override)
        return frozenset(
            declaration.name for declaration in self._source.declarations if isinstance(declaration, named)
        )

    @cached_property
    def flags(self) -> frozenset[str]:
        """The names of its overrides."""
        return frozenset(
            declaration.name for declaration in self._source.declarations if isinstance(declaration, syntax.Override)
        )

    @property
    def measures(self) -> bool:
        """It has `measure` and `settle`."""
        return "measure" in self._declared

    def has(self, part: str) -> bool:
        """It has a function of that name."""
        return part in self._declared

    @cached_property
    def hyper(self) -> tuple[str, ...]:
        """The members of Hyper."""
        return self._members("Hyper")

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The members of Scalars; the step count if the rule declares none."""
        return self._members("Scalars") or ("step",)

    @cached_property
    def state(self) -> tuple[str, ...]:
        """The members of State, those among them too that some flags leave unused."""
        return self._members("State")

    def _members(self, struct: str) -> tuple[str, ...]:
        return tuple(member.name for member in struct_of(self.linked(("update",), ()), struct).members)

    def linked(self, functions: tuple[str, ...], flags: Flags, codecs: tuple[str, ...] = ()) -> syntax.Module:
        """The rule with these flags and what the functions reach; and functions of ``shaders/lib/storage.wgsl``."""
        return _link_rule(self, functions, tuple(flag for flag in flags if flag[0] in self.flags), codecs)

    @cached_property
    def transforms(self) -> tuple[Member, ...]:
        """The members of all transforms, one after the other."""
        return tuple(member for stage in self.stages for member in _members(stage.name))

    @cached_property
    def counters(self) -> dict[str, int]:
        """The counts that transforms keep from call to call: by name, the index of the member in `transforms`."""
        counters: dict[str, int] = {}
        first = 0
        for number, stage in enumerate(self.stages):
            names = [member.name for member in self.transforms[first : first + stage.members]]
            is_again = any(other.name == stage.name for other in self.stages[:number])
            for name in _COUNTERS.get(stage.name, ()):
                counters[f"{stage.name}{number if is_again else ''}_{name}"] = first + names.index(name)
            first += stage.members
        return counters

    @property
    def gathers(self) -> bool:
        """Gradients are accumulated over several calls."""
        return any(stage.name == "accumulate" for stage in self.stages)

    @property
    def gathering_part(self) -> str | None:
        """The part that stores what is gathered: the last one of a step that asks for the gradient.

        Raises:
            ShaderError: no part can, since one that only measures is the last.
        """
        asking = [part for part in _PARTS_WITH_GRAD if self.gathers and self._asks_for_grad((part,))]
        if asking and asking[-1] not in ("update", "prepare"):
            measuring = next(
                declaration
                for declaration in self._source.declarations
                if getattr(declaration, "name", "") == asking[-1]
            )
            raise fail(
                measuring.position,
                f"gradients cannot be accumulated for '{self.name}': '{asking[-1]}' is the last part that asks for "
                "'grad', and keeps none; let 'update' ask for it too, or 'prepare' alone, which puts it into State",
            )
        return asking[-1] if asking else None

    @property
    def first_measure(self) -> int | None:
        """The number of the transform that measures before `advance`: the first that measures, but not rows."""
        over = next(((number, stage.over) for number, stage in enumerate(self.stages) if stage.over), None)
        return over[0] if over is not None and over[1] != "row" else None

    def _asks_for_grad(self, functions: tuple[str, ...]) -> bool:
        return any(
            isinstance(declaration, syntax.Function)
            and declaration.name in functions
            and any(parameter.name == "grad" for parameter in declaration.parameters)
            for declaration in self._source.declarations
        )

    def slots(self, flags: Flags) -> tuple[str, ...]:
        """The members of State that the rule with these flags needs; the others do not exist."""
        return _live_slots(self, tuple(flag for flag in flags if flag[0] in self.flags))


KEPT = "accumulated"
"""The slot of the state that holds what was gathered since the last step; kernels call it `kept`."""

_PARTS_WITH_GRAD = ("prepare", "adapt", "measure", "measure_lines", "measure_lines_again", "update")
"""Those that may ask for the gradient, in their order. The last that does keeps what was gathered, or empties it."""

_COUNTERS = {"accumulate": ("calls", "gathered"), "add_noise": ("draw",)}


@cache
def _parse(text: str, name: str) -> syntax.Module:
    return parse(text, name)


@cache
def _link_rule(rule: Rule, functions: tuple[str, ...], flags: Flags, codecs: tuple[str, ...]) -> syntax.Module:
    # Whole structs, as the tables have them.
    roots = [*functions, *(struct for struct in _STRUCTS if struct in rule._declared)]
    source = rule._source
    if rule.stages:
        from ..wgsl.transform_glue import glue  # which only rules with transforms need

        joint = glue(rule.stages, {stage.name: _transform(stage.name) for stage in rule.stages})
        source = syntax.Module(source.file, source.enables, [*source.declarations, *joint.declarations])
        roots.append("Transforms")
        if rule._asks_for_grad(functions):
            stores = rule.gathering_part in functions
            roots.extend(["gather_gradient", "finish_gradient"] if stores else ["transform_gradient"])
    if codecs:
        needed = syntax.Import(syntax.Position(source.file, 1, 1), ("lib", "storage"), list(codecs))
        source = syntax.Module(source.file, source.enables, [needed, *source.declarations])
        roots.extend(codecs)
    return link(source, package_loader(), dict(flags), roots=roots)


@cache
def _live_slots(rule: Rule, flags: Flags) -> tuple[str, ...]:
    return live_slots(rule.linked(tuple(part for part in RULE_PARTS if rule.has(part)), flags))


def _transform(name: str) -> syntax.Module:
    return package_loader()(("transforms", name))


def _members(name: str) -> Sequence[Member]:
    """Those of the struct of a transform."""
    from ..wgsl.transform_glue import members, pascal

    return members(_transform(name), pascal(name))
