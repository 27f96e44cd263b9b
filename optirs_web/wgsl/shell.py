"""The helpers of all generated shaders.

A shell is WGSL text: bindings, parameters and the entry point ``main``. Joined to the printed map functions it
is a complete module, from which the code for every target is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import syntax, types

__all__ = [
    "BLOCK",
    "GRID_PARAMETERS",
    "function_of",
    "member_names",
    "storage",
    "struct_of",
]

BLOCK = 256
"""Number of elements of a block, which belongs to one tensor; a tensor begins at a multiple of it."""

GRID_PARAMETERS = (
    "@builtin(workgroup_id) workgroup: vec3<u32>, "
    "@builtin(num_workgroups) grid: vec3<u32>, "
    "@builtin(local_invocation_index) lane: u32"
)


def struct_of(module: syntax.Module, name: str) -> types.Struct:
    """Return the struct of that name; an empty one if the module declares none."""
    for declaration in module.declarations:
        if (
            isinstance(declaration, syntax.StructDeclaration)
            and declaration.name == name
            and declaration.type is not None
        ):
            return declaration.type
    return types.Struct(name, ())


def member_names(module: syntax.Module, name: str) -> list[str]:
    """Return the names of the members of a struct."""
    return [member.name for member in struct_of(module, name).members]


def function_of(module: syntax.Module, name: str) -> syntax.Function:
    """Return the function of that name."""
    return next(
        declaration
        for declaration in module.declarations
        if isinstance(declaration, syntax.Function) and declaration.name == name
    )


def storage(names_and_types: Sequence[tuple[str, str, str]], first: int = 0) -> str:
    """Return the declarations of storage bindings, numbered from `first`, by name, access and type."""
    return "\n".join(
        f"@group(0) @binding({number}) var<storage, {access}> {name}: {type_};"
        for number, (name, access, type_) in enumerate(names_and_types, first)
    )
