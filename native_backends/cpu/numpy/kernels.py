"""Kernels in NumPy: map functions and forms printed as Python; `library` has what replaces cooperative kernels.

Loaded at the first kernel, so that a device can be opened and filled without the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from ....runtime.form_kernels import FormKernel
from ....runtime.kernels import CooperativeKernel, Kernel, SourceKernel
from ....runtime.map_kernels import FusedKernel, MapKernel
from ....runtime.option_kernels import OptionKernel
from ....runtime.rule_kernels import RuleKernel
from ....wgsl.python_dialects import NUMPY_IN_DOUBLE, Dialect
from ...arrays.products import Product, Strided, product_of
from ...arrays.rule_kernels import RULE_KERNELS
from . import maps
from .forms import bind_form, replacement_of
from .library import MATMUL, REPLACEMENTS, Array
from .options import bind_options
from .packed import bind_packed
from .rules import BoundRule

__all__ = ["bind_kernel"]


def bind_kernel(
    kernel: Kernel, arrays: Sequence[Array], parameters: bytes, dialect: Dialect = NUMPY_IN_DOUBLE
) -> Callable[[], None]:
    """Return a call that runs the kernel over these bytes; `dialect` is that of maps."""
    if isinstance(kernel, CooperativeKernel) and REPLACEMENTS[kernel.name] is MATMUL:
        return _bind_product(kernel, parameters, *arrays)
    if isinstance(kernel, MapKernel):
        return maps.bind_map(kernel, arrays, kernel.unpack(parameters), dialect)
    names = (name for name, _ in kernel.parameters)
    values = dict(zip(names, kernel.unpack(parameters), strict=True))
    if isinstance(kernel, RuleKernel):
        return partial(RULE_KERNELS[type(kernel)], BoundRule(kernel, arrays, values))
    match kernel:
        case FusedKernel():
            return maps.bind_fused(kernel, arrays, values, dialect)
        case FormKernel():
            return bind_form(kernel, arrays, values)
        case SourceKernel():
            return partial(replacement_of(kernel), values, *arrays)
        case OptionKernel():
            return bind_options(kernel, arrays, values)
    return bind_packed(kernel, arrays, parameters, partial(bind_kernel, dialect=dialect))


def _bind_product(kernel: Kernel, parameters: bytes, a: Array, b: Array, c: Array) -> Callable[[], None]:
    """Return the call of the library. The views are remembered: to describe them takes as long as a small product."""
    left, right, result = _arrays_of_product(kernel, parameters, c.nbytes)
    return partial(
        np.matmul,
        np.ndarray(left.shape, np.float32, a, left.start, left.strides),
        np.ndarray(right.shape, np.float32, b, right.start, right.strides),
        out=np.ndarray(result, np.float32, c),
    )


@lru_cache(4096)
def _arrays_of_product(kernel: Kernel, parameters: bytes, nbytes: int) -> Product:
    """Return the operands with starts and strides in bytes, and the shape of the result, which has so many bytes."""
    names = (name for name, _ in kernel.parameters)
    values = dict(zip(names, kernel.unpack(parameters), strict=True))
    left, right, shape = product_of(values, nbytes // 4)
    return Product(_in_bytes(left), _in_bytes(right), shape)


def _in_bytes(view: Strided) -> Strided:
    return Strided(4 * view.start, view.shape, tuple(4 * stride for stride in view.strides))
