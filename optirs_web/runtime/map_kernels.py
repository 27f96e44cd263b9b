"""Kernels of map functions: one over arrays, or several that fusion has joined, by themselves or in another's hook."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Literal, NamedTuple

from ..kernel import INDEX, Kernel as Form, Part, Read, Take, Type, Write
from ..lower.hooks import Hook, added_bindings, hooked
from ..lower.maps import (
    ELEMENTS_PER_WORKGROUP,
    LOOP,
    Places,
    SpanForm,
    map_bindings,
    map_parameters,
    map_source,
    need_map,
    own_parameters,
)
from ..wgsl import load_map_module, package_loader, print_wgsl, shell, syntax
from .kernels import Binding, GeneratedKernel, Kernel, SourceKernel, bindings_of

__all__ = [
    "HOOKS",
    "FusedKernel",
    "MapKernel",
    "elementwise",
    "fused_kernel",
    "gather",
    "join",
    "map_kernel",
    "operands_of",
    "place",
    "titled",
    "uses_index",
]

_OF_ROWS = {"stored": Hook("stored", "result_values", "RowParameters")}
HOOKS = {
    "chosen_pixels": _OF_ROWS,
    "convolution": {"stored": Hook("stored", "c", "ConvolutionParameters")},
    "convolution_band": {"stored": Hook("stored", "c", "BandParameters")},
    "convolution_quads": {"stored": Hook("stored", "c", "QuadConvolutionParameters")},
    "fold": _OF_ROWS,
    "layer_norm_grad": _OF_ROWS,
    "log_softmax_grad": _OF_ROWS,
    "matmul": {"stored": Hook("stored", "c", "MatmulParameters", ("rows", "columns"))},
    "softmax_grad": _OF_ROWS,
    "sum": {"loaded": Hook("loaded", "x_values", "RowParameters"), **_OF_ROWS},
    "to_chosen_pixels": _OF_ROWS,
    "window_sums": _OF_ROWS,
}
"""The kernels that let map functions in, and where."""

_LONGEST = 60  # characters of a name
_TYPES: dict[str, Type] = {"bool": "u32", "f32": "f32", "i32": "i32", "u32": "u32"}
"""By type in WGSL that in memory."""


class MapKernel(GeneratedKernel):
    """A map, in a loop over elements; see `lower.maps`.

    Attributes:
        form: what it computes.
        places: where it reads and writes.
        loop: the invocations of a workgroup, and the elements of each.
        elements_per_workgroup: those of the default loop.
    """

    loop = LOOP
    elements_per_workgroup = ELEMENTS_PER_WORKGROUP

    def __init__(self, form: Form, places: Places) -> None:
        """Use `elementwise` or `map_kernel`, which make each kernel once."""
        need_map(form, places)
        self.form = form
        self.places = places
        self.name = form.name
        is_whole = not any(write.array in places.strided for write in form.writes)
        self.overwrites = is_whole and not any(read.array for read in form.reads)

    @property
    def map_module(self) -> syntax.Module:
        """The functions."""
        return self.form.map_module

    @cached_property
    def around(self) -> str:
        """The text around the functions with the loop of GPUs, in which adjacent invocations have adjacent elements."""
        return map_source(self.form, self.places, self.loop)

    def wgsl_for(self, host: Literal["naga", "tint"], software: bool) -> str:
        """Return the shader's text; on software adapters the elements of an invocation are adjacent."""
        if not software:
            return self.wgsl(host)
        return f"{print_wgsl(self.map_module, host)}\n{map_source(self.form, self.places, self.loop, adjacent=True)}"

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """As the shader has them, known without making it: array targets need no shader."""
        return map_parameters(self.form, self.places)

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """As the shader has them, known without making it."""
        return bindings_of(map_bindings(self.form))


class FusedKernel(Kernel):
    """A kernel with a map before what it does, or after it.

    Attributes:
        base: the kernel.
        hook: where the map is in it.
        form: the map.
        places: where that reads.
    """

    def __init__(self, base: SourceKernel, hook: Hook, form: Form, places: Places) -> None:
        """Use `fused_kernel`, which makes each kernel once."""
        self.base = base
        self.hook = hook
        self.form = form
        self.places = places
        titles = (base.name, form.name) if hook.function == "stored" else (form.name, base.name)
        self.name = "+".join(title for title in titles if title)
        self.stays_in_bounds = base.stays_in_bounds
        self.overwrites = base.overwrites and not any(read.array for read in form.reads)

    @cached_property
    def module(self) -> syntax.Module:
        """The complete module."""
        return hooked(self.base.source, self.hook, self.form, self.places, self.base.constants)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Those of the kernel, then those of the map, known without making the shader."""
        return (*self.base.parameters, *own_parameters(self.form, self.places))

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """Those of the kernel that are left, then those of the map, known without making the shader."""
        is_stored = self.hook.function == "stored"
        kept = [binding for binding in self.base.bindings if is_stored or binding.name != self.hook.binding]
        return (*kept, *bindings_of(added_bindings(self.hook, self.form)))

    @property
    def map_module(self) -> syntax.Module:
        """The functions alone, for array targets."""
        return self.form.map_module


@cache
def operands_of(file: str, function: str) -> tuple[tuple[str, str], ...]:
    """Return name and WGSL type of each operand of a map function: its parameters but for an element's index."""
    return tuple(parameter for parameter in _declared(file, function).parameters if parameter[0] != INDEX)


