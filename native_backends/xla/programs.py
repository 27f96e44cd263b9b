"""Commands as compiled functions: from the arrays of handles to those of the handles that are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...wgsl.jax_dialect import XLA_OPTIONS
from ..arrays.jax_arrays import as_type
from .bindings import DTYPES, Array, element_type
from .commands import Constant, Copied, Memory, Run
from .kernels import has_constant_tables, lower, traced_parameters
from .small import reach_of, small

if TYPE_CHECKING:
    from ...runtime.backend import BoundBuffer
    from ...runtime.kernels import Kernel

__all__ = [
    "Compiled",
    "compile_program",
    "compile_single",
    "program_function",
    "quick_options",
    "read_part",
    "write_part",
]

_CHEAP = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
}
"""For a command over few elements, which is sooner run than compiled well: a quarter of the time."""

_PRECISIONS = {"highest": "highest", "high": "high", "medium": "default"}
"""JAX's word for each precision of products: on a TPU six, three and one passes in bfloat16."""

_FEW = 1 << 15
"""Words of the largest buffer that such a command writes."""


@cache
def quick_options() -> Mapping[str, Any]:
    """XLA's options for a command over few elements: of `_CHEAP` those that this release knows."""
    lowered = jax.jit(lambda: jnp.int32(0)).lower()

    def are_known(options: Mapping[str, Any]) -> bool:
        try:
            lowered.compile(dict(options))
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
            return False
        return True

    known = _CHEAP if are_known(_CHEAP) else {name: value for name, value in _CHEAP.items() if are_known({name: value})}
    return {**XLA_OPTIONS, **known}


class Regions:
    """The words of one handle while a function is traced: what it began with, and the parts written since.

    A part that is read as it was written is never merged and taken out again, and one that is written over without
    being read is not computed. Parts that begin at a traced number are merged at once, as their range is not known.
    """

    def __init__(self, words: Array) -> None:
        self.words = words
        self.parts: dict[tuple[int, int], Array] = {}  # by first word and how many; none overlaps another

    def load(self, first: Any, count: int) -> Array:
        """Return `count` words from word `first` on."""
        if not isinstance(first, int):
            return lax.dynamic_slice(self.final(), (first,), (count,))
        if (first, count) in self.parts:
            return self.parts[first, count]
        self._settle(first, count)
        return self.words if count == self.words.size else lax.slice(self.words, (first,), (first + count,))

    def store(self, first: Any, words: Array) -> None:
        """Write these words there."""
        count = words.size
        if not isinstance(first, int):
            self.words = lax.dynamic_update_slice(self.final(), as_type(words, np.uint32), (first,))
            return
        for key in [key for key in self.parts if first <= key[0] and key[0] + key[1] <= first + count]:
            del self.parts[key]
        self._settle(first, count)
        self.parts[first, count] = words

    def _settle(self, first: int, count: int) -> None:
        """Merge the parts that share words with these."""
        for key in list(self.parts):
            if key[0] < first + count and first < key[0] + key[1]:
                self._merge(key)

    def _merge(self, key: tuple[int, int]) -> None:
        words = as_type(self.parts.pop(key), np.uint32)
        whole = words.size == self.words.size
        self.words = words if whole else lax.dynamic_update_slice(self.words, words, (key[0],))

    def final(self) -> Array:
        """Return all of the words."""
        for key in list(self.parts):
            self._merge(key)
        return self.words


class Compiled:
    """A compiled function from the arrays of handles to those of the first `count`; of a program, the handles too."""

    def __init__(self, function: Callable[..., Any], count: int, handles: Sequence[Memory] = ()) -> None:
        """`count` handles are written."""
        self.function = function
        self.count = count
        self.handles = tuple(handles)
        self.is_fresh = True


def _jitted(function: Callable[..., Any], options: Mapping[str, Any] = XLA_OPTIONS) -> Callable[..., Any]:
    compiled: Callable[..., Any] = jax.jit(function, donate_argnums=(0,), compiler_options=dict(options))
    return compiled


