"""Library calls that take the place of the kernels for stacks of matrices. See `numpy_library`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..runtime.kernels import load_map_module
from ..wgsl.print_python import compile_python, print_python
from .numpy_entries import taking_part

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _matrix(raw: Array, first: int, shape: tuple[int, int], strides: tuple[int, int]) -> Array:
    return as_strided(raw.view(np.float32)[first:], shape, tuple(4 * one for one in strides))


def _batched_matmul(
    p: Parameters, a: Array, b: Array, c: Array, d: Array, products: Array, tensor_scalars: Array
) -> None:
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    strides = p["c_row_stride"], p["c_column_stride"]
    for _, row, (_, *firsts) in taking_part(p, products, 5, tensor_scalars):
        factors = row.view(np.float32)
        alpha, beta = (p[name] * (factors[p[f"{name}_word"]] if p[f"{name}_word"] else 1) for name in ("alpha", "beta"))
        left = _matrix(a, firsts[0], (rows, inner), (p["a_row_stride"], p["a_inner_stride"]))
        right = _matrix(b, firsts[1], (inner, columns), (p["b_inner_stride"], p["b_column_stride"]))
        value = np.float32(alpha) * (left @ right)
        result = _matrix(c, firsts[2], (rows, columns), strides)
        if p["beta"]:
            added = result if p["in_place"] else _matrix(d, firsts[3], (rows, columns), strides)
            value += np.float32(beta) * added
        if p["diagonal"]:
            value += np.float32(p["diagonal"]) * np.eye(rows, columns, dtype=np.float32)
        result[:] = value


def _inverse_root_start(
    p: Parameters, statistics: Array, m: Array, h: Array, entries: Array, tensor_scalars: Array
) -> None:
    size, order = p["size"], p["order"]
    eye = np.eye(size, dtype=np.float32)
    for _, row, (_, first, result) in taking_part(p, entries, 3, tensor_scalars):
        statistic = _matrix(statistics, first, (size, size), (size, 1))
        norm = float(np.linalg.norm(statistic.astype(np.float64)))
        ridge = max(float(row.view(np.float32)[p["ridge_word"]]), 1e-6 * norm)
        norm += ridge * size**0.5
        z = (1 + order) / (2 * norm) if norm > 0 else 0.0
        _matrix(m, result, (size, size), (size, 1))[:] = np.float32(z) * (statistic + np.float32(ridge) * eye)
        _matrix(h, result, (size, size), (size, 1))[:] = np.float32(z ** (1 / order)) * eye


def _damped_inverse_start(
    p: Parameters, factors: Array, others: Array, damped: Array, start: Array, entries: Array, scalars: Array
) -> None:
    size, other_size = p["size"], p["other_size"]
    shape, strides = (size, size), (size, 1)
    for _, row, (_, first, other, result) in taking_part(p, entries, 4, scalars):
        factor = _matrix(factors, first, shape, strides).astype(np.float64)
        mean = factor.trace() / size
        other_mean = _matrix(others, other, (other_size, other_size), (other_size, 1)).trace() / other_size
        pi = (mean / other_mean) ** 0.5 if mean > 0 and other_mean > 0 else 1.0
        norm = np.linalg.norm(factor)
        ridge = max(pi * float(row.view(np.float32)[p["ridge_word"]]), 1e-6 * norm)
        norm += ridge * size**0.5
        z = 1 / norm if norm > 0 else 0.0
        eye = np.eye(size)
        _matrix(damped, result, shape, strides)[:] = factor + ridge * eye
        _matrix(start, result, shape, strides)[:] = 2 * z * eye - z * z * (factor + ridge * eye)


def _orthogonalise(p: Parameters, work: Array, columns: Array, q: Array, entries: Array, tensor_scalars: Array) -> None:
    size, count = p["size"], p["count"]
    for _, _, (_, first, result) in taking_part(p, entries, 3, tensor_scalars):
        factor, triangle = np.linalg.qr(_matrix(work, first, (size, count), (1, size)))
        _matrix(q, result, (size, count), (count, 1))[:] = np.where(triangle.diagonal() < 0, -factor, factor)


@cache
def _printed(folder: str, name: str, *functions: str) -> Mapping[str, Any]:
    """These functions of a file of map functions, and its structs, as Python."""
    return compile_python(print_python(load_map_module(folder, name, functions)), name)


def _adam(p: Parameters, row: Array, g: Array, *moments: Array) -> Array:
    """Bring the moments up to date; the step."""
    lib = _printed("lib", "adam", "next_moments", "adam_step")
    adam = lib["Adam"](*(row.view(np.float32)[p[f"{name}_word"]] for name in lib["Adam"]._fields))
    new = lib["next_moments"](lib["Moments"](*moments), g, adam)
    for old, value in zip(moments, new, strict=True):
        old[:] = value
    step: Array = lib["adam_step"](new, adam)
    return step


def _low_rank_adam(
    p: Parameters, direction: Array, exp_avg: Array, exp_avg_sq: Array, entries: Array, tensor_scalars: Array
) -> None:
    shape, strides = (1, p["size"]), (1, 1)
    for _, row, (_, first, state) in taking_part(p, entries, 3, tensor_scalars):
        g = _matrix(direction, first, shape, strides)
        g[:] = _adam(p, row, g, *(_matrix(one, state, shape, strides) for one in (exp_avg, exp_avg_sq)))


def _channel_factors(
    p: Parameters, gradients: Array, exp_avg: Array, exp_avg_sq: Array, factors: Array, entries: Array, scalars: Array
) -> None:
    shape, strides = (p["rank"], p["channels"]), (p["rank_stride"], p["channel_stride"])
    for number, row, (_, first, state) in taking_part(p, entries, 3, scalars):
        g = _matrix(gradients, first, shape, strides)
        step = _adam(p, row, g, *(_matrix(one, state, shape, strides) for one in (exp_avg, exp_avg_sq)))
        over = None if p["factors"] == 1 else 0
        norm, norm_of_step = (np.sqrt(np.sum(one * one, axis=over)) for one in (g, step))
        place = slice(number * p["factors"], (number + 1) * p["factors"])
        factors.view(np.float32)[place] = np.where(norm > 0, norm_of_step / norm, 0)


def _scale_channels(p: Parameters, matrices: Array, factors: Array, entries: Array, tensor_scalars: Array) -> None:
    for _, _, (_, first, place) in taking_part(p, entries, 3, tensor_scalars):
        matrix = matrices.view(np.float32)[first : first + p["size"]].reshape(-1, p["factors"], p["divisor"])
        matrix *= factors.view(np.float32)[place : place + p["factors"], None]


def _random_projection(p: Parameters, projections: Array, entries: Array, tensor_scalars: Array) -> None:
    size, seed = p["size"], np.uint32(p["seed"])
    random_normal = _printed("elementwise", "random", "random_normal")["random_normal"]
    for _, row, (tensor, first) in taking_part(p, entries, 2, tensor_scalars):
        draw = np.uint32(row.view(np.float32)[p["draw_word"]])
        drawn = random_normal(np.arange(size, dtype=np.uint32), seed, np.uint32(tensor), draw)
        projections.view(np.float32)[first : first + size] = drawn


def _eigenvectors(
    p: Parameters, matrices: Array, work: Array, vectors: Array, q: Array, entries: Array, tensor_scalars: Array
) -> None:
    if not p["is_last"]:
        return
    shape, strides = (p["size"], p["size"]), (p["size"], 1)
    for _, _, (_, first, _, result) in taking_part(p, entries, 4, tensor_scalars):
        _, found = np.linalg.eigh(_matrix(matrices, first, shape, strides).astype(np.float64))
        _matrix(q, result, shape, strides)[:] = found[:, ::-1]


REPLACEMENTS: dict[str, Callable[..., None]] = {
    "batched_matmul": _batched_matmul,
    "channel_factors": _channel_factors,
    "damped_inverse_start": _damped_inverse_start,
    "eigenvectors": _eigenvectors,
    "low_rank_adam": _low_rank_adam,
    "inverse_root_start": _inverse_root_start,
    "orthogonalise": _orthogonalise,
    "random_projection": _random_projection,
    "scale_channels": _scale_channels,
}
