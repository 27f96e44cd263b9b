"""JAX: a compiled step as a file that JAX runs by itself, on processors, NVIDIA GPUs and TPUs.

    step = ow.compile(train_step, device="xla")
    ow.interop.jax.export(step, x, y, parameters={"w": w}).save("step.safetensors")
    ...
    step = ow.interop.jax.load("step.safetensors")  # elsewhere, on what JAX runs on there
    loss = step(x, y)
    step.parameters()["w"]

Needs the package `jax` (the extra `optirs-web[xla]`). `load` needs no device of ours.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..compiled import Compiled, CompiledMethod, prepare
from ..errors import CheckpointError, UnsupportedError
from ..runtime.device import Device
from ..runtime.program import ProgramBuffer
from ..runtime.registry import device as device_of
from ..tensors import Tensor
from ..wgsl.jax_dialect import XLA_OPTIONS
from .safetensors import Entry, Source, load as load_file, name_of, parts, save_file, with_digest

__all__ = ["PLATFORMS", "Step", "export", "load"]

PLATFORMS = ("cpu", "cuda", "tpu")
"""The platforms that a step is exported for by default."""

_FORMAT = "optirs-web step 1"


class _ParameterSlice(NamedTuple):
    """A parameter in the state: the number of its vector, the index of its first element there, and its shape."""

    number: int
    first: int
    shape: tuple[int, ...]


def _jax(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install 'optirs-web[xla]'", name=error.name) from error


class Step:
    """A step that JAX runs by itself, and its state between calls. Made by `export` or `load`.

    Call it like the step that was exported, with arrays; the results are JAX's, in the same nesting.

    Attributes:
        artifact: bytes for `jax.export.deserialize`: a function of (state, *inputs) that returns (state, outputs).
        state: parameters, state of optimizers and all other memory that outlives a call, as vectors of uint32: arrays
            of NumPy at first, JAX's after a call.
    """

    def __init__(self, artifact: bytes, state: Sequence[Any], parameters: Mapping[str, _ParameterSlice]) -> None:
        self.artifact = artifact
        self.state = tuple(state)
        self._slices = dict(parameters)

    @cached_property
    def _exported(self) -> Any:
        try:
            return _jax("jax.export").deserialize(bytearray(self.artifact))
        except ValueError as error:
            raise CheckpointError(f"JAX cannot read the step: {error}") from error

    @cached_property
    def _call(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = _jax("jax").jit(
            self._exported.call, donate_argnums=(0,), compiler_options=XLA_OPTIONS
        )
        return compiled

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it can run on, as JAX names them."""
        return tuple(self._exported.platforms)

    @property
    def stablehlo(self) -> str:
        """The StableHLO program as text."""
        return str(self._exported.mlir_module())

    def __call__(self, *inputs: Any) -> Any:
        """Run one step on JAX's default device, update the state, and return the outputs.

        Raises:
            TypeError: the inputs have other types or shapes than those it was exported for.
            ValueError: it was not exported for the platform of that device, or has another number of inputs.
        """
        self.state, outputs = self._call(self.state, *inputs)
        return outputs

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that were named at the export, as arrays of NumPy. Waits."""
        return {
            name: np.array(self.state[slice_.number])[slice_.first : slice_.first + math.prod(slice_.shape)]
            .view(np.float32)
            .reshape(slice_.shape)
            for name, slice_ in self._slices.items()
        }

    def _content(self) -> tuple[dict[str, Entry], dict[str, str]]:
        words = {f"state.{number}": np.asarray(vector) for number, vector in enumerate(self.state)}
        entries = {name: Entry("U32", vector.shape, vector.data.cast("B")) for name, vector in words.items()}
        entries["artifact"] = Entry("U8", (len(self.artifact),), memoryview(self.artifact))
        return entries, with_digest(entries, {"format": _FORMAT, "parameters": json.dumps(self._slices)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `load` reads: the artifact, and the state as it is now. Waits.

        Raises:
            FileNotFoundError: there is no such folder.
        """
        save_file(path, *self._content())

    def dump(self) -> bytes:
        """Return the content of the file that `save` writes. Waits."""
        return b"".join(parts(*self._content()))


def export(
    step: Compiled | CompiledMethod,
    *example: Any,
    parameters: Mapping[str, Tensor] | None = None,
    platforms: Sequence[str] = PLATFORMS,
    device: str | Device = "xla",
) -> Step:
    """Return a compiled step for JAX alone: its kernels, and the content of the memory that they use.

    It is recorded for the example, and not run. Values that the host sets stay as they are: the options of optimizers,
    also where a scheduler changes them on the host (schedules on the device continue).

    Args:
        step: what `optirs_web.compile` returned, also as a method; its parameters are on the device.
        example: arguments as a call has them; shapes and types are those of every call.
        parameters: the tensors that `Step.parameters` returns, by name: `dict(module.named_parameters())`.
        platforms: those that it can run on: "cpu", "cuda", "rocm", "tpu".
        device: the device 'xla'.

    Raises:
        UnsupportedError: the device is not 'xla', or the step neither reads nor writes a parameter.
        ModuleNotFoundError: the package `jax`, or `flatbuffers`, which writes artifacts, is not installed.
        NotImplementedError: JAX has an operation of the step not on one of the platforms.
    """
    _jax("flatbuffers")
    if isinstance(step, CompiledMethod):
        example = (step.__self__, *example)
        step = step.__func__
    prepared = [prepare(argument) for argument in example]
    target = device_of(device)
    if target.name != "xla":
        raise UnsupportedError(f"steps are exported from the device 'xla', not '{target.name}'")
    recorded = step.recorded_on(target, prepared)
    for call in recorded.program.before_replay:  # writes options that have changed to the device
        call()
    target.flush()
    views = [view for launch in recorded.program.launches for view in (*launch.reads, *launch.writes)]
    scratch = {view.buffer.handle for view in views if isinstance(view.buffer, ProgramBuffer)}
    backend: Any = target.backend
    exported = backend.export(recorded.program.recorded, scratch, recorded.inputs, _plain(recorded.output), platforms)
    slices = {}
    for name, parameter in (parameters or {}).items():
        view = parameter.view
        piece = view.buffer.handle.only_piece(view.offset // 4, view.nbytes // 4)
        if piece.memory not in exported.numbers:
            raise UnsupportedError(f"the step neither reads nor writes '{name}'")
        slices[name] = _ParameterSlice(exported.numbers[piece.memory], piece.first, parameter.shape)
    return Step(exported.artifact, exported.state, slices)


def _plain(output: Any) -> Any:
    """Return a step's output with plain tuples for named ones, which JAX would need to know wherever it is loaded."""
    match output:
        case dict():
            return {key: _plain(value) for key, value in output.items()}
        case list():
            return [_plain(value) for value in output]
        case tuple():
            return tuple(_plain(value) for value in output)
    return output


def load(source: Source) -> Step:
    """Load a step from a file that `Step.save` wrote, or from its content.

    Raises:
        CheckpointError: it is no such file, or is damaged.
        FileNotFoundError: there is no such file.
    """
    entries, metadata = load_file(source)
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{name_of(source)} contains no step")
    try:
        artifact = bytes(entries["artifact"].content)
        names = [f"state.{number}" for number in range(len(entries) - 1)]
        state = [np.frombuffer(entries[name].content, np.uint32) for name in names]
        named_slices = json.loads(metadata["parameters"]).items()
        slices = {name: _ParameterSlice(number, start, tuple(shape)) for name, (number, start, shape) in named_slices}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name_of(source)} is damaged: parts of its step are missing ({error!r})") from error
    return Step(artifact, state, slices)
