"""A graph of ONNX as a module, which runs its nodes in order by our operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import OptirsError, ShapeError, UnsupportedError
from ..nn import Module
from ..runtime.device import Device
from ..tensors import Parameter, Tensor, tensor
from .onnx_operations import OPERATIONS, Call

__all__ = ["Graph", "Node", "refuse_unknown"]

_STATISTICS = {"BatchNormalization": (3, 4)}
"""The inputs of a node that are no parameters."""


class Node(NamedTuple):
    """A node: `kind` is the operation, such as "Conv"; an input or output named "" is absent."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The node's name and operation, for messages."""
        return f"node '{self.name}' ({self.kind})"


def refuse_unknown(nodes: Sequence[Node]) -> None:
    """Raise UnsupportedError for a node whose operation is not supported."""
    for node in nodes:
        if node.kind not in OPERATIONS:
            raise UnsupportedError(f"{node.title}: this operation is not supported; there are {', '.join(OPERATIONS)}")


class Graph(Module):
    """A module that runs an ONNX graph: call it with the graph's inputs in their order. Made by `load`.

    Attributes:
        inputs: names of the inputs.
        outputs: names of the outputs; a call returns a tuple where there are several.
        opset: the version of ONNX's operations that the file uses.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        arrays: Mapping[str, Any],
        opset: int,
        device: str | Device | None,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs, self.opset = list(inputs), list(outputs), opset
        self._nodes = list(nodes)
        statistics = {
            node.inputs[index] for node in nodes for index in _STATISTICS.get(node.kind, ()) if index < len(node.inputs)
        }
        self._constants: dict[str, Any] = {}  # on the host: shapes, axes, numbers of rows
        self._attribute_of: dict[str, str] = {}
        for name, value in arrays.items():
            self._hold(name, value, device, is_trained=name not in statistics and value.ndim > 0)
        for node in nodes:
            if node.kind == "Constant":
                self._hold(node.outputs[0], _constant(node), device, is_trained=False)

    def _hold(self, name: str, value: Any, device: str | Device | None, *, is_trained: bool) -> None:
        if value.dtype != np.float32:
            if value.dtype.kind not in "iub":
                raise UnsupportedError(f"'{name}' is of {value.dtype}; float32 is needed")
            self._constants[name] = value.view(np.uint8) != 0 if value.dtype == bool else value  # a file has any byte
            return
        attribute = base = name.replace(".", "_")
        number = len(self._attribute_of)
        while hasattr(self, attribute):
            attribute = f"{base}_{number}"
            number += 1
        self._attribute_of[name] = attribute
        if is_trained:
            self.register_parameter(attribute, Parameter(value, device=device))
        else:
            self.register_buffer(attribute, tensor(value, device=device))

    def forward(self, *inputs: Any) -> Any:
        """Return the outputs for all inputs of the graph, as tensors or arrays."""
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the graph has the inputs {', '.join(self.inputs)}, and {len(inputs)} were given")
        device = next((param.device for param in (*self.parameters(), *self.buffers())), None)
        values: dict[str, Any] = dict(self._constants)
        values |= {name: getattr(self, attribute) for name, attribute in self._attribute_of.items()}
        for name, value in zip(self.inputs, inputs, strict=True):
            values[name] = value if isinstance(value, Tensor) else tensor(value, device=device)
        for node in self._nodes:
            if node.kind != "Constant":
                operands = [values[name] if name else None for name in node.inputs]
                values[node.outputs[0]] = self._run(node, operands)
        results = tuple(values[name] for name in self.outputs)
        return results if len(results) > 1 else results[0]

    def _run(self, node: Node, inputs: list[Any]) -> Any:
        while inputs and inputs[-1] is None:
            inputs.pop()
        if any(node.outputs[1:]):
            raise UnsupportedError(f"{node.title}: its outputs besides the first are not supported")
        try:
            result = OPERATIONS[node.kind](Call(inputs, node.attributes, self.opset))
            return result if isinstance(result, Tensor) else np.asarray(result)
        except ShapeError as error:
            raise ShapeError(f"{node.title}: {error}") from error
        except OptirsError as error:
            if isinstance(error, UnsupportedError):
                raise UnsupportedError(f"{node.title}: {error}") from error
            error.add_note(f"in {node.title}")
            raise
        except Exception as error:  # from an operation that cannot take these inputs or attributes
            raise UnsupportedError(f"{node.title}: {error}") from error


def _constant(node: Node) -> Any:
    kinds: dict[str, Any] = {"value": None, "value_float": np.float32, "value_floats": np.float32}
    kinds |= {"value_int": np.int64, "value_ints": np.int64}
    for name, value in node.attributes.items():
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise UnsupportedError(f"{node.title}: there is no constant of {', '.join(node.attributes)}")
