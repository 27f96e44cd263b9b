"""State in fewer bits, in JAX: read as float32, and stored again. Codes are those of ``shaders/lib/storage.wgsl``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..wgsl import slot_storage
from ..wgsl.shell import BLOCK
from .xla_arrays import floats, put_windows, windows, words
from .xla_entries import Entries
from .xla_maps import printed

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]


def _kind(p: Parameters) -> tuple[str, int]:
    """How it is stored, and how many numbers to a word."""
    kind = tuple(slot_storage.BITS)[p["kind"]]
    return kind, 32 // slot_storage.BITS[kind]


def _shifts(per_word: int) -> Array:
    return jnp.arange(0, 32, 32 // per_word, dtype=jnp.uint32)


def _load_state(p: Parameters, stored: Array, largest: Array, loaded: Array, table: Array, scalars: Array) -> Results:
    (kind, per_word), size = _kind(p), p["size"]
    entries = Entries.of(p, table, 3, scalars)
    first = entries.members[1]
    packed = windows(words(stored), first // per_word, -(-size // per_word))
    codes = (packed[..., None] >> _shifts(per_word)) & jnp.uint32((1 << 32 // per_word) - 1)
    codes = codes.reshape(first.size, -1)[:, :size]
    decode = printed("lib", "storage", f"from_{kind}")[f"from_{kind}"]
    if kind.startswith("dynamic8"):
        most = windows(floats(largest), first // BLOCK, -(-size // BLOCK))
        values = decode(codes, jnp.repeat(most, BLOCK, axis=1)[:, :size])
    else:
        values = decode(codes)
    return (entries.store(loaded, 2, values, (1,)),)


def _store_state(p: Parameters, stored: Array, largest: Array, loaded: Array, table: Array, scalars: Array) -> Results:
    (kind, per_word), size = _kind(p), p["size"]
    entries = Entries.of(p, table, 3, scalars)
    first = entries.members[1]
    values = windows(floats(loaded), entries.members[2], size)
    values = jnp.pad(values, ((0, 0), (0, -size % BLOCK)))  # the rest of a tensor's last block becomes zero
    if kind == "bfloat16":
        functions = printed("lib", "storage", "rounding_bits", "to_bfloat16_stochastic")
        seeds = entries.scalar(p["step_word"]).astype(jnp.uint32) * jnp.uint32(2) + jnp.uint32(p["seed"])
        places = first[:, None] + jnp.arange(values.shape[1], dtype=jnp.uint32)
        codes = functions["to_bfloat16_stochastic"](values, functions["rounding_bits"](places, seeds[:, None]))
    elif kind == "float16":
        codes = printed("lib", "storage", "to_float16")["to_float16"](values)
    else:
        most = jnp.abs(values).reshape(first.size, -1, BLOCK).max(axis=2)
        codes = printed("lib", "storage", f"to_{kind}")[f"to_{kind}"](values, jnp.repeat(most, BLOCK, axis=1))
        largest = put_windows(largest, first // BLOCK, most, entries.is_active)
    packed = (codes.reshape(first.size, -1, per_word) << _shifts(per_word)).sum(axis=2, dtype=jnp.uint32)
    return put_windows(stored, first // per_word, packed, entries.is_active), largest


REPLACEMENTS: dict[str, Callable[..., Results]] = {"load_state": _load_state, "store_state": _store_state}
