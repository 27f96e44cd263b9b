"""Merging: launches that do not wait for one another become one, in which each has workgroups of its own.

A device runs a launch after the other, and each of the small ones that a gradient is made of leaves most of it idle.
What each computes stays the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any

from ..wgsl import syntax
from ..wgsl.merged_parts import Part
from ..wgsl.merged_shell import joined, padding, workgroup_bytes
from .backend import Capabilities
from .buffer import View
from .fused_kernels import FusedKernel, FusedMapKernel
from .kernels import Binding, CooperativeKernel, ElementwiseKernel, Kernel
from .launches import Launch, Recorded, overlaps

__all__ = ["MergedKernel", "merge"]

_ALONE = {"attention", "attention_grad"}  # a compiler takes too long for more of such a kernel
_MERGED = (CooperativeKernel, ElementwiseKernel, FusedKernel, FusedMapKernel)
_MOST_PARTS = 4  # what a compiler gets at once
_BACK = 8  # launches that one may go before: what it writes is needed the longer
_WORKGROUP_BYTES = 16384  # that every device of WebGPU has

Slots = tuple[int, ...]


class MergedKernel(Kernel):
    """Launches of kernels side by side.

    Attributes:
        kernels: they.
        slots: for each, and each of its launches, the number of the buffer that each of its bindings is.
    """

    def __init__(self, kernels: tuple[Kernel, ...], slots: tuple[tuple[Slots, ...], ...]) -> None:
        """Use `merged_kernel`, which makes each kernel once."""
        self.kernels = kernels
        self.slots = slots
        self.launches = [(one, its) for one, all_ in zip(kernels, slots, strict=True) for its in all_]
        self.name = " & ".join(one.name for one, _ in self.launches)
        self.overwrites = all(one.overwrites for one in kernels)

    @cached_property
    def module(self) -> syntax.Module:
        """See `wgsl.merged_shell`."""
        return joined([_part(one) for one in self.kernels], self.slots)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """Each buffer as those that bind it have it."""
        found = {
            slot: binding for one, slots in self.launches for slot, binding in zip(slots, one.bindings, strict=True)
        }
        return tuple(Binding(f"buffer{slot}", found[slot].type, found[slot].writes) for slot in sorted(found))

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """The grids, then those of each launch."""
        names = [f"{axis}{number}" for number in range(len(self.launches)) for axis in ("columns", "rows")]
        result = [*((name, "u32") for name in names), *_unused(len(names))]
        for number, (one, _) in enumerate(self.launches):
            result += [(f"of{number}.{name}", type_) for name, type_ in one.parameters]
            result += _unused(len(one.parameters))
        return tuple(result)

    def parts(self, arrays: Sequence[Any], block: bytes) -> Iterator[tuple[Kernel, list[Any], bytes]]:
        """Each launch with the arrays and the parameters that are its own: for those who take one after the other."""
        first = 2 * len(self.launches)
        first += padding(first)
        for one, slots in self.launches:
            count = len(one.parameters)
            yield one, [arrays[slot] for slot in slots], block[4 * first : 4 * (first + count)]
            first += count + padding(count)


def _unused(words: int) -> list[tuple[str, str]]:
    return [("unused", "u32")] * padding(words)


@cache
def merged_kernel(kernels: tuple[Kernel, ...], slots: tuple[tuple[Slots, ...], ...]) -> MergedKernel:
    """The kernel that does what all of these do."""
    return MergedKernel(kernels, slots)


@cache
def _part(kernel: Kernel) -> Part:
    return Part(kernel.module)


class _Group:
    """Launches that become one, and what they are bound to."""

    def __init__(self, first: Recorded) -> None:
        self.members = [first]
        self.reads, self.writes = [*first.reads], [*first.writes]

    def precedes(self, reads: Sequence[View], writes: Sequence[View]) -> bool:
        """One of them has to run before a launch that reads and writes these."""
        return any(overlaps(view, reads) or overlaps(view, writes) for view in self.writes) or any(
            overlaps(view, writes) for view in self.reads
        )

    def takes(self, one: Launch, capabilities: Capabilities) -> bool:
        """The launch can be merged with them."""
        members = [member for member in self.members if isinstance(member, Launch)]
        launches = [*members, one]
        if len(members) < len(self.members) or len(members) == _MOST_PARTS:
            return False
        if not all(isinstance(each.kernel, _MERGED) and each.kernel.name not in _ALONE for each in launches):
            return False
        bound = [
            (view, binding) for each in launches for view, binding in zip(each.views, each.kernel.bindings, strict=True)
        ]
        read = {view.buffer for view, binding in bound if not binding.writes}
        if any(view.buffer in read for view, binding in bound if binding.writes):
            return False
        views, _ = _bound(launches)
        return len(views) <= capabilities.max_storage_buffers and _can_join(launches, capabilities)

    def add(self, one: Launch) -> None:
        """Merge it."""
        self.members.append(one)
        self.reads += one.reads
        self.writes += one.writes

    def as_recorded(self) -> Recorded:
        """The launch that does what all of them do."""
        if len(self.members) == 1:
            return self.members[0]
        members = [one for one in self.members if isinstance(one, Launch)]
        together = _together(members)
        launches = [one for its in together for one in its]
        views, slots = _bound(launches)
        its_slots = iter(slots)
        kernel = merged_kernel(
            tuple(its[0].kernel for its in together), tuple(tuple(next(its_slots) for _ in its) for its in together)
        )
        parameters: list[int | float] = [size for one in launches for size in one.grid[:2]]
        parameters += [0] * padding(len(parameters))
        for one in launches:
            parameters += [*one.parameters, *[0] * padding(len(one.parameters))]
        return Launch(kernel, tuple(views), (_workgroups(launches), 1, 1), tuple(parameters))


def _together(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Those of one kernel together, if it can be told for which it runs; by name, so that equal merges are one."""
    found: dict[Any, list[Launch]] = {}
    for one in sorted(launches, key=lambda one: one.kernel.name):
        found.setdefault(one.kernel if _part(one.kernel).can_share else one, []).append(one)
    return [*found.values()]


