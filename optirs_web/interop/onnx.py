"""ONNX: load a graph with its weights as a module, to run or train it, and save any module as a file.

    model = ow.interop.onnx.load("model.onnx")          # parameters are the graph's float weights
    ...
    ow.interop.onnx.save(model, example, "tuned.onnx")  # any module of ow.nn, not only a loaded one

Needs the package `onnx` (the extra `optirs-web[onnx]`) to read and write files; a loaded model runs by our operations.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedError, quoted
from ..files import write_whole
from ..nn import Module
from ..runtime.device import Device
from ..tensors import Tensor
from .onnx_export import Trace
from .onnx_graph import Graph, Node, refuse_unknown

__all__ = ["Graph", "load", "save"]

_OPSETS = range(13, 22)
_WRITTEN_OPSET = 20  # the first with Gelu
_WRITTEN_IR = 9
_MOST_BYTES = (1 << 31) - 1
"""The limit of a file, which is one message of Protocol Buffers."""


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install 'optirs-web[onnx]'", name=error.name) from error


def load(source: str | os.PathLike[str] | bytes, device: str | Device | None = None) -> Graph:
    """Load the graph of a file, with opset 13 to 21, as a module.

    Weights of float32 with axes are its parameters, under their names in the file with "." as "_"; the statistics of
    batch norms and numbers without axes are buffers. Batch norms use their stored statistics and dropout drops nothing,
    in training too.

    Args:
        source: a path, or the content of a file. Values that a model keeps in other files are read only from the folder
            of its path, or folders in it; a model given as content cannot have such.
        device: what `optirs_web.device` takes.

    Raises:
        CheckpointError: it is no ONNX file, is damaged, or against the rules of ONNX's checker.
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: the package `onnx` is not installed.
        UnsupportedError: there is an operation, an attribute or a type that is not supported; the message names the
            node and the operation.
    """
    onnx = _onnx()
    name = "the model" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    decode_error = importlib.import_module("google.protobuf.message").DecodeError
    refused = (decode_error, ValueError, TypeError, LookupError, RuntimeError, onnx.checker.ValidationError)
    try:
        model = onnx.load_model_from_string(content)
    except refused as error:
        raise CheckpointError(f"{name} is not an ONNX file, or is cut off: {error}") from error
    if not model.graph.output or not model.opset_import:
        raise CheckpointError(f"{name} is not an ONNX file, or is cut off: it has no graph with outputs")
    opset = next((imported.version for imported in model.opset_import if imported.domain in ("", "ai.onnx")), 0)
    if opset not in _OPSETS:
        raise UnsupportedError(f"{name} has opset {opset}; {_OPSETS[0]} to {_OPSETS[-1]} are supported")
    nodes = [_node(node) for node in model.graph.node]
    refuse_unknown(nodes)
    initializers = {array.name for array in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in initializers]
    outputs = [value.name for value in model.graph.output]
    names = {*initializers, *inputs, *(output for node in nodes for output in node.outputs)}
    folder = None if isinstance(source, bytes) else os.path.dirname(os.path.abspath(source))
    for tensor in _external_tensors(onnx, model.graph):
        _check_location(name, tensor, folder)
    missing = [
        value
        for value in (*(value for node in nodes for value in node.inputs if value), *outputs)
        if value not in names
    ]
    if missing:
        raise CheckpointError(f"{name} is damaged: nothing computes '{missing[0]}'")
    try:
        if folder is not None:
            importlib.import_module("onnx.external_data_helper").load_external_data_for_model(model, folder)
        _check(onnx, model)
        arrays = {array.name: onnx.numpy_helper.to_array(array) for array in model.graph.initializer}
        nodes = [
            node._replace(attributes=_attributes(onnx, proto))
            for node, proto in zip(nodes, model.graph.node, strict=True)
        ]
    except refused as error:
        raise CheckpointError(f"{name} is damaged: {' '.join(str(error).split())}") from error
    return Graph(nodes, inputs, outputs, arrays, opset, device)


def _external_tensors(onnx: Any, graph: Any) -> Iterator[Any]:
    """Yield the tensors whose values are in another file: those of a graph, and of the attributes of its nodes."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    tensors = [
        *graph.initializer,
        *(attribute.t for attribute in attributes),
        *(t for attribute in attributes for t in attribute.tensors),
    ]
    yield from (tensor for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL)
    for attribute in attributes:
        for inner in (attribute.g, *attribute.graphs):
            if inner.node or inner.initializer:
                yield from _external_tensors(onnx, inner)


