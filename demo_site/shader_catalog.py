"""The API of the library's shaders: their WGSL, their formulas, and their kernels for each target."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel

import optirs_web as ow

from ..optim import Optimizer
from ..translations import TARGETS, is_ours, missing_compiler
from ..wgsl import package_loader, syntax
from ..wgsl.print_wgsl import print_expression
from .compiler import Busy, Compiler
from .errors import ApiError, documented
from .shader_kernels import KINDS, Name, every_shader, functions, source, translation, variants

__all__ = ["list_shaders", "list_targets", "shader", "shader_routes"]


class Target(BaseModel):
    """A language. `missing` says which compiler this server lacks for it and how to install it, or nothing."""

    name: str
    missing: str


class ShaderInfo(BaseModel):
    """A file of shaders. `formula` is text in Unicode; `flags` are its overrides."""

    name: str
    folder: str
    kind: str
    formula: str
    flags: list[str]


class Shader(ShaderInfo):
    """A file with its text. `variants` are the kernels that are made of it."""

    source: str
    imports: list[str]
    variants: list[str]


class Text(BaseModel):
    """A kernel for a target; null where there is none. `note` says why, or how the text would be better."""

    text: str | None
    note: str


def _compiler_of(request: Request) -> Compiler:
    compiler: Compiler = request.app.state.compiler
    return compiler


CompilerOf = Annotated[Compiler, Depends(_compiler_of)]
shader_routes = APIRouter(prefix="/api/shaders", tags=["shaders"])


@shader_routes.get("", responses=documented())
def list_shaders() -> list[ShaderInfo]:
    """All shaders, by folder and name."""
    return [_info(folder, name) for folder, name in every_shader()]


@shader_routes.get("/targets", responses=documented())
def list_targets() -> list[Target]:
    """All target languages of kernels."""
    return [Target(name=target, missing=missing_compiler(target)) for target in TARGETS]


@shader_routes.get("/{folder}/{name}", responses=documented(404))
def get_shader(folder: Annotated[str, Path()], name: Annotated[str, Path()]) -> Shader:
    """One shader as it was written."""
    if (folder, name) not in every_shader():
        raise ApiError(404, "no_such_shader", f"There is no shader '{folder}/{name}'.")
    return shader(folder, name)


@shader_routes.get("/{folder}/{name}/{variant}/{target}", responses=documented(404, 503))
def get_text(
    folder: Annotated[str, Path()],
    name: Annotated[str, Path()],
    variant: Annotated[str, Path()],
    target: Annotated[str, Path()],
    compiler: CompilerOf,
) -> Text:
    """One of its kernels for a target, as `optirs-web shader` prints it.

    Texts of other compilers are made once and cached, which limits the work that clients can cause.
    """
    requested = Name(folder, name, variant, target)
    if (folder, name) not in every_shader() or variant not in variants(folder, name) or target not in TARGETS:
        raise ApiError(404, "no_such_text", f"'{folder}/{name}/{variant}' has no '{target}'.")
    try:
        printed = _printed(requested) if is_ours(target) else compiler.translation(requested)
    except Busy as error:
        message = "The server is compiling for other clients; try again in a second."
        raise ApiError(503, "busy", message, {"Retry-After": "1"}) from error
    return Text(text=printed.text, note=printed.note)


_printed = cache(translation)


def _info(folder: str, name: str) -> ShaderInfo:
    module = package_loader()((folder, name))
    flags = [declaration.name for declaration in module.declarations if isinstance(declaration, syntax.Override)]
    return ShaderInfo(name=name, folder=folder, kind=KINDS[folder], formula=_formula(folder, name), flags=flags)


def _formula(folder: str, name: str) -> str:
    """Return the comment at the head of a file, and its formulas where they are short."""
    comment = []
    for text in source(folder, name).splitlines():
        if not text.startswith("//"):
            break
        comment.append(text.removeprefix("//").removeprefix(" "))
    formulas = {"optimizers": _optimizer_formulas, "elementwise": _map_formulas}.get(folder)
    return "\n\n".join(filter(None, ("\n".join(comment), formulas(name) if formulas else "")))


def _optimizer_formulas(rule: str) -> str:
    """Return the indented lines in the docstring of the first optimizer of a rule, or of the optimizer of its name."""
    for name in dir(ow.optim):
        class_ = getattr(ow.optim, name)
        if inspect.isclass(class_) and issubclass(class_, Optimizer):
            if rule not in (name.lower(), getattr(getattr(class_, "rule", None), "name", None)):
                continue
            text = (inspect.getdoc(class_) or "").partition("\nArgs:")[0]
            lines = [line for line in text.splitlines() if line.startswith("    ")]
            if lines:
                return inspect.cleandoc("\n".join(lines))
    return ""


def _map_formulas(name: str) -> str:
    """Return the formulas of the functions that consist of one expression."""
    formulas = []
    for function in functions(name):
        statements = function.body.statements
        if len(statements) == 1 and isinstance(statements[0], syntax.Return) and statements[0].value is not None:
            arguments = ", ".join(param.name for param in function.parameters)
            formulas.append(f"{function.name.rstrip('_')}({arguments}) = {print_expression(statements[0].value)}")
    return "\n".join(formulas)


@cache
def shader(folder: str, name: str) -> Shader:
    """Return an existing shader with its text."""
    module = package_loader()((folder, name))
    return Shader(
        **_info(folder, name).model_dump(),
        source=source(folder, name),
        imports=[
            "::".join(declaration.path) for declaration in module.declarations if isinstance(declaration, syntax.Import)
        ],
        variants=list(variants(folder, name)),
    )