def _bound(launches: Sequence[Launch]) -> tuple[list[View], list[Slots]]:
    """The views that they are bound to, and for each launch which of these; those that are read are bound once."""
    views: list[View] = []
    known: dict[tuple[View, str], int] = {}
    slots: list[Slots] = []
    for one in launches:
        its_slots = []
        for view, binding in zip(one.views, one.kernel.bindings, strict=True):
            slot = None if binding.writes else known.get((view, binding.type))
            if slot is None:
                slot = len(views)
                views.append(view)
                if not binding.writes:
                    known[view, binding.type] = slot
            its_slots.append(slot)
        slots.append(tuple(its_slots))
    return views, slots


def _can_join(launches: Sequence[Launch], capabilities: Capabilities) -> bool:
    parts = [_part(one.kernel) for one in launches]
    least = min(part.size for part in parts)
    if any(part.size != least and not (part.can_split and part.size % least == 0) for part in parts):
        return False
    return (
        all(part.can_join for part in parts)
        and not any(one.kernel.name in capabilities.replaced for one in launches)
        and workgroup_bytes(parts) <= _WORKGROUP_BYTES
        and _workgroups(launches) <= capabilities.max_workgroups
    )


def _workgroups(launches: Sequence[Launch]) -> int:
    parts = [_part(one.kernel) for one in launches]
    least = min(part.size for part in parts)
    return sum(one.grid[0] * one.grid[1] * (part.size // least) for one, part in zip(launches, parts, strict=True))


def merge(recorded: Sequence[Recorded], capabilities: Capabilities) -> list[Recorded]:
    """A shorter list of launches and copies with the same results.

    Args:
        recorded: what is to run, in order.
        capabilities: of the device.
    """
    groups: list[_Group] = []
    for one in recorded:
        group = _group_for(one, groups, capabilities) if isinstance(one, Launch) else None
        if group is None:
            groups.append(_Group(one))
        elif isinstance(one, Launch):
            group.add(one)
    return [group.as_recorded() for group in groups]


def _group_for(one: Launch, groups: Sequence[_Group], capabilities: Capabilities) -> _Group | None:
    """The last group that takes the launch, none of which it has to wait for."""
    reads, writes = one.reads, one.writes
    for group in groups[: -_BACK - 1 : -1]:
        if group.precedes(reads, writes):
            return None
        if group.takes(one, capabilities):
            return group
    return None
