"""Checks the types of variables in each address space, and their layout (WGSL, sections 7.3 and 14.4)."""

from __future__ import annotations

from .scopes import fail
from .syntax import GlobalVariable
from .typerules import holds, is_constructible, is_host_shareable, is_runtime_sized
from .types import Array, Atomic, Struct, SubgroupMatrix, Type, align_of, member_offsets, size_of

__all__ = ["check_variable_type"]


def check_variable_type(variable: GlobalVariable, type_: Type) -> None:
    """Raise ShaderError if the variable's address space cannot contain the type."""
    position, space = variable.type_name.position, variable.space
    is_buffer = space in ("storage", "uniform")
    is_shareable = not is_buffer or is_host_shareable(type_)
    if (not is_buffer or not is_shareable) and holds(type_, SubgroupMatrix):
        raise fail(position, f"{type_} is for variables of functions; store what it holds in an array of its elements")
    if not is_shareable:
        raise fail(position, f"{type_} cannot be in a buffer, since bool has no layout; use u32")
    if space != "storage" and is_runtime_sized(type_):
        raise fail(position, f"{type_} has no size; only a storage buffer may end in array<T>")
    if space in ("uniform", "private") and not is_constructible(type_):
        raise fail(position, f"var<{space}> holds no atomics; use var<workgroup> or var<storage, read_write>")
    if space == "storage" and variable.access == "read" and holds(type_, Atomic):
        raise fail(position, "atomics need var<storage, read_write>")
    if space == "uniform":
        _check_uniform(variable, type_)


def _check_uniform(variable: GlobalVariable, type_: Type) -> None:
    """Refuse uniform buffers with a stride of an array, or an offset of a struct, that is no multiple of 16 bytes."""
    position = variable.type_name.position
    match type_:
        case Array(element=element):
            stride = -(-size_of(element) // align_of(element)) * align_of(element)
            if stride % 16:
                raise fail(
                    position,
                    f"in a uniform buffer the elements of {type_} must be 16 bytes apart, not {stride}; "
                    "use vec4<T>, or var<storage>",
                )
            _check_uniform(variable, element)
        case Struct(members=members):
            offsets = member_offsets(type_)
            for number, (member, offset) in enumerate(zip(members, offsets, strict=True)):
                if isinstance(member.type, Struct | Array) and offset % 16:
                    raise fail(
                        position,
                        f"in a uniform buffer member '{member.name}' of {type_} must be at a multiple of 16 bytes, "
                        f"not at {offset}; move it, or use var<storage>",
                    )
                follows = offsets[number + 1] if number + 1 < len(members) else None
                if isinstance(member.type, Struct) and follows is not None and (follows - offset) % 16:
                    raise fail(
                        position,
                        f"in a uniform buffer what follows the struct '{member.name}' in {type_} must be a multiple "
                        "of 16 bytes from it; pad the struct, or use var<storage>",
                    )
                _check_uniform(variable, member.type)
