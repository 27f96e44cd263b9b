"""``optirs-web shader``: prints the complete text of a kernel, for reading or for another tool."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import DeviceNotAvailableError, UnsupportedError
from ..files import write_whole
from ..runtime.kernels import Kernel
from ..translations import TARGETS, NoTextError, readable, translate
from ..wgsl import package_loader, syntax
from .shader_names import PARTS, Flags, Source, find_source, of_16_bits, sources

__all__ = ["find_kernel", "shader"]

_WORDS = {"true": True, "false": False}


def _parse_flags(source: Source, texts: tuple[str, ...]) -> Flags:
    module = package_loader()((source.folder, source.file))
    overrides = [declaration.name for declaration in module.declarations if isinstance(declaration, syntax.Override)]
    flags: dict[str, bool | float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in overrides:
            has = f"it has {', '.join(overrides)}" if overrides else "it has none"
            raise click.BadParameter(f"'{source.file}' has no flag '{name}'; {has}", param_hint="--flag")
        try:
            flags[name] = _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            message = f"'{text}': write {name}=true or {name}=false"
            raise click.BadParameter(message, param_hint="--flag") from None
    return flags


def find_kernel(name: str, flags: tuple[str, ...], part: str) -> Kernel:
    """Return the kernel of this name, or the given part of an optimizer, with overrides given as NAME=VALUE."""
    source = find_source(name)
    return source.make(_parse_flags(source, flags), part)


def _print_names() -> None:
    """Print every name that the command accepts, by kind."""
    for kind, names in sources().items():
        text = click.wrap_text(", ".join(names), width=100, initial_indent="  ", subsequent_indent="  ")
        click.echo(f"{kind}:\n{text}")


@click.command()
@click.argument("name", required=False)
@click.option("--target", type=click.Choice(list(TARGETS)), default="wgsl", show_default=True, help="The language.")
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="Shader override, such as amsgrad=true; an unknown name lists those available.",
)
@click.option(
    "--part",
    type=click.Choice(list(PARTS)),
    default="update",
    show_default=True,
    help="Of an optimizer: update steps the elements, advance the scalars; measure reduces over elements,"
    " settle turns the result into scalars.",
)
@click.option(
    "--elements",
    type=click.Choice(["f32", "f16", "float16", "bfloat16"]),
    default="f32",
    help="Element type of tensors: f32, f16 where a device has it, or packed 16-bit values.",
)
@click.option("--arch", help="For PTX: the oldest GPUs to support.  [default: sm_80]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE instead of printing; SPIR-V as binary.",
)
def shader(
    name: str | None,
    target: str,
    flags: tuple[str, ...],
    part: str,
    elements: str,
    arch: str | None,
    output: Path | None,
) -> None:
    """Print the complete shader of an optimizer (AdamW), a kernel (matmul) or a function (relu).

    Without NAME, list the names; the class names of optimizers work too.
    """
    if name is None:
        _print_names()
        return
    source = find_source(name)
    if part != "update" and source.folder != "optimizers":
        raise click.BadParameter(f"'{name}' is not an optimizer: only optimizers have parts", param_hint="--part")
    if arch is not None and target != "ptx":
        raise click.BadParameter("it applies only to --target ptx", param_hint="--arch")
    kernel = source.make(_parse_flags(source, flags), part)
    if elements != "f32":
        if target in ("numpy", "numba", "jax", "stablehlo"):
            raise click.BadParameter("16-bit elements are for --target wgsl only", param_hint="--elements")
        half = of_16_bits(source, kernel, elements)
        if half is None:
            raise click.BadParameter(f"'{kernel.name}' takes no 16-bit floats", param_hint="--elements")
        kernel = half
    try:
        translated = translate(kernel, target, arch)
    except NoTextError as error:
        raise click.UsageError(str(error)) from error
    except (DeviceNotAvailableError, UnsupportedError) as error:
        if target != "ptx":
            raise
        if isinstance(error, UnsupportedError):
            raise click.BadParameter(str(error), param_hint="--arch") from error
        raise click.UsageError(str(error)) from error
    if output is not None:
        write_whole(output, [translated if isinstance(translated, bytes) else translated.encode()])
        return
    text, note = readable(translated)
    if note:
        click.echo(note, err=True)
    click.echo(text)
