"""The names that ``optirs-web shader`` accepts, and how to make a kernel of each with its flags and its rule's part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import click

from ..errors import ShaderError
from ..kernel import Kernel as Form
from ..lower.maps import SpanForm
from ..lower.shader import Layout
from ..ops.row_kernels import named_row_kernels
from ..ops.window_kernels import named_window_kernels
from ..runtime.form_kernels import form_kernel
from ..runtime.kernels import Kernel, cooperative
from ..runtime.map_kernels import elementwise, gather, join, place
from ..runtime.option_kernels import OptionKernel
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
            parts = [known for known in PARTS if known in ("update", "advance") or rule.has(known)]
            message = f"'{name}' has no '{part}'; its parts are {', '.join(parts)}"
            raise click.BadParameter(message, param_hint="--part")
        return PARTS[part](rule, pairs)

    return Source("optimizers", name, make, preset)


def _cooperative(name: str) -> Source:
    return Source("kernels", name, lambda flags, _: cooperative(name, **flags), {})


def _kernel_of_form(form: Form, layout: Layout) -> Source:
    return Source(*form.file, lambda flags, _: form_kernel(form, layout, **flags), {})


def _map_function(file: str, function: syntax.Function) -> Source:
    operands = ("tensor",) * sum(param.name != "index" for param in function.parameters)
    return Source("elementwise", file, lambda flags, _: elementwise(file, function.name, operands, 0), {})


def _stems(folder: str) -> list[str]:
    names = (file.name for file in files("optirs_web.shaders").joinpath(folder).iterdir())
    return sorted(name.removesuffix(".wgsl") for name in names if name.endswith(".wgsl"))


def map_files() -> list[str]:
    """Return the names of the files of elementwise functions."""
    return _stems("elementwise")


def map_functions(file: str) -> list[syntax.Function]:
    """Return the functions of a file that take and return scalars, or a bool; the others are helpers."""
    module = package_loader()(("elementwise", file))
    functions = [declaration for declaration in module.declarations if isinstance(declaration, syntax.Function)]
    return [
        function
        for function in functions
        if {*(parameter.type_name.name for parameter in function.parameters)} <= _SCALARS
        and function.return_type_name is not None
        and function.return_type_name.name in {*_SCALARS, "bool"}
    ]


def _classes() -> dict[str, Source | None]:
    """Return the rule of each optimizer class by name, with the flags that it sets; None unless it has exactly one."""
    from ..optim.wrapper import Wrapper
    from .optimizers import all_optimizers

    rules: dict[str, Source | None] = {}
    for name, class_ in all_optimizers().items():
        rule = None if issubclass(class_, Wrapper) else getattr(class_, "rule", None)
        rules[name] = rule and _rule(
            rule.name, {flag: getattr(class_, flag) for flag in rule.flags if hasattr(class_, flag)}
        )
    return rules


def sources() -> dict[str, dict[str, Source]]:
    """Return the sources of all names that the command accepts, by kind."""
    functions = {
        function.name.rstrip("_"): _map_function(file, function)
        for file in map_files()
        for function in map_functions(file)
    }
    return {
        "optimizers": {name: _rule(name, {}) for name in _stems("optimizers")},
        "row kernels": {name: _kernel_of_form(form, "adjacent") for name, form in named_row_kernels().items()},
        "kernels over windows": {
            name: _kernel_of_form(form, "windows") for name, form in named_window_kernels().items()
        },
        "kernels": {name: _cooperative(name) for name in _stems("kernels")},
        "schedules": {"plateau": Source("schedules", "plateau", lambda *_: OptionKernel.of("plateau"), {})},
        "elementwise functions": functions,
        "tables and parts": {
            "gather": Source("elementwise", "indexing", lambda *_: gather("f32", 2, wraps=True), {}),
            "join": Source("elementwise", "indexing", lambda *_: join("f32", 2, is_strided=True), {}),
            "place": Source("elementwise", "indexing", lambda *_: place("f32", 2, (SpanForm((0,)),)), {}),
        },
    }


def find_source(name: str) -> Source:
    """Return the source of this name, or of the optimizer class of this name, ignoring case.

    Raises:
        click.BadParameter: there is none.
    """
    by_kind = sources()
    everything = {known_name: source for group in by_kind.values() for known_name, source in group.items()}
    if name.lower() in everything:
        return everything[name.lower()]
    classes = _classes()
    for class_name, source in classes.items():
        if class_name.lower() == name.lower():
            if source is None:
                raise click.BadParameter(f"{class_name} has no rule of its own, or several", param_hint="NAME")
            return source
    hint = similar(name, [*everything, *classes])
    raise click.BadParameter(
        f"there is no shader '{name}'{hint}; `optirs-web shader` lists the names", param_hint="NAME"
    )


def of_16_bits(source: Source, kernel: Kernel, elements: str) -> Kernel | None:
    """Return the kernel over tensors of "f16", "float16" or "bfloat16" instead of f32; None if it takes none."""
    kinds = tuple(elements if binding.type == "array<f32>" else "" for binding in kernel.bindings)
    if source.folder == "optimizers" or not any(kinds):
        return None
    kernel_of_16_bits = packed(kernel, kinds)
    try:
        kernel_of_16_bits.wgsl()
    except ShaderError:  # it does not read them element by element
        return None
    return kernel_of_16_bits
