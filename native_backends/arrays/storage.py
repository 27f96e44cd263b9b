"""State and parameters in fewer bits: how elements are read as float32 and stored again.

The functions are those of ``shaders/lib/storage.wgsl``, the kinds of state those of `wgsl.slot_storage`, the kinds of
parameters those of `wgsl.param_storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...wgsl import slot_storage
from ...wgsl.shell import BLOCK
from . import Array, Parameters, Results

__all__ = ["ROUTINES", "block_maxima", "decoded", "encoded", "narrowed", "split_params", "whole_params", "widened"]


def decoded(xp: Any, kind: str, codes: Array, largest: Array | None = None) -> Array:
    """Return the elements as float32; in 8 bits `largest` is the largest magnitude of each one's block."""
    if kind == "float32":
        return codes
    decode = xp.codec()[f"from_{kind}"]
    return decode(codes) if largest is None else decode(codes, largest)


def encoded(xp: Any, kind: str, values: Array, numbers: Array, seed: Any, largest: Array | None = None) -> Array:
    """Return the codes of elements.

    Args:
        xp: the array library.
        kind: how they are stored.
        values: float32.
        numbers: the number of each element, for bfloat16, which is rounded at random.
        seed: of that.
        largest: in 8 bits, the largest magnitude of each one's block.
    """
    functions = xp.codec()
    if kind == "float32":
        return values
    if kind == "bfloat16":
        return functions["to_bfloat16_stochastic"](values, functions["rounding_bits"](numbers, seed))
    encode = functions[f"to_{kind}"]
    return encode(values) if largest is None else encode(values, largest)


def block_maxima(xp: Any, values: Array) -> Array:
    """Return the largest magnitude of each block of a vector, the last of which may be a part of one."""
    return xp.abs(xp.pad(values, (0, -values.size % BLOCK))).reshape(-1, BLOCK).max(axis=1)


def whole_params(xp: Any, kind: str, params: Array, codes: Array | None) -> Array:
    """Return the float32 parameters that are updated: those stored with what is stored next to them."""
    if codes is None:
        return params
    return xp.codec()["join_halves" if kind == "master" else "add_cut_off"](params, codes)


def split_params(xp: Any, kind: str, values: Array, random: tuple[Array, Any] | None) -> tuple[Array, Array | None]:
    """Return what is stored of float32 parameters: the parameters, and the 16-bit codes stored next to them, if any.

    Args:
        xp: the array library.
        kind: of the parameters; "" for float32.
        values: the parameters.
        random: the number of each element and a seed, where they may be rounded at random.
    """
    functions = xp.codec()
    if kind == "master":
        return functions["upper_half"](values), functions["lower_half"](values)
    rounded = values
    if kind == "stochastic" and random is not None:
        bits = functions["rounding_bits"](*random)
        rounded = functions["from_bfloat16"](functions["to_bfloat16_stochastic"](values, bits))
    elif kind:
        rounded = functions["from_bfloat16"](functions["to_bfloat16"](values))
    return rounded, functions["to_bfloat16"](values - rounded) if kind == "kahan" else None


def widened(xp: Any, packed: Array, kind: str, type_: str) -> Array:
    """Return packed 16-bit elements, float16 or bfloat16, as those of a binding of this WGSL type."""
    codes = xp.codes(packed, 16)
    return decoded(xp, kind, codes) if type_ == "array<f32>" else codes.astype(np.uint32)


def narrowed(xp: Any, values: Array, kind: str, type_: str) -> Array:
    """Return the 16-bit codes of what a kernel wrote to a binding of this WGSL type; float32 to the nearest."""
    codes = xp.codec()[f"to_{kind}"](xp.floats(values)) if type_ == "array<f32>" else xp.words(values)
    return codes.astype(np.uint16)


def _kind(p: Parameters) -> str:
    return tuple(slot_storage.BITS)[p["kind"]]


def _load_state(
    xp: Any, p: Parameters, stored: Array, largest: Array, loaded: Array, table: Array, scalars: Array
) -> Results:
    kind, size = _kind(p), p["size"]
    codes = xp.codes(stored, slot_storage.BITS[kind])

    def values(entry: Any) -> Results:
        elements = entry.array(codes, 1, (size,), (1,))
        if not slot_storage.is_blockwise([kind]):
            return (decoded(xp, kind, elements),)
        maxima = xp.strided(xp.floats(largest), entry.members[1] // BLOCK, (-(-size // BLOCK),), (1,))
        return (decoded(xp, kind, elements, xp.repeat(maxima, BLOCK)[:size]),)

    return xp.over_entries(p, table, 3, scalars, values, (xp.floats(loaded), lambda entry: entry.members[2], (1,)))


def _store_state(
    xp: Any, p: Parameters, stored: Array, largest: Array, loaded: Array, table: Array, scalars: Array
) -> Results:
    kind, size = _kind(p), p["size"]
    codes, maxima = xp.codes(stored, slot_storage.BITS[kind]), xp.floats(largest)
    targets: list[Any] = [(codes, lambda entry: entry.members[1], (1,))]
    if slot_storage.is_blockwise([kind]):
        targets.append((maxima, lambda entry: entry.members[1] // BLOCK, (1,)))

    def new_codes(entry: Any) -> Results:
        values = entry.array(xp.floats(loaded), 2, (size,), (1,))
        if len(targets) > 1:
            most = block_maxima(xp, values)
            elements = encoded(xp, kind, values, None, None, xp.repeat(most, BLOCK)[:size])
            return elements.astype(codes.dtype), most
        seed = xp.uint32(entry.scalar(p["step_word"])) * np.uint32(2) + np.uint32(p["seed"])
        numbers = xp.uint32(entry.members[1]) + xp.arange(size, dtype=np.uint32)
        return (encoded(xp, kind, values, numbers, seed).astype(codes.dtype),)

    new, *new_maxima = xp.over_entries(p, table, 3, scalars, new_codes, *targets)
    return xp.words(new), *(new_maxima or [maxima])


ROUTINES: dict[str, Callable[..., Results]] = {"load_state": _load_state, "store_state": _store_state}
