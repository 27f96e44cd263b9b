"""ONNX: a graph with its weights becomes a module, is trained, and goes back to a file.

    model = ow.interop.onnx.load("model.onnx")          # parameters are the graph's float weights
    ...
    ow.interop.onnx.save(model, example, "tuned.onnx")  # any module of ow.nn, not only a loaded one

Needs the package `onnx` (the extra `optirs-web[onnx]`) to read and write files; what runs a loaded model is ours.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedError
from ..nn import Module
from ..runtime.device import Device
from ..tensors import Tensor
from .onnx_export import Trace
from .onnx_graph import Graph, Node

__all__ = ["Graph", "load", "save"]

_OPSETS = range(13, 22)
_WRITTEN_OPSET = 20  # the first with Gelu
_WRITTEN_IR = 9


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install 'optirs-web[onnx]'", name=error.name) from error


def load(source: str | os.PathLike[str] | bytes, device: str | Device | None = None) -> Graph:
    """The graph of a file as a module, with opset 13 to 21.

    Weights of float32 with axes are its parameters, under their names in the file with "." as "_"; the statistics of
    batch norms and numbers without axes are buffers. Batch norms keep to their statistics and dropout drops nothing,
    in training too.

    Args:
        source: a path, or the content of a file.
        device: what `optirs_web.device` takes.

    Raises:
        CheckpointError: it is no ONNX file, or is damaged.
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: the package `onnx` is not installed.
        UnsupportedError: there is an operation, an attribute or a type that is not supported; the message names the
            node and the operation.
    """
    onnx = _onnx()
    name = "the model" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model = onnx.load_model_from_string(content)
        if not isinstance(source, bytes):
            folder = os.path.dirname(os.path.abspath(source))
            importlib.import_module("onnx.external_data_helper").load_external_data_for_model(model, folder)
        arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
        nodes = [_node(onnx, one) for one in model.graph.node]
    except (decode_error, ValueError, TypeError, onnx.checker.ValidationError) as error:
        raise CheckpointError(f"{name} is no ONNX file, or is cut off: {error}") from error
    if not model.graph.output or not model.opset_import:
        raise CheckpointError(f"{name} is no ONNX file, or is cut off: it has no graph with outputs")
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset not in _OPSETS:
        raise UnsupportedError(f"{name} has opset {opset}; {_OPSETS[0]} to {_OPSETS[-1]} are supported")
    inputs = [one.name for one in model.graph.input if one.name not in arrays]
    outputs = [one.name for one in model.graph.output]
    known = {*arrays, *inputs, *(one for node in nodes for one in node.outputs)}
    missing = [one for node in nodes for one in node.inputs if one and one not in known] + [
        one for one in outputs if one not in known
    ]
    if missing:
        raise CheckpointError(f"{name} is damaged: nothing computes '{missing[0]}'")
    return Graph(nodes, inputs, outputs, arrays, opset, device)


def _node(onnx: Any, given: Any) -> Node:
    attributes = {}
    for one in given.attribute:
        value = onnx.helper.get_attribute_value(one)
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        attributes[one.name] = value.decode() if isinstance(value, bytes) else value
    kind = given.op_type if given.domain in ("", "ai.onnx") else f"{given.domain}.{given.op_type}"
    name = given.name or (given.output[0] if given.output else "")
    return Node(kind, name, tuple(given.input), tuple(given.output), attributes)


def save(
    module: Module, example: Tensor | tuple[Any, ...], path: str | os.PathLike[str], *, dynamic_batch: bool = True
) -> None:
    """Write a module as an ONNX file (opset 20), with the weights that it has.

    The module is called once, in evaluation mode, with `example`; what it computes then becomes the graph.

    Args:
        module: made of `optirs_web.nn` and tensors' operations, or what `load` gave.
        example: an input, or a tuple of them.
        path: the file. Whoever reads it sees the old one or the new one.
        dynamic_batch: the first axis of inputs may have any length, where it has the same in all of the example.

    Raises:
        UnsupportedError: the module uses an operation that has no counterpart here; the message names it.
        ModuleNotFoundError: the package `onnx` is not installed.
    """
    onnx = _onnx()
    inputs = example if isinstance(example, tuple) else (example,)
    trace = Trace(module, inputs, dynamic_batch=dynamic_batch)
    helper, kinds = onnx.helper, {"float32": onnx.TensorProto.FLOAT, "int32": onnx.TensorProto.INT32}

    def described(named: Mapping[str, Tensor]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, kinds[str(one.dtype)], trace.shown_shape(one))
            for name, one in named.items()
        ]

    def written(attribute: Any) -> Any:
        return onnx.numpy_helper.from_array(attribute) if hasattr(attribute, "dtype") else attribute

    graph = helper.make_graph(
        [
            helper.make_node(
                one.kind,
                one.inputs,
                one.outputs,
                name=one.name,
                **{name: written(value) for name, value in one.attributes.items()},
            )
            for one in trace.nodes
        ],
        type(module).__name__,
        described(trace.inputs),
        described(trace.outputs),
        [onnx.numpy_helper.from_array(value, name) for name, value in trace.arrays.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _WRITTEN_OPSET)],
        ir_version=_WRITTEN_IR,
        producer_name="optirs-web",
    )
    onnx.checker.check_model(model, full_check=True)
    target = Path(path)
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.write_bytes(model.SerializeToString())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
