"""A kernel as a Python function of arrays, printed for NumPy or JAX below the functions of its file.

Arrays have all axes of the index space, of length 1 where a value is the same along them, so that broadcasting does the
rest; those of a map have one shape. JAX is given the functions and their calls, which XLA fuses. For NumPy what is
computed for elements is written out, operation by operation (`in_place`). What differs between arrays is called by the
names of `Reductions`, with an underscore before them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

from ..errors import UnsupportedError
from ..kernel import BEGIN, COUNT, INDEX, SIZE, Kernel, Kind, Part, Take, Value
from ..wgsl.print_python import compile_python, print_python, python_name
from ..wgsl.python_dialects import NUMPY, Dialect
from ..wgsl.syntax import Function
from ..wgsl.types import F32
from .in_place import Statements

__all__ = ["Lowered", "Reductions", "array_source", "lowered", "table_shapes"]

_LIBRARY = {"exp_of_distance": "exp", "precise_exp": "exp", "precise_log": "log", "is_nan": "isnan"}
"""Functions of ``shaders/lib`` for which kernels of rows call those of NumPy and JAX in float32: faster, and up to 4
units in the last place off. Their arithmetic keeps NaN."""


@dataclass(frozen=True)
class Reductions:
    """Reductions of rows, along the second of two or three axes, which becomes 1 or the segments of a row.

    Attributes:
        sum: of each row.
        max: the largest element of each row, or NaN.
        argmax: the column of the first largest element of each row, a NaN before all, as u32.
        argmin: that of the first smallest one.
        taken: `taken(table, columns)`, the element of each row in its column.
        dot: the sum of the products of two arrays for each row. This and the next are for NumPy alone.
        across: `across(values, out)`, a value of each row for all columns: in `out`, or as it is where that broadcasts.
        outer: `outer(rows, columns, out)`, the products of a value of each row and one of each column, in `out`.
    """

    sum: Callable[[Any], Any]
    max: Callable[[Any], Any]
    argmax: Callable[[Any], Any]
    argmin: Callable[[Any], Any]
    taken: Callable[[Any, Any], Any]
    dot: Callable[[Any, Any], Any] | None = None
    across: Callable[[Any, Any], Any] | None = None
    outer: Callable[[Any, Any, Any], Any] | None = None


class Lowered(NamedTuple):
    """The function of a kernel.

    Attributes:
        call: takes the number of columns and the column at which each row begins, or of a map the indices of elements;
            the arrays that are read, the numbers, and for NumPy the arrays that are written for elements and as many
            others of that shape as `memory` says. In place of an array of which it takes elements it takes a call:
            `table(at, fill)`, or `placed(fill)`, returns them, in NumPy written to `out`. It returns what is written,
            in NumPy perhaps elsewhere.
        memory: number of arrays.
    """

    call: Callable[..., tuple[Any, ...]]
    memory: int


def table_shapes(space: tuple[int, ...]) -> dict[Kind, tuple[int, ...]]:
    """Return the shapes of arrays over (rows, columns), or over (outer, columns, inner), where rows have two axes."""
    return {"element": space, "row": (space[0], 1, *space[2:]), "column": (1, space[1], *(1 for _ in space[2:]))}


@cache
def lowered(kernel: Kernel, dialect: Dialect, reductions: Reductions | None = None) -> Lowered:
    """Return the compiled function of `array_source`; a map needs no reductions."""
    functions = compile_python(array_source(kernel, dialect), f"{kernel.name} for {dialect.name}")
    if reductions is not None:
        functions.update({f"_{field.name}": getattr(reductions, field.name) for field in fields(reductions)})
    return Lowered(functions["_kernel"], functions.get("_MEMORY", 0))


def array_source(kernel: Kernel, dialect: Dialect) -> str:
    """Return the text of a function `_kernel`; see `Lowered`."""
    is_numpy = dialect.name == NUMPY.name
    if kernel.reduced:
        module = "np" if is_numpy else "jnp"
        library = {name: f"{module}.{function}" for name, function in _LIBRARY.items()} | {"or_nan": ""}
        dialect = replace(dialect, library={**dialect.library, **library})
    functions = list(dict.fromkeys(part.function for _, part in kernel.computed))
    text = print_python(kernel.map_module, dialect, functions)
    return _for_numpy(kernel, text, dialect) if is_numpy else f"{text}\n\n{_called(kernel)}"


def _called(kernel: Kernel) -> str:
    """Return the function that computes the values one after the other."""
    lines = []
    for value in _computed(kernel):
        call = _combined(value, _call(value))
        lines.append(f"v_{value.name} = {f'jnp.uint32({call})' if _has_to_convert(kernel, value) else call}")
    return _function(kernel, lines, [f"v_{value.name}" for value in kernel.written.values()])


def _computed(kernel: Kernel) -> Iterator[Value]:
    return (value for value in kernel.values.values() if isinstance(value.source, Part | Take))


def _call(value: Value) -> str:
    if isinstance(value.source, Take):
        table, *others = (f"v_{name}" for name in value.arguments)
        return f"{table}({', '.join(others)})" if value.source.fill else f"_taken({table}, {', '.join(others)})"
    assert value.part is not None
    return f"{python_name(value.part.function)}({', '.join(f'v_{name}' for name in value.arguments)})"


def _has_to_convert(kernel: Kernel, value: Value) -> bool:
    """Return whether a value of a map is a bool that others need as a u32; an array that it is for converts it."""
    is_map = not kernel.reduced
    return is_map and value.part is not None and value.name in kernel.used and kernel.returns_bool(value.part)


def _combined(value: Value, elements: str) -> str:
    return f"_{value.part.combine}({elements})" if value.part and value.part.over else elements


def _function(kernel: Kernel, lines: list[str], results: Sequence[str], arrays: Sequence[str] = ()) -> str:
    names = [*(read.name for read in kernel.reads), *kernel.numbers]
    places = ("columns", f"v_{BEGIN}") if kernel.reduced else (f"v_{INDEX}",)
    parameters = ", ".join((*places, *(f"v_{name}" for name in names), *arrays))
    types = {SIZE: "float32", COUNT: "uint32"}
    size = [
        f"v_{name} = np.{type_}(columns)" for name, type_ in types.items() if kernel.reduced and name in kernel.used
    ]
    body = "\n    ".join([*size, *lines, f"return ({', '.join(results)},)"])
    return f"def _kernel({parameters}):  # see optirs_web/lower/arrays.py\n    {body}\n"


# NumPy.


def _for_numpy(kernel: Kernel, text: str, dialect: Dialect) -> str:
    """Return the text of the functions that are called, and of the function that computes the values."""
    tree = ast.parse(text).body
    functions = {node.name: node for node in tree if isinstance(node, ast.FunctionDef)}
    integers = {f"v_{name}" for name in kernel.values if kernel.type_of(name) != "f32"}
    floats = frozenset(
        dialect.library.get(declared.name) or python_name(declared.name)
        for declared in kernel.map_module.declarations
        if isinstance(declared, Function) and declared.return_type == F32
    )
    statements = Statements(functions, {f"v_{name}": kernel.kind_of(name) for name in kernel.values}, integers, floats)
    names = {value.name: f"v_{value.name}" for value in kernel.values.values()}
    for value in _computed(kernel):
        name, arguments = names[value.name], [names[argument] for argument in value.arguments]
        if value.part is None:
            is_float = not kernel.reduced and kernel.type_of(value.name) == "f32"
            statements.other(name, _call(value), arguments, has_out=is_float)
            continue
        function = python_name(value.part.function)
        if kernel.level_of_call(value):
            call = _combined(value, f"{function}({', '.join(arguments)})")
            statements.other(name, f"np.uint32({call})" if _has_to_convert(kernel, value) else call, arguments)
        elif not value.level:
            names[value.name] = statements.element(name, function, arguments)
            if _has_to_convert(kernel, value):
                names[value.name] = statements.converted(f"u_{value.name}", names[value.name])
        else:
            _reduce(statements, value, statements.element(f"e_{value.name}", function, arguments))
    results = {array: names[value.name] for array, value in kernel.written.items()}
    is_map = not kernel.reduced
    arrays = {f"a_{array}": names[value.name] for array, value in kernel.written.items() if is_map or not value.level}
    of_floats = {f"a_{write.array}" for write in kernel.writes if write.type == "f32"}
    lines, count = statements.text(
        {array: name for array, name in arrays.items() if array in of_floats},
        {f"a_{read.array}": f"v_{read.name}" for read in kernel.reads if read.array},
        results.values(),
    )
    memory = [f"m{number}" for number in range(count)]
    kernel_text = _function(kernel, lines, [*results.values()], [*arrays, *memory])
    unused = set(functions) - _called_by(kernel_text, functions)
    kept = text.splitlines()
    for node in reversed(tree):
        if isinstance(node, ast.FunctionDef) and node.name in unused:
            del kept[node.lineno - 1 : (node.end_lineno or node.lineno) + 2]
    head = "\n".join(kept).rstrip()
    return f"{head}\n\n_MEMORY = {count}\n\n\n{kernel_text}"


def _reduce(statements: Statements, value: Value, elements: str) -> None:
    """Add the reduction of elements: of products, by a dot product."""
    assert value.part is not None
    if statements.kinds[elements] == "number":
        raise UnsupportedError(f"'{value.part.function}' has one value for all elements")
    factors = statements.product_of(f"e_{value.name}") if value.part.combine == "sum" else None
    call = _combined(value, elements) if factors is None else f"_dot({', '.join(factors)})"
    statements.other(f"v_{value.name}", call, factors or (elements,))


def _called_by(text: str, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    """Return the functions that a text calls, directly or through others."""
    called, work = set[str](), list[ast.AST]([ast.parse(text)])
    while work:
        for node in ast.walk(work.pop()):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in called:
                called.add(node.id)
                work.append(functions[node.id])
    return called
