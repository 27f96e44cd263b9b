"""Pieces of schedules: their value on the host, and the tables from which a kernel computes the same on a device.

The value is a map function of ``shaders/schedules``. The host has it printed as Python, so that no value is read back.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from ..wgsl.print_python import compile_python, print_python
from .buffer import Buffer, View
from .device import Device
from .kernels import cooperative, load_map_module

__all__ = [
    "LARGEST",
    "MOST_SCHEDULERS",
    "NOWHERE",
    "PLATEAU_ROW",
    "Layer",
    "Piece",
    "Places",
    "Row",
    "ScheduleTable",
    "reduce_on_plateau",
    "run_on_host",
    "upload",
    "value_of",
]

KINDS = ("polynomial", "cosine", "exponential", "triangular", "noise")
"""The files of ``shaders/schedules``, in the order in which the kernel numbers them."""

MOST_SCHEDULERS = 32
"""Of one optimizer on a device: a bit for each."""

NOWHERE = 0xFFFFFFFF

LARGEST = 3.4e38

# The structs of the kernels.
_ROW, _LAYER, _PIECE = struct.Struct("<f5I"), struct.Struct("<f3I"), struct.Struct("<f2I9f")
PLATEAU_ROW = struct.Struct("<f3I")


class Piece(NamedTuple):
    """A schedule from count `begin` on; the rest is Parameters, see ``shaders/schedules/parameters.wgsl``.

    Attributes:
        is_absolute: its base is 1.
    """

    kind: str
    begin: float = 0.0
    is_absolute: bool = False
    steps: float = 1.0
    until: float = 1.0
    start: float = 1.0
    end: float = 0.0
    power: float = 1.0
    rest: float = 0.0
    offset: float = 0.0
    period: float = 1.0
    stairs: float = 0.0

    def value(self, count: float, base: float) -> float:
        """What the kernel computes in float32, in float64."""
        call, parameters = _on_host(self.kind)
        return call(float(count) - self.begin, 1.0 if self.is_absolute else base, parameters(*self[3:]))

    def pack(self) -> bytes:
        """As the kernel's Piece."""
        numbers = (max(-LARGEST, min(one, LARGEST)) for one in self[3:])
        return _PIECE.pack(self.begin, KINDS.index(self.kind), self.is_absolute, *numbers)


@cache
def _on_host(kind: str) -> tuple[Callable[..., float], Callable[..., Any]]:
    functions = compile_python(print_python(load_map_module("schedules", kind, (kind,)), "float", [kind]), kind)
    return functions[kind], functions["Parameters"]


def value_of(pieces: Sequence[Piece], count: float, base: float) -> float:
    """The value of the piece that has begun last."""
    holding = pieces[0]
    for one in pieces:
        if one.begin <= count:
            holding = one
    return holding.value(count, base)


class Places(NamedTuple):
    """Where in a table of floats a value goes, what it lacks to 1, and its logarithm; or `NOWHERE`."""

    at: int
    one_minus_at: int = NOWHERE
    log_at: int = NOWHERE

    @property
    def written(self) -> list[int]:
        """Those that there are."""
        return [one for one in self if one != NOWHERE]


@dataclass(frozen=True, slots=True)
class Layer:
    """What one scheduler makes of a value: its pieces, from a count on."""

    scheduler: int
    count: float
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Row:
    """A hyper-parameter of a group: its layers are applied to its base, one after the other."""

    base: float
    places: Places
    layers: Sequence[Layer]


class ScheduleTable:
    """Rows on a device, whose kernel moves the counts and writes the values."""

    def __init__(self, device: Device, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.device = device
        packed_rows, layers, pieces = bytearray(), bytearray(), bytearray()
        for row in rows:
            packed_rows += _ROW.pack(row.base, len(layers) // _LAYER.size, len(row.layers), *row.places)
            for layer in row.layers:
                first = len(pieces) // _PIECE.size
                layers += _LAYER.pack(layer.count, layer.scheduler, first, len(layer.pieces))
                pieces += b"".join(piece.pack() for piece in layer.pieces)
        used = {piece.kind for row in rows for layer in row.layers for piece in layer.pieces}
        self._kernel = cooperative("schedule", **{f"use_{kind}": kind in used for kind in KINDS})
        self._buffers = [upload(device, one) for one in (packed_rows, layers, pieces)]

    def step(self, schedulers: int, hyper: Buffer) -> None:
        """Enqueue a step of the schedulers whose bits are set."""
        views = [View.whole(one) for one in (*self._buffers, hyper)]
        self.device.dispatch(self._kernel, views, -(-len(self.rows) // 64), [schedulers])

    def set_base(self, row: int, base: float) -> None:
        """Another base from now on: 4 bytes."""
        self.device.write(View(self._buffers[0], _ROW.size * row, 4), memoryview(struct.pack("<f", base)))

    def retire(self) -> None:
        """Programs that use it must be recorded again."""
        for one in self._buffers:
            one.retired = True


def upload(device: Device, content: bytes | bytearray) -> Buffer:
    """Memory of its own with this content."""
    buffer = device.allocate_zeroed(len(content))
    device.write(View.whole(buffer), memoryview(content))
    return buffer


def run_on_host(stepping: int, rows: Any, layers: Any, pieces: Any, hyper: Any) -> None:
    """What the kernel does, over its tables as bytes and `hyper` as floats: for array targets."""
    all_layers, all_pieces = list(_LAYER.iter_unpack(layers)), list(_PIECE.iter_unpack(pieces))
    for base, first_layer, count, *places in _ROW.iter_unpack(rows):
        value, steps = base, False
        for number in range(first_layer, first_layer + count):
            at, scheduler, first, piece_count = all_layers[number]
            if stepping >> scheduler & 1:
                at += 1
                steps = True
                _LAYER.pack_into(layers, _LAYER.size * number, at, scheduler, first, piece_count)
            own = all_pieces[first : first + piece_count]
            value = value_of([Piece(KINDS[kind], begin, *rest) for begin, kind, *rest in own], at, value)
        if steps:
            place(value, Places(*places), hyper)


def reduce_on_plateau(p: Mapping[str, float], metric: float, rows: Any, progress: Any, hyper: Any) -> None:
    """What the kernel `plateau` does, over its rows as bytes, and floats; for array targets."""
    best, bad_epochs, cooldown = progress
    bad_epochs += 1
    if p["better"] * metric > p["better"] * (best * p["scale"] + p["margin"]):
        best, bad_epochs = metric, 0
    if cooldown > 0:
        cooldown, bad_epochs = cooldown - 1, 0
    if bad_epochs > p["patience"]:
        cooldown, bad_epochs = p["cooldown"], 0
        for lowest, *places in PLATEAU_ROW.iter_unpack(rows):
            value = max(float(hyper[places[0]]) * p["factor"], lowest)
            if hyper[places[0]] - value > p["eps"]:
                place(value, Places(*places), hyper)
    progress[:] = best, bad_epochs, cooldown


def place(value: float, places: Places, hyper: Any) -> None:
    """Write a value, and what is made of it."""
    written = (value, 1 - value, math.log(value) if value > 0 else -100.0)
    for at, one in zip(places, written, strict=True):
        if at != NOWHERE:
            hyper[at] = one
