"""The rows of ``optirs-web parity``: map functions, operations and optimizers, with operands and float64 references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import optirs_web as ow

from ..launch import apply
from ..runtime.device import Device
from ..runtime.dtypes import BOOL, FLOAT32, INT32, UINT32
from ..wgsl import load_map_module
from ..wgsl.print_python import compile_python, print_python, python_name
from ..wgsl.shell import function_of
from ..wgsl.syntax import Function
from .float64_dialect import FLOAT64
from .optimizers import all_optimizers, make_optimizer
from .shader_names import map_files, map_functions

__all__ = ["Row", "rows", "samples"]

Array = npt.NDArray[Any]

_DTYPES = {"f32": FLOAT32, "i32": INT32, "u32": UINT32, "bool": BOOL}
_COUNT = 4096
_STEPS = 3
_SIZE = 12


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        kind: "map function", "operation" or "optimizer".
        name: its name in the table and on the command line.
        compute: returns the results on a device.
        operands: returns the operands that are floats, each of the results' shape or a number.
        reference: returns the results in float64; None where only devices can be compared.
    """

    kind: str
    name: str
    compute: Callable[[Device], Array]
    operands: Callable[[], Sequence[Array]]
    reference: Callable[[], Array | None]


def rows() -> Iterator[Row]:
    """Yield all rows; results are computed when the functions of a row are called."""
    for file in map_files():
        for function in map_functions(file):
            result = function.return_type_name
            if result is not None and result.name in _DTYPES and function.name not in _CHAINS:
                yield _of_map_function(file, function)
    yield from (_of_operation(*operation) for operation in _OPERATIONS)
    for name, make in all_optimizers().items():
        yield _of_optimizer(name, make)


# Map functions, on edges and on random numbers.

_FLOATS = [0, 0.25, 0.5, 1, 1.5, 2.5, 3, 7.75, 100.5, 2**23 + 0.5, 2.0**31, 2.0**31 - 128, 2.0**32 - 256, 2.0**32,
           3.4e38, 1.2e-38, np.inf]  # fmt: skip
_INTEGERS = [0, 1, 2, 3, 4, 5, 7, 10, 22, 31, 32, 33, 255, 256, 65535, 65536, 2**24 + 1, 2**31 - 2, 2**31 - 1]


def samples(type_: str, count: int, random: np.random.Generator, powers: int = 40) -> Array:
    """Return `count` edge cases and random values of a scalar type of WGSL; half of the integers are small.

    Floats are at most about 2 to the power of `powers`; with 40, larger edge cases, infinities and NaN are included.
    """
    if type_ == "bool":
        return random.random(count) < 0.5
    edges: Array
    values: Array
    if type_ == "f32":
        among = [*_FLOATS, np.nan] if powers >= 40 else [x for x in _FLOATS if x == 0 or 2.0**-10 <= x <= 2.0**powers]
        edges = np.array([*among, *(-x for x in among)], np.float32)
        values = (random.normal(size=count) * 2.0 ** random.integers(-10, powers, count)).astype(np.float32)
    else:
        edges = np.array([*_INTEGERS, *(-1 - x for x in _INTEGERS)], np.int64).astype(np.uint32)
        values = random.integers(0, 2**32, count, dtype=np.uint32)
        small = random.integers(-12, 12, count).astype(np.uint32)
        values = np.where(random.random(count) < 0.5, small, values)
    chosen = np.where(random.random(count) < 0.4, random.choice(edges, count), values)
    return chosen.astype(np.float32) if type_ == "f32" else chosen.view(_NUMPY[type_])


_NUMPY = {"i32": np.int32, "u32": np.uint32}


def _of_map_function(file: str, function: Function) -> Row:
    name = function.name
    module = load_map_module("elementwise", file, (name,))
    declared = function_of(module, name)
    types = {param.name: str(param.type) for param in declared.parameters}

    def arguments() -> dict[str, Array]:
        random = np.random.default_rng(len(name))
        return {argument: _argument(name, argument, type_, random) for argument, type_ in types.items()}

    def compute(device: Device) -> Array:
        values = {argument: value for argument, value in arguments().items() if argument != "index"}
        tensors = [
            ow.tensor(value, device=device, dtype=_DTYPES[types[argument]].name) for argument, value in values.items()
        ]
        dtype = _DTYPES[str(declared.return_type)]
        return np.asarray(apply(file, name, *tensors, dtype=dtype, device=device, shape=(_COUNT,)).numpy())

    def reference() -> Array | None:
        if name in _NORMALS:
            return None
        if name in _BY_BITS:
            with np.errstate(invalid="ignore"):
                return np.asarray(_BY_BITS[name](*(value.astype(np.float64) for value in arguments().values())))
        namespace = compile_python(print_python(module, FLOAT64), f"float64 {name}")
        with np.errstate(all="ignore"):
            values = (
                value.astype(np.float64) if value.dtype == np.float32 else value for value in arguments().values()
            )
            try:
                return np.broadcast_to(namespace[python_name(name)](*values), _COUNT)
            except NotImplementedError:
                return None

    def operands() -> list[Array]:
        return [argument for argument in arguments().values() if argument.dtype == np.float32]

    return Row("map function", name.rstrip("_"), compute, operands, reference)


