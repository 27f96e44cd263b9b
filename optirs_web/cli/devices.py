"""``optirs-web devices``: what is available, what "auto" selects, and why the rest is unavailable."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import click

import optirs_web as ow

from .tables import print_table, table_of

__all__ = ["devices", "facts_of"]

_KINDS = {"cpu": "processor", "software": "software", "": "hardware"}  # in the table's words, where they are others


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print all details as JSON.")
@click.option("--power", type=click.Choice(["low", "high"]), help='Power that "auto" prefers.')
def devices(as_json: bool, power: str | None) -> None:
    """List the devices, and which one "auto" selects and why."""
    automatic = _automatic(power)  # first: it may find that a device fails
    found = ow.devices()
    if as_json:
        click.echo(json.dumps({"devices": [facts_of(one) for one in found], "auto": automatic}, indent=1))
        return
    _print_tables(found)
    for line in (*_shared(found), _sentence(automatic)):
        click.echo(f"\n{line}")


def _automatic(power: str | None) -> dict[str, str | None]:
    """Return the device that "auto" selects, opened: only that shows that it works."""
    try:
        chosen = ow.device("auto", power=power)
    except ow.errors.DeviceNotAvailableError as error:
        return {"name": None, "why": str(error)}
    return {"name": chosen.name, "why": chosen.why}


def facts_of(one: ow.AdapterInfo) -> dict[str, Any]:
    """Return what is known of an adapter, for JSON."""
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


def _print_tables(found: Sequence[ow.AdapterInfo]) -> None:
    """What there is; below it, over the whole width, why the others are not there and why some are avoided."""
    there = table_of("name", "description", "kind", "memory", "features")
    missing, avoided = table_of("unavailable", "why"), table_of("avoided", "why")
    for one in found:
        if one.available:
            memory = "" if one.memory is None else f"{one.memory / 2**30:.1f} GiB"
            kind, features = _KINDS.get(one.kind, one.kind), ", ".join(sorted(one.features))
            there.add_row(one.label, one.description, kind, memory, features)
        if one.reason:
            (avoided if one.available else missing).add_row(one.label, one.reason)
    for number, table in enumerate(one for one in (there, missing, avoided) if one.row_count):
        if number:
            click.echo()
        print_table(table)


def _shared(found: Sequence[ow.AdapterInfo]) -> list[str]:
    """A line for each piece of hardware that has several names."""
    names: dict[str, list[str]] = {}
    for one in found:
        if one.adapter:
            names.setdefault(one.adapter, []).append(one.label)
    pairs = ((f"{', '.join(one[:-1])} and {one[-1]}", adapter) for adapter, one in names.items() if len(one) > 1)
    return [f"{several} are the same hardware: {adapter}" for several, adapter in pairs]


def _sentence(automatic: dict[str, str | None]) -> str:
    if automatic["name"] is None:
        return f'"auto" found no device: {automatic["why"]}'
    text = f'"auto" selects {automatic["name"]}: {automatic["why"]}'
    asked = os.environ.get("OPTIRS_DEVICE")
    return f"{text}\nOPTIRS_DEVICE={asked} is used where no device is named" if asked else text
