"""Implementations of ONNX's operations, opset 13 to 21 (https://onnx.ai/onnx/operators), by ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..errors import UnsupportedError
from ..nn.functional import linear
from ..tensors import Tensor, tensor

__all__ = ["OPERATIONS", "Call"]


class Call(NamedTuple):
    """The call of a node. Inputs are tensors, or arrays for values on the host; None where one is absent."""

    inputs: Sequence[Any]
    attributes: Mapping[str, Any]
    opset: int

    def input(self, index: int) -> Any:
        """Return the input of that index, or None."""
        return self.inputs[index] if index < len(self.inputs) else None

    def get(self, name: str, otherwise: Any) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, otherwise)

    def on_host(self, index: int, what: str) -> list[int] | None:
        """Return the integers of an input that must be a constant of the graph; None if there is no such input."""
        value = self.input(index)
        if isinstance(value, Tensor):
            raise UnsupportedError(f"{what} is computed; it must be a constant of the graph")
        return None if value is None else [int(number) for number in np.asarray(value).reshape(-1)]

    def refuse(self, **allowed: Any) -> None:
        """Raise UnsupportedError for attributes with other values than these."""
        for name, value in allowed.items():
            actual = self.get(name, value)
            if actual != value:
                raise UnsupportedError(f"{name}={actual} is not supported")


Operation = Callable[[Call], Any]


def _on_tensors(operation: Any) -> Operation:
    return lambda call: operation(*call.inputs)


def _arithmetic(operation: Any, on_host: Any) -> Operation:
    """Return an operation that computes by `operation` if an operand is a tensor, and by `on_host` for arrays."""

    def run(call: Call) -> Any:
        if not any(isinstance(operand, Tensor) for operand in call.inputs):
            return on_host(*call.inputs)
        return operation(
            *(
                operand if isinstance(operand, Tensor) else _on_device_of(operand, call.inputs)
                for operand in call.inputs
            )
        )

    return run


def _on_device_of(array: Any, others: Sequence[Any]) -> Any:
    tensors = [value for value in others if isinstance(value, Tensor)]
    if array.size == 1 and array.ndim <= max(value.ndim for value in tensors):
        return array.item()
    return tensor(_int32(array), device=tensors[0].device)


def _int32(array: Any) -> Any:
    """Return integers as int32."""
    converted = np.asarray(array).astype(np.int32)
    if not np.array_equal(converted, array):
        raise UnsupportedError("an integer of the graph does not fit int32")
    return converted


def _quotient(a: Any, b: Any) -> Any:
    """Return the quotient of integers, rounded towards zero."""
    if not np.all(b):
        raise UnsupportedError("integers are divided by zero")
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


def _gemm(call: Call) -> Any:
    a, b = call.inputs[:2]
    if (call.get("transA", 0), call.get("transB", 0), call.get("alpha", 1.0), call.get("beta", 1.0)) == (0, 1, 1, 1):
        return linear(a, b, call.input(2))
    product = ops.matmul(a.T if call.get("transA", 0) else a, b.T if call.get("transB", 0) else b)
    alpha, beta, c = call.get("alpha", 1.0), call.get("beta", 1.0), call.input(2)
    product = product if alpha == 1 else product * alpha
    if c is None:
        return product
    return product + (c if beta == 1 else c * beta)


def _window(call: Call, taps: Sequence[int], x: Tensor, filler: float) -> tuple[Tensor, Any]:
    """Return the images, padded if the border differs on both sides, and the padding that is still to be applied."""
    rank = len(taps)
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    mode = call.get("auto_pad", "NOTSET")
    pads = list(call.get("pads", [0] * (2 * rank)))
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = x.shape[-rank:]
        spans = [(count - 1) * step + 1 for count, step in zip(taps, dilations, strict=True)]
        totals = [
            max(0, (math.ceil(size / step) - 1) * step + span - size)
            for size, step, span in zip(sizes, strides, spans, strict=True)
        ]
        smaller = [total // 2 for total in totals]
        larger = [total - half for total, half in zip(totals, smaller, strict=True)]
        pads = smaller + larger if mode == "SAME_UPPER" else larger + smaller
    elif mode == "VALID":
        pads = [0] * (2 * rank)
    elif mode != "NOTSET":
        raise UnsupportedError(f"auto_pad={mode} is not supported")
    before, after = pads[:rank], pads[rank:]
    if before == after:
        return x, before
    border = [(0, 0)] * (x.ndim - rank) + list(zip(before, after, strict=True))
    return ops.pad(x, border, filler), [0] * rank


def _conv(call: Call) -> Any:
    x, weight, bias = call.inputs[0], call.inputs[1], call.input(2)
    taps = weight.shape[2:]
    call.refuse(kernel_shape=list(taps))
    if len(taps) not in (1, 2):
        raise UnsupportedError(f"a convolution over {len(taps)} axes is not supported")
    x, padding = _window(call, taps, x, 0.0)
    strides, dilations = (list(call.get(name, [1] * len(taps))) for name in ("strides", "dilations"))
    if len(taps) == 1:
        return ops.conv1d(x, weight, bias, strides[0], padding[0], dilations[0], call.get("group", 1))
    return ops.conv2d(x, weight, bias, strides, padding, dilations, call.get("group", 1))


def _taps(call: Call) -> list[int]:
    taps = list(call.attributes["kernel_shape"])
    if len(taps) != 2:
        raise UnsupportedError(f"pooling over {len(taps)} axes is not supported")
    call.refuse(ceil_mode=0, storage_order=0)
    return taps


def _max_pool(call: Call) -> Any:
    taps = _taps(call)
    x, padding = _window(call, taps, call.inputs[0], -math.inf)
    return ops.max_pool2d(x, taps, call.get("strides", [1, 1]), padding, call.get("dilations", [1, 1]))


def _average_pool(call: Call) -> Any:
    taps, counts_border = _taps(call), bool(call.get("count_include_pad", 0))
    if list(call.get("dilations", [1, 1])) != [1, 1]:
        raise UnsupportedError("windows with gaps are not supported")
    x, padding = _window(call, taps, call.inputs[0], 0.0)
    if x is not call.inputs[0] and not counts_border:
        raise UnsupportedError("a border that is not the same on both sides and does not count is not supported")
    return ops.avg_pool2d(x, taps, call.get("strides", [1, 1]), padding, counts_border)


def _global_average(call: Call) -> Any:
    x = call.inputs[0]
    return ops.mean(x, tuple(range(2, x.ndim)), keepdims=True)


def _batch_norm(call: Call) -> Any:
    call.refuse(training_mode=0)
    x, scale, shift, mean, variance = call.inputs
    return ops.batch_norm(x, mean, variance, scale, shift, False, 0.0, call.get("epsilon", 1e-5))


def _layer_norm(call: Call) -> Any:
    x, scale = call.inputs[:2]
    start = call.get("axis", -1) % x.ndim
    return ops.layer_norm(x, x.shape[start:], scale, call.input(2), call.get("epsilon", 1e-5))


def _reshape(call: Call) -> Any:
    x, shape = call.inputs[0], call.on_host(1, "the shape")
    assert shape is not None
    if not call.get("allowzero", 0):
        shape = [x.shape[at] if size == 0 else size for at, size in enumerate(shape)]
    return x.reshape(*shape) if isinstance(x, np.ndarray) else ops.reshape(x, tuple(shape))


def _flatten(call: Call) -> Any:
    x = call.inputs[0]
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _transpose(call: Call) -> Any:
    x = call.inputs[0]
    return ops.permute(x, call.get("perm", list(range(x.ndim))[::-1]))


def _concat(call: Call) -> Any:
    if not any(isinstance(value, Tensor) for value in call.inputs):
        return np.concatenate([np.atleast_1d(value) for value in call.inputs], call.attributes["axis"])
    return ops.concat(call.inputs, call.attributes["axis"])


def _reduced(operation: Any) -> Operation:
    def run(call: Call) -> Any:
        x, keeps = call.inputs[0], bool(call.get("keepdims", 1))
        axes = call.get("axes", None) or call.on_host(1, "the list of axes")
        if not axes:
            if call.get("noop_with_empty_axes", 0):
                return x
            axes = range(x.ndim)
        return operation(x, tuple(axes), keepdims=keeps)

    return run


def _gather(call: Call) -> Any:
    x, index = call.inputs[:2]
    axis = call.get("axis", 0)
    if isinstance(x, np.ndarray):
        return np.take(x, index, axis)
    return ops.take(x, index if isinstance(index, Tensor) else _int32(index), axis)


_TYPES = {1: "float32", 6: "int32", 7: "int64"}


def _cast(call: Call) -> Any:
    x, to = call.inputs[0], _TYPES.get(call.attributes["to"])
    if isinstance(x, np.ndarray) and to is not None:
        return x.astype(to)
    if str(x.dtype) == to or (to == "int64" and str(x.dtype) == "int32"):
        return x
    raise UnsupportedError(f"a cast from {x.dtype} to type {call.attributes['to']} is not supported")


def _axes_of(call: Call) -> list[int]:
    axes = call.on_host(1, "the list of axes")
    if axes is None:
        raise UnsupportedError("it needs a list of axes")
    return axes


def _unsqueeze(call: Call) -> Any:
    x = call.inputs[0]
    rank = x.ndim + len(_axes_of(call))
    for axis in sorted(index % rank for index in _axes_of(call)):
        x = np.expand_dims(x, axis) if isinstance(x, np.ndarray) else ops.unsqueeze(x, axis)
    return x


def _squeeze(call: Call) -> Any:
    axes = tuple(_axes_of(call))
    return (
        np.squeeze(call.inputs[0], axes)
        if isinstance(call.inputs[0], np.ndarray)
        else ops.squeeze(call.inputs[0], axes)
    )


def _dropout(call: Call) -> Any:
    return call.inputs[0]


OPERATIONS: dict[str, Operation] = {
    "Add": _arithmetic(ops.add, np.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Concat": _concat,
    "Constant": _dropout,  # held by the graph, and not run
    "Conv": _conv,
    "Div": _arithmetic(ops.divide, _quotient),
    "Dropout": _dropout,
    "Erf": _on_tensors(ops.erf),
    "Exp": _on_tensors(ops.exp),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda call: ops.gelu(call.inputs[0], call.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average,
    "Identity": _dropout,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda call: ops.leaky_relu(call.inputs[0], call.get("alpha", 0.01)),
    "Log": _on_tensors(ops.log),
    "LogSoftmax": lambda call: ops.log_softmax(call.inputs[0], call.get("axis", -1)),
    "MatMul": _on_tensors(ops.matmul),
    "MaxPool": _max_pool,
    "Mul": _arithmetic(ops.multiply, np.multiply),
    "Neg": _on_tensors(ops.negate),
    "Pow": _arithmetic(ops.power, np.power),
    "ReduceMean": _reduced(ops.mean),
    "ReduceSum": _reduced(ops.sum),
    "Relu": _on_tensors(ops.relu),
    "Reshape": _reshape,
    "Shape": lambda call: np.asarray(call.inputs[0].shape, np.int64)[call.get("start", 0) : call.get("end", None)],
    "Sigmoid": _on_tensors(ops.sigmoid),
    "Softmax": lambda call: ops.softmax(call.inputs[0], call.get("axis", -1)),
    "Sqrt": _on_tensors(ops.sqrt),
    "Squeeze": _squeeze,
    "Sub": _arithmetic(ops.subtract, np.subtract),
    "Tanh": _on_tensors(ops.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The implementation of each operation, by its name."""
