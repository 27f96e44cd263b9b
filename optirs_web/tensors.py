"""Tensors: the class, connected with the operations and the backward pass that its methods call."""

from __future__ import annotations

from typing import Any, cast

from . import ops
from .autograd import backward, note_grad, set_grad
from .hostdata import HostData
from .runtime.dtypes import dtype as dtype_of
from .tensor_class import (
    Above,
    Edge,
    Operations,
    Parameter,
    Strided,
    Tensor,
    as_shape,
    connect,
    empty,
    tensor,
)

__all__ = ["Edge", "Parameter", "Strided", "Tensor", "as_shape", "empty", "tensor"]


def _to_dlpack(x: Tensor, **options: Any) -> Any:
    from .dlpack import exported

    return exported(x, **options)


def _dlpack_device(x: Tensor) -> tuple[int, int]:
    from .dlpack import dlpack_device

    return dlpack_device(x)


def _note_16_bits() -> None:
    from . import precision  # noqa: F401  once it is loaded, operations look for 16-bit operands


def _restore(
    kind: type[Tensor],
    content: bytes,
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    requires_grad: bool,
    name: str | None,
) -> Tensor:
    """Return a pickled tensor or parameter."""
    values = tensor(HostData(memoryview(content), shape, dtype_of(dtype)), device=device)
    restored = kind(values, name=name) if issubclass(kind, Parameter) else values
    restored._requires_grad = requires_grad
    return restored


connect(
    cast("Operations", ops), Above(backward, note_grad, set_grad, _to_dlpack, _dlpack_device, _note_16_bits, _restore)
)
