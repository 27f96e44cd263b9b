"""``optirs-web devices``: what there is, what "auto" takes, and why the rest is not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import optirs_web as ow

__all__ = ["devices"]

_KINDS = {"cpu": "processor", "software": "software", "": "hardware"}  # in the table's words, where they are others


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print all that is known as JSON.")
@click.option("--power", type=click.Choice(["low", "high"]), help='What "auto" prefers.')
def devices(as_json: bool, power: str | None) -> None:
    """List the devices, and say which one "auto" takes and why."""
    automatic = _automatic(power)  # first: it may find that a device fails
    found = ow.devices()
    if as_json:
        click.echo(json.dumps({"devices": [_facts(one) for one in found], "auto": automatic}, indent=1))
        return
    _print_table(found)
    for line in (*_shared(found), _sentence(automatic)):
        click.echo(f"\n{line}")


def _automatic(power: str | None) -> dict[str, str | None]:
    """What "auto" takes; it is opened, since only that shows that it works."""
    try:
        chosen = ow.device("auto", power=power)
    except ow.errors.DeviceNotAvailableError as error:
        return {"name": None, "why": str(error)}
    return {"name": chosen.name, "why": chosen.why}


def _facts(one: ow.AdapterInfo) -> dict[str, Any]:
    return {
        "name": one.label,
        "description": one.description,
        "kind": one.kind or None,
        "software": one.software,
        "memory": one.memory,
        "features": sorted(one.features),
        "adapter": one.adapter or None,
        "bus": one.bus or None,
        "host": one.host or None,
        "available": one.available,
        "reason": one.reason or None,
    }


def _print_table(found: Iterable[ow.AdapterInfo]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe has no width; lines are not to be broken
    columns = ("name", "description", "kind", "memory", "features", "available")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for one in found:
        kind = _KINDS.get(one.kind, one.kind) if one.available else ""
        memory = "" if one.memory is None else f"{one.memory / 2**30:.1f} GiB"
        table.add_row(one.label, one.description, kind, memory, ", ".join(sorted(one.features)), _available(one))
    console.print(table)


def _available(one: ow.AdapterInfo) -> str:
    reason = f": {one.reason}" if one.reason else ""
    return f"{'yes' if one.available else 'no'}{reason}"


def _shared(found: Sequence[ow.AdapterInfo]) -> list[str]:
    """A line for each piece of hardware that has several names."""
    names: dict[str, list[str]] = {}
    for one in found:
        if one.adapter:
            names.setdefault(one.adapter, []).append(one.label)
    return [f"{' and '.join(one)} are one adapter: {adapter}" for adapter, one in names.items() if len(one) > 1]


def _sentence(automatic: dict[str, str | None]) -> str:
    if automatic["name"] is None:
        return f'"auto" takes nothing: {automatic["why"]}'
    text = f'"auto" takes {automatic["name"]}: {automatic["why"]}'
    asked = os.environ.get("OPTIRS_DEVICE")
    return f"{text}\nOPTIRS_DEVICE={asked} is taken where no device is named" if asked else text
