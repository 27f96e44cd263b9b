"""Facts about devices from the operating system: shared hardware, the address on the bus, the memory in bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ..backend import AdapterInfo

__all__ = ["completed", "idle_gpus", "kind_of"]

_PCI = "/sys/bus/pci/devices"
_DISPLAY = "0x03"  # the class of PCI devices that are graphics cards, by its first digits
_VENDORS = {"10de": "NVIDIA", "1002": "AMD", "8086": "Intel"}
_PROCESSOR = "processor"


class _Card(NamedTuple):
    """A graphics card as Linux sees it."""

    address: str
    ids: str
    bus: str
    memory: int | None


def kind_of(info: AdapterInfo) -> str:
    """Return the kind of hardware: what the backend says, or what follows from the other attributes."""
    return info.kind or ("cpu" if info.name == "cpu" else "software" if info.software else "")


def completed(adapters: Sequence[AdapterInfo], avoided: Mapping[str, str], pci: str = _PCI) -> list[AdapterInfo]:
    """Return the adapters with what the system knows about them, and the reason why "auto" avoids some.

    Args:
        adapters: as the backends list them.
        avoided: by label, the reason.
        pci: the folder in which the system lists the devices of its PCI bus.
    """
    import platform

    cards, host = _cards(pci), platform.node()
    adapters = [_with_only_card_of_vendor(adapter, adapters) for adapter in adapters]
    counts = Counter((adapter.name, adapter.adapter) for adapter in adapters if adapter.available)
    located = [
        _with_hardware(adapter, host, cards, is_ambiguous=counts[adapter.name, adapter.adapter] > 1)
        for adapter in adapters
    ]
    memory = {adapter.adapter: adapter.memory for adapter in located if adapter.adapter and adapter.memory is not None}
    return [_with_memory_and_reason(adapter, memory, avoided) for adapter in located]


def idle_gpus(pci: str = _PCI) -> str:
    """Return a sentence about the graphics cards that the system lists; "" if it lists none."""
    cards = [card for card in _cards(pci) if card.ids.partition(":")[0] in _VENDORS]
    names = " and ".join(f"{_VENDORS[card.ids.partition(':')[0]]} GPU at PCI {card.address}" for card in cards)
    if not names:
        return ""
    return f"the system lists an {names} that no driver offers: `optirs-web devices` says what to install"


def _with_hardware(info: AdapterInfo, host: str, cards: Sequence[_Card], *, is_ambiguous: bool) -> AdapterInfo:
    """Return the adapter with its kind, host and hardware, as far as identifiers tell.

    `is_ambiguous`: its backend lists several adapters with this identifier.
    """
    if not info.available:
        return info
    info = replace(info, kind=kind_of(info), host=info.host or host)
    if info.kind in ("cpu", "software"):
        return replace(info, adapter=_PROCESSOR, bus="", memory=info.memory or _memory_of_host())
    own = [card for card in cards if card.address == info.bus] if info.bus else []
    alike = [card for card in cards if card.ids == info.adapter]
    if not own and len(alike) == 1 and not is_ambiguous:
        own = alike
    if own:
        card = own[0]
        return replace(info, adapter=card.address, bus=card.bus, memory=info.memory or card.memory)
    if info.bus:
        return replace(info, adapter=info.bus)
    if info.adapter and (is_ambiguous or len(alike) > 1):  # the system does not say which is which
        return replace(info, adapter=f"{info.adapter} {info.label}")
    return info


def _with_only_card_of_vendor(info: AdapterInfo, adapters: Sequence[AdapterInfo]) -> AdapterInfo:
    """Return an adapter of OpenGL, which reports its vendor only, with the vendor's card if all are of one kind."""
    vendor, _, device = info.adapter.partition(":")
    if device != "0000":
        return info
    others = {other.adapter for other in adapters if other.adapter.startswith(f"{vendor}:")} - {info.adapter}
    return replace(info, adapter=others.pop() if len(others) == 1 else "")


def _with_memory_and_reason(
    info: AdapterInfo, memory: Mapping[str, int | None], avoided: Mapping[str, str]
) -> AdapterInfo:
    if info.memory is None and info.adapter in memory:
        info = replace(info, memory=memory[info.adapter])
    if info.label in avoided:
        reason = f"{avoided[info.label]}, so 'auto' avoids it until you ask for '{info.label}'"
        info = replace(info, reason=reason)
    return info


def _memory_of_host() -> int | None:
    with suppress(AttributeError, ValueError, OSError):  # systems that are no Unix, or do not tell
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _cards(pci: str) -> list[_Card]:
    """Return the graphics cards of this machine; none if the system does not list them."""
    try:
        addresses = sorted(os.listdir(pci))
    except OSError:
        return []
    folders = [(address, os.path.join(pci, address)) for address in addresses]
    return [_card(address, folder) for address, folder in folders if _read(folder, "class").startswith(_DISPLAY)]


def _card(address: str, folder: str) -> _Card:
    ids = ":".join(_read(folder, name).removeprefix("0x") for name in ("vendor", "device"))
    _, _, path = os.path.realpath(folder).rpartition("/devices/")
    memory = _read(folder, "mem_info_vram_total")  # AMD's driver tells it
    return _Card(address, ids, path, int(memory) if memory.isdecimal() else None)


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
