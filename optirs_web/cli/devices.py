"""``optirs-web devices``: lists the available devices, the one that "auto" selects, and why others are unavailable."""

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
    automatic = _automatic(power)  # before the list: opening a device may show that it fails
    adapters = ow.devices()
    if as_json:
        click.echo(json.dumps({"devices": [facts_of(adapter) for adapter in adapters], "auto": automatic}, indent=1))
        return
    _print_tables(adapters)
    for sentence in (*_shared(adapters), _sentence(automatic)):
        click.echo(f"\n{sentence}")


def _automatic(power: str | None) -> dict[str, str | None]:
    """Return the device that "auto" selects, opened: only that shows that it works."""
    try:
        chosen = ow.device("auto", power=power)
    except ow.errors.DeviceNotAvailableError as error:
        return {"name": None, "why": str(error)}
    return {"name": chosen.name, "why": chosen.why}


def facts_of(adapter: ow.AdapterInfo) -> dict[str, Any]:
    """Return the facts of an adapter, for JSON."""
    return {
        "name": adapter.label,
        "description": adapter.description,
        "kind": adapter.kind or None,
        "software": adapter.software,
        "memory": adapter.memory,
        "features": sorted(adapter.features),
        "adapter": adapter.adapter or None,
        "bus": adapter.bus or None,
        "host": adapter.host or None,
        "available": adapter.available,
        "reason": adapter.reason or None,
    }


def _print_tables(adapters: Sequence[ow.AdapterInfo]) -> None:
    """Print the available devices; below, in tables of their own, why others are unavailable and some are avoided."""
    available = table_of("name", "description", "kind", "memory", "features")
    missing, avoided = table_of("unavailable", "why"), table_of("avoided", "why")
    for adapter in adapters:
        if adapter.available:
            memory = "" if adapter.memory is None else f"{adapter.memory / 2**30:.1f} GiB"
            kind, features = _KINDS.get(adapter.kind, adapter.kind), ", ".join(sorted(adapter.features))
            available.add_row(adapter.label, adapter.description, kind, memory, features)
        if adapter.reason:
            (avoided if adapter.available else missing).add_row(adapter.label, adapter.reason)
    for number, table in enumerate(table_ for table_ in (available, missing, avoided) if table_.row_count):
        if number:
            click.echo()
        print_table(table)


def _shared(adapters: Sequence[ow.AdapterInfo]) -> list[str]:
    """Return a sentence for each adapter that has several names."""
    names: dict[str, list[str]] = {}
    for info in adapters:
        if info.adapter:
            names.setdefault(info.adapter, []).append(info.label)
    pairs = (
        (f"{', '.join(labels[:-1])} and {labels[-1]}", adapter) for adapter, labels in names.items() if len(labels) > 1
    )
    return [f"{several} are the same hardware: {adapter}" for several, adapter in pairs]


def _sentence(automatic: dict[str, str | None]) -> str:
    if automatic["name"] is None:
        return f'"auto" found no device: {automatic["why"]}'
    text = f'"auto" selects {automatic["name"]}: {automatic["why"]}'
    default = os.environ.get("OPTIRS_DEVICE")
    return f"{text}\nOPTIRS_DEVICE={default} is used where no device is named" if default else text
