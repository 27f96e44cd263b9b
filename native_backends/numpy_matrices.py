"""Library calls that take the place of the kernels for stacks of matrices. See `numpy_library`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..runtime.kernels import load_map_module
from ..wgsl.print_python import compile_python, print_python

__all__ = ["REPLACEMENTS"]

Array = np.ndarray[Any, Any]
Parameters = Mapping[str, Any]


def _matrix(raw: Array, first: int, shape: tuple[int, int], strides: tuple[int, int]) -> Array:
    return as_strided(raw.view(np.float32)[first:], shape, tuple(4 * one for one in strides))


def _batched_matmul(
    p: Parameters, a: Array, b: Array, c: Array, d: Array, products: Array, tensor_scalars: Array
) -> None:
    rows, columns, inner = p["rows"], p["columns"], p["inner"]
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    strides = p["c_row_stride"], p["c_column_stride"]
    for tensor, *firsts in products.view(np.uint32).reshape(-1, 5).tolist():
        row = table[tensor]
        if row[0] != 1 or row[p["gate_word"]] == 0:
            continue
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
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    eye = np.eye(size, dtype=np.float32)
    for tensor, first, result in entries.view(np.uint32).reshape(-1, 3).tolist():
        row = table[tensor]
        if row[0] != 1 or row[p["gate_word"]] == 0:
            continue
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
    table = scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first, other, result in entries.view(np.uint32).reshape(-1, 4).tolist():
        row = table[tensor]
        if row[0] != 1 or row[p["gate_word"]] == 0:
            continue
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


def _orthogonalise(p: Parameters, work: Array, _: Array, q: Array, entries: Array, tensor_scalars: Array) -> None:
    size, count = p["size"], p["count"]
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first, result in entries.view(np.uint32).reshape(-1, 3).tolist():
        if table[tensor, 0] == 1 and table[tensor, p["gate_word"]] != 0:
            factor, triangle = np.linalg.qr(_matrix(work, first, (size, count), (1, size)))
            _matrix(q, result, (size, count), (count, 1))[:] = np.where(triangle.diagonal() < 0, -factor, factor)


_Moments = tuple[Array, Array]


def _adam(p: Parameters, row: Array, g: Array, moments: _Moments) -> Array:
    """Bring the moments up to date; the step."""
    members = ("one_minus_beta1", "beta2", "one_minus_beta2", "eps", "correction1", "correction2")
    rate1, beta2, rate2, eps, correction1, correction2 = (row.view(np.float32)[p[name]] for name in members)
    first, second = moments
    first += rate1 * (g - first)
    second[:] = beta2 * second + rate2 * g * g
    step: Array = first / correction1 / (np.sqrt(second / correction2) + eps)
    return step


def _low_rank_adam(
    p: Parameters, direction: Array, exp_avg: Array, exp_avg_sq: Array, entries: Array, tensor_scalars: Array
) -> None:
    shape, strides = (1, p["size"]), (1, 1)
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first, state in entries.view(np.uint32).reshape(-1, 3).tolist():
        if table[tensor, 0] == 1:
            g = _matrix(direction, first, shape, strides)
            moments = _matrix(exp_avg, state, shape, strides), _matrix(exp_avg_sq, state, shape, strides)
            g[:] = _adam(p, table[tensor], g, moments)


def _channel_factors(
    p: Parameters, gradients: Array, exp_avg: Array, exp_avg_sq: Array, factors: Array, entries: Array, scalars: Array
) -> None:
    shape, strides = (p["rank"], p["channels"]), (p["rank_stride"], p["channel_stride"])
    table = scalars.view(np.uint32).reshape(-1, p["row_words"])
    for number, (tensor, first, state) in enumerate(entries.view(np.uint32).reshape(-1, 3).tolist()):
        if table[tensor, 0] == 1:
            g = _matrix(gradients, first, shape, strides)
            moments = _matrix(exp_avg, state, shape, strides), _matrix(exp_avg_sq, state, shape, strides)
            step = _adam(p, table[tensor], g, moments)
            over = None if p["factors"] == 1 else 0
            norm, norm_of_step = (np.sqrt(np.sum(one * one, axis=over)) for one in (g, step))
            place = slice(number * p["factors"], (number + 1) * p["factors"])
            factors.view(np.float32)[place] = np.where(norm > 0, norm_of_step / norm, 0)


def _scale_channels(p: Parameters, matrices: Array, factors: Array, entries: Array, tensor_scalars: Array) -> None:
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first, place in entries.view(np.uint32).reshape(-1, 3).tolist():
        if table[tensor, 0] == 1:
            matrix = matrices.view(np.float32)[first : first + p["size"]].reshape(-1, p["factors"], p["divisor"])
            matrix *= factors.view(np.float32)[place : place + p["factors"], None]


@cache
def _random_normal() -> Callable[..., Array]:
    source = print_python(load_map_module("elementwise", "random", ("random_normal",)))
    found: Callable[..., Array] = compile_python(source, "random_normal")["random_normal"]
    return found


def _random_projection(p: Parameters, projections: Array, entries: Array, tensor_scalars: Array) -> None:
    size, seed = p["size"], np.uint32(p["seed"])
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first in entries.view(np.uint32).reshape(-1, 2).tolist():
        if table[tensor, 0] == 1:
            draw = np.uint32(table[tensor].view(np.float32)[p["draw_word"]])
            drawn = _random_normal()(np.arange(size, dtype=np.uint32), seed, np.uint32(tensor), draw)
            projections.view(np.float32)[first : first + size] = drawn


def _eigenvectors(
    p: Parameters, matrices: Array, work: Array, vectors: Array, q: Array, entries: Array, tensor_scalars: Array
) -> None:
    if not p["is_last"]:
        return
    shape, strides = (p["size"], p["size"]), (p["size"], 1)
    table = tensor_scalars.view(np.uint32).reshape(-1, p["row_words"])
    for tensor, first, _, result in entries.view(np.uint32).reshape(-1, 4).tolist():
        if table[tensor, 0] == 1 and table[tensor, p["gate_word"]] != 0:
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
