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
"""What a step is exported for unless it is said."""

_FORMAT = "optirs-web step 1"


class _Place(NamedTuple):
    """Where a parameter lies: the number of the vector in the state, the first element, and the shape."""

    number: int
    first: int
    shape: tuple[int, ...]


def _jax(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: pip install 'optirs-web[xla]'", name=error.name) from error


class Step:
    """A step that JAX runs by itself, and the memory that it continues from. Made by `export` or `load`.

    Call it like the step that was exported, with arrays; the results are JAX's, in the same nesting.

    Attributes:
        artifact: what `jax.export.deserialize` takes: a function of (state, *inputs) that gives (state, outputs).
        state: parameters, state of optimizers and all else that outlives a call, as vectors of uint32: arrays of NumPy
            to begin with, JAX's after a call.
    """

    def __init__(self, artifact: bytes, state: Sequence[Any], places: Mapping[str, _Place]) -> None:
        self.artifact = artifact
        self.state = tuple(state)
        self._places = dict(places)

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
        """Those that it can run on, as JAX names them."""
        return tuple(self._exported.platforms)

    @property
    def stablehlo(self) -> str:
        """The program as text."""
        return str(self._exported.mlir_module())

    def __call__(self, *inputs: Any) -> Any:
        """One step, on JAX's default device: the state becomes the next one.

        Raises:
            TypeError: the inputs have other types or shapes than those it was exported for.
            ValueError: it was not exported for the platform of that device, or is given more or fewer inputs.
        """
        self.state, outputs = self._call(self.state, *inputs)
        return outputs

    def parameters(self) -> dict[str, Any]:
        """The parameters that were named when the step was exported, as arrays of NumPy. Waits."""
        return {
            name: np.array(self.state[place.number])[place.first : place.first + math.prod(place.shape)]
            .view(np.float32)
            .reshape(place.shape)
            for name, place in self._places.items()
        }

    def _content(self) -> tuple[dict[str, Entry], dict[str, str]]:
        words = {f"state.{number}": np.asarray(one) for number, one in enumerate(self.state)}
        entries = {name: Entry("U32", one.shape, one.data.cast("B")) for name, one in words.items()}
        entries["artifact"] = Entry("U8", (len(self.artifact),), memoryview(self.artifact))
        return entries, with_digest(entries, {"format": _FORMAT, "parameters": json.dumps(self._places)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `load` reads: the artifact, and the state as it is now. Waits.

        Raises:
            FileNotFoundError: there is no such folder.
        """
        save_file(path, *self._content())

    def dump(self) -> bytes:
        """What `save` writes. Waits."""
        return b"".join(parts(*self._content()))


def export(
    step: Compiled | CompiledMethod,
    *example: Any,
    parameters: Mapping[str, Tensor] | None = None,
    platforms: Sequence[str] = PLATFORMS,
    device: str | Device = "xla",
) -> Step:
    """A compiled step for JAX alone: its kernels, and what is in the memory that it finds.

    It is recorded for the example, and not run. What the host decides stays as it is: the options of optimizers, also
    where a scheduler moves them from the host (schedules on the device continue).

    Args:
        step: what `optirs_web.compile` returned, also as a method; its parameters are on the device.
        example: arguments as a call has them; shapes and types are those of every call.
        parameters: what `Step.parameters` is to find, by name: `dict(module.named_parameters())`.
        platforms: what it is to run on: "cpu", "cuda", "rocm", "tpu".
        device: one of JAX's.

    Raises:
        UnsupportedError: the device is not one of JAX's, or a parameter has no part in the step.
        ModuleNotFoundError: the package `jax`, or `flatbuffers`, which writes artifacts, is not installed.
        NotImplementedError: JAX has an operation of the step not on one of the platforms.
    """
    _jax("flatbuffers")
    if isinstance(step, CompiledMethod):
        example = (step.__self__, *example)
        step = step.__func__
    prepared = [prepare(one) for one in example]
    place = device_of(device)
    if place.name != "xla":
        raise UnsupportedError(f"steps are exported from the device 'xla', not '{place.name}'")
    recorded = step.recorded_on(place, prepared)
    for call in recorded.program.before_replay:  # options that have changed are brought to the device
        call()
    place.flush()
    views = [view for one in recorded.program.launches for view in (*one.reads, *one.writes)]
    scratch = {view.buffer.handle for view in views if isinstance(view.buffer, ProgramBuffer)}
    backend: Any = place.backend
    made = backend.export(recorded.program.recorded, scratch, recorded.inputs, _plain(recorded.output), platforms)
    places = {}
    for name, one in (parameters or {}).items():
        handle = one.view.buffer.handle
        if handle not in made.numbers:
            raise UnsupportedError(f"the step neither reads nor writes '{name}'")
        places[name] = _Place(made.numbers[handle], one.view.offset // 4, one.shape)
    return Step(made.artifact, made.state, places)


def _plain(output: Any) -> Any:
    """What a step returns, without classes of tuples, which JAX would have to be told of wherever it is loaded."""
    match output:
        case dict():
            return {key: _plain(one) for key, one in output.items()}
        case list():
            return [_plain(one) for one in output]
        case tuple():
            return tuple(_plain(one) for one in output)
    return output


def load(source: Source) -> Step:
    """A step from a file that `Step.save` wrote, or from its content.

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
        found = json.loads(metadata["parameters"]).items()
        places = {name: _Place(number, first, tuple(shape)) for name, (number, first, shape) in found}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name_of(source)} is damaged: parts of its step are missing ({error!r})") from error
    return Step(artifact, state, places)
