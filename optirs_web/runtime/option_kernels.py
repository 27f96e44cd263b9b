"""Kernels that change options of parameter groups on a device: schedules, and reductions on a plateau.

A map module has a struct `Row` of float32, which begins with the members of `OptionWords`, and a function `follow`. It
returns the row as it is afterwards, and an `Option` of ``shaders/schedules/option.wgsl``. A dispatch applies it to each
row of a table, and stores the options that have changed in the table `hyper` of an optimizer. The names of the
parameters of `follow` say what they are:

    row        the row
    current    the option as `hyper` has it
    metric     the number in the binding of that name
    others     parameters of the dispatch
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from ..wgsl import link, package_loader, parse, shell, syntax
from ..wgsl.print_python import compile_python, print_python
from ..wgsl.python_dialects import FLOAT
from .buffer import Buffer, View
from .device import Device
from .kernels import Binding, GeneratedKernel, bindings_of

__all__ = ["NOWHERE", "OptionKernel", "OptionTable", "OptionWords", "host_functions"]

NOWHERE = -1
_WORKGROUP = 64


class OptionWords(NamedTuple):
    """The words of the table `hyper` that hold an option, 1 - option and its logarithm; `NOWHERE` if none does."""

    at: int = NOWHERE
    one_minus_at: int = NOWHERE
    log_at: int = NOWHERE

    @property
    def written(self) -> list[int]:
        """The words that exist."""
        return [word for word in self if word != NOWHERE]


def host_functions(module: syntax.Module, *names: str) -> Mapping[str, Callable[..., Any]]:
    """Return functions of a linked map module, and its structs, that compute with Python's floats: in float64."""
    return compile_python(print_python(module, FLOAT, list(names)), f"{module.file} on the host")


class OptionKernel(GeneratedKernel):
    """Applies the function `follow` of a map module to each row of a table."""

    def __init__(self, name: str, text: str | None) -> None:
        """Use `of`, which makes each kernel once."""
        self.name = name
        self._text = text

    @staticmethod
    @cache
    def of(name: str, text: str | None = None) -> OptionKernel:
        """The kernel of a module in WGSL; of ``shaders/schedules/NAME.wgsl`` if there is no text."""
        return OptionKernel(name, text)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The function with what it calls."""
        load, text = package_loader(), self._text
        module = load(("schedules", self.name)) if text is None else parse(text, f"<{self.name}>")
        return link(module, load, roots=["follow"])

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The names of the parameters of `follow`."""
        return tuple(parameter.name for parameter in shell.function_of(self.map_module, "follow").parameters)

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The members of a row."""
        return tuple(shell.member_names(self.map_module, "Row"))

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Name and type of each parameter of `follow` that is a parameter of the dispatch; the type is always "f32"."""
        return tuple((name, "f32") for name in self.arguments if name not in ("row", "current", "metric"))

    @property
    def _declared(self) -> list[tuple[str, str, str]]:
        metric = [("metric", "read", "array<f32>")] if "metric" in self.arguments else []
        return [*metric, ("rows", "read_write", "array<Row>"), ("hyper", "read_write", "array<f32>")]

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """As the shell has them, known without making it."""
        return bindings_of(self._declared)

    @cached_property
    def around(self) -> str:
        """One invocation for each row."""
        values = {"row": "row", "current": "hyper[u32(max(row.at, 0.0))]", "metric": "metric[0]"}
        call = ", ".join(values.get(name, f"parameters.{name}") for name in self.arguments)
        members = ", ".join(f"{name}: {type_}" for name, type_ in self.parameters)
        return f"""
struct OptionParameters {{ {members} }}

{shell.storage(self._declared)}
@group(0) @binding({len(self._declared)}) var<uniform> parameters: OptionParameters;

fn store(at: f32, value: f32) {{
    if at >= 0.0 {{
        hyper[u32(at)] = value;
    }}
}}

@compute @workgroup_size({_WORKGROUP})
fn main(@builtin(global_invocation_id) invocation: vec3<u32>) {{
    if invocation.x >= arrayLength(&rows) {{
        return;
    }}
    let row = rows[invocation.x];
    let followed = follow({call});
    rows[invocation.x] = followed.row;
    if followed.option.is_changed {{
        store(row.at, followed.option.value);
        store(row.one_minus_at, followed.option.one_minus);
        store(row.log_at, followed.option.log);
    }}
}}
"""


class OptionTable:
    """The rows of a kernel on a device."""

    def __init__(self, device: Device, kernel: OptionKernel, rows: Sequence[Sequence[float]]) -> None:
        self.device, self.kernel, self.count = device, kernel, len(rows)
        content = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
        self._buffer = device.allocate_zeroed(len(content))
        device.write(View.whole(self._buffer), memoryview(content))

    def view(self, row: int, member: str, count: int = 1) -> View:
        """The words of a row from a member on."""
        members = self.kernel.members
        return View(self._buffer, 4 * (row * len(members) + members.index(member)), 4 * count)

    def set(self, row: int, member: str, value: float) -> None:
        """Another value from now on: 4 bytes."""
        self.device.write(self.view(row, member), memoryview(struct.pack("<f", value)))

    def follow(self, hyper: Buffer, parameters: Mapping[str, float], metric: View | None = None) -> None:
        """Enqueue the kernel."""
        views = [*([] if metric is None else [metric]), View.whole(self._buffer), View.whole(hyper)]
        values = [parameters[name] for name, _ in self.kernel.parameters]
        self.device.dispatch(self.kernel, views, -(-self.count // _WORKGROUP), values)

    def retire(self) -> None:
        """Programs that use it must be recorded again."""
        self._buffer.retired = True
