"""Commands as compiled functions: from the arrays of handles to those of the handles that are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...wgsl.jax_dialect import XLA_OPTIONS
from ..arrays.jax_arrays import as_type
from .bindings import DTYPES, Array, element_type
from .commands import Copied, Run
from .kernels import has_constant_tables, lower, traced_parameters
from .memory import Constant, Memory, Piece, Stacked, StackMemory, Words
from .small import reach_of, small

if TYPE_CHECKING:
    from ...runtime.backend import BoundBuffer, Stack
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
    """The content of memory while a function is traced: what it began with, and the parts written since.

    A part that is read as it was written is never merged and taken out again, and one that is written over without
    being read is not computed. Parts that begin at a traced number are merged at once, as their range is not known.
    """

    def __init__(self, stacks: Sequence[Stack], arrays: Any) -> None:
        self._content: Words | Stacked = Stacked(stacks, arrays) if stacks else Words(arrays)
        self._parts: dict[tuple[int, int], Array] = {}  # by first word and how many; none overlaps another

    def load(self, first: Any, count: int) -> Array:
        """Return `count` words from word `first` on."""
        if isinstance(first, int) and (first, count) in self._parts:
            return self._parts[first, count]
        self._merge(first, count)
        return self._content.load(first, count)

    def store(self, first: Any, words: Array) -> None:
        """Write these words there."""
        count = words.size
        if isinstance(first, int):
            for key in [key for key in self._parts if first <= key[0] and key[0] + key[1] <= first + count]:
                del self._parts[key]
        self._merge(first, count)
        if isinstance(first, int):
            self._parts[first, count] = words
        else:
            self._content = self._content.with_elements(first, words)

    def stacked(self) -> Stacked | None:
        """Return all of the content, if it has stacks."""
        if isinstance(self._content, Words):
            return None
        self.final()
        return self._content

    def replace(self, content: Stacked) -> None:
        """Replace all of the content."""
        self._parts.clear()
        self._content = content

    def _merge(self, first: Any = None, count: int = 0) -> None:
        """Merge the parts that share words with these: with any, if the first is not a number."""
        for key in list(self._parts):
            if not isinstance(first, int) or (key[0] < first + count and first < key[0] + key[1]):
                self._content = self._content.with_elements(key[0], self._parts.pop(key))

    def final(self) -> Any:
        """Return the arrays."""
        self._merge()
        return self._content.arrays


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

    def array_of(bound: Any, type_: str) -> Any:
        if isinstance(bound, Constant):
            return bound.words
        number, first, count = bound
        stacked = regions[number].stacked() if has_constant_tables(kernel) else None
        assert stacked is None or (first, count) == (0, stacked.size), f"{kernel.name} takes a part of an arena"
        return stacked or as_type(regions[number].load(first, count), element_type(type_))

    arrays = [array_of(bound, binding.type) for binding, bound in zip(bindings, ranges, strict=True)]
    with jax.default_matmul_precision(_PRECISIONS[precision]):
        results = iter(lower(kernel, values, arrays))
    for binding, bound in zip(bindings, ranges, strict=True):
        if binding.writes:
            number, first, count = bound
            result = next(results)
            if isinstance(result, Stacked):
                regions[number].replace(result)
                continue
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

    def program(written: Sequence[Any], read: Sequence[Any], _: None = None) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            regions = [Regions(handle.stacks, held) for handle, held in zip(handles, (*written, *read), strict=True)]
            for kernel, ranges, values, precision in steps:
                _apply(kernel, regions, ranges, values, precision)
            return tuple(region.final() for region in regions[:count])

    return program, handles, count


def compile_program(commands: Sequence[Run | Copied]) -> Compiled:
    """Return the function of a recorded program, which is compiled at its first call."""
    function, handles, count = program_function(commands)
    return Compiled(_jitted(function), count, handles)


def compile_single(
    command: Run | Copied, known: dict[Any, Compiled]
) -> tuple[Compiled, list[Memory | StackMemory], Any]:
    """Return the function of a command, from `known` if it is there; its memory; and its further argument.

    That is a vector of words: the first word of each buffer, then the parameters that are not constants of it. Some
    kernels over few elements have no constants, so that one function serves all shapes.
    """
    kernel = command.kernel
    values = _values(kernel, command.parameters)
    operands, memory, count = _placed(command)
    bound = [operand for operand in operands if not isinstance(operand, Constant)]
    largest = max(each.count for each in memory[:count])
    are_vectors = not any(each.stacks for each in memory)
    reach = reach_of(kernel, values, largest) if kernel and are_vectors else None
    if kernel is not None and reach is not None:
        traced, fixed = dict(kernel.parameters), {"reach": reach}
        layout: Any = tuple(operand.number for operand in bound)
        words: list[Any] = [bound[-1].size]
        precision = ""  # it multiplies element by element
        function = partial(_small, kernel, layout, traced, reach)
    else:
        traced = traced_parameters(kernel) if kernel else {}
        fixed = {name: value for name, value in values.items() if name not in traced}
        layout = tuple(
            operand if isinstance(operand, Constant) or operand.is_fixed else operand._replace(first=None)
            for operand in operands
        )
        words, precision = [], command.precision
        stacks = tuple(each.stacks for each in memory)
        function = partial(_single, kernel, layout, stacks, fixed, traced, precision, count)
    key = (kernel, layout, tuple(each.layout for each in memory), tuple(fixed.values()), precision)
    if key not in known:
        known[key] = Compiled(_jitted(function, quick_options() if largest <= _FEW else XLA_OPTIONS), count)
    words += [np.array(values[name], DTYPES[type_]).view(np.uint32) for name, type_ in traced.items()]
    firsts = [0 if isinstance(operand, Constant) else operand.first for operand in operands]
    return known[key], memory, np.array([*firsts, *words], np.uint32)


class _Range(NamedTuple):
    """Words of memory that a command is bound to.

    Attributes:
        number: the index of the memory.
        first: the number of the first word; None if it is an argument of the function.
        size: words.
        is_fixed: the function is compiled for the first word: all of the memory is bound, or it has no one array.
    """

    number: int
    first: Any
    size: int
    is_fixed: bool

    @classmethod
    def of(cls, piece: Piece, memory: Sequence[Memory | StackMemory]) -> _Range:
        """Return the words of one of these."""
        is_fixed = piece.size == piece.memory.count or bool(piece.memory.stacks)
        return cls(memory.index(piece.memory), piece.first, piece.size, is_fixed)


def _placed(command: Run | Copied) -> tuple[list[_Range | Constant], list[Memory | StackMemory], int]:
    """Return what a command is bound to; the memory, what is written first; and how much of that there is.

    A part of an arena is found in the array of its stack, if it has all of the part.
    """
    operands = _operands(command)
    parts = {
        position: Piece(operand[0], operand[1] // 4, operand[2] // 4, 0)
        for position, operand in enumerate(operands)
        if not isinstance(operand, Constant)
    }
    in_arrays = {position: part.memory.whole.only_piece(part.first, part.size) for position, part in parts.items()}
    takes_arenas = has_constant_tables(command.kernel)
    whole = {part.memory for position, part in parts.items() if takes_arenas or in_arrays[position] is None}
    pieces = {
        position: part if part.memory in whole else in_arrays[position] or part for position, part in parts.items()
    }
    writes = (False, True) if command.kernel is None else [binding.writes for binding in command.kernel.bindings]
    written = dict.fromkeys(piece.memory for position, piece in pieces.items() if writes[position])
    memory = list(dict.fromkeys([*written, *(piece.memory for piece in pieces.values())]))
    ranges = [
        operand if isinstance(operand, Constant) else _Range.of(pieces[position], memory)
        for position, operand in enumerate(operands)
    ]
    return ranges, memory, len(written)


def _parameters_in(first: int, traced: Mapping[str, str], control: Array) -> dict[str, Array]:
    """Return the parameters in the vector, which begin at a word."""
    numbered = enumerate(traced.items(), first)
    return {name: as_type(control[number], DTYPES[type_]) for number, (name, type_) in numbered}


def _single(
    kernel: Kernel | None,
    bound: Sequence[_Range | Constant],
    stacks: Sequence[Sequence[Stack]],
    fixed: Mapping[str, Any],
    traced: Mapping[str, str],
    precision: str,
    count: int,
    written: Sequence[Any],
    read: Sequence[Any],
    control: Array,
) -> tuple[Any, ...]:
    """A kernel or a copy, of known shapes."""
    with np.errstate(all="ignore"):
        regions = [Regions(*pair) for pair in zip(stacks, (*written, *read), strict=True)]
        firsts = as_type(control[: len(bound)], np.int32)
        ranges = [
            operand
            if isinstance(operand, Constant)
            else (operand.number, operand.first if operand.is_fixed else firsts[position], operand.size)
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
        contents = [Words(array) for array in (*written, *read)]
        arrays = [as_type(contents[number].load(0, contents[number].size), np.uint32) for number in numbers]
        count = len(numbers)
        values = _parameters_in(count + 1, traced, control)
        result = small(kernel, values, arrays, control[:count], control[count], reach)
        return (contents[0].with_elements(0, result).arrays,)


@partial(jax.jit, donate_argnums=(0,))
def write_part(array: Array, part: Array, first: Array) -> Array:
    """Return an array with some of its elements, as a vector, replaced by the bits of others."""
    return Words(array).with_elements(first, part).arrays


@partial(jax.jit, static_argnums=(2,))
def read_part(array: Array, first: Array, count: int) -> Array:
    """Return the words of `count` of an array's elements, as a vector."""
    return as_type(Words(array).load(first, count), np.uint32)
