"""The form of a kernel: functions of WGSL over an index space, and what is read, reduced and written.

A kernel is a straight-line program over values. A value is what a `Read` loads, a `Part` computes or a `Take` picks,
and has a level: the axes along which it is the same. Elements have the level (), the maximum of each row (-1,), the sum
of each column (-2,). A part is a function of a file of ``shaders``: its parameters name the values that it needs, so
its level follows from theirs. Only reductions name axes, and nothing names a workgroup, a stride or a byte: a lowering
finds those for a target (`optirs_web.lower`). `ops.row_kernels` has softmax as an example.

Beside them there are `numbers`, which a launch gives. A kernel that reduces has how many elements a reduction combines:
`size` as f32, and `count` as u32. A row may be reduced in segments: `begin` is the column at which one begins, a u32.
A kernel that reduces nothing, a map, has the `index` of an element among all, a u32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from .wgsl import link, load_map_module, package_loader, shell, syntax

__all__ = [
    "BEGIN",
    "COUNT",
    "INDEX",
    "SIZE",
    "Axes",
    "Kernel",
    "Kind",
    "Level",
    "Online",
    "Part",
    "Read",
    "Take",
    "Type",
    "Value",
    "Write",
]

SIZE = "size"
"""The value that says how many elements a reduction combines, as f32."""

COUNT = "count"
"""The value that says the same as u32."""

BEGIN = "begin"
"""The value that says at which column the segment of a row begins that is reduced, as u32; 0 if that is the row."""

INDEX = "index"
"""The value that says which of all elements, in the order of the results, one of a map is, as u32."""

Axes = tuple[int, ...]
"""Axes of the index space, from its end: -1 is the last."""

Level = frozenset[int]
"""The axes along which a value is the same."""

Kind = Literal["element", "row", "column", "number"]
"""The part of a matrix that has a value of its own, where rows are reduced: an element, a row, a column, or all."""


Type = Literal["f32", "i32", "u32"]
"""The WGSL type of an element of an array, or of a number."""

_SCALARS = ("f32", "i32", "u32", "bool")


@dataclass(frozen=True, slots=True)
class Read:
    """A value that is loaded from an array.

    Attributes:
        name: of the value.
        over: the axes of the index space that the array lacks.
        type: of an element.
        array: of the array, if that has another name: one that is written too, of whose elements this is the old value.
    """

    name: str
    over: Axes = ()
    type: Type = "f32"
    array: str = ""


@dataclass(frozen=True, slots=True)
class Online:
    """How a shader finds several reductions in one pass, where one uses the result of another.

    An invocation keeps a struct of the elements that it has seen. When the earlier reductions are known, it has its
    share of the next one from that. Array targets compute the reductions one by one.

    Attributes:
        start: a function without parameters, which returns the struct of no elements.
        update: a function of `own`, such a struct, and of values of one element, which returns that with the element.
        shares: for each reduction a function of `own` and of values of rows; "" for one that is then 0.
    """

    start: str
    update: str
    shares: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A function, computed for each element of its level. In a map a bool that it returns is a u32.

    Attributes:
        function: its parameters have the names of values.
        over: the axes along which its results are combined; () if it reduces nothing.
        combine: how. A maximum may or may not be NaN where an element is, and where all are -inf it is -inf or the
            lowest float32, by target. "argmax" and "argmin" give the column, in the row or its segment, of the first
            element that is extreme, as u32; of several NaN, which come before all, the first, but of windows the last.
        at: the name of an i32: only the element in that column is combined. Kernels over windows only.
        gives: the name by which later parts know its results, where that is not the function's. What had it before is
            then out of their reach.
        file: of the function, if that is not the kernel's.
        arguments: the values for its parameters, if these have other names.
    """

    function: str
    over: Axes = ()
    combine: Literal["sum", "max", "argmax", "argmin"] = "sum"
    at: str = ""
    gives: str = ""
    file: tuple[str, str] | None = None
    arguments: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """One element of each row of an array that is read; in a map one of a table, or of an array in a part of the map.

    Attributes:
        name: of the value.
        array: of elements, or of columns. In a map nothing else is read of it.
        at: the value that says which, a u32 below the number of columns; of a segment where there are segments. In a
            map the place along an axis that the array, a table, has besides; "" for an array that is placed in a part
            of the map, whose axes a lowering knows.
        fill: in a map the value where there is no such element.
    """

    name: str
    array: str
    at: str = ""
    fill: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A value that is kept in an array, which has no axis along which the value is the same.

    Attributes:
        value: its name.
        array: that of the array.
        type: of both.
    """

    value: str
    array: str
    type: Type = "f32"


@dataclass(frozen=True, slots=True)
class Value:
    """A value that is read, given or computed.

    Attributes:
        name: of the array, the number or the function, or what a function gives that is used more than once; no two are
            the same.
        arguments: the values that the part needs, in the order of its function's parameters; or what is taken, and
            where.
        source: what loads or computes it; None if it is a number.
        at: the value that says in which column an element is combined; "" for all columns.
    """

    name: str
    level: Level
    arguments: tuple[str, ...] = ()
    source: Read | Part | Take | None = None
    at: str = ""

    @property
    def part(self) -> Part | None:
        """The function that computes it, if there is one."""
        return self.source if isinstance(self.source, Part) else None


@dataclass(frozen=True, eq=False)
class Kernel:
    """A straight-line program over values; see the module. Kernels are made once and compared by identity.

    Attributes:
        name: for messages and profiles.
        file: folder and name of the file in ``shaders`` that has the functions of parts without a file of their own.
        rank: number of axes of the index space.
        reads: the arrays that it reads.
        parts: functions, and what is taken from arrays, each after those whose values it needs.
        writes: the arrays that it writes, all of each.
        numbers: name and type of what a launch gives, the same for all elements.
        online: how some of its reductions are found together.
    """

    name: str
    file: tuple[str, str]
    rank: int
    reads: tuple[Read, ...]
    parts: tuple[Part | Take, ...]
    writes: tuple[Write, ...]
    numbers: Mapping[str, Type] = field(default_factory=dict)
    online: Online | None = None

    @property
    def parsed(self) -> syntax.Module:
        """The file, parsed."""
        return package_loader()(self.file)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that it uses."""
        parts = [part.function for part in self.parts if isinstance(part, Part)]
        if self.online is not None:
            parts += [self.online.start, self.online.update, *filter(None, self.online.shares.values())]
        return tuple(parts)

    @cached_property
    def map_module(self) -> syntax.Module:
        """The functions that it uses, linked."""
        if self.computed and all(part.file is None for _, part in self.computed):
            return load_map_module(*self.file, self.functions)
        return link(syntax.Module(f"<{self.name}>", [], self.imports), roots=sorted({*self.functions}))

    @property
    def imports(self) -> list[syntax.Declaration]:
        """The imports of the functions of its parts."""
        nowhere = syntax.Position(f"<{self.name}>", 1, 1)
        functions = sorted({(part.file or self.file, part.function) for _, part in self.computed})
        return [syntax.Import(nowhere, file, [function]) for file, function in functions]

    def function(self, name: str, file: tuple[str, str] | None = None) -> syntax.Function:
        """Return a function of the kernel's file or of another, or one that this imports.

        Raises:
            ValueError: it has none of that name.
        """
        declarations = package_loader()(file or self.file).declarations
        for declaration in declarations:
            if isinstance(declaration, syntax.Import) and name in declaration.names:
                declarations = package_loader()(declaration.path).declarations
        for declaration in declarations:
            if isinstance(declaration, syntax.Function) and declaration.name == name:
                return declaration
        raise self._error(f"shaders/{'/'.join(file or self.file)}.wgsl has no function '{name}'")

    @cached_property
    def _named(self) -> tuple[dict[str, Value], dict[str, str]]:
        """All values, and which of them each name stands for in the end."""
        everywhere = frozenset(range(-self.rank, 0))
        provided = (SIZE, COUNT, BEGIN) if self.reduced else (INDEX,)
        names = [*(read.name for read in self.reads), *self.numbers, *provided, *(write.array for write in self.writes)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._error(f"two arrays, numbers or values that there are without it are called '{twice}'")
        values = {read.name: Value(read.name, frozenset(read.over), source=read) for read in self.reads}
        values |= {name: Value(name, everywhere) for name in (*self.numbers, *provided)}
        if self.reduced:
            values[BEGIN] = Value(BEGIN, frozenset(self.reduced))
        else:
            values[INDEX] = Value(INDEX, frozenset())
        latest = {name: name for name in values}
        for part in self.parts:
            value = (
                self._computed(part, values, latest) if isinstance(part, Part) else self._taken(part, values, latest)
            )
            if value.name in values:
                raise self._error(f"two values are called '{value.name}'")
            values[value.name] = value
            latest[part.gives or value.name if isinstance(part, Part) else value.name] = value.name
        return values, latest

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name, each after those that it needs.

        Raises:
            ValueError: a function is not in the file, needs a value that nothing gives, or reduces what is the same
                along its axes; two values or arrays have the same name; an element is taken of what has no columns, or
                where no value of rows says which.
        """
        return self._named[0]

    @cached_property
    def computed(self) -> tuple[tuple[Value, Part], ...]:
        """The values that functions compute, in order, and these."""
        return tuple((value, value.source) for value in self.values.values() if isinstance(value.source, Part))

    @cached_property
    def written(self) -> dict[str, Value]:
        """The value that each array gets, in the order of the arrays.

        Raises:
            ValueError: as for `values`, or one that is written does not exist.
        """
        values, latest = self._named
        for write in self.writes:
            if write.value not in latest:
                raise self._error(f"'{write.value}' is written; there are {list(latest)}")
        return {write.array: values[latest[write.value]] for write in self.writes}

    @cached_property
    def reduced(self) -> Axes:
        """The axes along which it reduces; () if it does not."""
        return next((part.over for part in self.parts if isinstance(part, Part) and part.over), ())

    def kind_of(self, value: str) -> Kind:
        """Return what a value is for."""
        level = self.values[value].level
        if not level:
            return "element"
        if len(level) == self.rank:
            return "number"
        return "column" if level.isdisjoint(self.reduced) else "row"

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the arrays that are read, then of those that are written."""
        names = [*(read.name for read in self.reads), *(value.name for value in self.written.values())]
        return tuple(map(self.kind_of, names))

    def _computed(self, part: Part, values: dict[str, Value], latest: dict[str, str]) -> Value:
        names = part.arguments
        if names is None:
            names = tuple(parameter.name for parameter in self.function(part.function, part.file).parameters)
        for name in (*names, *filter(None, [part.at])):
            if name not in latest:
                raise self._error(f"{part.function} needs '{name}'; there are {list(latest)}")
        arguments = tuple(latest[name] for name in names)
        level = self._shared([values[name] for name in arguments])
        if level & frozenset(part.over):
            raise self._error(f"{part.function} is the same along what it reduces, {part.over}")
        own_name = part.gives if part.gives and part.function in values else part.function
        return Value(own_name, level | frozenset(part.over), arguments, part, latest.get(part.at, ""))

    def _taken(self, take: Take, values: dict[str, Value], latest: dict[str, str]) -> Value:
        array, at = values.get(take.array), values.get(latest.get(take.at, ""))
        is_known = at is not None or not (self.reduced or take.at)
        if array is None or not is_known or not isinstance(array.source, Read):
            raise self._error(f"'{take.name}' is taken from '{take.array}' at '{take.at}'; there are {list(latest)}")
        if not self.reduced:
            return Value(take.name, frozenset(), (array.name, *([at.name] if at else []), latest[take.fill]), take)
        assert at is not None
        if array.level & {*self.reduced} or at.level != {*self.reduced}:
            raise self._error(f"'{take.name}' is taken from what has no columns, or where no value of rows says")
        return Value(take.name, frozenset(self.reduced), (array.name, at.name), take)

    @cached_property
    def tables(self) -> frozenset[str]:
        """In a map, the arrays of which elements are taken along an axis that they have besides."""
        return frozenset(take.array for take in self._takes if take.at)

    @cached_property
    def placed(self) -> frozenset[str]:
        """In a map, the arrays that have elements for a part of it alone."""
        return frozenset(take.array for take in self._takes if not take.at)

    @property
    def _takes(self) -> list[Take]:
        return [] if self.reduced else [part for part in self.parts if isinstance(part, Take)]

    @cached_property
    def used(self) -> frozenset[str]:
        """The values that others need."""
        return frozenset(name for value in self.values.values() for name in (*value.arguments, value.at) if name)

    def type_of(self, value: str) -> str:
        """Return the WGSL type of a value."""
        if self.values[value].source is None and value not in self.numbers:
            return "f32" if value == SIZE else "u32"
        match self.values[value].source:
            case Read(type=type_):
                return type_
            case Take(array=array):
                return self.type_of(array)
            case Part(combine=combine) as part:
                return "u32" if combine.startswith("arg") or self.returns_bool(part) else self._returned(part)
        return self.numbers[value]

    def returns_bool(self, part: Part) -> bool:
        """Return whether the function of a part returns a bool."""
        return self._returned(part) == "bool"

    def _returned(self, part: Part) -> str:
        returned = self.function(part.function, part.file).return_type_name
        if returned is not None and returned.name in _SCALARS:
            return returned.name
        return str(shell.function_of(self.map_module, part.function).return_type)  # an alias

    @cached_property
    def finds_elements(self) -> bool:
        """A reduction looks for an element."""
        return any(part.combine.startswith("arg") for _, part in self.computed)

    @property
    def needs_whole_rows(self) -> bool:
        """It needs more than elements and what is found of a segment, or elements need what is found."""
        read, written = self.kinds[: len(self.reads)], self.kinds[len(self.reads) :]
        of_elements = [value for value, _ in self.computed if not self.level_of_call(value)]
        needs_rows = any(self.kind_of(name) == "row" for value in of_elements for name in value.arguments)
        return needs_rows or "row" in read or "element" in written or not self.used.isdisjoint((SIZE, COUNT))

    def arguments_of(self, function: str) -> tuple[str, ...]:
        """Return the values that a function of the file needs, in the order of its parameters."""
        if function in self.values:
            return self.values[function].arguments
        return tuple(parameter.name for parameter in self.function(function).parameters)

    def returns_argument(self, function: str) -> bool:
        """Return whether a function of one parameter returns that."""
        declared = self.function(function)
        match declared.parameters, declared.body.statements:
            case [parameter], [syntax.Return(value=syntax.Name(name=name))]:
                return parameter.name == name
        return False

    def level_of_call(self, value: Value) -> Level:
        """Return the level at which the function of a value is called: that of the value, before it is reduced."""
        return self._shared([self.values[name] for name in value.arguments])

    def _shared(self, values: Sequence[Value]) -> Level:
        """Return the axes along which all values are the same."""
        return frozenset(range(-self.rank, 0)).intersection(*(value.level for value in values))

    def _error(self, message: str) -> ValueError:
        return ValueError(f"kernel '{self.name}': {message}")
