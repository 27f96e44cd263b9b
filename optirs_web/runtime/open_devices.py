"""The devices that are open, and those that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .locks import ForkSafeLock

if TYPE_CHECKING:  # loaded while a browser looks for its adapter
    from .device import Device

__all__ = ["avoid", "avoided", "by_name", "opening"]

by_name: dict[str, Device] = {}
"""By the names that were asked for, and by label."""

avoided: dict[str, str] = {}
"""Devices that failed, by label, and what happened: "auto" takes another; a request by name tries it again."""

opening = ForkSafeLock()
"""Held while a device is opened or forgotten."""


def avoid(label: str, why: str) -> None:
    """Note that a device failed: "auto" takes another from now on."""
    avoided[label] = why
    with opening:
        for name in [name for name, device in by_name.items() if name.startswith("auto") and device.name == label]:
            del by_name[name]
