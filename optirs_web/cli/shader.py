"""``optirs-web shader``: the complete text of a kernel, for reading or for another tool."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import click

from ..errors import DeviceNotAvailableError, ShaderError, UnsupportedError
from ..runtime.kernels import Kernel, cooperative, elementwise
from ..runtime.nvrtc import compile_cuda
from ..runtime.packed_kernels import packed
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, SettleKernel, UpdateKernel
from ..runtime.rules import Rule
from ..wgsl import package_loader, syntax
from ..wgsl.print_c import print_c
from ..wgsl.print_python import print_python

__all__ = ["shader"]

Flags = Mapping[str, bool | float]

_SCALARS = {"f32", "i32", "u32"}


class _Source(NamedTuple):
    """A file in ``shaders`` and how to make a kernel of it, given its overrides and the part of a rule."""

    folder: str
    file: str
    make: Callable[[Flags, str], Kernel]
    preset: Flags


_PARTS: dict[str, Callable[[Rule, Any], Kernel]] = {
    "update": UpdateKernel.of,
    "advance": lambda rule, flags: AdvanceKernel.of(rule, flags, False),
    "measure": MeasureKernel.of,
    "settle": SettleKernel.of,
}


def _rule(name: str, preset: Flags) -> _Source:
    def make(flags: Flags, part: str) -> Kernel:
        pairs: Any = tuple(sorted({**preset, **flags}.items()))
        rule = Rule(name)
        if part not in ("update", "advance") and not rule.has(part):
            raise click.BadParameter(f"'{name}' has no '{part}'", param_hint="--part")
        return _PARTS[part](rule, pairs)

    return _Source("optimizers", name, make, preset)


def _cooperative(name: str) -> _Source:
    return _Source("kernels", name, lambda flags, _: cooperative(name, **flags), {})


def _map_function(file: str, function: syntax.Function) -> _Source:
    operands = ("tensor",) * sum(one.name != "index" for one in function.parameters)
    return _Source("elementwise", file, lambda flags, _: elementwise(file, function.name, operands, 0), {})


def _stems(folder: str) -> list[str]:
    names = (one.name for one in files("optirs_web.shaders").joinpath(folder).iterdir())
    return sorted(name.removesuffix(".wgsl") for name in names if name.endswith(".wgsl"))


def _map_functions(file: str) -> list[syntax.Function]:
    """Those that take and give scalars; the others only help."""
    module = package_loader()(("elementwise", file))
    functions = [one for one in module.declarations if isinstance(one, syntax.Function)]
    return [one for one in functions if all(p.type_name.name in _SCALARS for p in one.parameters)]


def _classes() -> dict[str, _Source | None]:
    """The rule of each optimizer by the name of the class, with the flags that it sets; None if it has not just one."""
    from ..optim.wrapper import Wrapper
    from .optimizers import all_optimizers

    found: dict[str, _Source | None] = {}
    for name, one in all_optimizers().items():
        rule = None if issubclass(one, Wrapper) else getattr(one, "rule", None)
        found[name] = rule and _rule(rule.name, {flag: getattr(one, flag) for flag in rule.flags if hasattr(one, flag)})
    return found


def _sources() -> dict[str, dict[str, _Source]]:
    """Every name that can be asked for, by kind."""
    functions = {
        function.name.rstrip("_"): _map_function(file, function)
        for file in _stems("elementwise")
        for function in _map_functions(file)
    }
    return {
        "optimizers": {name: _rule(name, {}) for name in _stems("optimizers")},
        "kernels": {name: _cooperative(name) for name in _stems("kernels")},
        "elementwise functions": functions,
    }


def _find(name: str) -> _Source:
    sources = _sources()
    everything = {one: source for group in sources.values() for one, source in group.items()}
    if name.lower() in everything:
        return everything[name.lower()]
    classes = _classes()
    for one, source in classes.items():
        if one.lower() == name.lower():
            if source is None:
                raise click.BadParameter(f"{one} has no rule of its own, or several", param_hint="NAME")
            return source
    near = difflib.get_close_matches(name, [*everything, *classes], 1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    groups = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in sources.items())
    raise click.BadParameter(f"there is no shader '{name}'{hint}. {groups}", param_hint="NAME")


_WORDS = {"true": True, "false": False}


def _parse_flags(source: _Source, texts: tuple[str, ...]) -> Flags:
    module = package_loader()((source.folder, source.file))
    known = [one.name for one in module.declarations if isinstance(one, syntax.Override)]
    flags: dict[str, bool | float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise click.BadParameter(f"'{source.file}' has no flag '{name}'; {has}", param_hint="--flag")
        try:
            flags[name] = _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            message = f"'{text}': write {name}=true or {name}=false"
            raise click.BadParameter(message, param_hint="--flag") from None
    return flags


def _numpy_text(kernel: Kernel) -> str:
    module = getattr(kernel, "map_module", None)
    if module is None:
        raise click.UsageError(f"'{kernel.name}' has no NumPy text: a library call takes its place there")
    return print_python(module, "numpy")


def _of_16_bits(source: _Source, kernel: Kernel, elements: str) -> Kernel:
    """The kernel over tensors of such elements in place of f32."""
    kinds = tuple(elements if one.type == "array<f32>" else "" for one in kernel.bindings)
    try:
        if source.folder != "optimizers" and any(kinds):
            made = packed(kernel, kinds)
            made.wgsl()
            return made
    except ShaderError:  # it reads them otherwise than one by one
        pass
    raise click.BadParameter(f"'{kernel.name}' takes no floats of 16 bits", param_hint="--elements")


def _opencl_text(kernel: Kernel) -> str:
    return print_c(kernel.module, "opencl")


def _cuda_text(kernel: Kernel) -> str:
    return print_c(kernel.module, "cuda")


_TARGETS: dict[str, Callable[[Kernel], str]] = {
    "wgsl": Kernel.wgsl,
    "numpy": _numpy_text,
    "opencl": _opencl_text,
    "cuda": _cuda_text,
    "ptx": _cuda_text,
}


@click.command()
@click.argument("name")
@click.option("--target", type=click.Choice(list(_TARGETS)), default="wgsl", help="The language.")
@click.option("--flag", "flags", multiple=True, metavar="NAME=VALUE", help="An override, as amsgrad=true.")
@click.option(
    "--part",
    type=click.Choice(list(_PARTS)),
    default="update",
    help="Of an optimizer: the step of the elements (the default) or that of the scalars; what is summed, and its use.",
)
@click.option(
    "--elements",
    type=click.Choice(["f32", "f16", "float16", "bfloat16"]),
    default="f32",
    help="What tensors hold: f32, f16 where a device has it, or halves of words.",
)
@click.option("--arch", default="sm_80", show_default=True, help="Of PTX: the oldest GPUs that it is for.")
def shader(name: str, target: str, flags: tuple[str, ...], part: str, elements: str, arch: str) -> None:
    """Print the complete shader of an optimizer (AdamW), a kernel (matmul) or a function (relu)."""
    source = _find(name)
    kernel = source.make(_parse_flags(source, flags), part)
    if elements != "f32":
        if target == "numpy":
            raise click.BadParameter("elements of 16 bits are a matter of WGSL", param_hint="--elements")
        kernel = _of_16_bits(source, kernel, elements)
    text = _TARGETS[target](kernel)
    if target == "ptx":
        try:
            text = compile_cuda(text, arch).decode()
        except UnsupportedError as error:
            raise click.BadParameter(str(error), param_hint="--arch") from error
        except DeviceNotAvailableError as error:
            raise click.UsageError(str(error)) from error
    click.echo(text.rstrip("\n"))
