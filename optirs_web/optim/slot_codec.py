"""State in fewer bits, on the host: decoded to float32 for state dicts, and encoded from them.

The kinds are those of `wgsl.slot_storage` and `wgsl.param_storage`. It does not need NumPy, which Pyodide may lack.
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
    """Return the 256 numbers of an 8-bit map, ascending (Dettmers et al. 2022, arXiv:2110.02861), as float32."""
    signed = kind == "dynamic8"
    numbers = [0.0, 1.0]
    for decade in range(_DECADES):
        count = 2**decade if signed else 2 ** (decade + 1)
        means = [10.0 ** (decade - _DECADES + 1) * (0.1 + 0.9 * (index + 0.5) / count) for index in range(count)]
        numbers += means
        numbers += [-mean for mean in means] if signed else []
    return array("f", sorted(numbers))


@cache
def _edges(kind: str) -> array[float]:
    """Return the midpoints between adjacent numbers of an 8-bit map."""
    return array("f", ((number + next_number) / 2 for number, next_number in pairwise(numbers_of(kind))))


def decode(kind: str, raw: memoryview, largest: memoryview | None = None) -> memoryview:
    """Return the float32 values of stored bytes; for 8 bits `largest` is the magnitude of each block, as float32."""
    if kind == "float32":
        return raw
    values = array("f")
    if kind == "bfloat16":
        values.frombytes(array("I", (word << 16 for word in raw.cast("B").cast("H"))).tobytes())
    elif kind == "float16":
        values.extend(struct.unpack(f"<{raw.nbytes // 2}e", raw))
    else:
        assert largest is not None
        numbers, most = numbers_of(kind), largest.cast("B").cast("f")
        values.extend(numbers[code] * most[index // BLOCK] for index, code in enumerate(raw.cast("B")))
    return memoryview(values).cast("B")


def largest_of_blocks(values: memoryview) -> memoryview:
    """Return the largest magnitude of each block of float32 values, as bytes; NaN where a value is not finite."""
    numbers = values.cast("B").cast("f")
    blocks = (numbers[start : start + BLOCK] for start in range(0, len(numbers), BLOCK))
    return memoryview(array("f", (max(map(abs, block)) + 0.0 * sum(block) for block in blocks))).cast("B")


def encode(kind: str, values: memoryview, largest: memoryview | None = None) -> memoryview:
    """Return the stored bytes of float32 values, rounded to the nearest; `largest` as in `decode`."""
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
            bisect_left(edges, number / most[index // BLOCK] if most[index // BLOCK] else 0.0)
            for index, number in enumerate(numbers)
        )
    )


def decode_slots(stored: Stored, slots: dict[str, memoryview], params: memoryview) -> None:
    """Replace stored slots of a tensor by those of a state dict; `params`: its upper 16-bit words, if needed."""
    for name, kind in stored:
        if name in slots:  # stacks have no state of a tensor without elements
            slots[name] = decode(kind, slots[name], slots.get(largest_name(name)))
        elif kind == "kahan":
            slots["kahan_comp"] = decode("bfloat16", slots["kahan_comp"])
        elif kind == "master":
            words = zip(params.cast("I"), slots.pop("master_low").cast("H"), strict=True)
            slots["master"] = memoryview(array("I", (_joined(*pair) for pair in words))).cast("B")


def encode_slots(stored: Stored, entry: Mapping[str, memoryview]) -> Mapping[str, memoryview]:
    """Return the state of a tensor, from a state dict, as it is stored."""
    result = dict(entry)
    for name, kind in stored:
        largest = largest_name(name)
        if name == PARAM and "kahan_comp" in entry:
            result["kahan_comp"] = encode("bfloat16", entry["kahan_comp"])
        elif name == PARAM and "master" in entry:
            bits = entry["master"].cast("B").cast("I")
            result["master_low"] = memoryview(array("H", (word & 0xFFFF for word in bits))).cast("B")
        elif name in entry:
            if is_blockwise([kind]):
                block_largest = largest_of_blocks(entry[name])
                pairs = zip(
                    block_largest.cast("f"), result.setdefault(largest, block_largest).cast("B").cast("f"), strict=True
                )
                if any(isfinite(most) and not value <= most * _ROUNDED for value, most in pairs):
                    raise ValueError(f"'{name}' has values above those of '{largest}'; omit that to have it found")
            result[name] = encode(kind, entry[name], result.get(largest))
    return result


def _joined(upper: int, lower: int) -> int:
    """Return the bits of a float32 from its 16-bit words; see ``shaders/lib/storage.wgsl``."""
    down = lower & 0x8000
    is_set = upper & 0xFFFF or upper & 0x7FFFFFFF == (0 if down else 0x7F800000)
    return upper if is_set else upper + lower - (down << 1)


def _to_bfloat16(bits: int) -> int:
    if bits & 0x7FFFFFFF > 0x7F800000:  # NaN stays NaN
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16
