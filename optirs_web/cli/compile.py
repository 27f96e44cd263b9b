"""``optirs-web compile``: the step of an optimizer, compiled by XLA for a pod of TPUs, or as a file that JAX runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import optirs_web as ow

from ..files import write_whole
from ..interop import jax
from ..optim.host_driven import HostDriven
from ..runtime.rule_kernels import AdvanceKernel, UpdateKernel
from .optimizers import all_optimizers
from .shader import find_kernel

__all__ = ["compile_"]


@click.command("compile")
@click.argument("name", default="AdamW")
@click.option("--topology", help="Compile for this pod, in libtpu's notation: v5e:2x4, v4:2x2x2.")
@click.option("--elements", type=click.IntRange(1), default=1 << 20, show_default=True, help="Parameters on each chip.")
@click.option(
    "--flag", "flags", multiple=True, metavar="NAME=VALUE", help="An override or option, such as amsgrad=true."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the HLO to FILE instead of printing it."
)
@click.option("--export", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the step to FILE.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    help=f"Platform to export for; by default {', '.join(jax.PLATFORMS)}.",
)
def compile_(
    name: str,
    topology: str | None,
    elements: int,
    flags: tuple[str, ...],
    out: Path | None,
    file: Path | None,
    platforms: tuple[str, ...],
) -> None:
    """Compile the data-parallel step of an optimizer (AdamW) for TPUs, or export its step on one device.

    With --topology, every chip holds all parameters and state, and an all-reduce averages the chips' gradients. Prints
    the chips, XLA's estimate of the work, the memory of each chip, and the program. Needs no TPU, but
    `pip install libtpu`. Optimizers that first measure norms or sums (LAMB) are refused.

    With --export, writes a file for `optirs_web.interop.jax.load`: a step of one parameter, initially zeros, given its
    gradient.
    """
    if topology is None and file is None:
        raise click.UsageError("name a target: --topology v5e:2x4, or --export FILE")
    if out is not None and topology is None:
        raise click.UsageError("--out is for the HLO of a --topology; --export FILE writes the step")
    if platforms and file is None:
        raise click.UsageError("--platform is for --export FILE; --topology names chips")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # there is no TPU to look for
    if topology is not None:
        _compile(name, topology, elements, flags, out)
    if file is not None:
        _export(name, elements, flags, file, platforms or jax.PLATFORMS)


def _compile(name: str, topology: str, elements: int, flags: tuple[str, ...], out: Path | None) -> None:
    kernels = [find_kernel(name, flags, part) for part in ("advance", "update")]
    if not isinstance(kernels[0], AdvanceKernel) or not isinstance(kernels[1], UpdateKernel):
        raise click.BadParameter(f"'{name}' is not an optimizer", param_hint="NAME")
    backend: Any = ow.device("xla").backend
    step = backend.compile_step(kernels, elements, topology)
    click.echo(f"{kernels[1].name} of {elements:,} parameters on {step.devices}")
    cost = {key: step.cost[key] for key in ("flops", "bytes accessed") if key in step.cost}
    for title, figures in (("cost", cost), ("bytes on each chip", step.memory)):
        click.echo(f"{title}: {', '.join(f'{key} {value:,.0f}' for key, value in figures.items())}")
    if out is None:
        click.echo(step.hlo.rstrip("\n"))
    else:
        write_whole(out, [step.hlo.encode()])


def _options(flags: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE options of an optimizer; a value is JSON, or else a string."""
    options = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _export(name: str, elements: int, flags: Sequence[str], file: Path, platforms: Sequence[str]) -> None:
    classes = {class_name.lower(): make for class_name, make in all_optimizers().items()}
    if name.lower() not in classes:
        raise click.BadParameter(f"'{name}' is not an optimizer", param_hint="NAME")
    param = ow.Parameter(ow.zeros((elements,), device="xla"))
    try:
        optimizer = classes[name.lower()]([param], **_options(flags))
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--flag" if flags else "NAME") from error
    if isinstance(optimizer, HostDriven):
        raise click.BadParameter(
            f"{name} reads values back to the host, so its step cannot be exported", param_hint="NAME"
        )
    step = ow.compile(lambda grad: optimizer.step(grads=[grad]), device="xla")
    grad = ow.zeros((elements,), device="xla")
    exported = jax.export(step, grad, parameters={"param": param}, platforms=platforms)
    exported.save(file)
    size, state = len(exported.artifact), sum(tensor.nbytes for tensor in exported.state)
    click.echo(f"{name} of {elements:,} parameters for {', '.join(exported.platforms)}: {file}")
    click.echo(f"bytes: program {size:,}, state {state:,}")
