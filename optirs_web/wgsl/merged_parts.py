"""Kernels as parts of a kernel that joins them, and one that is there several times: its code is there once.

Its functions are told then which launch they are part of. Where the launches bind different buffers, an element is read
and written by a function that knows the buffer of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from .checker import check_values
from .parser import parse
from .references import module_references
from .syntax import (
    Assign,
    Attribute,
    Call,
    CallStatement,
    ConstAssert,
    Declaration,
    Function,
    GlobalVariable,
    Import,
    Index,
    Member,
    Module,
    Name,
    Parameter,
    TypeName,
    Unary,
)
from .tree import walk
from .types import Array, Scalar, Type, Vector

__all__ = ["Part", "Shared", "arguments_of", "is_entry", "put"]

_BUILTINS = {"workgroup_id", "num_workgroups", "local_invocation_index", "local_invocation_id"}
_MOST_AXES = 2  # of a workgroup


class Part:
    """What joining needs to know of a kernel.

    Attributes:
        module: linked and checked.
        entry: its entry point.
        width: of its workgroups along the first axis.
        size: invocations of a workgroup.
        memory: the types of its workgroup variables.
        own: the names that the module declares.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.entry = next(one for one in module.declarations if isinstance(one, Function) and is_entry(one))
        constants = check_values(module).constants
        sizes = [constants[id(one)][1] for one in arguments_of(self.entry.attributes, "workgroup_size")]
        self.width, *rest = [one for one in sizes if isinstance(one, int)]
        self.size = math.prod([self.width, *rest])
        variables = [one for one in module.declarations if isinstance(one, GlobalVariable)]
        self._storage = {one.name: one for one in variables if one.space == "storage"}
        self.memory: tuple[Type, ...] = tuple(
            one.type for one in variables if one.space == "workgroup" and one.type is not None
        )
        self.own = frozenset(one.name for one in module.declarations if not isinstance(one, Import | ConstAssert))
        builtins = {arguments_of(one.attributes, "builtin")[0].name for one in self.entry.parameters}
        has_private = any(one.space == "private" for one in variables)
        self.can_join = len(sizes) <= _MOST_AXES and builtins <= _BUILTINS and not has_private
        """It asks for no more of the grid than it can be told."""

    @property
    def can_split(self) -> bool:
        """Its invocations have nothing to do with one another, so a workgroup may be divided."""
        return not self.memory and self.width == self.size

    @cached_property
    def can_share(self) -> bool:
        """Its buffers are read and written element by element, so launches may have different ones."""
        elements = [one.type.element if isinstance(one.type, Array) else None for one in self._storage.values()]
        if not all(isinstance(one, Scalar | Vector) for one in elements):
            return False
        for function in self.functions:
            references = {id(one) for one in module_references(function) if one.name in self._storage}
            for node in walk(function):
                match node:
                    case Index(base=base) if id(base) in references:
                        references.remove(id(base))
                    case Unary(operator="&"):
                        return False
                    case Assign(target=target, operator=operator) if id(_root(target)) in references:
                        if operator or not (isinstance(target, Index) and isinstance(target.base, Name)):
                            return False
            if references:
                return False
        return True

    @property
    def functions(self) -> list[Function]:
        """All of the module."""
        return [one for one in self.module.declarations if isinstance(one, Function)]

    def element_of(self, buffer: str) -> str:
        """The WGSL type of the elements of a storage binding."""
        type_ = self._storage[buffer].type
        assert isinstance(type_, Array)
        return str(type_.element)

    def is_written(self, buffer: str) -> bool:
        """A storage binding can be written."""
        return self._storage[buffer].access == "read_write"

    def users(self, names: set[str]) -> set[str]:
        """The functions that stand on one of these names."""
        found: set[str] = set()
        known = {one.name: {reference.name for reference in module_references(one)} for one in self.functions}
        while more := {name for name, used in known.items() if used & (names | found)} - found:
            found |= more
        return found


class Shared:
    """The functions of a part for several launches, which `number` tells apart.

    Attributes:
        number: the name of a function's parameter.
        accessors: the functions that read and write an element.
    """

    def __init__(
        self, part: Part, different: Mapping[str, Sequence[str]], uniform: str, fresh: Callable[[str], str]
    ) -> None:
        """`different` has the buffers of each binding in which the launches differ, `fresh` gives names."""
        self.number = fresh("launch")
        self.users = part.users({*different, uniform}) | {part.entry.name}
        self.loads = {one: fresh("load") for one in different}
        self.stores = {one: fresh("store") for one in different if part.is_written(one)}
        text = [_loading(self.loads[one], part.element_of(one), names) for one, names in different.items()]
        text += [_storing(name, part.element_of(one), different[one]) for one, name in self.stores.items()]
        self.accessors: list[Declaration] = parse("\n".join(text), "<joined>").declarations

    def change(self, one: Function) -> None:
        """Have a function serve all launches."""
        if one.name not in self.users:
            return
        kept = [reference for reference in module_references(one) if reference.name in self.loads]
        buffers = {id(reference): reference.name for reference in kept}
        position = one.position

        def changed(node: Any) -> Any:
            match node:
                case Assign(target=Index(base=base, index=index), value=value) if id(base) in buffers:
                    call = self._call(node, self.stores[buffers[id(base)]], [index, value])
                    return CallStatement(node.position, call)
                case Index(base=base, index=index) if id(base) in buffers:
                    return self._call(node, self.loads[buffers[id(base)]], [index])
                case Call(callee=TypeName(name=name)) if name in self.users:
                    node.arguments.append(Name(position, self.number))
            return node

        put(one, changed)
        one.parameters.append(Parameter(position, self.number, TypeName(position, "u32")))

    def _call(self, node: Any, function: str, arguments: list[Any]) -> Call:
        return Call(node.position, TypeName(node.position, function), [Name(node.position, self.number), *arguments])


def _loading(name: str, type_: str, buffers: Sequence[str]) -> str:
    branches = " ".join(f"if launch == {number}u {{ return {one}[at]; }}" for number, one in enumerate(buffers[:-1]))
    return f"fn {name}(launch: u32, at: u32) -> {type_} {{ {branches} return {buffers[-1]}[at]; }}"


def _storing(name: str, type_: str, buffers: Sequence[str]) -> str:
    branches = " ".join(f"if launch == {number}u {{ {one}[at] = value; }}" for number, one in enumerate(buffers))
    return f"fn {name}(launch: u32, at: u32, value: {type_}) {{ {branches} }}"


def _root(target: Any) -> Any:
    """The variable that is assigned to, or to a part of which."""
    while isinstance(target, Index | Member):
        target = target.base
    return target


def is_entry(one: Function) -> bool:
    """The function is the entry point."""
    return any(attribute.name == "compute" for attribute in one.attributes)


def arguments_of(attributes: Sequence[Attribute], name: str) -> list[Any]:
    """What stands in the brackets of an attribute."""
    return [*next(one for one in attributes if one.name == name).arguments]


def put(one: Declaration, changed: Callable[[Any], Any]) -> None:
    """Put `changed(node)` in the place of each node, the outer ones first."""
    for node in walk(one):
        for name in type(node).__slots__:
            value = getattr(node, name)
            setattr(node, name, [changed(item) for item in value] if type(value) is list else changed(value))
