"""A kernel as a Python function of arrays, printed for NumPy or JAX below the functions of its file.

Arrays have all axes of the index space, of length 1 where a value is the same along them, so that broadcasting does the
rest. What differs between the libraries is called by the names of `Reductions`, with an underscore before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from ..kernel import Kernel
from ..wgsl.print_python import compile_python, print_python, python_name
from ..wgsl.python_dialects import NUMPY, Dialect
from .in_place import in_place

__all__ = ["Reductions", "array_source", "lowered"]

_LIBRARY = {"exp_of_distance": "exp", "precise_exp": "exp", "precise_log": "log", "is_nan": "isnan"}
"""Functions of ``shaders/lib`` that NumPy and JAX have too, as accurate and faster. Their arithmetic keeps NaN."""


@dataclass(frozen=True)
class Reductions:
    """Reductions of rows, the second of two or three axes, which becomes 1.

    Attributes:
        sum: of each row.
        max: the largest element of each row, or NaN.
        across: broadcasts a value of each row to so many columns, where that is faster than the library's own way.
    """

    sum: Callable[[Any], Any]
    max: Callable[[Any], Any]
    across: Callable[[Any, int], Any]


@cache
def lowered(kernel: Kernel, dialect: Dialect, reductions: Reductions) -> Callable[..., tuple[Any, ...]]:
    """Return the compiled function of `array_source`."""
    functions = compile_python(array_source(kernel, dialect), f"{kernel.name} for {dialect.name}")
    functions.update({f"_{name}": function for name, function in vars(reductions).items()})
    function: Callable[..., tuple[Any, ...]] = functions["_kernel"]
    return function


def array_source(kernel: Kernel, dialect: Dialect) -> str:
    """Return the text of a function `_kernel` of the number of columns and the arrays that are read.

    It returns the arrays that are written. For NumPy it takes arrays for them too, and may return others.
    """
    module = "np" if dialect is NUMPY else "jnp"
    library = {name: f"{module}.{function}" for name, function in _LIBRARY.items()} | {"or_nan": ""}
    text = print_python(kernel.map_module, replace(dialect, library=library), [part.function for part in kernel.parts])
    outs = _outs(kernel) if dialect is NUMPY else {}
    if outs:
        head, _, text = text.partition("\n")
        text = f"{head}\n{in_place(text, {python_name(value) for value in outs})}\n"
    return f"{text}\n\n{_text(kernel, outs)}"


def _outs(kernel: Kernel) -> dict[str, str]:
    """Return by value the array that it is computed into.

    A result is computed into its own array. Where there is one, the elements before it are as well, as long as nothing
    needs them once the next ones are written over them.
    """
    outs = {write.value: f"a_{write.array}" for write in kernel.writes}
    order = {name: number for number, name in enumerate(kernel.values)}
    elements = [
        value.name for value in kernel.values.values() if value.part and not value.part.over and not value.level
    ]
    if len(outs) == 1 and elements[-1:] == list(outs):
        (array,) = outs.values()
        for name, following in reversed(list(pairwise(elements))):
            if any(order[user.name] > order[following] for user in kernel.values.values() if name in user.arguments):
                break
            outs[name] = array
    return outs


def _text(kernel: Kernel, outs: Mapping[str, str]) -> str:
    """Return the function that computes the values one after the other; `outs` are the arrays that they go to."""
    parameters = ", ".join(("columns", *(f"v_{read.name}" for read in kernel.reads), *dict.fromkeys(outs.values())))
    computed = [value for value in kernel.values.values() if value.part]
    spread = {
        value.name: [name for name in value.arguments if kernel.values[name].level != kernel.level_of_call(value)]
        for value in computed
    }
    first_uses = {name: value for value in reversed(spread) for name in spread[value]}
    last_uses = {name: value for value in spread for name in spread[value]}
    lines = []
    for value in computed:
        own = spread[value.name]
        lines += [f"w_{name} = _across(v_{name}, columns)" for name in own if first_uses[name] == value.name]
        arguments = [f"{'w' if name in own else 'v'}_{name}" for name in value.arguments]
        arguments += [outs[value.name]] if value.name in outs else []
        call = f"{python_name(value.name)}({', '.join(arguments)})"
        lines.append(f"v_{value.name} = {f'_{value.part.combine}({call})' if value.part and value.part.over else call}")
        # NumPy gives the memory to the next array, which is then in the cache.
        lines += [f"del w_{name}" for name in own if last_uses[name] == value.name]
    lines.append(f"return ({', '.join(f'v_{write.value}' for write in kernel.writes)},)")
    return f"def _kernel({parameters}):  # see optirs_web/lower/arrays.py\n    " + "\n    ".join(lines) + "\n"
