"""The generated part of a fused kernel: several map functions, one after the other, on each element.

They are called in a loop over elements, or in a hook of another kernel: instead of its ``stored(value, at)``,
which stores a result of the kernel, or of its ``loaded(at)``, which loads an operand. A product's ``stored`` is told
product, row and column besides, and what its ``read_of_column`` read.
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
output, by its number; or the value that the kernel with the hook computed."""


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
        ends: in a hook that is told product, row and column (0, 1, 2), the last of these that each axis consists of.
        of_column: the numbers of the tensors whose elements are the same in all rows there, which are read once.
    """

    steps: tuple[Step, ...]
    tensor_types: tuple[str, ...]
    flat: tuple[bool, ...]
    scalar_types: tuple[str, ...]
    outputs: tuple[Argument, ...]
    output_types: tuple[str, ...]
    rank: int
    ends: tuple[int, ...] = ()
    of_column: tuple[int, ...] = ()


def value_as_tensor(fused: Fused) -> Fused:
    """Return the calls of a hook with a last tensor, contiguous, in place of the value of the kernel."""

    def as_tensor(argument: Argument) -> Argument:
        return ("tensor", len(fused.tensor_types)) if argument[0] == "value" else argument

    return fused._replace(
        steps=tuple(step._replace(arguments=tuple(map(as_tensor, step.arguments))) for step in fused.steps),
        tensor_types=(*fused.tensor_types, "f32"),
        flat=(*fused.flat, True),
        outputs=tuple(map(as_tensor, fused.outputs)),
    )


class Hook(NamedTuple):
    """The place in a kernel with hooks where map functions are called.

    Attributes:
        function: "stored" or "loaded".
        binding: the buffer that the hook writes or reads.
        struct: the parameters of the kernel.
        axes: if ``stored`` is told the place of a result too, as product, row and column, the parameters that are the
            numbers of rows and columns.
    """

    function: OneOf["stored", "loaded"]
    binding: str
    struct: str
    axes: tuple[str, ...] = ()


_Named = Function | GlobalVariable | StructDeclaration
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
        f"let x{number} = of_column.x{number};"
        if number in fused.of_column
        else f"let x{number} = x{number}_values[{index if is_flat else f'x{number}_at'}];"
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
    """Return a complete module: a parsed kernel with map functions in its hook. `base` is not changed.

    The first output of `stored` replaces the value that the kernel stores. Buffers are numbered in the order of their
    declaration.
    """
    is_stored = hook.function == "stored"
    outputs = [hook.binding, *(f"y{number}_values" for number in range(1, len(fused.outputs)))] if is_stored else []
    lines = [*_offsets(fused, hook), *_lines(fused, "at", outputs)]
    if not is_stored:
        lines.append(f"return {_argument(fused.outputs[0], 'at', outputs)};")
    parameters = ", ".join(
        f"{parameter.name}: {parameter.type_name.name}"
        for parameter in shell.function_of(base, hook.function).parameters
    )
    head = f"fn {hook.function}({parameters}){'' if is_stored else ' -> f32'}"
    added = _bindings(fused, 1 if is_stored else len(fused.outputs))
    text = f"{shell.storage(added, _PROVISIONAL)}\n{_function(head, lines)}{_of_column(fused, hook)}"
    replacing = parse(text, f"<fused {base.file}>").declarations
    replaced = {declaration.name for declaration in replacing if isinstance(declaration, _Named)}
    if not is_stored:
        replaced.add(hook.binding)
    kept = [
        _with_parameters(declaration, hook, fused)
        for declaration in base.declarations
        if not (isinstance(declaration, _Named) and declaration.name in replaced)
    ]
    module = link(Module(base.file, base.enables, [*imports(fused), *kept, *replacing]), constants=constants)
    _number_bindings(module)
    return module


def _function(head: str, lines: Sequence[str]) -> str:
    body = "\n    ".join(lines)
    return f"{head} {{\n    {body}\n}}\n"


def _offsets(fused: Fused, hook: Hook) -> list[str]:
    strided = _strided(fused)
    if not fused.ends:
        return shell.offsets(strided, "at")
    once = {f"x{number}" for number in fused.of_column}
    names = [name for name in strided.names if name not in once]
    return shell.offsets_of_place(strided._replace(names=names), _place(fused, hook, "row"))


def _place(fused: Fused, hook: Hook, row: str) -> list[str]:
    """Return the position along each axis; `row` is the expression of that which a hook is told, or of any row."""
    told, first, place = ("product", row, "column"), 0, list[str]()
    for end in fused.ends:
        position = told[first]
        for number in range(first + 1, end + 1):
            position = f"({position} * parameters.{hook.axes[number - 1]} + {told[number]})"
        place.append(position)
        first = end + 1
    return place


def _of_column(fused: Fused, hook: Hook) -> str:
    """Return the struct and the function that read what is the same in all rows of a column; "" if nothing is."""
    if not fused.of_column:
        return ""
    names = [f"x{number}" for number in fused.of_column]
    members = ", ".join(f"x{number}: {fused.tensor_types[number]}" for number in fused.of_column)
    values = ", ".join(f"{name}_values[{name}_at]" for name in names)
    lines = shell.offsets_of_place(shell.Strided(fused.rank, names), _place(fused, hook, "0u"))
    head = "fn read_of_column(product: u32, column: u32) -> OfColumn"
    return f"struct OfColumn {{ {members} }}\n{_function(head, [*lines, f'return OfColumn({values});'])}"


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
