"""Kernels side by side in one: each has workgroups of its own, and does there what it does alone.

An entry point becomes a function, which is told the place that its workgroup has among its own. What kernels have in
common is declared once: functions, workgroup memory of one type, and buffers that several of them read. The code of a
kernel that is there several times is, too: see `merged_parts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from .checker import check
from .constants import type_name
from .fused_shell import number_bindings
from .merged_parts import Part, Shared, arguments_of, is_entry, put
from .parser import parse
from .print_wgsl import print_wgsl
from .references import module_references
from .shell import GRID_PARAMETERS
from .syntax import (
    ConstAssert,
    Declaration,
    Expression,
    Function,
    GlobalVariable,
    Import,
    Index,
    Member,
    Module,
    Name,
    StructDeclaration,
    StructField,
    TypeName,
)
from .tree import clone, walk
from .types import Type, size_of

__all__ = ["joined", "padding", "workgroup_bytes"]

_AXES = ("columns", "rows")  # of the grid of a launch
_ALIGNED = 4  # words: a struct in a uniform block begins at a multiple of 16 bytes

Slots = Sequence[int]


def workgroup_bytes(parts: Iterable[Part]) -> int:
    """Workgroup memory of what joins them."""
    most: Counter[Type] = Counter()
    for part in parts:
        most |= Counter(part.memory)
    return sum(count * size_of(type_) for type_, count in most.items())


def padding(words: int) -> int:
    """Words between so many and the next struct of a uniform block."""
    return -words % _ALIGNED


def joined(parts: Sequence[Part], slots: Sequence[Sequence[Slots]]) -> Module:
    """One complete module. Its parameters are the grids of all launches, columns and rows, then those of each.

    A workgroup has as many invocations as the smallest of the parts; it is a share of one of a larger part, which
    `can_split`.

    Args:
        parts: in the order of their workgroups.
        slots: for each, and each of its launches, the number of the buffer that each storage binding is, in order.
    """
    join = _Join(parts, [len(one) for one in slots])
    for part, its_slots in zip(parts, slots, strict=True):
        join.add(part, its_slots)
    return join.module()


class _Join:
    """What has been put together so far."""

    def __init__(self, parts: Sequence[Part], counts: Sequence[int]) -> None:
        self.size = min(part.size for part in parts)
        self.buffers: dict[int, GlobalVariable] = {}
        self.memory: list[GlobalVariable] = []
        self.declarations: list[Declaration] = []
        self.names: dict[str, str] = {}  # by what was declared, under its own name
        self.members = [f"{axis}{number}: u32" for number in range(sum(counts)) for axis in _AXES]
        self.members += [f"unused{number}: u32" for number in range(padding(len(self.members)))]
        self.branches: list[str] = []
        self.launches = 0
        self.enables = [name for part in parts for name in part.module.enables]
        nodes = [node for part in parts for node in walk(part.module.declarations)]
        self.taken = {node.name for node in nodes if hasattr(node, "name")}

    def fresh(self, name: str) -> str:
        """A name that nothing has, local variables included."""
        number = 1
        while (found := f"{name}_{number}") in self.taken:
            number += 1
        self.taken.add(found)
        return found

    def add(self, part: Part, launches: Sequence[Slots]) -> None:
        """Take in so many launches of a part."""
        names: dict[str, str] = {}
        different: dict[str, list[str]] = {}
        free, known = [*self.memory], set(self.buffers)
        its_slots = zip(*launches, strict=True)
        uniform = struct = ""
        for one in part.module.declarations:
            match one:
                case GlobalVariable(space="storage"):
                    bound = [self._buffer(one, slot) for slot in next(its_slots)]
                    names[one.name] = bound[0]
                    if len(set(bound)) > 1:
                        different[one.name] = bound
                case GlobalVariable(space="workgroup"):
                    names[one.name] = self._variable(one, free)
                case GlobalVariable(space="uniform"):
                    uniform, struct = one.name, one.type_name.name
        shared = Shared(part, different, uniform, self.fresh) if launches[1:] else None
        if shared is not None:
            self.declarations += shared.accessors
        field = f"of{self.launches}"

        def parameters(node: Name) -> Expression:
            its = Member(node.position, Name(node.position, "parameters"), field)
            return its if shared is None else Index(node.position, its, Name(node.position, shared.number))

        for one in part.module.declarations:
            if isinstance(one, (GlobalVariable, Import, ConstAssert)):
                continue
            copy = clone(one)
            if isinstance(copy, StructDeclaration) and copy.name == struct:
                _pad(copy)
            if isinstance(copy, Function) and shared is not None:
                shared.change(copy)
            self._declare(copy, names, part.own, {uniform: parameters})
        for slot in self.buffers.keys() - known:  # of structs that have their names by now
            for reference in module_references(self.buffers[slot]):
                reference.name = names.get(reference.name, reference.name)
        if uniform:
            type_ = names[struct]
            self.members.append(f"{field}: {type_ if shared is None else f'array<{type_}, {len(launches)}>'}")
        self._call(part, names[part.entry.name], len(launches))

    def _buffer(self, one: GlobalVariable, slot: int) -> str:
        if slot not in self.buffers:
            self.buffers[slot] = clone(one)
            self.buffers[slot].name = self.fresh("buffer")
        return self.buffers[slot].name

    def _variable(self, one: GlobalVariable, free: list[GlobalVariable]) -> str:
        """A workgroup variable of that type that the part has not taken yet."""
        found = next((other for other in free if other.type == one.type), None)
        if found is not None:
            free.remove(found)
            return found.name
        copy = clone(one)
        copy.name = self.fresh("shared")
        assert one.type is not None
        copy.type_name = type_name(one.type, one.position)  # its size may be a constant of the part
        self.memory.append(copy)
        return copy.name

    def _declare(
        self,
        one: Declaration,
        names: dict[str, str],
        own: frozenset[str],
        uniform: Mapping[str, Callable[[Name], Expression]],
    ) -> None:
        """Add a declaration, unless the same is there already, and note its name."""
        assert not isinstance(one, (Import, ConstAssert))
        replaced = {}
        for reference in module_references(one):
            if reference.name in uniform:
                assert isinstance(reference, Name)
                replaced[id(reference)] = reference, uniform[reference.name](reference)
            elif reference.name in own:
                if reference.name not in names:  # declared further down
                    names[reference.name] = self.fresh(reference.name)
                reference.name = names[reference.name]
        put(one, lambda node: replaced[id(node)][1] if id(node) in replaced else node)
        if isinstance(one, Function) and is_entry(one):
            one.attributes = []
            for parameter in one.parameters:
                parameter.attributes = []
        text = print_wgsl(Module("", [], [one]))
        declared = one.name
        if declared not in names:
            names[declared] = self.names.get(text) or self.fresh(declared)
        if self.names.get(text) != names[declared]:
            one.name = self.names[text] = names[declared]
            self.declarations.append(one)

    def _call(self, part: Part, entry: str, launches: int) -> None:
        """The branch of the workgroups of a part: which launch is theirs, and which of its workgroups they are."""
        first, share = self.launches, part.size // self.size
        self.launches += launches
        counts = [
            f"parameters.columns{number} * parameters.rows{number} * {share}u" for number in range(first, self.launches)
        ]
        place = "place" if share == 1 else f"(place / {share}u)"
        lane = "lane" if share == 1 else f"(place % {share}u * {self.size}u + lane)"
        given = {
            "workgroup_id": f"vec3<u32>({place} % columns, {place} / columns, 0u)",
            "num_workgroups": "vec3<u32>(columns, rows, 1u)",
            "local_invocation_index": lane,
            "local_invocation_id": f"vec3<u32>({lane} % {part.width}u, {lane} / {part.width}u, 0u)",
        }
        arguments = [given[arguments_of(one.attributes, "builtin")[0].name] for one in part.entry.parameters]
        lines = [f"let count{first} = {' + '.join(counts)};", f"if place < count{first} {{"]
        lines += [f"    {'var' if launches > 1 else 'let'} {axis} = parameters.{axis}{first};" for axis in _AXES]
        if launches > 1:
            lines.append("    var launch = 0u;")
            arguments.append("launch")
        for number, count in enumerate(counts[:-1], 1):
            lines += [f"    if launch == {number - 1}u && place >= {count} {{", f"        place -= {count};"]
            lines += [f"        {axis} = parameters.{axis}{first + number};" for axis in _AXES]
            lines += [f"        launch = {number}u;", "    }"]
        lines += [f"    {entry}({', '.join(arguments)});", "    return;", "}", f"place -= count{first};"]
        self.branches += lines

    def module(self) -> Module:
        """All of it."""
        body = "\n    ".join(["var place = workgroup.x + workgroup.y * grid.x;", *self.branches])
        text = (
            f"struct Joined {{ {', '.join(self.members)} }}\n"
            "@group(0) @binding(0) var<uniform> parameters: Joined;\n"
            f"@compute @workgroup_size({self.size})\nfn main({GRID_PARAMETERS}) {{\n    {body}\n}}\n"
        )
        buffers = [self.buffers[slot] for slot in sorted(self.buffers)]
        made = parse(text, "<joined>").declarations
        module = Module(
            "<joined>", list(dict.fromkeys(self.enables)), [*buffers, *self.memory, *self.declarations, *made]
        )
        number_bindings(module)
        check(module)
        return module


def _pad(one: StructDeclaration) -> None:
    """Have it end where another struct can begin: the parameters of kernels are words."""
    for number in range(padding(len(one.fields))):
        one.fields.append(StructField(one.position, f"unused{number}", TypeName(one.position, "u32")))
