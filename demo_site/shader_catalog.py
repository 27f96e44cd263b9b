"""Every shader of the library: its WGSL, what it says of itself, and what it becomes for each target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path
from pydantic import BaseModel

import optirs_web as ow

from ..optim import Optimizer
from ..runtime.kernels import Kernel, cooperative, elementwise
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, SettleKernel, UpdateKernel
from ..runtime.rules import Rule
from ..wgsl import link, package_loader, print_wgsl, syntax
from ..wgsl.lints import is_map_module
from ..wgsl.print_c import print_c
from ..wgsl.print_python import print_python
from ..wgsl.print_wgsl import print_expression
from .errors import ApiError, documented

__all__ = ["shader_routes"]

_KINDS = {
    "optimizers": "optimizer",
    "schedules": "schedule",
    "transforms": "gradient transform",
    "arena": "average or projection",
    "elementwise": "map function",
    "kernels": "cooperative kernel",
    "lib": "library",
}
_SCALARS = {"f32", "i32", "u32"}


class ShaderInfo(BaseModel):
    """A file of shaders. `formula` is text in Unicode; `flags` are its overrides."""

    name: str
    folder: str
    kind: str
    formula: str
    flags: list[str]


class Variant(BaseModel):
    """One kernel that is made of a file: the texts by target, null where a library call takes its place."""

    name: str
    targets: dict[str, str | None]


class Shader(ShaderInfo):
    """A file with its text. `targets` are those of the first variant."""

    source: str
    imports: list[str]
    targets: dict[str, str | None]
    variants: list[Variant]


shader_routes = APIRouter(prefix="/api/shaders", tags=["shaders"])


@shader_routes.get("", responses=documented())
def list_shaders() -> list[ShaderInfo]:
    """All shaders, by folder and name."""
    return [_info(folder, name) for folder, name in _every_shader()]


@shader_routes.get("/{folder}/{name}", responses=documented(404))
def get_shader(folder: Annotated[str, Path()], name: Annotated[str, Path()]) -> Shader:
    """One shader with its translations."""
    if (folder, name) not in _every_shader():
        raise ApiError(404, "no_such_shader", f"There is no shader '{folder}/{name}'.")
    return _shader(folder, name)


@cache
def _every_shader() -> tuple[tuple[str, str], ...]:
    root = files("optirs_web.shaders")
    return tuple(
        (folder, name.removesuffix(".wgsl"))
        for folder in _KINDS
        for name in sorted(one.name for one in root.joinpath(folder).iterdir())
        if name.endswith(".wgsl")
    )


def _source(folder: str, name: str) -> str:
    return files("optirs_web.shaders").joinpath(folder, f"{name}.wgsl").read_text("utf-8")


def _info(folder: str, name: str) -> ShaderInfo:
    module = package_loader()((folder, name))
    flags = [one.name for one in module.declarations if isinstance(one, syntax.Override)]
    return ShaderInfo(name=name, folder=folder, kind=_KINDS[folder], formula=_formula(folder, name), flags=flags)


def _formula(folder: str, name: str) -> str:
    """The comment at the head of the file, and what it computes, where that can be said in a few lines."""
    comment = []
    for line in _source(folder, name).splitlines():
        if not line.startswith("//"):
            break
        comment.append(line.removeprefix("//").removeprefix(" "))
    formulas = {"optimizers": _optimizer_formulas, "elementwise": _map_formulas}.get(folder)
    return "\n\n".join(filter(None, ("\n".join(comment), formulas(name) if formulas else "")))


def _optimizer_formulas(rule: str) -> str:
    """The indented lines in the docstring of the first optimizer with that rule, or of the one that has its name."""
    for name in ow.optim.__all__:
        one = getattr(ow.optim, name)
        if inspect.isclass(one) and issubclass(one, Optimizer):
            if rule not in (name.lower(), getattr(getattr(one, "rule", None), "name", None)):
                continue
            text = (inspect.getdoc(one) or "").partition("\nArgs:")[0]
            lines = [line for line in text.splitlines() if line.startswith("    ")]
            if lines:
                return inspect.cleandoc("\n".join(lines))
    return ""


def _map_formulas(name: str) -> str:
    """The functions that are one expression."""
    formulas = []
    for function in _functions(name):
        statements = function.body.statements
        if len(statements) == 1 and isinstance(statements[0], syntax.Return) and statements[0].value is not None:
            arguments = ", ".join(one.name for one in function.parameters)
            formulas.append(f"{function.name.rstrip('_')}({arguments}) = {print_expression(statements[0].value)}")
    return "\n".join(formulas)


@cache
def _shader(folder: str, name: str) -> Shader:
    module = package_loader()((folder, name))
    imports = ["::".join(one.path) for one in module.declarations if isinstance(one, syntax.Import)]
    variants = list(_variants(folder, name))
    return Shader(
        **_info(folder, name).model_dump(),
        source=_source(folder, name),
        imports=imports,
        targets=variants[0].targets,
        variants=variants,
    )


def _variants(folder: str, name: str) -> Iterator[Variant]:
    if folder == "optimizers":
        rule = Rule(name)
        yield _variant("update", UpdateKernel.of(rule, ()))
        yield _variant("advance", AdvanceKernel.of(rule, (), False))
        if rule.measures:
            yield _variant("measure", MeasureKernel.of(rule, ()))
            yield _variant("settle", SettleKernel.of(rule, ()))
    elif folder == "kernels":
        yield _variant(name, cooperative(name))
    elif folder == "elementwise":
        for function in _map_functions(name):
            operands = ("tensor",) * sum(one.name != "index" for one in function.parameters)
            yield _variant(function.name.rstrip("_"), elementwise(name, function.name, operands, 0))
    else:
        linked = link(package_loader()((folder, name)))
        yield Variant(name=name, targets={target: one.of_module(linked) for target, one in _TARGETS.items()})


def _functions(name: str) -> list[syntax.Function]:
    module = package_loader()(("elementwise", name))
    return [one for one in module.declarations if isinstance(one, syntax.Function)]


def _map_functions(name: str) -> list[syntax.Function]:
    """Those that take scalars and give one, or a bool if there are none; first those that do not serve another one."""
    source = _source("elementwise", name)

    def are_scalars(*type_names: syntax.TypeName | None) -> bool:
        return all(one is not None and one.name in _SCALARS for one in type_names)

    taking = [one for one in _functions(name) if are_scalars(*(parameter.type_name for parameter in one.parameters))]
    functions = [one for one in taking if are_scalars(one.return_type_name)] or taking
    return sorted(functions, key=lambda one: source.count(f"{one.name}(") > 1)


def _variant(name: str, kernel: Kernel) -> Variant:
    return Variant(name=name, targets={target: one.of_kernel(kernel) for target, one in _TARGETS.items()})


class _Target(NamedTuple):
    """A language: how a kernel is printed in it, and how a module that only helps; None where it is not."""

    of_kernel: Callable[[Kernel], str | None]
    of_module: Callable[[syntax.Module], str | None]


def _numpy_of_kernel(kernel: Kernel) -> str | None:
    # A cooperative kernel has no map function: on array targets a library call takes its place.
    module = getattr(kernel, "map_module", None)
    return print_python(module, "numpy") if module is not None else None


def _numpy_of_module(module: syntax.Module) -> str | None:
    return print_python(module, "numpy") if is_map_module(module) else None


_TARGETS = {
    "wgsl": _Target(lambda kernel: kernel.wgsl("tint"), print_wgsl),
    "numpy": _Target(_numpy_of_kernel, _numpy_of_module),
    "opencl": _Target(lambda kernel: print_c(kernel.module, "opencl"), lambda module: None),
    "cuda": _Target(lambda kernel: print_c(kernel.module, "cuda"), lambda module: None),
}
"""What the page shows beside the source, in this order; it has their titles in LANGUAGES of ``shaders.js``."""