def _written(command: Run | Copied) -> list[Memory]:
    if command.kernel is None:
        return [command.buffers[1][0]]
    pairs = zip(command.kernel.bindings, command.buffers, strict=True)
    return [handle for binding, (handle, _, _) in pairs if binding.writes]


def _operands(command: Run | Copied) -> list[BoundBuffer | Constant]:
    """Return the buffers of a command, or their words where these are known and the kernel is traced with them."""
    if not has_constant_tables(command.kernel):
        return list(command.buffers)
    return [
        (handle, offset, size) if handle.content is None else handle.constant(offset, size)
        for handle, offset, size in command.buffers
    ]


def _memory(operands: Iterable[BoundBuffer | Constant]) -> list[Memory]:
    return [operand[0] for operand in operands if not isinstance(operand, Constant)]


def _ordered(commands: Sequence[Run | Copied]) -> tuple[list[Memory], int]:
    """The handles of these commands, and how many of them, which come first, are written."""
    written = list(dict.fromkeys(handle for command in commands for handle in _written(command)))
    every = dict.fromkeys([*written, *(handle for command in commands for handle in _memory(_operands(command)))])
    return list(every), len(written)


def _apply(
    kernel: Kernel | None,
    regions: Sequence[Regions],
    ranges: Sequence[Any],
    values: Mapping[str, Any],
    precision: str,
) -> None:
    """Run a kernel, or a copy.

    Args:
        kernel: None to copy.
        regions: of all handles.
        ranges: the number of the handle, the first word, and the count of words; or a Constant.
        values: of the kernel's parameters.
        precision: of its products.
    """
    if kernel is None:
        (source, first, count), (target, to, _) = ranges
        regions[target].store(to, regions[source].load(first, count))
        return
    bindings = kernel.bindings
    arrays = [
        bound.words
        if isinstance(bound, Constant)
        else as_type(regions[bound[0]].load(*bound[1:]), element_type(binding.type))
        for binding, bound in zip(bindings, ranges, strict=True)
    ]
    with jax.default_matmul_precision(_PRECISIONS[precision]):
        results = iter(lower(kernel, values, arrays))
    for binding, bound in zip(bindings, ranges, strict=True):
        if binding.writes:
            number, first, count = bound
            result = next(results)
            assert result.size == count, f"{kernel.name} made {result.size} words for {count} of {binding.name}"
            regions[number].store(first, result.reshape(-1))


def _values(kernel: Kernel | None, parameters: bytes) -> dict[str, Any]:
    if kernel is None:
        return {}
    return dict(zip((name for name, _ in kernel.parameters), kernel.unpack(parameters), strict=True))


