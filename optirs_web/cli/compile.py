"""``optirs-web compile``: the step of an optimizer, compiled by XLA for a pod of TPUs that need not be here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ..runtime.registry import device
from ..runtime.rule_kernels import AdvanceKernel, UpdateKernel
from .shader import find_kernel

__all__ = ["compile_"]


@click.command("compile")
@click.argument("name", default="AdamW")
@click.option("--topology", required=True, help="The pod, as libtpu names it: v5e:2x4, v4:2x2x2.")
@click.option("--elements", type=click.IntRange(1), default=1 << 20, show_default=True, help="Parameters on each chip.")
@click.option("--flag", "flags", multiple=True, metavar="NAME=VALUE", help="An override, as amsgrad=true.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the HLO there; else it is printed.")
def compile_(name: str, topology: str, elements: int, flags: tuple[str, ...], out: Path | None) -> None:
    """Compile the data-parallel step of an optimizer (AdamW) for TPUs; no TPU is needed, but `pip install libtpu`.

    Every chip has all parameters and state, and gradients of its own, which are averaged over all chips by an
    all-reduce. What is printed: the chips, XLA's estimate of the work, the memory of each chip, and the program.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # there is no TPU to look for
    kernels = [find_kernel(name, flags, part) for part in ("advance", "update")]
    if not isinstance(kernels[0], AdvanceKernel) or not isinstance(kernels[1], UpdateKernel):
        raise click.BadParameter(f"'{name}' is no optimizer", param_hint="NAME")
    backend: Any = device("xla").backend
    made = backend.compile_step(kernels, elements, topology)
    click.echo(f"{kernels[1].name} of {elements:,} parameters on {made.devices}")
    for title, values in (("cost", made.cost), ("bytes on each chip", made.memory)):
        shown = {key: value for key, value in values.items() if title != "cost" or key in ("flops", "bytes accessed")}
        click.echo(f"{title}: {', '.join(f'{key} {value:,.0f}' for key, value in shown.items())}")
    if out is None:
        click.echo(made.hlo.rstrip("\n"))
    else:
        out.write_text(made.hlo, "utf-8")
