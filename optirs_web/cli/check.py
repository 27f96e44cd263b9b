"""``optirs-web check``: two minutes of parity and speed measurements on each GPU of a machine."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

import optirs_web as ow

from ..benchmarks import Benchmark
from ..benchmarks.machine import description
from ..benchmarks.report import amount_text
from ..files import write_whole
from ..profiling.peaks import peaks_of
from ..runtime.device import Device
from ..runtime.tuner.candidates import TUNABLE
from .devices import facts_of
from .outputs import need_writable
from .parity import BOUND, compared, facts_of_outcome
from .parity_rows import rows
from .tables import print_table, table_of

__all__ = ["check", "checked", "measurable", "tile_text"]

PARITY = ("exp", "log", "tanh", "pow", "erf", "sum", "softmax", "matmul", "layer_norm", "AdamW")
"""Rows of `optirs-web parity` that are compared: the functions that differ most between drivers, and a kernel of each
kind."""

_PRODUCT = "products/1024"
_TUNED_SIZE = 512
"""Rows and columns of the product whose tile is searched."""


def measurable(software: bool, names: Sequence[str] = ()) -> list[str]:
    """Return the names of the devices to measure: `names`, or all hardware GPUs.

    Args:
        software: include software adapters except OpenGL's.
        names: devices that the user named.

    Raises:
        ClickException: there is none.
    """
    adapters = [adapter for adapter in ow.devices() if adapter.available and adapter.kind != "cpu"] if not names else []
    labels = [adapter.label for adapter in adapters if not adapter.software or (software and adapter.name != "gl")]
    if not names and not labels:
        raise click.ClickException(
            "there is no hardware GPU here; --software takes software adapters, `optirs-web devices` lists all"
        )
    return list(names) or labels


def checked(device: Device) -> dict[str, Any]:
    """Measure a device.

    Returns:
        Facts for JSON: the description; the limits; by row of `PARITY` the ulps from the reference; "bandwidth" in
        bytes and "arithmetic" in operations per second; "launch", the seconds of the smallest kernel; "product", the
        rate of a product of 1,024 and its shares of that arithmetic and of the platform's own library (None without
        one); "tile", the tuner's choice for each kernel.
    """
    capabilities = asdict(device.capabilities)
    limits = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in capabilities.items()}
    peaks = peaks_of(device)
    product = Benchmark(_PRODUCT, device, rounds=3).run()
    share = product.share()
    return {
        "description": device.info.description,
        "limits": limits,
        "parity": _parity(device),
        "bandwidth": peaks.bandwidth,
        "arithmetic": peaks.arithmetic,
        "launch": peaks.launch,
        "product": {"rate": product.rate(), "of_arithmetic": product.rate() / peaks.arithmetic,
                    "of_library": share.median if share else None, "seconds": product.times["ours"]},
        "tile": _tile(device),
    }  # fmt: skip


def _without_host(facts: dict[str, Any]) -> dict[str, Any]:
    """Return an adapter's facts without the machine's name, for a file that may be published."""
    return {name: value for name, value in facts.items() if name != "host"}


def _parity(device: Device) -> dict[str, Any]:
    devices = [ow.device("cpu"), device]
    outcomes = [facts_of_outcome(compared(row, devices)) for row in rows() if row.name in PARITY]
    return {
        facts["name"]: {"ulps": facts["ulps"].get(device.name), "above": facts["above"], "failed": facts["failed"]}
        for facts in outcomes
    }


def _tile(device: Device) -> list[dict[str, Any]]:
    """Search the tile of a product; return the choice, and the default next to it."""
    x = ow.ones((_TUNED_SIZE, _TUNED_SIZE), device=device)
    works = ow.tune(lambda: x @ x, device=device, again=True).works
    return [
        {"kernel": work.kernel, "shapes": work.shape_class, "numbers": work.numbers, "default": work.default,
         "chosen": work.chosen, "gain": work.gain}
        for work in works
    ]  # fmt: skip


def tile_text(works: Sequence[dict[str, Any]]) -> str:
    """Format the choices of `checked`'s "tile" for a table."""
    return ", ".join(TUNABLE[work["kernel"]].text(tuple(work["chosen"])) for work in works)


@click.command()
@click.option("--device", "devices", multiple=True, help="Device to check; may be repeated.  [default: all GPUs]")
@click.option("--software", is_flag=True, help="Check software adapters too.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write all of it to FILE.")
@click.pass_context
def check(ctx: click.Context, devices: tuple[str, ...], software: bool, file: Path | None) -> None:
    """Check this machine's GPUs: adapters, limits, parity of a few kernels, speed, the tile that wins.

    Takes about two minutes. The JSON may be contributed: it has no names of users, hosts or files, but for paths in
    the messages of errors.

    Exits with status 1 if a kernel is above the bound of `optirs-web parity`, or there is nothing to check.
    """
    need_writable(file, "--json")
    facts: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": description(),
        "adapters": [_without_host(facts_of(adapter)) for adapter in ow.devices()],
        "devices": {},
    }
    opened = {name: ow.device(name) for name in measurable(software, devices)}  # before two minutes are spent on one
    for name, device in opened.items():
        facts["devices"][name] = checked(device)
        if file:
            write_whole(file, [(json.dumps(facts, indent=1) + "\n").encode()])
    _print(facts["devices"])
    if any(row["above"] or row["failed"] for device in facts["devices"].values() for row in device["parity"].values()):
        ctx.exit(1)


def _print(devices: dict[str, Any]) -> None:
    table = table_of("device", "copy", "arithmetic", "product of 1,024", "share of arithmetic", "tile", "most ulps")
    for name, facts in devices.items():
        product = facts["product"]
        rates = amount_text(facts["bandwidth"], "B/s"), amount_text(facts["arithmetic"], "FLOP/s")
        worst = max(row["ulps"] if row["ulps"] is not None else math.inf for row in facts["parity"].values())
        table.add_row(
            f"{name}: {facts['description']}", *rates, amount_text(product["rate"], "FLOP/s"),
            f"{product['of_arithmetic']:.0%}", tile_text(facts["tile"]), f"{worst:.3g}",
        )  # fmt: skip
    print_table(table)
    for name, facts in devices.items():
        for row, result in facts["parity"].items():
            if result["above"] or result["failed"]:
                click.echo(f"{name}: {row}: {result['failed'] or f'above {BOUND:g} ulps of the largest operand'}")