def _argument(function: str, name: str, type_: str, random: np.random.Generator) -> Array:
    if name == "index":
        return np.arange(_COUNT, dtype=np.uint32)
    bounds = _WITHIN.get(f"{function}.{name}", _WITHIN.get(name))
    if bounds is not None:
        values = random.uniform(*bounds, _COUNT)
        return values.astype(np.float32) if type_ == "f32" else values.astype(_NUMPY[type_])
    return samples(type_, _COUNT, random, powers=10)  # so that no product of a few overflows


_WITHIN = {
    "uniform": (-1, 1),
    "t": (0, 1),
    "p": (0, 1),
    "w": (-2.5, 2.5),
    "beta": (0.5, 4),
    "threshold": (10, 30),
    "condition": (0, 2),
    "classes": (1, 10),
    "columns": (1, 70),
    "count": (1, 5),
    "first": (0, 50),
    "inner": (1, 5),
    "length": (1, 50),
    "places": (1, 50),
    "binary_cross_entropy.x": (0, 1),
    "exp_avg_sq": (0, 4),
    "add_scaled.x": (-1, 1),
    "add_scaled.c": (0.5, 4),
    "scale.b": (0.5, 4),
    "with_logits.added": (-1, 1),
    "cross_entropy_grad.x": (-20, 0),
    "cross_entropy_grad.log_sum": (0, 5),
}
"""Ranges of parameters by name, where their meaning or the formula limits them."""

_BY_BITS: dict[str, Callable[..., Any]] = {
    "sqrt_": np.sqrt,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal_f32": np.equal,
    "not_equal_f32": np.not_equal,
    "less_f32": np.less,
    "less_equal_f32": np.less_equal,
}
"""References of the functions that read the bits of floats."""

_CHAINS = {"multiply_add_chains"}
"""Functions that measure the speed of devices: chains so long that their roundings add up."""

_NORMALS = {"random_normal", "draw_normal"}
"""Functions that are compared between devices only: where a cosine is near 0, its argument's rounding dominates."""


# Operations that are more than a map function: sums in another order differ.

_OPERATIONS: list[tuple[str, Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    ("sum", lambda x: x.sum(), np.sum, ((1000,),)),
    ("sum of rows", lambda x: x.sum(axis=1), lambda x: x.sum(1), ((64, 300),)),
    ("mean", lambda x: x.mean(), np.mean, ((1000,),)),
    ("max", lambda x: ow.ops.max(x, -1), lambda x: x.max(-1), ((64, 300),)),
    ("softmax", lambda x: x.softmax(axis=-1), lambda x: np.exp(_log_softmax(x)), ((64, 300),)),
    ("log_softmax", lambda x: x.log_softmax(axis=-1), lambda x: _log_softmax(x), ((64, 300),)),
    ("matmul", lambda a, b: a @ b, np.matmul, ((70, 90), (90, 50))),
    ("layer_norm", lambda x: ow.ops.layer_norm(x, 300), lambda x: _layer_norm(x), ((64, 300),)),
]


def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _layer_norm(x: Array) -> Array:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))


def _of_operation(name: str, ours: Callable[..., Any], exact: Callable[..., Any], shapes: Sequence[Any]) -> Row:
    def operands() -> list[Array]:
        random = np.random.default_rng(len(name))
        return [random.standard_normal(shape).astype(np.float32) for shape in shapes]

    def compute(device: Device) -> Array:
        return np.asarray(ours(*(ow.tensor(operand, device=device) for operand in operands())).numpy())

    return Row(
        "operation", name, compute, lambda: [np.abs(operand).max() for operand in operands()],
        lambda: exact(*(operand.astype(np.float64) for operand in operands())),
    )  # fmt: skip


# Optimizers: a few steps on a quadratic function.


def _of_optimizer(name: str, make: type[ow.optim.Optimizer]) -> Row:
    # Square, and another target in each step: otherwise sides of gradients have no full rank, and SOAP, which does not
    # move in its first step, would turn a gradient into its own basis, where it is diagonal but for roundings.
    random = np.random.default_rng(0)
    start, curvature, *targets = random.standard_normal((2 + _STEPS, _SIZE, _SIZE)).astype(np.float32)

    def compute(device: Device) -> Array:
        param = ow.Parameter(ow.tensor(start, device=device))
        weight = ow.tensor(np.abs(curvature), device=device)
        goals = [ow.tensor(target, device=device) for target in targets]
        optimizer = make_optimizer(make, param)

        def closure(goal: ow.Tensor) -> Any:
            param.grad = None
            loss = ((param - goal) * (param - goal) * weight).sum()
            loss.backward()
            if not make.takes_dense:
                assert param.grad is not None
                param.grad = ow.SparseRows(ow.arange(_SIZE, device), param.grad, param.shape)
            return loss

        for goal in goals:
            optimizer.step(partial(closure, goal))
        return np.asarray(param.numpy())

    return Row("optimizer", name, compute, lambda: [np.abs(start).max()], lambda: None)
