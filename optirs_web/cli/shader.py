"""``optirs-web shader``: the complete text of a kernel, for reading or for another tool."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import DeviceNotAvailableError, UnsupportedError
from ..interop.safetensors import write_whole
from ..runtime.kernels import Kernel
from ..runtime.numba_texts import numba_loops
from ..runtime.nvrtc import compile_cuda
from ..runtime.registry import device
from ..wgsl import package_loader, syntax
from ..wgsl.print_c import print_c
from ..wgsl.print_python import print_python
from .naga import TARGETS as NAGA, Naga
from .shader_names import PARTS, Flags, Source, find_source, of_16_bits, sources

__all__ = ["find_kernel", "shader"]

_WORDS = {"true": True, "false": False}


def _parse_flags(source: Source, texts: tuple[str, ...]) -> Flags:
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


def find_kernel(name: str, flags: tuple[str, ...], part: str) -> Kernel:
    """The kernel of that name, with overrides as NAME=VALUE; of an optimizer that part."""
    source = find_source(name)
    return source.make(_parse_flags(source, flags), part)


def _numpy_text(kernel: Kernel, dialect: str = "numpy") -> str:
    module = getattr(kernel, "map_module", None)
    if module is None:
        title, library = {"numpy": ("NumPy", "NumPy"), "jax": ("JAX", "JAX"), "numba": ("Numba", "NumPy")}[dialect]
        message = f"'{kernel.name}' has no {title} text: there it is written by hand, in calls of {library}"
        raise click.UsageError(message)
    return print_python(module, dialect)


def _jax_text(kernel: Kernel) -> str:
    return _numpy_text(kernel, "jax")


def _numba_text(kernel: Kernel) -> str:
    loops = numba_loops(kernel)
    return _numpy_text(kernel, "numba") if loops is None else loops.text


def _stablehlo_text(kernel: Kernel) -> str:
    backend: Any = device("xla").backend
    text: str = backend.stablehlo(kernel)
    return text


def _of_naga(target: str) -> Callable[[Kernel], str | bytes]:
    return lambda kernel: Naga().translate(kernel.wgsl("naga"), kernel.name, target)


def _opencl_text(kernel: Kernel) -> str:
    return print_c(kernel.module, "opencl")


def _cuda_text(kernel: Kernel) -> str:
    return print_c(kernel.module, "cuda")


_TARGETS: dict[str, Callable[[Kernel], str | bytes]] = {
    "wgsl": Kernel.wgsl,
    "numpy": _numpy_text,
    "numba": _numba_text,
    "opencl": _opencl_text,
    "cuda": _cuda_text,
    "ptx": _cuda_text,
    **{target: _of_naga(target) for target in NAGA},
    "jax": _jax_text,
    "stablehlo": _stablehlo_text,
}
_ARCH = "sm_80"
_WORDS_IN_A_LINE = 8


def _readable(words: bytes) -> str:
    """SPIR-V as spirv-dis prints it; without that as numbers, and where to get it goes to standard error."""
    if shutil.which("spirv-dis"):
        command = ["spirv-dis", "--no-color", "-"]
        return subprocess.run(command, input=words, capture_output=True, check=True).stdout.decode()
    click.echo("spirv-dis would print this as text; Debian has it in spirv-tools", err=True)
    numbers = [f"0x{word:08x}" for (word,) in struct.iter_unpack("<I", words)]
    lines = (numbers[first : first + _WORDS_IN_A_LINE] for first in range(0, len(numbers), _WORDS_IN_A_LINE))
    return "\n".join(map(" ".join, lines))


def _print_names() -> None:
    """Every name that can be asked for, by kind."""
    for kind, names in sources().items():
        text = click.wrap_text(", ".join(names), width=100, initial_indent="  ", subsequent_indent="  ")
        click.echo(f"{kind}:\n{text}")


@click.command()
@click.argument("name", required=False)
@click.option("--target", type=click.Choice(list(_TARGETS)), default="wgsl", show_default=True, help="The language.")
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="An override of the shader, as amsgrad=true; an unknown one says which there are.",
)
@click.option(
    "--part",
    type=click.Choice(list(PARTS)),
    default="update",
    help="Of an optimizer: the step of the elements (the default) or that of the scalars; what is summed, and its use.",
)
@click.option(
    "--elements",
    type=click.Choice(["f32", "f16", "float16", "bfloat16"]),
    default="f32",
    help="What tensors hold: f32, f16 where a device has it, or halves of words.",
)
@click.option("--arch", help="Of PTX: the oldest GPUs that it is for.  [default: sm_80]")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file to write in place of printing; of SPIR-V it gets the words.",
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

    Without NAME the names are listed; those of the classes of optimizers are known too.
    """
    if name is None:
        _print_names()
        return
    source = find_source(name)
    if part != "update" and source.folder != "optimizers":
        raise click.BadParameter(f"'{name}' is no optimizer, which alone have parts", param_hint="--part")
    if arch is not None and target != "ptx":
        raise click.BadParameter("it is for --target ptx alone", param_hint="--arch")
    kernel = source.make(_parse_flags(source, flags), part)
    if elements != "f32":
        if target in ("numpy", "numba", "jax", "stablehlo"):
            raise click.BadParameter("elements of 16 bits are a matter of WGSL", param_hint="--elements")
        half = of_16_bits(source, kernel, elements)
        if half is None:
            raise click.BadParameter(f"'{kernel.name}' takes no floats of 16 bits", param_hint="--elements")
        kernel = half
    made = _TARGETS[target](kernel)
    if target == "ptx":
        try:
            made = compile_cuda(str(made), arch or _ARCH).decode()
        except UnsupportedError as error:
            raise click.BadParameter(str(error), param_hint="--arch") from error
        except DeviceNotAvailableError as error:
            raise click.UsageError(str(error)) from error
    if output is not None:
        write_whole(output, [made if isinstance(made, bytes) else made.encode()])
    else:
        click.echo((made if isinstance(made, str) else _readable(made)).rstrip("\n"))
