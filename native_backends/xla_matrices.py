"""Library calls that take the place of the kernels for stacks of matrices, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .xla_arrays import floats
from .xla_entries import Entries
from .xla_maps import printed

__all__ = ["REPLACEMENTS"]

Parameters = Mapping[str, Any]
Results = tuple[Array, ...]

_LEAST_RIDGE = np.float32(1e-6)


def _batched_matmul(
    p: Parameters, a: Array, b: Array, c: Array, d: Array, products: Array, tensor_scalars: Array
) -> Results:
    entries = Entries.of(p, products, 5, tensor_scalars)
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    strides = p["c_row_stride"], p["c_column_stride"]

    def coefficient(name: str) -> Any:
        number, word = np.float32(p[name]), p[f"{name}_word"]
        return number * entries.scalar(word)[:, None, None] if word else number

    left = entries.matrices(floats(a), 1, (rows, inner), (p["a_row_stride"], p["a_inner_stride"]))
    right = entries.matrices(floats(b), 2, (inner, columns), (p["b_inner_stride"], p["b_column_stride"]))
    value = coefficient("alpha") * (left @ right)
    if p["beta"]:
        added, member = (c, 3) if p["in_place"] else (d, 4)
        value += coefficient("beta") * entries.matrices(floats(added), member, (rows, columns), strides)
    if p["diagonal"]:
        value += np.float32(p["diagonal"]) * jnp.eye(rows, columns, dtype=np.float32)
    return (entries.store(c, 3, value, strides),)


def _square(entries: Entries, array: Array, member: int, size: int) -> Array:
    return entries.matrices(floats(array), member, (size, size), (size, 1))


def _of_each(numbers: Array) -> Array:
    """A number for each matrix, to be combined with all of its elements."""
    return numbers[:, None, None]


def _magnitude(matrices: Array) -> Array:
    """The largest of each, or 1 if that is 0: squares of what is large or small would leave float32."""
    largest = jnp.abs(matrices).max(axis=(1, 2))
    return jnp.where(largest > 0, largest, 1)


def _norm(matrices: Array) -> Array:
    """Frobenius' norm of each."""
    scale = _magnitude(matrices)
    scaled = matrices / _of_each(scale)
    return scale * jnp.sqrt((scaled * scaled).sum(axis=(1, 2)))


def _inverse_root_start(
    p: Parameters, statistics: Array, m: Array, h: Array, table: Array, tensor_scalars: Array
) -> Results:
    size, order = p["size"], p["order"]
    entries = Entries.of(p, table, 3, tensor_scalars)
    statistic, eye = _square(entries, statistics, 1, size), jnp.eye(size, dtype=np.float32)
    norm = _norm(statistic)
    ridge = jnp.maximum(entries.scalar(p["ridge_word"]), _LEAST_RIDGE * norm)
    norm += ridge * np.float32(size**0.5)
    z = jnp.where(norm > 0, (1 + order) / (2 * norm), 0)
    root = jnp.sqrt(z) if order == 2 else jnp.sqrt(jnp.sqrt(z))
    start = _of_each(z) * (statistic + _of_each(ridge) * eye)
    return entries.store(m, 2, start, (size, 1)), entries.store(h, 2, _of_each(root) * eye, (size, 1))


def _damped_inverse_start(
    p: Parameters, factors: Array, others: Array, damped: Array, start: Array, table: Array, scalars: Array
) -> Results:
    size, other_size = p["size"], p["other_size"]
    entries = Entries.of(p, table, 4, scalars)
    factor, eye = _square(entries, factors, 1, size), jnp.eye(size, dtype=np.float32)
    mean = factor.trace(axis1=1, axis2=2) / np.float32(size)
    other_diagonal = entries.matrices(floats(others), 2, (other_size,), (other_size + 1,))
    other_mean = other_diagonal.sum(axis=1) / np.float32(other_size)
    has_pi = (mean > 0) & (other_mean > 0)
    pi = jnp.where(has_pi, jnp.sqrt(mean) / jnp.sqrt(other_mean), 1)
    norm = _norm(factor)
    ridge = jnp.maximum(pi * entries.scalar(p["ridge_word"]), _LEAST_RIDGE * norm)
    norm += ridge * np.float32(size**0.5)
    z = _of_each(jnp.where(norm > 0, 1 / norm, 0))
    value = factor + _of_each(ridge) * eye
    first = 2 * z * eye - z * (z * value)
    return entries.store(damped, 3, value, (size, 1)), entries.store(start, 3, first, (size, 1))


