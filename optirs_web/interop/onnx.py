"""ONNX: a graph with its weights becomes a module, is trained, and goes back to a file.

    model = ow.interop.onnx.load("model.onnx")          # parameters are the graph's float weights
    ...
    ow.interop.onnx.save(model, example, "tuned.onnx")  # any module of ow.nn, not only a loaded one

Needs the package `onnx` (the extra `optirs-web[onnx]`) to read and write files; what runs a loaded model is ours.
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
"""Of a file: it is one message of Protocol Buffers."""


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
        source: a path, or the content of a file. Values that a model keeps in other files are read from the folder of
            its path, or folders in it, and from nowhere else; of content alone they are refused.
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
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset not in _OPSETS:
        raise UnsupportedError(f"{name} has opset {opset}; {_OPSETS[0]} to {_OPSETS[-1]} are supported")
    nodes = [_node(one) for one in model.graph.node]
    refuse_unknown(nodes)
    held = {one.name for one in model.graph.initializer}
    inputs = [one.name for one in model.graph.input if one.name not in held]
    outputs = [one.name for one in model.graph.output]
    known = {*held, *inputs, *(one for node in nodes for one in node.outputs)}
    folder = None if isinstance(source, bytes) else os.path.dirname(os.path.abspath(source))
    for tensor in _external_tensors(onnx, model.graph):
        _check_location(name, tensor, folder)
    missing = [one for one in (*(one for node in nodes for one in node.inputs if one), *outputs) if one not in known]
    if missing:
        raise CheckpointError(f"{name} is damaged: nothing computes '{missing[0]}'")
    try:
        if folder is not None:
            importlib.import_module("onnx.external_data_helper").load_external_data_for_model(model, folder)
        _check(onnx, model)
        arrays = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
        nodes = [
            node._replace(attributes=_attributes(onnx, one)) for node, one in zip(nodes, model.graph.node, strict=True)
        ]
    except refused as error:
        raise CheckpointError(f"{name} is damaged: {' '.join(str(error).split())}") from error
    return Graph(nodes, inputs, outputs, arrays, opset, device)


def _external_tensors(onnx: Any, graph: Any) -> Iterator[Any]:
    """The tensors whose values are in another file: of a graph, and of what its nodes have as attributes."""
    attributes = [one for node in graph.node for one in node.attribute]
    tensors = [*graph.initializer, *(one.t for one in attributes), *(t for one in attributes for t in one.tensors)]
    yield from (one for one in tensors if one.data_location == onnx.TensorProto.EXTERNAL)
    for attribute in attributes:
        for inner in (attribute.g, *attribute.graphs):
            if inner.node or inner.initializer:
                yield from _external_tensors(onnx, inner)


def _check_location(name: str, tensor: Any, folder: str | None) -> None:
    """Refuse values in a file that is not beside the model's, in its folder or one of that folder's."""
    location = next((one.value for one in tensor.external_data if one.key == "location"), "")
    if folder is None:
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in another file, {quoted(location)}: load it by its path"
        )
    parts = location.replace("\\", "/").split("/")
    is_plain = bool(parts[0]) and not ({":", "\0"} & {*location}) and ".." not in parts
    folder = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(folder, location)) if is_plain else ""
    if not path.startswith(os.path.join(folder, "")):  # as where there is a symbolic link
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in {quoted(location)}, which is not in its own folder"
        )
    if not os.path.isfile(path):
        raise CheckpointError(
            f"{name} has the values of {quoted(tensor.name)} in {quoted(location)}, which does not exist"
        )


def _check(onnx: Any, model: Any) -> None:
    """Have ONNX look at nodes, attributes and names: a copy without the weights, which can be too large for it."""
    negative = [one.name for one in model.graph.initializer if any(size < 0 for size in one.dims)]
    if negative:
        raise ValueError(f"'{negative[0]}' has an axis of negative length")
    helper, held = onnx.helper, [one.name for one in model.graph.initializer]
    given = [*(one.name for one in model.graph.input if one.name not in held), *held]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ()) for name in names]
        for names in (given, [one.name for one in model.graph.output])
    )
    graph = helper.make_graph(model.graph.node, "graph", inputs, outputs)
    onnx.checker.check_model(helper.make_model(graph, opset_imports=model.opset_import, ir_version=_WRITTEN_IR))


def _node(given: Any) -> Node:
    """Without its attributes."""
    kind = given.op_type if given.domain in ("", "ai.onnx") else f"{given.domain}.{given.op_type}"
    name = given.name or (given.output[0] if given.output else "")
    return Node(kind, name, tuple(given.input), tuple(given.output), {})


def _attributes(onnx: Any, given: Any) -> dict[str, Any]:
    attributes = {}
    for one in given.attribute:
        value = onnx.helper.get_attribute_value(one)
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        attributes[one.name] = value.decode() if isinstance(value, bytes) else value
    return attributes


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
        FileNotFoundError: there is no such folder.
        UnsupportedError: the module uses an operation that has no counterpart here; the message names it. Or its
            weights do not fit in a file.
        ModuleNotFoundError: the package `onnx` is not installed.
    """
    onnx = _onnx()
    inputs = example if isinstance(example, tuple) else (example,)
    trace = Trace(module, inputs, dynamic_batch=dynamic_batch)
    size = sum(one.nbytes for one in trace.arrays.values())
    if size > _MOST_BYTES:
        raise UnsupportedError(
            f"an ONNX file has at most {_MOST_BYTES:,} bytes, and the weights are {size:,}: write the state dict with "
            "optirs_web.interop.safetensors.save_state_dict"
        )
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
    write_whole(path, [model.SerializeToString()])
