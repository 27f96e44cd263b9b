"""The shaders of the library and their kernels by name, and the translations of kernels for each target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..errors import OptirsError
from ..ops.row_kernels import named_row_kernels
from ..runtime.form_kernels import form_kernel
from ..runtime.kernels import Kernel, cooperative
from ..runtime.map_kernels import elementwise
from ..runtime.option_kernels import OptionKernel
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, SettleKernel, UpdateKernel
from ..runtime.rules import Rule
from ..translations import PYTHON_DIALECTS, NoTextError, readable, translate
from ..wgsl import link, package_loader, print_wgsl, syntax
from ..wgsl.lints import is_map_module
from ..wgsl.print_python import print_python

__all__ = ["KINDS", "Name", "Translation", "every_shader", "functions", "source", "translation", "variants"]

KINDS = {
    "optimizers": "optimizer",
    "schedules": "schedule",
    "transforms": "gradient transform",
    "arena": "average or projection",
    "elementwise": "map function",
    "rows": "row kernel",
    "kernels": "cooperative kernel",
    "lib": "library",
}
"""The kind of the shaders in each folder."""

_SCALARS = {"f32", "i32", "u32"}


class Name(NamedTuple):
    """The name of a text: the file, the kernel that is made of it, and the target."""

    folder: str
    file: str
    variant: str
    target: str


class Translation(NamedTuple):
    """A text, or None where there is none; the note says why, or how to get a better text."""

    text: str | None
    note: str


@cache
def every_shader() -> tuple[tuple[str, str], ...]:
    """Return the folder and the name of each file."""
    root = files("optirs_web.shaders")
    return tuple(
        (folder, name.removesuffix(".wgsl"))
        for folder in KINDS
        for name in sorted(file.name for file in root.joinpath(folder).iterdir())
        if name.endswith(".wgsl")
    )


def source(folder: str, name: str) -> str:
    """Return the text of a file."""
    return files("optirs_web.shaders").joinpath(folder, f"{name}.wgsl").read_text("utf-8")


@cache
def variants(folder: str, name: str) -> Mapping[str, Kernel | syntax.Module]:
    """Return the kernels that are made of a file; for a file of helpers its module, linked with its imports."""
    return dict(_variants(folder, name))


def translation(name: Name) -> Translation:
    """Return a kernel for a target; a note says what is not installed, or why there is no text.

    Raises:
        KeyError: there is no such kernel.
    """
    made_of = variants(name.folder, name.file)[name.variant]
    try:
        if isinstance(made_of, syntax.Module):
            return Translation(_of_module(made_of, name.target), "")
        return Translation(*readable(translate(made_of, name.target)))
    except OptirsError as error:
        return Translation(None, str(error))


def _variants(folder: str, name: str) -> Iterator[tuple[str, Kernel | syntax.Module]]:
    if folder == "optimizers":
        rule = Rule(name)
        yield "update", UpdateKernel.of(rule, ())
        yield "advance", AdvanceKernel.of(rule, (), False)
        if rule.measures:
            yield "measure", MeasureKernel.of(rule, ())
            yield "settle", SettleKernel.of(rule, ())
    elif folder == "rows":
        yield from (
            (form.name, form_kernel(form)) for form in named_row_kernels().values() if form.file == (folder, name)
        )
    elif folder == "kernels":
        yield name, cooperative(name)
    elif (folder, name) == ("schedules", "plateau"):
        yield name, OptionKernel.of(name)
    elif folder == "elementwise":
        for function in _map_functions(name):
            operands = ("tensor",) * sum(param.name != "index" for param in function.parameters)
            yield function.name.rstrip("_"), elementwise(name, function.name, operands, 0)
    else:
        yield name, link(package_loader()((folder, name)))


def functions(name: str) -> list[syntax.Function]:
    """Return the functions of a file of map functions."""
    module = package_loader()(("elementwise", name))
    return [declaration for declaration in module.declarations if isinstance(declaration, syntax.Function)]


def _map_functions(name: str) -> list[syntax.Function]:
    """Return the functions of scalars to a scalar, or to a bool if there are none; helpers of others come last."""
    text = source("elementwise", name)

    def are_scalars(*type_names: syntax.TypeName | None) -> bool:
        return all(type_name is not None and type_name.name in _SCALARS for type_name in type_names)

    taking = [
        function
        for function in functions(name)
        if are_scalars(*(parameter.type_name for parameter in function.parameters))
    ]
    mapping = [function for function in taking if are_scalars(function.return_type_name)] or taking
    return sorted(mapping, key=lambda function: text.count(f"{function.name}(") > 1)


def _of_module(module: syntax.Module, target: str) -> str:
    if target == "wgsl":
        return print_wgsl(module, "tint")  # naga knows no subgroup matrices
    if target in PYTHON_DIALECTS and is_map_module(module):
        return print_python(module, PYTHON_DIALECTS[target])
    raise NoTextError("this file is not a kernel: its functions are used by the files that import it")
