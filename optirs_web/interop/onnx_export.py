"""The operations of a module's call, recorded as nodes of ONNX (opset 20)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from threading import RLock, get_ident
from typing import Any, NamedTuple

import numpy as np

from ..autograd import no_grad
from ..errors import UnsupportedError
from ..nn import Module
from ..ops import calls
from ..ops.reduce import normalize_axes
from ..ops.windows import pair
from ..tensors import Tensor, tensor

__all__ = ["MadeNode", "Trace"]

_export = RLock()  # held while a module is called: one thread at a time


class MadeNode(NamedTuple):
    """A node of the graph to write."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    name: str
    attributes: Mapping[str, Any]


class Trace:
    """One call of a module, in evaluation mode, with inputs as an example.

    Attributes:
        nodes: in the order of execution.
        inputs: by name; they are called "input", or "input_0" and so on.
        outputs: by name.
        arrays: the weights, by their names in the module.
    """

    def __init__(self, module: Module, example: Sequence[Any], *, dynamic_batch: bool) -> None:
        self.nodes: list[MadeNode] = []
        self.arrays: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []  # so that no two have one id
        self._depth = 0
        weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        device = next((weight.device for weight in weights.values()), None)
        inputs = [value if isinstance(value, Tensor) else tensor(value, device=device) for value in example]
        self._weights = {id(weight): name for name, weight in weights.items()}
        self.inputs = {_numbered("input", number, len(inputs)): value for number, value in enumerate(inputs)}
        lengths = {value.shape[:1] for value in inputs}
        self._batch = inputs[0].shape[0] if dynamic_batch and len(lengths) == 1 and inputs[0].shape else None
        for name, value in self.inputs.items():
            self._name(value, name)
        results = self._called(module, inputs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        self.outputs = {_numbered("output", number, len(results)): value for number, value in enumerate(results)}
        for name, value in self.outputs.items():
            self.add("Identity", [self.name_of(value)], name)

    def _called(self, module: Module, inputs: Sequence[Tensor]) -> Any:
        thread = get_ident()
        with _export:
            was_training, before = module.training, calls.place

            def place(operation: Callable[..., Any], arguments: Any, options: Any) -> Any:
                if get_ident() == thread:
                    return self._note(operation, arguments, options)
                return before(operation, arguments, options) if before else operation(*arguments, **options)

            calls.place = place
            try:
                with no_grad():
                    return module.eval()(*inputs)
            finally:
                calls.place = before
                module.train(was_training)

    def _note(self, operation: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run an operation, and add its node, unless another operation calls it."""
        self._depth += 1
        try:
            result = operation(*arguments, **options)
        finally:
            self._depth -= 1
        if self._depth:
            return result
        name = operation.__name__
        bound = inspect.signature(operation).bind(*arguments, **options)
        bound.apply_defaults()
        tensors = [value for value in _flat(bound.arguments.values()) if isinstance(value, Tensor)]
        if id(result) in self._names or not tensors:
            return result  # an operand itself, or a constant
        if name not in _WRITERS:
            raise UnsupportedError(f"the operation '{name}' cannot be written as ONNX; there are {', '.join(_WRITERS)}")
        self._name(result, _WRITERS[name](self, result, **bound.arguments))
        return result

    # Used by the writers.

    def shown_shape(self, tensor: Tensor) -> list[int | str]:
        """Return the shape of a tensor for the file, with "batch" for the length of the batch."""
        is_batch = self._batch is not None and tensor.shape[:1] == (self._batch,)
        return ["batch", *tensor.shape[1:]] if is_batch else list(tensor.shape)

    def sizes(self, x: Tensor, shape: Sequence[int]) -> list[int]:
        """Return the shape for Reshape, where 0 is the length of the same axis of the input."""
        keeps = self._batch is not None and shape[:1] == x.shape[:1] == (self._batch,)
        return [0, *shape[1:]] if keeps else list(shape)

    def name_of(self, value: Any) -> str:
        """Return the name of a tensor or number; if it is neither input nor result, add it as a weight or constant."""
        if isinstance(value, Tensor):
            assigned = self._names.get(id(value))
            if assigned is None:
                tracked = value._tracked
                name = self._weights.get(id(value), self._weights.get(id(tracked) if _is_whole(value, tracked) else 0))
                assigned = name or self.constant(value.numpy())
                if name:
                    self.arrays[name] = value.numpy()
                self._name(value, assigned)
            return assigned
        return self.constant(np.asarray(value, np.float32))

    def constant(self, value: Any) -> str:
        """Add a node with the value of an array, which is not trained when the file is loaded; return its output."""
        return self.add("Constant", [], value=np.asarray(value))

    def add(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(MadeNode(kind, list(inputs), [output or f"{name}_output"], name, attributes))
        return self.nodes[-1].outputs[0]

    def _name(self, tensor: Tensor, name: str) -> None:
        self._names[id(tensor)] = name
        self._kept.append(tensor)


def _is_whole(value: Tensor, tracked: Tensor | None) -> bool:
    """Return whether a tensor is the same strided view as the parameter whose memory it shares."""
    return tracked is not None and value.strided == tracked.strided


def _numbered(base: str, number: int, count: int) -> str:
    return base if count == 1 else f"{base}_{number}"


def _flat(values: Any) -> Any:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


Writer = Callable[..., str]


def _node_of(kind: str, **attributes: Any) -> Writer:
    """Return the writer of a node whose inputs are the operation's arguments, tensors or numbers."""

    def write(trace: Trace, result: Tensor, **arguments: Any) -> str:
        return trace.add(kind, [trace.name_of(value) for value in arguments.values()], **attributes)

    return write


def _along(kind: str) -> Writer:
    def write(trace: Trace, result: Tensor, x: Tensor, axis: int | None = None, dim: int | None = None) -> str:
        along = dim if dim is not None else -1 if axis is None else axis
        return trace.add(kind, [trace.name_of(x)], axis=along)

    return write


def _linear(trace: Trace, result: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None) -> str:
    if input.ndim == weight.ndim == 2:
        inputs = [input, weight, *([] if bias is None else [bias])]
        return trace.add("Gemm", list(map(trace.name_of, inputs)), transB=1)
    transposed = (
        trace.add("Transpose", [trace.name_of(weight)], perm=[1, 0]) if weight.ndim > 1 else trace.name_of(weight)
    )
    product = trace.add("MatMul", [trace.name_of(input), transposed])
    return product if bias is None else trace.add("Add", [product, trace.name_of(bias)])


def _conv(
    trace: Trace,
    result: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> str:
    rank = weight.ndim - 2
    _need_batch(x, rank)
    attributes: dict[str, Any] = {"strides": _sizes(stride, rank), "dilations": _sizes(dilation, rank), "group": groups}
    if padding == "same":
        attributes["auto_pad"] = "SAME_UPPER"
    else:
        attributes["pads"] = _sizes(0 if padding == "valid" else padding, rank) * 2
    inputs = [x, weight, *([] if bias is None else [bias])]
    return trace.add("Conv", list(map(trace.name_of, inputs)), kernel_shape=list(weight.shape[2:]), **attributes)


def _sizes(value: Any, rank: int) -> list[int]:
    return list(pair(value, "a size", 0)) if rank == 2 else [value if isinstance(value, int) else value[0]]


def _need_batch(x: Tensor, rank: int) -> None:
    if x.ndim != rank + 2:
        raise UnsupportedError(f"ONNX has images with a batch axis, and these have the shape {x.shape}")


def _max_pool(
    trace: Trace, result: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> str:
    return _pool(trace, "MaxPool", x, kernel_size, stride, padding, dilations=_sizes(dilation, 2))


def _avg_pool(
    trace: Trace, result: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, count_include_pad: bool
) -> str:
    return _pool(trace, "AveragePool", x, kernel_size, stride, padding, count_include_pad=int(count_include_pad))


def _pool(trace: Trace, kind: str, x: Tensor, kernel_size: Any, stride: Any, padding: Any, **attributes: Any) -> str:
    _need_batch(x, 2)
    taps = _sizes(kernel_size, 2)
    strides = taps if stride is None else _sizes(stride, 2)
    pads = _sizes(padding, 2) * 2
    return trace.add(kind, [trace.name_of(x)], kernel_shape=taps, strides=strides, pads=pads, **attributes)


def _adaptive_pool(trace: Trace, result: Tensor, x: Tensor, output_size: Any) -> str:
    _need_batch(x, 2)
    if result.shape[2:] == (1, 1):
        return trace.add("GlobalAveragePool", [trace.name_of(x)])
    taps = [size // count for size, count in zip(x.shape[2:], result.shape[2:], strict=True)]
    return trace.add("AveragePool", [trace.name_of(x)], kernel_shape=taps, strides=taps)


def _batch_norm(
    trace: Trace,
    result: Tensor,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: Any,
    eps: float,
) -> str:
    if training or running_mean is None or running_var is None:
        raise UnsupportedError("batch_norm by the statistics of the batch cannot be written as ONNX")
    scale = trace.constant(np.ones(x.shape[1], np.float32)) if weight is None else trace.name_of(weight)
    shift = trace.constant(np.zeros(x.shape[1], np.float32)) if bias is None else trace.name_of(bias)
    inputs = [trace.name_of(x), scale, shift, trace.name_of(running_mean), trace.name_of(running_var)]
    return trace.add("BatchNormalization", inputs, epsilon=eps)


def _layer_norm(
    trace: Trace, result: Tensor, x: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> str:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    scale = trace.constant(np.ones(shape, np.float32)) if weight is None else trace.name_of(weight)
    inputs = [trace.name_of(x), scale, *([] if bias is None else [trace.name_of(bias)])]
    return trace.add("LayerNormalization", inputs, axis=-len(shape), epsilon=eps)


def _reshaped(trace: Trace, result: Tensor, x: Tensor, **_: Any) -> str:
    sizes = trace.constant(np.asarray(trace.sizes(x, result.shape), np.int64))
    return trace.add("Reshape", [trace.name_of(x), sizes])


def _permuted(trace: Trace, result: Tensor, x: Tensor, axes: Any) -> str:
    return trace.add("Transpose", [trace.name_of(x)], perm=[axis % x.ndim for axis in axes])


def _transposed(trace: Trace, result: Tensor, x: Tensor, first: int, second: int) -> str:
    order = list(range(x.ndim))
    order[first], order[second] = order[second], order[first]
    return trace.add("Transpose", [trace.name_of(x)], perm=order)


def _joined(trace: Trace, result: Tensor, tensors: Any, axis: int, dim: int | None) -> str:
    return trace.add("Concat", list(map(trace.name_of, tensors)), axis=axis if dim is None else dim)


def _reduced(kind: str) -> Writer:
    def write(
        trace: Trace,
        result: Tensor,
        x: Tensor,
        axis: Any = None,
        keepdims: bool = False,
        dim: Any = None,
        keepdim: Any = None,
    ) -> str:
        axes = normalize_axes(axis if dim is None else dim, x.ndim)
        axes_input = trace.constant(np.asarray(axes, np.int64))
        keeps = keepdims if keepdim is None else keepdim
        return trace.add(kind, [trace.name_of(x), axes_input], keepdims=int(keeps))

    return write


def _taken(trace: Trace, result: Tensor, x: Tensor, index: Any, axis: int) -> str:
    numbers = trace.name_of(index) if isinstance(index, Tensor) else trace.constant(np.asarray(index, np.int64))
    return trace.add("Gather", [trace.name_of(x), numbers], axis=axis)


def _embedded(trace: Trace, result: Tensor, weight: Tensor, index: Any, padding_idx: Any, sparse: bool) -> str:
    return _taken(trace, result, weight, index, 0)


def _gelu(trace: Trace, result: Tensor, x: Tensor, approximate: str) -> str:
    return trace.add("Gelu", [trace.name_of(x)], approximate=approximate)


def _silu(trace: Trace, result: Tensor, x: Tensor) -> str:
    return trace.add("Mul", [trace.name_of(x), trace.add("Sigmoid", [trace.name_of(x)])])


def _square(trace: Trace, result: Tensor, x: Tensor) -> str:
    return trace.add("Mul", [trace.name_of(x)] * 2)


def _leaky(trace: Trace, result: Tensor, x: Tensor, negative_slope: float) -> str:
    return trace.add("LeakyRelu", [trace.name_of(x)], alpha=negative_slope)


_WRITERS: dict[str, Writer] = {
    "adaptive_avg_pool2d": _adaptive_pool,
    "add": _node_of("Add"),
    "avg_pool2d": _avg_pool,
    "batch_norm": _batch_norm,
    "clone": _node_of("Identity"),
    "concat": _joined,
    "conv1d": _conv,
    "conv2d": _conv,
    "divide": _node_of("Div"),
    "embedding": _embedded,
    "erf": _node_of("Erf"),
    "exp": _node_of("Exp"),
    "flatten": _reshaped,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "leaky_relu": _leaky,
    "linear": _linear,
    "log": _node_of("Log"),
    "log_softmax": _along("LogSoftmax"),
    "matmul": _node_of("MatMul"),
    "max_pool2d": _max_pool,
    "mean": _reduced("ReduceMean"),
    "multiply": _node_of("Mul"),
    "negate": _node_of("Neg"),
    "permute": _permuted,
    "power": _node_of("Pow"),
    "relu": _node_of("Relu"),
    "reshape": _reshaped,
    "sigmoid": _node_of("Sigmoid"),
    "silu": _silu,
    "softmax": _along("Softmax"),
    "sqrt": _node_of("Sqrt"),
    "square": _square,
    "squeeze": _reshaped,
    "subtract": _node_of("Sub"),
    "sum": _reduced("ReduceSum"),
    "take": _taken,
    "tanh": _node_of("Tanh"),
    "transpose": _transposed,
    "unsqueeze": _reshaped,
}
"""The function that adds the nodes of an operation and returns their output, by the operation's name."""
