"""The generated part of a fused kernel: several map functions, one after the other, on each element.

They stand in a loop over elements, or in a hook of a cooperative kernel: in place of its ``stored(value, at)``, which
keeps what the kernel computed, or of its ``loaded(at)``, which gives what it works on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal as OneOf, NamedTuple

from . import shell
from .linker import link
from .parser import parse
from .syntax import (
    Declaration,
    Function,
    GlobalVariable,
    Import,
    Literal,
    Module,
    Position,
    StructDeclaration,
    StructField,
    TypeName,
)

__all__ = [
    "Argument",
    "Fused",
    "Hook",
    "Step",
    "around_map",
    "hooked",
    "imports",
    "parameters_of",
]

Argument = tuple[OneOf["tensor", "scalar", "step", "index", "old", "value"], int]
"""Where an argument comes from: which tensor, number or earlier step; the element's index; the old value of which
output; or what the cooperative kernel computed."""


class Step(NamedTuple):
    """A call of the map function of that name in ``shaders/elementwise/FILE.wgsl``."""

    file: str
    function: str
    arguments: tuple[Argument, ...]
    returns_bool: bool  # which memory holds as a u32


class Fused(NamedTuple):
    """What a fused kernel does for an element.

    Attributes:
        steps: the calls, in order.
        tensor_types: the WGSL type of each tensor that is read.
        flat: for each whether its elements lie in the order of the index.
        scalar_types: of each number that is given with the launch.
        outputs: what each output gets.
        output_types: the WGSL type of each.
        rank: axes of the walk over the tensors that are not flat.
    """

    steps: tuple[Step, ...]
    tensor_types: tuple[str, ...]
    flat: tuple[bool, ...]
    scalar_types: tuple[str, ...]
    outputs: tuple[Argument, ...]
    output_types: tuple[str, ...]
    rank: int


class Hook(NamedTuple):
    """Where a cooperative kernel lets map functions in.

    Attributes:
        function: "stored" or "loaded".
        binding: the buffer that the hook writes or reads.
        struct: the parameters of the kernel.
    """

    function: OneOf["stored", "loaded"]
    binding: str
    struct: str


_NOWHERE = Position("<fused>", 1, 1)
_PROVISIONAL = 100  # numbers of bindings that no kernel has, until all are numbered anew


def parameters_of(fused: Fused) -> list[tuple[str, str]]:
    """Name and type of each parameter of the launch that the functions need."""
    walked = [number for number, is_flat in enumerate(fused.flat) if not is_flat]
    names = [f"dim{axis}" for axis in range(fused.rank)]
    names += [f"x{number}_start" for number in walked]
    names += [f"x{number}_stride{axis}" for number in walked for axis in range(fused.rank)]
    return [*((name, "u32") for name in names), *((f"s{one}", type_) for one, type_ in enumerate(fused.scalar_types))]


def imports(fused: Fused) -> list[Declaration]:
    """What brings the functions in."""
    wanted = sorted({(step.file, step.function) for step in fused.steps})
    return [Import(_NOWHERE, ("elementwise", file), [function]) for file, function in wanted]


def _bindings(fused: Fused, first_output: int) -> list[tuple[str, str, str]]:
    reads = [(f"x{number}_values", "read", f"array<{type_}>") for number, type_ in enumerate(fused.tensor_types)]
    writes = [(f"y{number}_values", "read_write", f"array<{type_}>") for number, type_ in enumerate(fused.output_types)]
    return reads + writes[first_output:]


def _lines(fused: Fused, index: str, outputs: Sequence[str]) -> list[str]:
    """What is done for the element at `index`, with the buffers that take the outputs."""
    lines = _places(fused, index)
    for number, is_flat in enumerate(fused.flat):
        lines.append(f"let x{number} = x{number}_values[{index if is_flat else f'x{number}_at'}];")
    for number, step in enumerate(fused.steps):
        call = f"{step.function}({', '.join(_argument(one, index, outputs) for one in step.arguments)})"
        lines.append(f"let t{number} = {f'u32({call})' if step.returns_bool else call};")
    for name, value in zip(outputs, fused.outputs, strict=False):
        lines.append(f"{name}[{index}] = {_argument(value, index, outputs)};")
    return lines


def _places(fused: Fused, index: str) -> list[str]:
    if not fused.rank:
        return []
    lines = [f"var rest = {index};"]
    for axis in reversed(range(1, fused.rank)):
        lines += [f"let at{axis} = rest % parameters.dim{axis};", f"rest = rest / parameters.dim{axis};"]
    lines.append("let at0 = rest;")
    for number, is_flat in enumerate(fused.flat):
        if not is_flat:
            terms = " + ".join(f"at{axis} * parameters.x{number}_stride{axis}" for axis in range(fused.rank))
            lines.append(f"let x{number}_at = parameters.x{number}_start + {terms};")
    return lines


def _argument(one: Argument, index: str, outputs: Sequence[str]) -> str:
    kind, number = one
    names = {"tensor": f"x{number}", "scalar": f"parameters.s{number}", "step": f"t{number}", "value": "value"}
    return f"{outputs[number]}[{index}]" if kind == "old" else names.get(kind, index)


def around_map(fused: Fused, loop: tuple[int, int] = shell.LOOP) -> str:
    """The shell of a kernel of map functions alone."""
    members = ", ".join(f"{name}: {type_}" for name, type_ in [("size", "u32"), *parameters_of(fused)])
    outputs = [f"y{number}_values" for number in range(len(fused.outputs))]
    return shell.element_loop(members, _bindings(fused, 0), _lines(fused, "index", outputs), loop)


def hooked(base: Module, hook: Hook, fused: Fused, constants: Mapping[str, bool | int | float] | None = None) -> Module:
    """A complete module: a cooperative kernel, parsed, with map functions in its hook. The base stays as it is.

    The first output of `stored` takes the place of what the kernel keeps. Buffers are numbered as they are declared.
    """
    is_stored = hook.function == "stored"
    outputs = [hook.binding, *(f"y{number}_values" for number in range(1, len(fused.outputs)))] if is_stored else []
    lines = _lines(fused, "at", outputs)
    if not is_stored:
        lines.append(f"return {_argument(fused.outputs[0], 'at', outputs)};")
    head = "fn stored(value: f32, at: u32)" if is_stored else "fn loaded(at: u32) -> f32"
    added = _bindings(fused, 1 if is_stored else len(fused.outputs))
    body = "\n    ".join(lines)
    text = f"{shell.storage(added, _PROVISIONAL)}\n{head} {{\n    {body}\n}}\n"
    kept = [_with_parameters(one, hook, fused) for one in base.declarations if not _is_replaced(one, hook)]
    functions = parse(text, f"<fused {base.file}>").declarations
    module = link(Module(base.file, base.enables, [*imports(fused), *kept, *functions]), constants=constants)
    _number_bindings(module)
    return module


def _is_replaced(one: Declaration, hook: Hook) -> bool:
    if isinstance(one, Function):
        return one.name == hook.function
    return hook.function == "loaded" and isinstance(one, GlobalVariable) and one.name == hook.binding


def _with_parameters(one: Declaration, hook: Hook, fused: Fused) -> Declaration:
    """The declaration; the struct of the parameters with those of the functions besides."""
    if not (isinstance(one, StructDeclaration) and one.name == hook.struct):
        return one
    added = [StructField(one.position, name, TypeName(one.position, type_)) for name, type_ in parameters_of(fused)]
    return StructDeclaration(one.position, one.name, [*one.fields, *added])


def _number_bindings(module: Module) -> None:
    """From 0 on as they are declared, the uniform block last."""
    buffers = [one for one in module.declarations if isinstance(one, GlobalVariable)]
    ordered = sorted(
        (one for one in buffers if one.space in ("storage", "uniform")), key=lambda one: one.space == "uniform"
    )
    for number, one in enumerate(ordered):
        binding = next(attribute for attribute in one.attributes if attribute.name == "binding")
        binding.arguments = [Literal(one.position, number, type=binding.arguments[0].type)]
