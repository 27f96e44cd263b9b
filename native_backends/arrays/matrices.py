"""Routines over tables of matrices: products, starts of iterations for roots and inverses, QR, eigenvectors, Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import Array, Parameters, Results

__all__ = ["ROUTINES"]

_LEAST_RIDGE = np.float32(1e-6)


def _at(member: int) -> Callable[[Any], Any]:
    """Return a function of an entry: where a member says that a result begins."""
    return lambda entry: entry.members[member]


def _batched_matmul(
    xp: Any, p: Parameters, a: Array, b: Array, c: Array, d: Array, products: Array, scalars: Array
) -> Results:
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    strides = p["c_row_stride"], p["c_column_stride"]
    added, member = (c, 3) if p["in_place"] else (d, 4)

    def value(entry: Any) -> Results:
        def coefficient(name: str) -> Any:
            number, word = np.float32(p[name]), p[f"{name}_word"]
            return number * entry.scalar(word) if word else number

        left = entry.array(xp.floats(a), 1, (rows, inner), (p["a_row_stride"], p["a_inner_stride"]))
        right = entry.array(xp.floats(b), 2, (inner, columns), (p["b_inner_stride"], p["b_column_stride"]))
        product = left @ right
        product *= coefficient("alpha")
        if p["beta"]:
            product += coefficient("beta") * entry.array(xp.floats(added), member, (rows, columns), strides)
        if p["diagonal"]:
            product += np.float32(p["diagonal"]) * xp.eye(rows, columns, dtype=np.float32)
        return (product,)

    return xp.over_entries(p, products, 5, scalars, value, (xp.floats(c), _at(3), strides))


def _magnitude(xp: Any, matrix: Array) -> Array:
    """Return the largest magnitude, or 1 if that is 0: squares of what is large or small would leave float32."""
    largest = xp.abs(matrix).max()
    return xp.where(largest > 0, largest, np.float32(1))


def _norm(xp: Any, matrix: Array) -> Array:
    """Return Frobenius' norm."""
    scale = _magnitude(xp, matrix)
    scaled = matrix / scale
    return scale * xp.sqrt((scaled * scaled).sum())


def _inverse_root_start(
    xp: Any, p: Parameters, statistics: Array, m: Array, h: Array, table: Array, scalars: Array
) -> Results:
    size, order = p["size"], p["order"]
    shape, strides = (size, size), (size, 1)
    eye = xp.eye(size, dtype=np.float32)

    def start(entry: Any) -> Results:
        statistic = entry.array(xp.floats(statistics), 1, shape, strides)
        norm = _norm(xp, statistic)
        ridge = xp.maximum(entry.scalar(p["ridge_word"]), _LEAST_RIDGE * norm)
        norm = norm + ridge * np.float32(size**0.5)
        z = xp.where(norm > 0, np.float32(1 + order) / (2 * norm), np.float32(0))
        root = xp.sqrt(z) if order == 2 else xp.sqrt(xp.sqrt(z))
        return z * (statistic + ridge * eye), root * eye

    targets = ((xp.floats(result), _at(2), strides) for result in (m, h))
    return xp.over_entries(p, table, 3, scalars, start, *targets)


def _damped_inverse_start(
    xp: Any, p: Parameters, factors: Array, others: Array, damped: Array, start: Array, table: Array, scalars: Array
) -> Results:
    size, other_size = p["size"], p["other_size"]
    shape, strides = (size, size), (size, 1)
    eye = xp.eye(size, dtype=np.float32)

    def value(entry: Any) -> Results:
        factor = entry.array(xp.floats(factors), 1, shape, strides)
        mean = factor.trace() / np.float32(size)
        other_mean = entry.array(xp.floats(others), 2, (other_size,), (other_size + 1,)).sum() / np.float32(other_size)
        has_pi = (mean > 0) & (other_mean > 0)
        pi = xp.where(has_pi, xp.sqrt(mean) / xp.sqrt(other_mean), np.float32(1))
        norm = _norm(xp, factor)
        ridge = xp.maximum(pi * entry.scalar(p["ridge_word"]), _LEAST_RIDGE * norm)
        norm = norm + ridge * np.float32(size**0.5)
        z = xp.where(norm > 0, 1 / norm, np.float32(0))
        with_ridge = factor + ridge * eye
        return with_ridge, 2 * z * eye - z * (z * with_ridge)

    targets = ((xp.floats(result), _at(3), strides) for result in (damped, start))
    return xp.over_entries(p, table, 4, scalars, value, *targets)


