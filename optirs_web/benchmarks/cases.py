"""The cases of the suite, by group: operations, shapes, and the least work of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np

from .libraries.library import Array, Library
from .models import NAMES as MODELS
from .starting import first_seconds

__all__ = ["CASES", "GROUPS", "Case"]


@dataclass(frozen=True)
class Case:
    """A case of the suite.

    Attributes:
        name: the group and the case's own part, such as "products/512".
        make: returns the call of a library.
        operations: floating-point operations of a call, or 0 where its rate is in bytes or has no meaning.
        nbytes: bytes that a call reads and writes at least, or 0.
        touched: bytes of the inputs and results of a case with operations.
        kind: "call", which is timed; "process", a call that returns the seconds of a process; "memory", one that
            returns bytes.
        compares: whether the results of libraries are compared.
    """

    name: str
    make: Callable[[Library], Callable[[], Any]]
    operations: float = 0
    nbytes: float = 0
    touched: float = 0
    kind: Literal["call", "process", "memory"] = "call"
    compares: bool = False

    @property
    def group(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]


def _random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, dtype=np.float32)


def _operation(
    name: str, operation: str, shapes: Sequence[tuple[int, ...]], *, operations: float = 0, nbytes: float = 0,
    touched: float = 0, backward: bool = False, classes: int = 0, **options: Any,
) -> Case:  # fmt: skip
    """Return the case of an operation over random float32 arrays; with `classes`, the last array has a class by row."""

    def make(library: Library) -> Callable[[], Any]:
        arrays = [_random(*shape, seed=index) for index, shape in enumerate(shapes)]
        if classes:
            arrays.append(np.random.default_rng(0).integers(0, classes, shapes[0][0], dtype=np.int32))
        return (library.gradients if backward else library.call)(operation, arrays, **options)

    return Case(name, make, operations, nbytes, touched, compares=not backward)


def _steps() -> Iterator[Case]:
    for text, sizes in {"16m": [1 << 24], "200x1024": [1024] * 200}.items():
        for mode in ("compiled", "called"):
            make = partial(_adamw, sizes, mode == "compiled")
            yield Case(f"steps/adamw-{text}-{mode}", make, nbytes=28.0 * sum(sizes))


def _adamw(sizes: list[int], is_compiled: bool, library: Library) -> Callable[[], Any]:
    return library.adamw(sizes, is_compiled)


def _products() -> Iterator[Case]:
    for size in (128, 256, 512, 1024):
        yield _product(f"{size}", (size, size), (size, size))
    yield _product("tall-4096x64x64", (4096, 64), (64, 64))
    yield _product("skinny-64x4096x64", (64, 4096), (4096, 64))
    yield _product("batched-32x128", (32, 128, 128), (32, 128, 128))
    yield _product("transposed-512", (512, 512), (512, 512), "product_transposed")


def _product(text: str, a: tuple[int, ...], b: tuple[int, ...], operation: str = "product") -> Case:
    rows, inner, columns = a[-2], a[-1], b[-1]
    touched = 4.0 * (prod(a) + prod(b) + prod(a[:-2]) * rows * columns)
    return _operation(
        f"products/{text}", operation, [a, b], operations=2.0 * prod(a[:-2]) * rows * inner * columns, touched=touched
    )


def _attention() -> Iterator[Case]:
    shape = (2, 4, 256, 64)
    batch, heads, length, width = shape
    products = 4.0 * batch * heads * length * length * width
    for text, is_causal in (("full", False), ("causal", True)):
        least = products / (2 if is_causal else 1)
        yield _operation(
            f"attention/{text}",
            "attention",
            [shape] * 3,
            operations=least,
            touched=16.0 * prod(shape),
            is_causal=is_causal,
        )
        yield _operation(
            f"attention/{text}-gradients", "attention", [shape] * 3, operations=3.5 * least, backward=True,
            touched=28.0 * prod(shape), is_causal=is_causal,
        )  # fmt: skip


_BATCH, _SIDE = 16, 32
"""Images of a batch, and the rows and columns of each, as CIFAR's."""