class _Declared(NamedTuple):
    """Names and WGSL types of the parameters of a function, and the type of its result."""

    parameters: tuple[tuple[str, str], ...]
    result: str


@cache
def _declared(file: str, function: str) -> _Declared:
    """Return what a map function is declared to take and return. It is linked only for an alias of a type."""
    for declaration in package_loader()(("elementwise", file)).declarations:
        if isinstance(declaration, syntax.Function) and declaration.name == function and declaration.return_type_name:
            parameters = tuple((parameter.name, parameter.type_name.name) for parameter in declaration.parameters)
            declared = _Declared(parameters, declaration.return_type_name.name)
            if {declared.result, *(type_ for _, type_ in parameters)} <= _TYPES.keys():
                return declared
    linked = shell.function_of(load_map_module("elementwise", file, (function,)), function)
    return _Declared(
        tuple((parameter.name, str(parameter.type)) for parameter in linked.parameters), str(linked.return_type)
    )


def uses_index(file: str, function: str) -> bool:
    """Return whether a map function depends on the index of an element.

    To that its operand `first` is added, if it has one; a launch is only cut into parts where it has.
    """
    return any(name == INDEX for name, _ in _declared(file, function).parameters)


@cache
def elementwise(file: str, function: str, operands: tuple[str, ...], rank: int) -> MapKernel:
    """Return the kernel of one map function.

    Args:
        file: the function is in ``shaders/elementwise/FILE.wgsl``.
        function: its name. A parameter of the name ``index`` gets the element's index instead of an operand.
        operands: for each other parameter "tensor", "scalar" (a parameter of the dispatch), or "result"
            (the old value of the result: WebGPU binds no buffer for reading and writing at once).
        rank: number of axes of the strided tensors; 0 means that all tensors have the result's shape.
    """
    names = [
        (name, _TYPES[type_], kind) for (name, type_), kind in zip(operands_of(file, function), operands, strict=True)
    ]
    reads = [
        Read(name, type=type_, array="result" if kind == "result" else "")
        for name, type_, kind in names
        if kind != "scalar"
    ]
    form = Form(
        function.rstrip("_"),
        ("elementwise", file),
        1,
        tuple(reads),
        (Part(function, gives="result"),),
        (Write("result", "result", _TYPES[_declared(file, function).result]),),
        {name: type_ for name, type_, kind in names if kind == "scalar"},
    )
    return map_kernel(form, Places(rank, tuple(read.name for read in reads if not read.array) if rank else ()))


@cache
def gather(type_: Type, rank: int, *, wraps: bool) -> MapKernel:
    """Return the kernel that takes elements of a table at int32 positions.

    `position` and `table` are strided along `rank` axes, the table along its own besides; `missing` is for a position
    that is not within it. With `wraps` negative ones count from the end, which needs its `length` once more.
    """
    place = Part("place_from_either_end" if wraps else "place_from_start", gives="place")
    numbers: dict[str, Type] = {"missing": type_, **({"length": "i32"} if wraps else {})}
    form = Form(
        "gather",
        ("elementwise", "indexing"),
        1,
        (Read("position", type="i32"), Read("table", type=type_)),
        (place, Take("found", "table", "place", "missing")),
        (Write("found", "result", type_),),
        numbers,
    )
    return map_kernel(form, Places(rank, ("position", "table")))


@cache
def place(type_: Type, rank: int, spans: tuple[SpanForm, ...]) -> MapKernel:
    """Return the kernel that places elements of `part` along `rank` axes, and `fill` everywhere else.

    `part` is strided along those axes, and has `spans` besides.
    """
    form = Form(
        "place",
        ("elementwise", "indexing"),
        1,
        (Read("part", type=type_),),
        (Take("found", "part", fill="fill"),),
        (Write("found", "result", type_),),
        {"fill": type_},
    )
    return map_kernel(form, Places(rank, ("part",), spans=(("part", spans),)))


@cache
def join(type_: Type, rank: int, *, is_strided: bool) -> MapKernel:
    """Return the kernel that copies a `part` to its places in a `whole`, which is strided along `rank` axes.

    `is_strided`: the part is strided too.
    """
    form = Form(
        "join", ("elementwise", "indexing"), 1, (Read("part", type=type_),), (), (Write("part", "whole", type_),)
    )
    return map_kernel(form, Places(rank, ("part", "whole") if is_strided else ("whole",)))


def titled(parts: tuple[Part | Take, ...]) -> str:
    """Return the names of the functions; "..." stands for those for which there is no room."""
    title = "+".join(map(_title, parts))
    return title if len(title) <= _LONGEST else title[: title.rindex("+", 0, _LONGEST)] + "+..."


def _title(part: Part | Take) -> str:
    if isinstance(part, Take):
        return "gather" if part.at else "place"
    return part.function.rstrip("_")


@cache
def map_kernel(form: Form, places: Places) -> MapKernel:
    """Return the kernel of a map."""
    return MapKernel(form, places)


@cache
def fused_kernel(base: SourceKernel, hook: Hook, form: Form, places: Places) -> FusedKernel:
    """Return the kernel with a map."""
    return FusedKernel(base, hook, form, places)