def _orthogonalise(
    xp: Any, p: Parameters, work: Array, columns: Array, q: Array, table: Array, scalars: Array
) -> Results:
    size, count = p["size"], p["count"]

    def factor(entry: Any) -> Results:
        matrix = entry.array(xp.floats(work), 1, (size, count), (1, size))
        orthogonal, triangle = xp.linalg.qr(matrix / _magnitude(xp, matrix))
        return (xp.where(triangle.diagonal() < 0, -orthogonal, orthogonal),)

    return work, columns, *xp.over_entries(p, table, 3, scalars, factor, (xp.floats(q), _at(2), (count, 1)))


def _eigenvectors(
    xp: Any, p: Parameters, matrices: Array, work: Array, vectors: Array, q: Array, table: Array, scalars: Array
) -> Results:
    if not p["is_last"]:
        return work, vectors, q
    size = p["size"]
    strides = (size, 1)

    def columns(entry: Any) -> Results:
        matrix = entry.array(xp.floats(matrices), 1, (size, size), strides)
        _, eigenvectors = xp.linalg.eigh(xp.precise(matrix / _magnitude(xp, matrix)))
        return (eigenvectors[:, ::-1],)

    return work, vectors, *xp.over_entries(p, table, 4, scalars, columns, (xp.floats(q), _at(3), strides))


def _adam(xp: Any, p: Parameters, entry: Any, g: Array, exp_avg: Array, exp_avg_sq: Array) -> Results:
    """Return Adam's step, and both moments after it."""
    lib = xp.printed("lib", "adam", "next_moments", "adam_step")
    adam = lib["Adam"](*(entry.scalar(p[f"{name}_word"]) for name in lib["Adam"]._fields))
    moments = lib["next_moments"](lib["Moments"](exp_avg, exp_avg_sq), g, adam)
    return lib["adam_step"](moments, adam), *moments


def _low_rank_adam(
    xp: Any, p: Parameters, direction: Array, exp_avg: Array, exp_avg_sq: Array, table: Array, scalars: Array
) -> Results:
    vectors = [(xp.floats(vector), member) for vector, member in ((direction, 1), (exp_avg, 2), (exp_avg_sq, 2))]

    def step(entry: Any) -> Results:
        return _adam(xp, p, entry, *(entry.array(vector, member, (p["size"],), (1,)) for vector, member in vectors))

    targets = ((vector, _at(member), (1,)) for vector, member in vectors)
    return xp.over_entries(p, table, 3, scalars, step, *targets)


def _channel_factors(
    xp: Any, p: Parameters, gradients: Array, exp_avg: Array, exp_avg_sq: Array, factors: Array, table: Array,
    scalars: Array,
) -> Results:  # fmt: skip
    shape, strides = (p["rank"], p["channels"]), (p["rank_stride"], p["channel_stride"])
    axis = None if p["factors"] == 1 else 0

    def value(entry: Any) -> Results:
        g = entry.array(xp.floats(gradients), 1, shape, strides)
        moments = (entry.array(xp.floats(moment), 2, shape, strides) for moment in (exp_avg, exp_avg_sq))
        step, *moments_after = _adam(xp, p, entry, g, *moments)
        norm, norm_of_step = (xp.sqrt((matrix * matrix).sum(axis=axis)).reshape(-1) for matrix in (g, step))
        return *moments_after, xp.where(norm > 0, norm_of_step / norm, np.float32(0))

    return xp.over_entries(
        p, table, 3, scalars, value,
        (xp.floats(exp_avg), _at(2), strides),
        (xp.floats(exp_avg_sq), _at(2), strides),
        (xp.floats(factors), lambda entry: entry.number * p["factors"], (1,)),
    )  # fmt: skip


def _scale_channels(xp: Any, p: Parameters, matrices: Array, factors: Array, table: Array, scalars: Array) -> Results:
    shape = (p["size"] // (p["factors"] * p["divisor"]), p["factors"], p["divisor"])
    strides = (p["factors"] * p["divisor"], p["divisor"], 1)

    def scaled(entry: Any) -> Results:
        matrix = entry.array(xp.floats(matrices), 1, shape, strides)
        scale = entry.array(xp.floats(factors), 2, (p["factors"],), (1,))
        return (xp.into(matrix, xp.multiply, matrix, scale[:, None]),)

    return xp.over_entries(p, table, 3, scalars, scaled, (xp.floats(matrices), _at(1), strides))


def _random_projection(xp: Any, p: Parameters, projections: Array, table: Array, scalars: Array) -> Results:
    random_normal = xp.printed("elementwise", "random", "random_normal")["random_normal"]
    elements = xp.arange(p["size"], dtype=np.uint32)

    def drawn(entry: Any) -> Results:
        tensor, draw = xp.uint32(entry.members[0]), xp.uint32(entry.scalar(p["draw_word"]))
        return (random_normal(elements, np.uint32(p["seed"]), tensor, draw),)

    return xp.over_entries(p, table, 2, scalars, drawn, (xp.floats(projections), _at(1), (1,)))


ROUTINES: dict[str, Callable[..., Results]] = {
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
