"""Schedules, the scale of a loss and what is looked for in gradients, in JAX: numbers that stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..runtime.schedules import KINDS, NOWHERE
from ..wgsl import rule_shell, shell
from .xla_arrays import as_type, floats, put, put_at, words
from .xla_maps import printed

__all__ = ["REPLACEMENTS", "TRACED"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_ROW_WORDS, _LAYER_WORDS, _PIECE_WORDS, _PLATEAU_WORDS = 6, 4, 12, 4


def _columns(table: Array, count: int) -> tuple[Array, ...]:
    """The members of a table of structs of so many words."""
    return tuple(words(table)[: table.size // count * count].reshape(-1, count).T)


def _placed(hyper: Array, value: Array, places: tuple[Array, ...], is_written: Array) -> Array:
    """The vector with values, what each lacks to 1, and its logarithm where rows say."""
    log = jnp.where(value <= 0, np.float32(-100), jnp.log(value))
    for one, at in zip((value, 1 - value, log), places, strict=True):
        hyper = put_at(hyper, at, as_type(one, hyper.dtype), is_written & (at != np.uint32(NOWHERE)))
    return hyper


def _schedule(p: Parameters, rows: Array, layers: Array, pieces: Array, hyper: Array) -> Results:
    base, first_layer, layer_count, *places = _columns(rows, _ROW_WORDS)
    old_counts, scheduler, first_piece, piece_count = _columns(layers, _LAYER_WORDS)
    begin, kind, is_absolute, *rest = _columns(pieces, _PIECE_WORDS)
    stepping = jnp.asarray(p["stepping"]).astype(jnp.uint32)
    is_stepping = (stepping >> scheduler) & 1
    counts = floats(old_counts) + is_stepping.astype(jnp.float32)
    numbers = jnp.arange(begin.size, dtype=jnp.uint32)
    has_begun = (numbers >= first_piece[:, None]) & (numbers < (first_piece + piece_count)[:, None])
    has_begun &= floats(begin) <= counts[:, None]
    holding = jnp.where(has_begun, numbers, first_piece[:, None]).max(axis=1)

    def value_of(piece: Array, count: Array, value: Array) -> Array:
        result = value
        for number, name in enumerate(KINDS):
            if p.get(f"use_{name}", True):
                lib = printed("schedules", name, name)
                parameters = lib["Parameters"](*(floats(one)[piece] for one in rest))
                result = jnp.where(kind[piece] == number, lib[name](count, value, parameters), result)
        return result

    def turn(number: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        value, steps = found
        is_there = number < layer_count
        layer = jnp.where(is_there, first_layer + number, 0)
        piece = holding[layer]
        count = counts[layer] - floats(begin)[piece]
        made = value_of(piece, count, jnp.where(is_absolute[piece] != 0, 1, value))
        return jnp.where(is_there, made, value), steps | (is_there & (is_stepping[layer] != 0))

    start = floats(base), jnp.zeros(base.shape, bool)
    value, steps = lax.fori_loop(jnp.uint32(0), layer_count.max(), turn, start)
    table = words(layers)[: counts.size * _LAYER_WORDS].reshape(-1, _LAYER_WORDS).at[:, 0].set(words(counts))
    return put(layers, table), _placed(hyper, value, tuple(places), steps)


def _plateau(p: Parameters, metric: Array, rows: Array, progress: Array, hyper: Array) -> Results:
    lowest, *places = _columns(rows, _PLATEAU_WORDS)
    now = floats(metric)[0]
    best, bad_epochs, cooldown = floats(progress)[:3]
    better, scale, margin, factor, eps = (
        np.float32(p[name]) for name in ("better", "scale", "margin", "factor", "eps")
    )
    is_better = better * now > better * (best * scale + margin)
    best, bad_epochs = jnp.where(is_better, now, best), jnp.where(is_better, 0, bad_epochs + 1)
    is_cooling = cooldown > 0
    cooldown, bad_epochs = jnp.where(is_cooling, cooldown - 1, cooldown), jnp.where(is_cooling, 0, bad_epochs)
    reduces = bad_epochs > p["patience"]
    cooldown = jnp.where(reduces, np.float32(p["cooldown"]), cooldown)
    bad_epochs = jnp.where(reduces, 0, bad_epochs)
    old = jnp.take(floats(hyper), places[0], mode="clip")
    value = jnp.maximum(old * factor, floats(lowest))
    written = _placed(hyper, value, tuple(places), reduces & (old - value > eps))
    return put(progress, jnp.stack([best, bad_epochs, cooldown])), written


def _gradients(grads: Array, blocks: Array, tensors: Array) -> tuple[Array, Array]:
    """The gradients by blocks of an arena, and which of these have any."""
    tensor, _ = _columns(blocks, 2)
    live = jnp.take(_columns(tensors, rule_shell.ENTRY_WORDS)[1], tensor, mode="clip") & 1
    size = tensor.size * shell.BLOCK
    return floats(grads)[:size].reshape(-1, shell.BLOCK), live[:, None] != 0


def _marked(found_inf: Array, is_bad: Array) -> Array:
    return put(found_inf, jnp.where(is_bad, jnp.uint32(1), words(found_inf)[:1]))


def _nonfinite(p: Parameters, grads: Array, blocks: Array, tensors: Array, found_inf: Array) -> Results:
    values, is_live = _gradients(grads, blocks, tensors)
    return (_marked(found_inf, jnp.any(is_live & ~jnp.isfinite(values))),)


def _unscale(p: Parameters, grads: Array, blocks: Array, tensors: Array, scaler: Array, found_inf: Array) -> Results:
    values, is_live = _gradients(grads, blocks, tensors)
    is_bad = jnp.any(is_live & ~jnp.isfinite(values))
    state = floats(scaler)
    unscaled = jnp.where(is_live, values * (np.float32(1) / state[0]), values)
    scaler = put(scaler, jnp.where(is_bad, np.float32(1), state[1:2]), 1)
    return put(grads, unscaled), scaler, _marked(found_inf, is_bad)


def _update_scale(p: Parameters, scaler: Array) -> Results:
    scale, found_inf, tracker = floats(scaler)[:3]
    grown = scale * np.float32(p["growth_factor"])
    is_full = tracker + 1 == p["growth_interval"]
    larger = jnp.where(is_full & jnp.isfinite(grown), grown, scale)
    smaller = jnp.maximum(scale * np.float32(p["backoff_factor"]), np.finfo(np.float32).tiny)
    has_failed = found_inf != 0
    next_tracker = jnp.where(has_failed | is_full, 0, tracker + 1)
    state = jnp.stack([jnp.where(has_failed, smaller, larger), jnp.zeros_like(scale), next_tracker])
    return (put(scaler, state),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "nonfinite": _nonfinite,
    "plateau": _plateau,
    "schedule": _schedule,
    "unscale": _unscale,
    "update_scale": _update_scale,
}

TRACED: dict[str, frozenset[str]] = {"schedule": frozenset({"stepping"})}