def _orthogonalise(p: Parameters, work: Array, columns: Array, q: Array, table: Array, scalars: Array) -> Results:
    size, count = p["size"], p["count"]
    entries = Entries.of(p, table, 3, scalars)
    given = entries.matrices(floats(work), 1, (size, count), (1, size))
    factor, triangle = jnp.linalg.qr(given / _of_each(_magnitude(given)))
    is_negative = triangle.diagonal(axis1=1, axis2=2)[:, None] < 0
    return work, columns, entries.store(q, 2, jnp.where(is_negative, -factor, factor), (count, 1))


def _eigenvectors(
    p: Parameters, matrices: Array, work: Array, vectors: Array, q: Array, table: Array, scalars: Array
) -> Results:
    if not p["is_last"]:
        return work, vectors, q
    size = p["size"]
    entries = Entries.of(p, table, 4, scalars)
    given = _square(entries, matrices, 1, size)
    _, found = jnp.linalg.eigh(given / _of_each(_magnitude(given)), symmetrize_input=False)
    return work, vectors, entries.store(q, 3, found[:, :, ::-1], (size, 1))


def _adam(p: Parameters, entries: Entries, g: Array, first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Adam's step, and both moments after it."""
    lib = printed("lib", "adam", "next_moments", "adam_step")
    shape = (-1,) + (1,) * (g.ndim - 1)
    adam = lib["Adam"](*(entries.scalar(p[f"{name}_word"]).reshape(shape) for name in lib["Adam"]._fields))
    moments = lib["next_moments"](lib["Moments"](first, second), g, adam)
    return lib["adam_step"](moments, adam), *moments


def _low_rank_adam(
    p: Parameters, direction: Array, exp_avg: Array, exp_avg_sq: Array, table: Array, scalars: Array
) -> Results:
    entries = Entries.of(p, table, 3, scalars)
    buffers, members = (direction, exp_avg, exp_avg_sq), (1, 2, 2)
    shape, strides = (p["size"],), (1,)
    given = (
        entries.matrices(floats(one), member, shape, strides) for one, member in zip(buffers, members, strict=True)
    )
    made = _adam(p, entries, *given)
    return tuple(
        entries.store(old, member, values, strides) for old, member, values in zip(buffers, members, made, strict=True)
    )


def _channel_factors(
    p: Parameters, gradients: Array, exp_avg: Array, exp_avg_sq: Array, factors: Array, table: Array, scalars: Array
) -> Results:
    entries = Entries.of(p, table, 3, scalars)
    shape, strides = (p["rank"], p["channels"]), (p["rank_stride"], p["channel_stride"])
    g = entries.matrices(floats(gradients), 1, shape, strides)
    moments = (entries.matrices(floats(one), 2, shape, strides) for one in (exp_avg, exp_avg_sq))
    step, *made = _adam(p, entries, g, *moments)
    over = (1, 2) if p["factors"] == 1 else 1
    norm, norm_of_step = (jnp.sqrt((one * one).sum(axis=over)).reshape(-1, p["factors"]) for one in (g, step))
    found = jnp.where(norm > 0, norm_of_step / norm, 0)
    places = entries._replace(members=(jnp.arange(found.shape[0]) * p["factors"],))
    return (
        *(entries.store(old, 2, values, strides) for old, values in zip((exp_avg, exp_avg_sq), made, strict=True)),
        places.store(factors, 0, found, (1,)),
    )


def _scale_channels(p: Parameters, matrices: Array, factors: Array, table: Array, scalars: Array) -> Results:
    entries = Entries.of(p, table, 3, scalars)
    shape = (p["size"] // (p["factors"] * p["divisor"]), p["factors"], p["divisor"])
    strides = (p["factors"] * p["divisor"], p["divisor"], 1)
    scale = entries.matrices(floats(factors), 2, (p["factors"],), (1,))
    scaled = entries.matrices(floats(matrices), 1, shape, strides) * scale[:, None, :, None]
    return (entries.store(matrices, 1, scaled, strides),)


def _random_projection(p: Parameters, projections: Array, table: Array, scalars: Array) -> Results:
    entries = Entries.of(p, table, 2, scalars)
    random_normal = printed("elementwise", "random", "random_normal")["random_normal"]
    draws = entries.scalar(p["draw_word"]).astype(jnp.uint32)[:, None]
    elements = lax.iota(jnp.uint32, p["size"])
    drawn = random_normal(elements, jnp.uint32(p["seed"]), entries.members[0][:, None], draws)
    return (entries.store(projections, 1, drawn, (1,)),)


REPLACEMENTS: dict[str, Callable[..., Results]] = {
    "batched_matmul": _batched_matmul,
    "channel_factors": _channel_factors,
    "damped_inverse_start": _damped_inverse_start,
    "eigenvectors": _eigenvectors,
    "inverse_root_start": _inverse_root_start,
    "low_rank_adam": _low_rank_adam,
    "orthogonalise": _orthogonalise,
    "random_projection": _random_projection,
    "scale_channels": _scale_channels,
}