def program_function(commands: Sequence[Run | Copied]) -> tuple[Callable[..., Any], list[Memory], int]:
    """Return the function of a recorded program, not yet compiled; its handles; and how many it writes."""
    handles, count = _ordered(commands)
    numbers = {handle: number for number, handle in enumerate(handles)}
    steps = []
    for command in commands:
        ranges = [
            operand if isinstance(operand, Constant) else (numbers[operand[0]], operand[1] // 4, operand[2] // 4)
            for operand in _operands(command)
        ]
        values = _values(command.kernel, command.parameters)
        steps.append((command.kernel, ranges, values, command.precision))

    def program(written: Sequence[Array], read: Sequence[Array], _: None = None) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            regions = [Regions(words) for words in (*written, *read)]
            for kernel, ranges, values, precision in steps:
                _apply(kernel, regions, ranges, values, precision)
            return tuple(region.final() for region in regions[:count])

    return program, handles, count


def compile_program(commands: Sequence[Run | Copied]) -> Compiled:
    """Return the function of a recorded program, which is compiled at its first call."""
    function, handles, count = program_function(commands)
    return Compiled(_jitted(function), count, handles)


def compile_single(command: Run | Copied, known: dict[Any, Compiled]) -> tuple[Compiled, list[Memory], Any]:
    """Return the function of a command, from `known` if it is there; its handles; and its further argument.

    That is a vector of words: the first word of each buffer, then the parameters that are not constants of it. Some
    kernels over few elements have no constants, so that one function serves all shapes.
    """
    handles, count = _ordered((command,))
    kernel = command.kernel
    largest = max(handle.count for handle in handles[:count])
    values = _values(kernel, command.parameters)
    operands = _operands(command)
    reach = reach_of(kernel, values, largest) if kernel else None
    if kernel is not None and reach is not None:
        traced, fixed = dict(kernel.parameters), {"reach": reach}
        layout: Any = tuple(handles.index(handle) for handle in _memory(operands))
        words: list[Any] = [command.buffers[-1][2] // 4]
        precision = ""  # it multiplies element by element
        function = partial(_small, kernel, layout, traced, reach)
    else:
        traced = traced_parameters(kernel) if kernel else {}
        fixed = {name: value for name, value in values.items() if name not in traced}
        layout = tuple(
            operand
            if isinstance(operand, Constant)
            else (handles.index(operand[0]), operand[2] // 4, operand[2] // 4 == operand[0].count)
            for operand in operands
        )
        words, precision = [], command.precision
        function = partial(_single, kernel, layout, fixed, traced, precision, count)
    key = (kernel, layout, tuple(handle.count for handle in handles), tuple(fixed.values()), precision)
    if key not in known:
        known[key] = Compiled(_jitted(function, quick_options() if largest <= _FEW else XLA_OPTIONS), count)
    words += [np.array(values[name], DTYPES[type_]).view(np.uint32) for name, type_ in traced.items()]
    firsts = [offset // 4 for _, offset, _ in command.buffers]
    return known[key], handles, np.array([*firsts, *words], np.uint32)


_Bound = Sequence[tuple[int, int, bool] | Constant]
"""The number of each buffer's handle, the words bound, and whether these are all; or the words that are known."""


def _parameters_in(first: int, traced: Mapping[str, str], control: Array) -> dict[str, Array]:
    """Return the parameters in the vector, which begin at a word."""
    numbered = enumerate(traced.items(), first)
    return {name: as_type(control[number], DTYPES[type_]) for number, (name, type_) in numbered}


def _single(
    kernel: Kernel | None,
    bound: _Bound,
    fixed: Mapping[str, Any],
    traced: Mapping[str, str],
    precision: str,
    count: int,
    written: Sequence[Array],
    read: Sequence[Array],
    control: Array,
) -> tuple[Array, ...]:
    """A kernel or a copy, of known shapes."""
    with np.errstate(all="ignore"):
        regions = [Regions(words) for words in (*written, *read)]
        firsts = as_type(control[: len(bound)], np.int32)
        ranges = [
            operand
            if isinstance(operand, Constant)
            else (operand[0], 0 if operand[2] else firsts[position], operand[1])
            for position, operand in enumerate(bound)
        ]
        _apply(kernel, regions, ranges, {**fixed, **_parameters_in(len(bound), traced, control)}, precision)
        return tuple(region.final() for region in regions[:count])


def _small(
    kernel: Kernel,
    numbers: Sequence[int],
    traced: Mapping[str, str],
    reach: int,
    written: Sequence[Array],
    read: Sequence[Array],
    control: Array,
) -> tuple[Array, ...]:
    """A kernel of which no shape is known; see `small`. The result's buffer is bound last."""
    with np.errstate(all="ignore"):
        arrays = [(*written, *read)[number] for number in numbers]
        count = len(numbers)
        values = _parameters_in(count + 1, traced, control)
        return (small(kernel, values, arrays, control[:count], control[count], reach),)


@partial(jax.jit, donate_argnums=(0,))
def write_part(words: Array, part: Array, first: Array) -> Array:
    """Return the words with some of them replaced."""
    return lax.dynamic_update_slice(words, part, (first,))


@partial(jax.jit, static_argnums=(2,))
def read_part(words: Array, first: Array, count: int) -> Array:
    """Return `count` of the words."""
    return lax.dynamic_slice(words, (first,), (count,))
