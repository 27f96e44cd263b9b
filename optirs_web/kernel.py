"""The form of a kernel: functions of WGSL over an index space, and what is read, reduced and written.

A kernel is a straight-line program over values. A value is what a `Read` loads or what a `Part` computes, and has a
level: the axes along which it is the same. Elements have the level (), the maximum of each row (-1,), the sum of each
column (-2,). A part is a function of a file of ``shaders``: its parameters name the values that it needs, so its level
follows from theirs. Only reductions name axes, and nothing names a workgroup, a stride or a byte: a lowering finds
those for a target (`lower.shader`, `lower.arrays`). `ops.row_kernels` has softmax as an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from .wgsl import link, package_loader, syntax

__all__ = ["Axes", "Kernel", "Level", "Online", "Part", "Read", "Value", "Write"]

Axes = tuple[int, ...]
"""Axes of the index space, from its end: -1 is the last."""

Level = frozenset[int]
"""The axes along which a value is the same."""


@dataclass(frozen=True, slots=True)
class Read:
    """A value that is loaded from an array of float32.

    Attributes:
        name: of the value and of the array.
        over: the axes of the index space that the array lacks.
    """

    name: str
    over: Axes = ()


@dataclass(frozen=True, slots=True)
class Online:
    """How a shader finds two reductions in one pass, where the second uses the result of the first.

    Attributes:
        element: a function of the values of one element, which returns a struct: the earlier reduction, then this one,
            as members with the names of their functions.
        join: a function of two such structs, which returns that of both sets of elements; with the earlier result and
            the neutral element of this reduction it rescales.
    """

    element: str
    join: str


@dataclass(frozen=True, slots=True)
class Part:
    """A function of the kernel's file, computed for each element of its level.

    Attributes:
        function: its parameters have the names of values.
        over: the axes along which its results are combined; () if it reduces nothing.
        combine: how. A maximum may or may not be NaN where an element is, and where all are -inf it is -inf or the
            lowest float32, by target.
        online: how this reduction and the one before it are found together. Array targets compute them one by one.
    """

    function: str
    over: Axes = ()
    combine: Literal["sum", "max"] = "sum"
    online: Online | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A value that is kept in an array, which has no axis along which the value is the same."""

    value: str
    array: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value that is read or computed.

    Attributes:
        arguments: the values that the part needs, in the order of its function's parameters.
        part: what computes it; None if it is read.
    """

    name: str
    level: Level
    arguments: tuple[str, ...] = ()
    part: Part | None = None


@dataclass(frozen=True, eq=False)
class Kernel:
    """A straight-line program over values; see the module. Kernels are made once and compared by identity.

    Attributes:
        name: for messages and profiles.
        file: folder and name of the file in ``shaders`` that has the functions.
        rank: number of axes of the index space.
        reads: the arrays that it reads.
        parts: in an order in which each comes after those whose values it needs.
        writes: the arrays that it writes, all of each.
    """

    name: str
    file: tuple[str, str]
    rank: int
    reads: tuple[Read, ...]
    parts: tuple[Part, ...]
    writes: tuple[Write, ...]

    @property
    def parsed(self) -> syntax.Module:
        """The file, parsed."""
        return package_loader()(self.file)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that it uses."""
        online = [name for part in self.parts if part.online for name in (part.online.element, part.online.join)]
        return (*(part.function for part in self.parts), *online)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The functions that it uses, linked."""
        return link(self.parsed, roots=list(self.functions))

    def function(self, name: str) -> syntax.Function:
        """Return a function of the file.

        Raises:
            ValueError: it has none of that name.
        """
        for declaration in self.parsed.declarations:
            if isinstance(declaration, syntax.Function) and declaration.name == name:
                return declaration
        raise self._error(f"shaders/{'/'.join(self.file)}.wgsl has no function '{name}'")

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name, each after those that it needs.

        Raises:
            ValueError: a function is not in the file, needs a value that nothing gives, or reduces what is the same
                along its axes; two values have the same name; a value that is written does not exist.
        """
        values = {read.name: Value(read.name, frozenset(read.over)) for read in self.reads}
        for part in self.parts:
            value = self._computed(part, values)
            if part.function in values:
                raise self._error(f"two values are called '{part.function}'")
            values[part.function] = value
        for write in self.writes:
            if write.value not in values:
                raise self._error(f"'{write.value}' is written; there are {list(values)}")
        return values

    def _computed(self, part: Part, values: dict[str, Value]) -> Value:
        arguments = tuple(parameter.name for parameter in self.function(part.function).parameters)
        for name in arguments:
            if name not in values:
                raise self._error(f"{part.function} needs '{name}'; there are {list(values)}")
        level = self._shared([values[name] for name in arguments])
        if level & frozenset(part.over):
            raise self._error(f"{part.function} is the same along what it reduces, {part.over}")
        return Value(part.function, level | frozenset(part.over), arguments, part)

    def level_of_call(self, value: Value) -> Level:
        """Return the level at which the function of a value is called: that of the value, before it is reduced."""
        return self._shared([self.values[name] for name in value.arguments])

    def _shared(self, values: Sequence[Value]) -> Level:
        """Return the axes along which all values are the same."""
        return frozenset(range(-self.rank, 0)).intersection(*(value.level for value in values))

    def _error(self, message: str) -> ValueError:
        return ValueError(f"kernel '{self.name}': {message}")
