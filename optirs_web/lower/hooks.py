"""A map in a hook of another kernel, as WGSL.

A hook is one of two functions of a kernel: ``stored(value, at)`` stores a result, ``loaded(at)`` loads an operand. With
the map in it, what the kernel computes is the map's `VALUE`, or what the map computes is what the kernel loads. A
product's ``stored`` gets product, row and column besides, and what its ``read_of_column`` read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal as OneOf, NamedTuple

from ..kernel import Kernel
from ..wgsl import link, parse, shell
from ..wgsl.syntax import (
    Declaration,
    Function,
    GlobalVariable,
    Literal,
    Module,
    StructDeclaration,
    StructField,
    TypeName,
)
from .maps import (
    VALUE,
    Places,
    binding_of,
    computed,
    map_bindings,
    offsets_of_index,
    offsets_of_place,
    own_parameters,
    stored,
)

__all__ = ["Hook", "added_bindings", "hooked"]

_Named = Function | GlobalVariable | StructDeclaration
_PROVISIONAL = 100  # first number of the added bindings, until all are renumbered


class Hook(NamedTuple):
    """The place in a kernel with hooks where a map is computed.

    Attributes:
        function: "stored" or "loaded".
        binding: the buffer that the hook writes or reads.
        struct: the parameters of the kernel.
        axes: if ``stored`` gets the place of a result too, as product, row and column, the parameters that are the
            numbers of rows and columns.
    """

    function: OneOf["stored", "loaded"]
    binding: str
    struct: str
    axes: tuple[str, ...] = ()


def hooked(
    base: Module,
    hook: Hook,
    kernel: Kernel,
    places: Places,
    constants: Mapping[str, bool | int | float] | None = None,
) -> Module:
    """Return a complete module: a parsed kernel with a map in its hook. `base` is not changed.

    The first result of a map in `stored` replaces the value that the kernel stores. Buffers are numbered in the order
    of their declaration.
    """
    is_stored = hook.function == "stored"
    result, *others = (write.array for write in kernel.writes)
    buffers = {result: hook.binding, **{array: binding_of(array) for array in others}}
    lines, expressions = computed(kernel, places, "at", buffers, {VALUE: VALUE} if is_stored else {})
    if is_stored:
        lines = stored(kernel, places, "at", buffers, lines, expressions)
    else:
        lines.append(f"return {expressions[kernel.written[result].name]};")
    parameters = ", ".join(
        f"{parameter.name}: {parameter.type_name.name}"
        for parameter in shell.function_of(base, hook.function).parameters
    )
    head = f"fn {hook.function}({parameters}){'' if is_stored else ' -> f32'}"
    added = added_bindings(hook, kernel)
    of_column = _of_column(kernel, places, hook)
    text = f"{shell.storage(added, _PROVISIONAL)}\n{_function(head, [*_offsets(places, hook), *lines])}{of_column}"
    replacing = parse(text, f"<fused {base.file}>").declarations
    replaced = {declaration.name for declaration in replacing if isinstance(declaration, _Named)}
    if not is_stored:
        replaced.add(hook.binding)
    kept = [
        _with_parameters(declaration, hook, kernel, places)
        for declaration in base.declarations
        if not (isinstance(declaration, _Named) and declaration.name in replaced)
    ]
    module = link(Module(base.file, base.enables, [*kernel.imports, *kept, *replacing]), constants=constants)
    _number_bindings(module)
    return module


def added_bindings(hook: Hook, kernel: Kernel) -> list[tuple[str, str, str]]:
    """Return name, access and type of the buffers that a map in a hook binds besides those of the other kernel."""
    own = {binding_of(kernel.writes[0].array)}
    if hook.function == "stored":
        own.add(binding_of(VALUE))
    return [binding for binding in map_bindings(kernel) if binding[0] not in own]


def _function(head: str, lines: Sequence[str]) -> str:
    body = "\n    ".join(lines)
    return f"{head} {{\n    {body}\n}}\n"


def _offsets(places: Places, hook: Hook) -> list[str]:
    if not places.ends:
        return offsets_of_index(places, "at")
    names = [name for name in places.strided if name not in places.of_column]
    place = _place(places, hook, "row")
    positions = [f"let at{axis} = {position};" for axis, position in enumerate(place)] if places.spans else []
    return [*positions, *offsets_of_place(names, place)]


def _place(places: Places, hook: Hook, row: str) -> list[str]:
    """Return the position along each axis; `row` is the expression of that which a hook gets, or of any row."""
    coordinates, first, place = ("product", row, "column"), 0, list[str]()
    for end in places.ends:
        position = coordinates[first]
        for number in range(first + 1, end + 1):
            position = f"({position} * parameters.{hook.axes[number - 1]} + {coordinates[number]})"
        place.append(position)
        first = end + 1
    return place


def _of_column(kernel: Kernel, places: Places, hook: Hook) -> str:
    """Return the struct and the function that read what is the same in all rows of a column; "" if nothing is."""
    names = places.of_column
    if not names:
        return ""
    members = ", ".join(f"{name}: {kernel.type_of(name)}" for name in names)
    values = ", ".join(f"{binding_of(name)}[{name}_at]" for name in names)
    lines = offsets_of_place(names, _place(places, hook, "0u"))
    head = "fn read_of_column(product: u32, column: u32) -> OfColumn"
    return f"struct OfColumn {{ {members} }}\n{_function(head, [*lines, f'return OfColumn({values});'])}"


def _with_parameters(declaration: Declaration, hook: Hook, kernel: Kernel, places: Places) -> Declaration:
    """Return a declaration; to the struct of parameters those of the map are added."""
    if not (isinstance(declaration, StructDeclaration) and declaration.name == hook.struct):
        return declaration
    added = [
        StructField(declaration.position, name, TypeName(declaration.position, type_))
        for name, type_ in own_parameters(kernel, places)
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
