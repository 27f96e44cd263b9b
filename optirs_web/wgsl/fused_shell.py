"""The generated part of a fused kernel: several map functions, one after the other, on each element.

They are called in a loop over elements, or in a hook of a cooperative kernel: instead of its ``stored(value, at)``,
which stores a result of the kernel, or of its ``loaded(at)``, which loads an operand.
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
    "value_as_tensor",
]

Argument = tuple[OneOf["tensor", "scalar", "step", "index", "old", "value"], int]
"""The source of an argument: a tensor, scalar or earlier step, by its number; the element's index; the old value of an
output, by its number; or the value that the cooperative kernel computed."""


class Step(NamedTuple):
    """A call of the map function of that name in ``shaders/elementwise/FILE.wgsl``."""

    file: str
    function: str
    arguments: tuple[Argument, ...]
    returns_bool: bool  # stored in memory as a u32


class Fused(NamedTuple):
    """The calls, inputs and outputs of a fused kernel, for an element.

    Attributes:
        steps: the calls, in order.
        tensor_types: the WGSL type of each tensor that is read.
        flat: for each tensor, True if it is contiguous, so that the index is the offset of its element.
        scalar_types: the WGSL type of each number that is passed at launch.
        outputs: the value of each output.
        output_types: the WGSL type of each output.
        rank: number of axes of the strided views of tensors that are not flat.
    """

    steps: tuple[Step, ...]
    tensor_types: tuple[str, ...]
    flat: tuple[bool, ...]
    scalar_types: tuple[str, ...]
    outputs: tuple[Argument, ...]
    output_types: tuple[str, ...]
    rank: int


def value_as_tensor(fused: Fused) -> Fused:
    """Return the calls of a hook with a last tensor, contiguous, in place of the value of the cooperative kernel."""

    def as_tensor(argument: Argument) -> Argument:
        return ("tensor", len(fused.tensor_types)) if argument[0] == "value" else argument

    return fused._replace(
        steps=tuple(step._replace(arguments=tuple(map(as_tensor, step.arguments))) for step in fused.steps),
        tensor_types=(*fused.tensor_types, "f32"),
        flat=(*fused.flat, True),
        outputs=tuple(map(as_tensor, fused.outputs)),
    )


class Hook(NamedTuple):
    """The place in a cooperative kernel where map functions are called.

    Attributes:
        function: "stored" or "loaded".
        binding: the buffer that the hook writes or reads.
        struct: the parameters of the kernel.
    """

    function: OneOf["stored", "loaded"]
    binding: str
    struct: str


_NOWHERE = Position("<fused>", 1, 1)
_PROVISIONAL = 100  # first number of the added bindings, until all are renumbered


def parameters_of(fused: Fused) -> list[tuple[str, str]]:
    """Return the name and type of each parameter of the launch that the functions need."""
    strided = [number for number, is_flat in enumerate(fused.flat) if not is_flat]
    names = [f"dim{axis}" for axis in range(fused.rank)]
    names += [f"x{number}_start" for number in strided]
    names += [f"x{number}_stride{axis}" for number in strided for axis in range(fused.rank)]
    return [
        *((name, "u32") for name in names),
        *((f"s{number}", type_) for number, type_ in enumerate(fused.scalar_types)),
    ]


def imports(fused: Fused) -> list[Declaration]:
    """Return the imports of the map functions."""
    functions = sorted({(step.file, step.function) for step in fused.steps})
    return [Import(_NOWHERE, ("elementwise", file), [function]) for file, function in functions]


def _bindings(fused: Fused, first_output: int) -> list[tuple[str, str, str]]:
    reads = [(f"x{number}_values", "read", f"array<{type_}>") for number, type_ in enumerate(fused.tensor_types)]
    writes = [(f"y{number}_values", "read_write", f"array<{type_}>") for number, type_ in enumerate(fused.output_types)]
    return reads + writes[first_output:]


def _lines(fused: Fused, index: str, outputs: Sequence[str]) -> list[str]:
    """Return the statements for the element at `index`, after those that declare the offsets x0_at and so on.

    `outputs` are the names of the buffers that are written.
    """
    lines = [
        f"let x{number} = x{number}_values[{index if is_flat else f'x{number}_at'}];"
        for number, is_flat in enumerate(fused.flat)
    ]
    for number, step in enumerate(fused.steps):
        call = f"{step.function}({', '.join(_argument(argument, index, outputs) for argument in step.arguments)})"
        lines.append(f"let t{number} = {f'u32({call})' if step.returns_bool else call};")
    for name, value in zip(outputs, fused.outputs, strict=False):
        lines.append(f"{name}[{index}] = {_argument(value, index, outputs)};")
    return lines


def _strided(fused: Fused) -> shell.Strided:
    return shell.Strided(fused.rank, [f"x{number}" for number, is_flat in enumerate(fused.flat) if not is_flat])


def _argument(argument: Argument, index: str, outputs: Sequence[str]) -> str:
    kind, number = argument
    names = {"tensor": f"x{number}", "scalar": f"parameters.s{number}", "step": f"t{number}", "value": "value"}
    return f"{outputs[number]}[{index}]" if kind == "old" else names.get(kind, index)


def around_map(fused: Fused, loop: tuple[int, int] = shell.LOOP, adjacent: bool = False) -> str:
    """Return the shell of a kernel that only calls map functions; `adjacent` as in `shell.element_loop`."""
    members = ", ".join(f"{name}: {type_}" for name, type_ in [("size", "u32"), *parameters_of(fused)])
    outputs = [f"y{number}_values" for number in range(len(fused.outputs))]
    lines = _lines(fused, "index", outputs)
    return shell.element_loop(members, _bindings(fused, 0), lines, _strided(fused), loop, adjacent)


def hooked(base: Module, hook: Hook, fused: Fused, constants: Mapping[str, bool | int | float] | None = None) -> Module:
    """Return a complete module: a parsed cooperative kernel with map functions in its hook. `base` is not changed.

    The first output of `stored` replaces the value that the kernel stores. Buffers are numbered in the order of their
    declaration.
    """
    is_stored = hook.function == "stored"
    outputs = [hook.binding, *(f"y{number}_values" for number in range(1, len(fused.outputs)))] if is_stored else []
    lines = [*shell.offsets(_strided(fused), "at"), *_lines(fused, "at", outputs)]
    if not is_stored:
        lines.append(f"return {_argument(fused.outputs[0], 'at', outputs)};")
    head = "fn stored(value: f32, at: u32)" if is_stored else "fn loaded(at: u32) -> f32"
    added = _bindings(fused, 1 if is_stored else len(fused.outputs))
    body = "\n    ".join(lines)
    text = f"{shell.storage(added, _PROVISIONAL)}\n{head} {{\n    {body}\n}}\n"
    kept = [
        _with_parameters(declaration, hook, fused)
        for declaration in base.declarations
        if not _is_replaced(declaration, hook)
    ]
    functions = parse(text, f"<fused {base.file}>").declarations
    module = link(Module(base.file, base.enables, [*imports(fused), *kept, *functions]), constants=constants)
    _number_bindings(module)
    return module


def _is_replaced(declaration: Declaration, hook: Hook) -> bool:
    if isinstance(declaration, Function):
        return declaration.name == hook.function
    return hook.function == "loaded" and isinstance(declaration, GlobalVariable) and declaration.name == hook.binding


def _with_parameters(declaration: Declaration, hook: Hook, fused: Fused) -> Declaration:
    """Return a declaration; to the struct of parameters those of the map functions are added."""
    if not (isinstance(declaration, StructDeclaration) and declaration.name == hook.struct):
        return declaration
    added = [
        StructField(declaration.position, name, TypeName(declaration.position, type_))
        for name, type_ in parameters_of(fused)
    ]
    return StructDeclaration(declaration.position, declaration.name, [*declaration.fields, *added])


def _number_bindings(module: Module) -> None:
    """Number the buffers from 0 in the order of their declaration, with the uniform block last."""
    buffers = [variable for variable in module.declarations if isinstance(variable, GlobalVariable)]
    ordered = sorted(
        (variable for variable in buffers if variable.space in ("storage", "uniform")),
        key=lambda variable: variable.space == "uniform",
    )
    for number, variable in enumerate(ordered):
        binding = next(attribute for attribute in variable.attributes if attribute.name == "binding")
        binding.arguments = [Literal(variable.position, number, type=binding.arguments[0].type)]
