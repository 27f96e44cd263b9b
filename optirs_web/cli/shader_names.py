"""What ``optirs-web shader`` can be asked for: every kernel by a name, with its flags and the parts of its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import click

from ..errors import ShaderError
from ..runtime.kernels import Kernel, cooperative, elementwise
from ..runtime.packed_kernels import packed
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, SettleKernel, UpdateKernel
from ..runtime.rules import Rule
from ..wgsl import package_loader, syntax
from .misspelt import similar

__all__ = ["PARTS", "Flags", "Source", "find_source", "map_files", "map_functions", "of_16_bits", "sources"]

Flags = Mapping[str, bool | float]

_SCALARS = {"f32", "i32", "u32"}


class Source(NamedTuple):
    """A file in ``shaders`` and how to make a kernel of it, given its overrides and the part of a rule."""

    folder: str
    file: str
    make: Callable[[Flags, str], Kernel]
    preset: Flags


PARTS: dict[str, Callable[[Rule, Any], Kernel]] = {
    "update": UpdateKernel.of,
    "advance": lambda rule, flags: AdvanceKernel.of(rule, flags, False),
    "measure": MeasureKernel.of,
    "settle": SettleKernel.of,
}


def _rule(name: str, preset: Flags) -> Source:
    def make(flags: Flags, part: str) -> Kernel:
        pairs: Any = tuple(sorted({**preset, **flags}.items()))
        rule = Rule(name)
        if part not in ("update", "advance") and not rule.has(part):
            raise click.BadParameter(f"'{name}' has no '{part}'", param_hint="--part")
        return PARTS[part](rule, pairs)

    return Source("optimizers", name, make, preset)


def _cooperative(name: str) -> Source:
    return Source("kernels", name, lambda flags, _: cooperative(name, **flags), {})


def _map_function(file: str, function: syntax.Function) -> Source:
    operands = ("tensor",) * sum(one.name != "index" for one in function.parameters)
    return Source("elementwise", file, lambda flags, _: elementwise(file, function.name, operands, 0), {})


def _stems(folder: str) -> list[str]:
    names = (one.name for one in files("optirs_web.shaders").joinpath(folder).iterdir())
    return sorted(name.removesuffix(".wgsl") for name in names if name.endswith(".wgsl"))


def map_files() -> list[str]:
    """The files of elementwise functions."""
    return _stems("elementwise")


def map_functions(file: str) -> list[syntax.Function]:
    """Those of a file that take and give scalars; the others only help."""
    module = package_loader()(("elementwise", file))
    functions = [one for one in module.declarations if isinstance(one, syntax.Function)]
    return [one for one in functions if all(p.type_name.name in _SCALARS for p in one.parameters)]


def _classes() -> dict[str, Source | None]:
    """The rule of each optimizer by the name of the class, with the flags that it sets; None if it has not just one."""
    from ..optim.wrapper import Wrapper
    from .optimizers import all_optimizers

    found: dict[str, Source | None] = {}
    for name, one in all_optimizers().items():
        rule = None if issubclass(one, Wrapper) else getattr(one, "rule", None)
        found[name] = rule and _rule(rule.name, {flag: getattr(one, flag) for flag in rule.flags if hasattr(one, flag)})
    return found


def sources() -> dict[str, dict[str, Source]]:
    """Every name that can be asked for, by kind."""
    functions = {
        function.name.rstrip("_"): _map_function(file, function)
        for file in map_files()
        for function in map_functions(file)
    }
    return {
        "optimizers": {name: _rule(name, {}) for name in _stems("optimizers")},
        "kernels": {name: _cooperative(name) for name in _stems("kernels")},
        "elementwise functions": functions,
    }


def find_source(name: str) -> Source:
    """The one of that name, or of the class of that name; case does not matter.

    Raises:
        click.BadParameter: there is none.
    """
    found = sources()
    everything = {one: source for group in found.values() for one, source in group.items()}
    if name.lower() in everything:
        return everything[name.lower()]
    classes = _classes()
    for one, source in classes.items():
        if one.lower() == name.lower():
            if source is None:
                raise click.BadParameter(f"{one} has no rule of its own, or several", param_hint="NAME")
            return source
    hint = similar(name, [*everything, *classes])
    raise click.BadParameter(
        f"there is no shader '{name}'{hint}; `optirs-web shader` lists the names", param_hint="NAME"
    )


def of_16_bits(source: Source, kernel: Kernel, elements: str) -> Kernel | None:
    """The kernel over tensors of "f16", "float16" or "bfloat16" in place of f32; None if it takes none."""
    kinds = tuple(elements if one.type == "array<f32>" else "" for one in kernel.bindings)
    if source.folder == "optimizers" or not any(kinds):
        return None
    made = packed(kernel, kinds)
    try:
        made.wgsl()
    except ShaderError:  # it reads them otherwise than one by one
        return None
    return made
