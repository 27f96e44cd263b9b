"""State in fewer bits, on the host: what a state dict shows of it, and what is written from one.

The kinds are those of `wgsl.slot_storage` and `wgsl.param_storage`. Without NumPy too, since Pyodide may have none.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from math import isfinite

from ..wgsl.param_storage import PARAM
from ..wgsl.shell import BLOCK
from ..wgsl.slot_storage import is_blockwise, largest_name

__all__ = ["decode", "decode_slots", "encode", "encode_slots", "largest_of_blocks", "numbers_of"]

Stored = Iterable[tuple[str, str]]

_DECADES = 7
_ROUNDED = 1.000001


@cache
def numbers_of(kind: str) -> array[float]:
    """The 256 numbers of an 8-bit map in order (Dettmers et al. 2022, arXiv:2110.02861), as float32."""
    signed = kind == "dynamic8"
    numbers = [0.0, 1.0]
    for decade in range(_DECADES):
        count = 2**decade if signed else 2 ** (decade + 1)
        means = [10.0 ** (decade - _DECADES + 1) * (0.1 + 0.9 * (place + 0.5) / count) for place in range(count)]
        numbers += means
        numbers += [-one for one in means] if signed else []
    return array("f", sorted(numbers))


@cache
def _edges(kind: str) -> array[float]:
    """Where one number's neighbour is nearer."""
    return array("f", ((one + other) / 2 for one, other in pairwise(numbers_of(kind))))


def decode(kind: str, raw: memoryview, largest: memoryview | None = None) -> memoryview:
    """The float32 values of stored bytes; for 8 bits with the largest magnitude of each block, as float32 bytes."""
    if kind == "float32":
        return raw
    values = array("f")
    if kind == "bfloat16":
        values.frombytes(array("I", (half << 16 for half in raw.cast("B").cast("H"))).tobytes())
    elif kind == "float16":
        values.extend(struct.unpack(f"<{raw.nbytes // 2}e", raw))
    else:
        assert largest is not None
        numbers, most = numbers_of(kind), largest.cast("B").cast("f")
        values.extend(numbers[code] * most[place // BLOCK] for place, code in enumerate(raw.cast("B")))
    return memoryview(values).cast("B")


def largest_of_blocks(values: memoryview) -> memoryview:
    """The largest magnitude of each block of float32 values, as bytes; NaN where one is not finite."""
    numbers = values.cast("B").cast("f")
    blocks = (numbers[start : start + BLOCK] for start in range(0, len(numbers), BLOCK))
    return memoryview(array("f", (max(map(abs, one)) + 0.0 * sum(one) for one in blocks))).cast("B")


def encode(kind: str, values: memoryview, largest: memoryview | None = None) -> memoryview:
    """The stored bytes of float32 values, rounded to the nearest; `largest` as in `decode`."""
    if kind == "float32":
        return values
    numbers = values.cast("B").cast("f")
    if kind == "bfloat16":
        bits = values.cast("B").cast("I")
        return memoryview(array("H", map(_to_bfloat16, bits))).cast("B")
    if kind == "float16":
        try:
            return memoryview(struct.pack(f"<{len(numbers)}e", *numbers))
        except OverflowError:
            raise ValueError("float16 has no numbers above 65,504; bfloat16 has") from None
    assert largest is not None
    edges, most = _edges(kind), largest.cast("B").cast("f")
    return memoryview(
        bytes(
            bisect_left(edges, one / most[place // BLOCK] if most[place // BLOCK] else 0.0)
            for place, one in enumerate(numbers)
        )
    )


def decode_slots(stored: Stored, slots: dict[str, memoryview], params: memoryview) -> None:
    """Put what a state dict shows of a tensor in the place of what is stored; `params`: the upper halves, if needed."""
    for name, kind in stored:
        if name in slots:  # stacks hold nothing of a tensor without elements
            slots[name] = decode(kind, slots[name], slots.get(largest_name(name)))
        elif kind == "kahan":
            slots["kahan_comp"] = decode("bfloat16", slots["kahan_comp"])
        elif kind == "master":
            halves = zip(params.cast("I"), slots.pop("master_low").cast("H"), strict=True)
            slots["master"] = memoryview(array("I", (_joined(*pair) for pair in halves))).cast("B")


def encode_slots(stored: Stored, entry: Mapping[str, memoryview]) -> Mapping[str, memoryview]:
    """The state of a tensor as it is stored."""
    result = dict(entry)
    for name, kind in stored:
        largest = largest_name(name)
        if name == PARAM and "kahan_comp" in entry:
            result["kahan_comp"] = encode("bfloat16", entry["kahan_comp"])
        elif name == PARAM and "master" in entry:
            bits = entry["master"].cast("B").cast("I")
            result["master_low"] = memoryview(array("H", (one & 0xFFFF for one in bits))).cast("B")
        elif name in entry:
            if is_blockwise([kind]):
                found = largest_of_blocks(entry[name])
                pairs = zip(found.cast("f"), result.setdefault(largest, found).cast("B").cast("f"), strict=True)
                if any(isfinite(most) and not value <= most * _ROUNDED for value, most in pairs):
                    raise ValueError(f"'{name}' has values above those of '{largest}'; omit that to have it found")
            result[name] = encode(kind, entry[name], result.get(largest))
    return result


def _joined(upper: int, lower: int) -> int:
    """A float32 of its halves; see ``shaders/lib/storage.wgsl``."""
    down = lower & 0x8000
    is_set = upper & 0xFFFF or upper & 0x7FFFFFFF == (0 if down else 0x7F800000)
    return upper if is_set else upper + lower - (down << 1)


def _to_bfloat16(bits: int) -> int:
    if bits & 0x7FFFFFFF > 0x7F800000:  # NaN stays NaN
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16