def _check_location(name: str, tensor: Any, folder: str | None) -> None:
    """Check that the values of a tensor are in a file in the model's folder, or in a folder in it.

    Raises:
        CheckpointError: they are elsewhere, or the file does not exist.
    """
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    if folder is None:
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in another file, {quoted(location)}: load it by its path"
        )
    parts = location.replace("\\", "/").split("/")
    is_plain = bool(parts[0]) and not ({":", "\0"} & {*location}) and ".." not in parts
    folder = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(folder, location)) if is_plain else ""
    if not path.startswith(os.path.join(folder, "")):  # for example by a symbolic link
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in {quoted(location)}, which is not in its own folder"
        )
    if not os.path.isfile(path):
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in {quoted(location)}, which does not exist"
        )


def _check(onnx: Any, model: Any) -> None:
    """Run ONNX's checker on nodes, attributes and names, without the weights, which can be too large for it."""
    negative = [tensor.name for tensor in model.graph.initializer if any(size < 0 for size in tensor.dims)]
    if negative:
        raise ValueError(f"'{negative[0]}' has an axis of negative length")
    helper, initializers = onnx.helper, [tensor.name for tensor in model.graph.initializer]
    values = [*(value.name for value in model.graph.input if value.name not in initializers), *initializers]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ()) for name in names]
        for names in (values, [value.name for value in model.graph.output])
    )
    graph = helper.make_graph(model.graph.node, "graph", inputs, outputs)
    onnx.checker.check_model(helper.make_model(graph, opset_imports=model.opset_import, ir_version=_WRITTEN_IR))


def _node(proto: Any) -> Node:
    """Return a node without its attributes."""
    kind = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    name = proto.name or (proto.output[0] if proto.output else "")
    return Node(kind, name, tuple(proto.input), tuple(proto.output), {})


def _attributes(onnx: Any, proto: Any) -> dict[str, Any]:
    attributes = {}
    for attribute in proto.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        attributes[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return attributes


def save(
    module: Module, example: Tensor | tuple[Any, ...], path: str | os.PathLike[str], *, dynamic_batch: bool = True
) -> None:
    """Write a module as an ONNX file (opset 20), with its weights.

    The module is called once, in evaluation mode, with `example`; the operations of that call become the graph.

    Args:
        module: made of `optirs_web.nn` and tensors' operations, or loaded by `load`.
        example: an input, or a tuple of them.
        path: the file. It is replaced as a whole.
        dynamic_batch: the first axis of inputs may have any length, where it has the same in all of the example.

    Raises:
        FileNotFoundError: there is no such folder.
        UnsupportedError: the module uses an operation that has no counterpart here; the message names it. Or its
            weights do not fit in a file.
        ModuleNotFoundError: the package `onnx` is not installed.
    """
    onnx = _onnx()
    inputs = example if isinstance(example, tuple) else (example,)
    trace = Trace(module, inputs, dynamic_batch=dynamic_batch)
    size = sum(array.nbytes for array in trace.arrays.values())
    if size > _MOST_BYTES:
        raise UnsupportedError(
            f"an ONNX file has at most {_MOST_BYTES:,} bytes, and the weights are {size:,}: write the state dict with "
            "optirs_web.interop.safetensors.save_state_dict"
        )
    helper, kinds = onnx.helper, {"float32": onnx.TensorProto.FLOAT, "int32": onnx.TensorProto.INT32}

    def described(named: Mapping[str, Tensor]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, kinds[str(tensor.dtype)], trace.shown_shape(tensor))
            for name, tensor in named.items()
        ]

    def written(attribute: Any) -> Any:
        return onnx.numpy_helper.from_array(attribute) if hasattr(attribute, "dtype") else attribute

    graph = helper.make_graph(
        [
            helper.make_node(
                node.kind,
                node.inputs,
                node.outputs,
                name=node.name,
                **{name: written(value) for name, value in node.attributes.items()},
            )
            for node in trace.nodes
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
    write_whole(path, [model.SerializeToString()])
