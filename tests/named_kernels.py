"""The kernels of every file of ``shaders`` that has one of its own: each kernel, map function and part of a rule.

Each comes as it is by default, and with each of its flags turned over.
"""

from collections.abc import Iterator
from importlib.resources import files

from optirs_web.cli.shader_names import map_functions
from optirs_web.lower.maps import SpanForm
from optirs_web.ops.row_kernels import named_row_kernels
from optirs_web.ops.window_kernels import named_window_kernels
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.runtime.kernels import Kernel, cooperative
from optirs_web.runtime.map_kernels import elementwise, gather, join, place
from optirs_web.runtime.rule_kernels import AdvanceKernel, MeasureKernel, SettleKernel, UpdateKernel
from optirs_web.runtime.rules import Rule
from optirs_web.wgsl import package_loader
from optirs_web.wgsl.syntax import Literal, Override

__all__ = ["FOLDERS", "named_kernels"]

FOLDERS = ["elementwise", "kernels", "optimizers", "rows"]
_STRIDED = ("add", "arange", "greater")
_PARTS = {"measure": MeasureKernel.of, "settle": SettleKernel.of}


def named_kernels(folder: str) -> Iterator[tuple[str, Kernel]]:
    """Those of a folder of ``shaders``, with a name for each."""
    for path in sorted(files("optirs_web.shaders").joinpath(folder).iterdir(), key=lambda file: file.name):
        if path.name.endswith(".wgsl"):
            name = path.name.removesuffix(".wgsl")
            module = package_loader()((folder, name))
            yield from _OF[folder](name, module)


def _flags(module) -> Iterator[dict[str, bool]]:
    yield {}
    for declaration in module.declarations:
        if (
            isinstance(declaration, Override)
            and isinstance(declaration.value, Literal)
            and isinstance(declaration.value.value, bool)
        ):
            yield {declaration.name: not declaration.value.value}


def _map_functions(file, module):
    for function in map_functions(file):
        operands = ("tensor",) * sum(param.name != "index" for param in function.parameters)
        yield function.name, elementwise(file, function.name, operands, 3 * (function.name in _STRIDED))
    if file == "indexing":
        yield "gather", gather("f32", 2, wraps=True)
        for is_strided in (False, True):
            yield f"join {is_strided}", join("f32", 2, is_strided=is_strided)
        for span in SpanForm((0,)), SpanForm((1,), is_spaced=True), SpanForm((0, 1), has_steps=True):
            yield f"place {span}", place("f32", 2, (span,))


def _cooperative(name, module):
    for flags in _flags(module):
        yield f"{name} {flags}", cooperative(name, **flags)


def _rows(file, _):
    for form in named_row_kernels().values():
        if form.file == ("rows", file):
            yield form.name, form_kernel(form)
    for form in named_window_kernels().values():
        if form.file == ("rows", file):
            yield form.name, form_kernel(form, "windows")


def _rule(name, module):
    rule = Rule(name)
    for flags in _flags(module):
        yield f"{name} update {flags}", UpdateKernel.of(rule, tuple(flags.items()))
    yield f"{name} advance", AdvanceKernel.of(rule, (), False)
    for part, make in _PARTS.items():
        if rule.has(part):
            yield f"{name} {part}", make(rule, ())


_OF = {"elementwise": _map_functions, "kernels": _cooperative, "optimizers": _rule, "rows": _rows}