def _convolutions() -> Iterator[Case]:
    for inputs, outputs, stride in ((3, 64, 1), (64, 64, 1), (64, 128, 2)):
        shapes = [(_BATCH, inputs, _SIDE, _SIDE), (outputs, inputs, 3, 3)]
        operations = 2.0 * _BATCH * outputs * (_SIDE // stride) ** 2 * inputs * 9
        read = 4.0 * (prod(shapes[0]) + prod(shapes[1]))
        written = 4.0 * _BATCH * outputs * (_SIDE // stride) ** 2
        options: dict[str, Any] = {"stride": stride, "padding": 1}
        text = f"conv/{inputs}-{outputs}" + ("-stride-2" if stride == 2 else "")
        yield _operation(text, "conv2d", shapes, operations=operations, touched=read + written, **options)
        yield _operation(
            f"{text}-gradients", "conv2d", shapes, operations=3 * operations, touched=2 * read + written,
            backward=True, **options,
        )  # fmt: skip


def _reductions() -> Iterator[Case]:
    matrix, images = (1024, 1024), (_BATCH, 64, _SIDE, _SIDE)
    nbytes = 4.0 * prod(matrix)
    yield _operation("reduce/sum-rows", "sum", [matrix], nbytes=nbytes, axis=1)
    yield _operation("reduce/sum-columns", "sum", [matrix], nbytes=nbytes, axis=0)
    yield _operation("reduce/softmax", "softmax", [matrix], nbytes=2 * nbytes)
    yield _operation("reduce/layer-norm", "layer_norm", [matrix], nbytes=2 * nbytes)
    yield _operation("reduce/layer-norm-gradients", "layer_norm", [matrix], nbytes=2 * nbytes, backward=True)
    yield _operation("reduce/batch-norm", "batch_norm", [images], nbytes=8.0 * prod(images))
    yield _operation("reduce/cross-entropy", "cross_entropy", [(4096, 100)], nbytes=4.0 * 4096 * 100, classes=100)
    yield _operation(
        "reduce/cross-entropy-gradients", "cross_entropy", [(4096, 100)], nbytes=8.0 * 4096 * 100, classes=100,
        backward=True,
    )  # fmt: skip
    yield _operation("reduce/mse-loss", "mse_loss", [matrix, matrix], nbytes=2 * nbytes)


def _training() -> Iterator[Case]:
    for model in MODELS:
        yield Case(f"train/{model}", partial(_trained, model))


def _trained(model: str, library: Library) -> Callable[[], Any]:
    return library.training(model)


def _starts() -> Iterator[Case]:
    for stage in ("import", "tensor", "result"):
        yield Case(f"startup/{stage}", partial(first_seconds, stage), kind="process")


def _transfers() -> Iterator[Case]:
    for text, nbytes in {"4-KiB": 1 << 12, "1-MiB": 1 << 20, "32-MiB": 1 << 25}.items():
        yield Case(f"transfer/up-{text}", partial(_uploaded, nbytes), nbytes=2.0 * nbytes)
        yield Case(f"transfer/down-{text}", partial(_downloaded, nbytes), nbytes=2.0 * nbytes)


def _uploaded(nbytes: int, library: Library) -> Callable[[], Any]:
    return library.upload(np.ones(nbytes // 4, np.float32))


def _downloaded(nbytes: int, library: Library) -> Callable[[], Any]:
    return library.download(np.ones(nbytes // 4, np.float32))


def _memory() -> Iterator[Case]:
    for model in MODELS:
        yield Case(f"memory/{model}", partial(_peak, model), kind="memory")


def _peak(model: str, library: Library) -> Callable[[], int]:
    return lambda: library.peak_memory(model)


_OF_GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "steps": _steps,
    "products": _products,
    "attention": _attention,
    "conv": _convolutions,
    "reduce": _reductions,
    "train": _training,
    "startup": _starts,
    "transfer": _transfers,
    "memory": _memory,
}

GROUPS = tuple(_OF_GROUPS)
CASES = {case.name: case for cases in _OF_GROUPS.values() for case in cases()}
"""All cases by name, in the order in which they run."""
