"""Facts about devices from the operating system: which share hardware, the address on the bus, the memory in bytes."""

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
    """As its backend says, or what follows from the rest."""
    return info.kind or ("cpu" if info.name == "cpu" else "software" if info.software else "")


def completed(adapters: Sequence[AdapterInfo], avoided: Mapping[str, str], pci: str = _PCI) -> list[AdapterInfo]:
    """The adapters with what the system tells of them. What is in `avoided` says so as its reason.

    Args:
        adapters: as the backends list them.
        avoided: labels, and what happened.
        pci: the folder in which the system lists the devices of its PCI bus.
    """
    import platform

    cards, host = _cards(pci), platform.node()
    adapters = [_of_vendor(one, adapters) for one in adapters]
    several = Counter((one.name, one.adapter) for one in adapters if one.available)
    placed = [_placed(one, host, cards, several[one.name, one.adapter] > 1) for one in adapters]
    memory = {one.adapter: one.memory for one in placed if one.adapter and one.memory is not None}
    return [_told(one, memory, avoided) for one in placed]


def idle_gpus(pci: str = _PCI) -> str:
    """Graphics cards that the system lists, where no driver offers one; "" where it lists none."""
    cards = [one for one in _cards(pci) if one.ids.partition(":")[0] in _VENDORS]
    names = " and ".join(f"{_VENDORS[one.ids.partition(':')[0]]} GPU at PCI {one.address}" for one in cards)
    if not names:
        return ""
    return f"the system lists an {names} that no driver offers: `optirs-web devices` says what to install"


def _placed(info: AdapterInfo, host: str, cards: Sequence[_Card], is_one_of_several: bool) -> AdapterInfo:
    """With the piece of hardware that it is, as far as numbers tell."""
    if not info.available:
        return info
    info = replace(info, kind=kind_of(info), host=info.host or host)
    if info.kind in ("cpu", "software"):
        return replace(info, adapter=_PROCESSOR, bus="", memory=info.memory or _memory_of_host())
    own = [one for one in cards if one.address == info.bus] if info.bus else []
    alike = [one for one in cards if one.ids == info.adapter]
    if not own and len(alike) == 1 and not is_one_of_several:
        own = alike
    if own:
        card = own[0]
        return replace(info, adapter=card.address, bus=card.bus, memory=info.memory or card.memory)
    if info.bus:
        return replace(info, adapter=info.bus)
    if info.adapter and (is_one_of_several or len(alike) > 1):  # which of them is which is not known
        return replace(info, adapter=f"{info.adapter} {info.label}")
    return info


def _of_vendor(info: AdapterInfo, adapters: Sequence[AdapterInfo]) -> AdapterInfo:
    """OpenGL tells the vendor alone: it is that vendor's one kind of card, if there is one."""
    vendor, _, device = info.adapter.partition(":")
    if device != "0000":
        return info
    others = {one.adapter for one in adapters if one.adapter.startswith(f"{vendor}:")} - {info.adapter}
    return replace(info, adapter=others.pop() if len(others) == 1 else "")


def _told(info: AdapterInfo, memory: Mapping[str, int | None], avoided: Mapping[str, str]) -> AdapterInfo:
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
    """The graphics cards of this machine; none where the system does not list them."""
    try:
        addresses = sorted(os.listdir(pci))
    except OSError:
        return []
    folders = [(one, os.path.join(pci, one)) for one in addresses]
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
