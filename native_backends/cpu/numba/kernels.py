"""Kernels in Numba: what the loops of `wgsl.numba_shell` are given, and from when on they take NumPy's place.

Loops whose machine code is on disk are taken at once. LLVM needs about as long for others as NumPy for thousands of
launches over little data, so a kernel is NumPy's until that has spent some time on it, or on all kernels of its rule:
then they are likely to run on, and another process compiles them while NumPy continues.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ....lower.maps import VALUE, binding_of, words_of_places, words_of_spans
from ....runtime.kernels import Kernel
from ....runtime.map_kernels import FusedKernel, MapKernel
from ....runtime.numba_texts import numba_loops
from ....runtime.rule_kernels import AdvanceKernel, MeasureKernel, RuleKernel, SettleKernel, UpdateKernel
from ....runtime.spans import spans_of
from ....runtime.transform_kernels import TransformKernel, TransformMeasureKernel, TransformSettleKernel
from ....wgsl import param_storage, rule_shell, shell
from ....wgsl.python_dialects import NUMPY
from ....wgsl.syntax import Binary, Call, Unary
from ....wgsl.tree import walk
from ..numpy import kernels as numpy_kernels
from ..numpy.forms import replacement_of
from ..numpy.library import DTYPES, Array, Parameters
from ..numpy.maps import only_joins
from .loops import Loop, has_machine_code, loop_of, threads
from .worker import Compilation, compile_in_worker

__all__ = ["NumbaKernels"]

_PATIENCE = 0.1
"""Seconds that NumPy spends on a kernel before it is compiled. Estimated: what is compiled does not depend on noise."""

_LOADING = 0.01
"""Seconds before machine code on disk is loaded, for kernels that are not an optimizer's."""

# What NumPy takes for one operation: to begin, and for each element.
_SECONDS_PER_OPERATION = 1e-6
_SECONDS_PER_ELEMENT = 1.5e-10

_OF_ELEMENTS = (MapKernel, FusedKernel)
_OF_TRANSFORMS = (TransformMeasureKernel, TransformSettleKernel)
_OF_RULES = (UpdateKernel, MeasureKernel, AdvanceKernel, SettleKernel, *_OF_TRANSFORMS)
_WORDS = ("blocks", "tensors", "found_inf")
_OPERATIONS = (Binary, Unary, Call)

_bind_numpy = partial(numpy_kernels.bind_kernel, dialect=NUMPY)
"""NumPy's form of a kernel, with the bits of Numba's: when Numba takes over depends on time."""

_log = logging.getLogger("optirs_web")

_Run = Callable[[], None]


class NumbaKernels:
    """The kernels of a device, each NumPy's or Numba's."""

    def __init__(self, *, at_once: bool) -> None:
        """`at_once`: whatever Numba has a form for is Numba's from its first launch on."""
        self._at_once = at_once
        self._known: dict[Kernel, _Candidate | None] = {}  # None where Numba has no form for it
        self._accounts: dict[Any, _Account] = {}

    def bind(self, kernel: Kernel, arrays: Sequence[Array], parameters: bytes) -> _Run:
        """A call that runs the kernel over these bytes."""
        if kernel not in self._known:
            self._known[kernel] = self._candidate(kernel)
        candidate = self._known[kernel]
        if candidate is None:
            return _bind_numpy(kernel, arrays, parameters)
        if candidate.is_settled(arrays, parameters):
            return candidate.bind(arrays, parameters)
        return _Waiting(candidate, arrays, parameters).run

    def _candidate(self, kernel: Kernel) -> _Candidate | None:
        is_copy = isinstance(kernel, MapKernel) and (not kernel.form.computed or only_joins(kernel))
        if is_copy or not isinstance(kernel, _OF_ELEMENTS + _OF_RULES):
            return None
        return _Candidate(kernel, self._account_of(kernel), strict=self._at_once)

    def _account_of(self, kernel: Kernel) -> _Account:
        key = (kernel.rule, kernel.flags) if isinstance(kernel, RuleKernel) else kernel
        return self._accounts.setdefault(key, _Account())


class _Account:
    """The seconds that NumPy has spent on some kernels."""

    spent = 0.0


class _Candidate:
    """A kernel that Numba may have a form for."""

    def __init__(self, kernel: Any, account: _Account, *, strict: bool) -> None:
        """`strict`: compiled here at its first launch, and what Numba refuses is an error."""
        self.kernel = kernel
        self.account = account
        self._strict = strict
        self._operations = 0
        self._has_looked = False
        self._compilation: Compilation | None = None
        self._is_settled = strict
        self._loop: Loop | None = None
        self._is_numpys = False
        self._is_compiled = False

    def is_settled(self, arrays: Sequence[Array], parameters: bytes) -> bool:
        """`bind` may be called: the machine code is on disk, or cannot be there. Has it compiled when due."""
        if not self._is_settled:
            if self._compilation is not None:
                self._is_settled = self._compilation.is_done
            elif self.account.spent >= _PATIENCE or (not self._has_looked and self._may_load()):
                self._is_settled = self._look(arrays, parameters)
        return self._is_settled

    def _may_load(self) -> bool:
        """Machine code on disk is worth loading. The import of Numba takes long: optimizers alone are."""
        if isinstance(self.kernel, RuleKernel):
            return True
        return self.account.spent >= _LOADING and "numba" in sys.modules

    def _look(self, arrays: Sequence[Array], parameters: bytes) -> bool:
        """The kernel is settled now. It is compiled if it is due and not on disk."""
        loops, name = numba_loops(self.kernel), self.kernel.name
        if loops is None:
            return True
        arguments = _arguments(self.kernel, arrays, parameters, loops.parameters)
        if not self._has_looked:
            self._has_looked = True
            if has_machine_code(loops, name) and (not _can_import() or loop_of(loops, name).is_compiled(arguments)):
                return True
        if self.account.spent >= _PATIENCE:
            self._compilation = compile_in_worker(loops, name, arguments)
            return self._compilation.is_done
        return False

    def spend(self, arrays: Sequence[Array]) -> None:
        """Count a launch of NumPy's over these arrays."""
        if not self._operations:
            self._operations = 1 + sum(isinstance(node, _OPERATIONS) for node in walk(self.kernel.map_module))
        calls = 1
        if not isinstance(self.kernel, (*_OF_ELEMENTS, AdvanceKernel)):
            calls = _rows(self.kernel, _by_name(self.kernel, arrays)["tensor_scalars"])
        elements = max(array.nbytes for array in arrays) / 4
        self.account.spent += self._operations * (calls * _SECONDS_PER_OPERATION + elements * _SECONDS_PER_ELEMENT)

    def bind(self, arrays: Sequence[Array], parameters: bytes) -> _Run:
        """A call of Numba's form of it, or of NumPy's if there is none."""
        if self._loop is None and not self._is_numpys:
            loops = numba_loops(self.kernel) if _can_import() else None
            self._loop = loops and loop_of(loops, self.kernel.name)
            self._is_numpys = self._loop is None
        if self._loop is None:
            return _bind_numpy(self.kernel, arrays, parameters)
        call = _bound(self._loop, self.kernel, arrays, parameters)
        return call if self._is_compiled or self._strict else self._tried(call, arrays, parameters)

    def _tried(self, call: _Run, arrays: Sequence[Array], parameters: bytes) -> _Run:
        """The call; it is NumPy's where Numba cannot compile it."""
        from numba.core.errors import NumbaError

        numpys: _Run | None = None

        def run() -> None:
            nonlocal numpys
            if not (self._is_compiled or self._is_numpys):
                try:
                    call()
                except NumbaError as error:  # before anything was computed
                    _log.warning("Numba refuses '%s'; cpu runs it in NumPy: %s", self.kernel.name, error)
                    self._is_numpys, self._loop = True, None
                else:
                    self._is_compiled = True
                    return
            if self._is_compiled:
                call()
                return
            if numpys is None:
                numpys = _bind_numpy(self.kernel, arrays, parameters)
            numpys()

        return run


class _Waiting:
    """A launch that is NumPy's for now."""

    def __init__(self, candidate: _Candidate, arrays: Sequence[Array], parameters: bytes) -> None:
        self._candidate = candidate
        self._arguments = arrays, parameters
        self._call = _bind_numpy(candidate.kernel, arrays, parameters)
        self._is_settled = False

    def run(self) -> None:
        if not self._is_settled:
            candidate = self._candidate
            self._is_settled = candidate.is_settled(*self._arguments)
            if self._is_settled:
                self._call = candidate.bind(*self._arguments)
            else:
                candidate.spend(self._arguments[0])
        self._call()


@cache
def _can_import() -> bool:
    try:
        import numba  # noqa: F401
    except ImportError as error:
        _log.warning("Numba is installed but cannot be imported; device cpu uses NumPy: %s", error)
        return False
    return True


# The arguments of each kernel's `launch`.


def _arguments(kernel: Any, arrays: Sequence[Array], parameters: bytes, names: Sequence[str]) -> list[Any]:
    """Return values with the types of the arguments of a kernel's loops."""
    if not isinstance(kernel, _OF_ELEMENTS):
        return _of_rule(kernel, _by_name(kernel, arrays), names)
    values = _values(kernel, parameters)
    if isinstance(kernel, FusedKernel):
        arrays = _of_hooked(kernel, _by_name(kernel, arrays), np.empty(0, np.uint8))
    return _of_elements(kernel, arrays, values, 0)


def _values(kernel: Any, parameters: bytes) -> Parameters:
    return dict(zip((name for name, _ in kernel.parameters), kernel.unpack(parameters), strict=True))


def _bound(loop: Loop, kernel: Any, arrays: Sequence[Array], parameters: bytes) -> _Run:
    if isinstance(kernel, _OF_ELEMENTS):
        values = _values(kernel, parameters)
        if isinstance(kernel, FusedKernel):
            return _bound_hooked(loop, kernel, _by_name(kernel, arrays), values)
        size = int(values["size"])
        arguments = _of_elements(kernel, arrays, values, size)
        if not _are_within(kernel, arguments):
            return _bind_numpy(kernel, arrays, parameters)
        return loop.bound(arguments, size, threads())
    bound = _by_name(kernel, arrays)
    elements = bound["params"].nbytes // 4 if "params" in bound else 0
    return loop.bound(_of_rule(kernel, bound, loop.parameters), elements, threads())


def _are_within(kernel: MapKernel | FusedKernel, arguments: Sequence[Any]) -> bool:
    """Return whether all indices of a loop are within the arrays. Loops do not check; NumPy does, and raises."""
    form, places = kernel.form, kernel.places
    words = dict(zip(words_of_places(form, places), map(int, arguments[0]), strict=True))
    size, arrays = arguments[1], arguments[2 + len(form.numbers) :]
    dims = [words[f"dim{axis}"] for axis in range(places.rank)]
    if dims and math.prod(dims) != size:
        return False
    names = [*(read.name for read in form.reads if not read.array), *(write.array for write in form.writes)]
    spans = spans_of(places, (words[name] for name in words_of_spans(places)))
    for array, name in zip(arrays, names, strict=True):
        end = size
        if name in places.strided:
            steps = (words[f"{name}_stride{axis}"] for axis in range(places.rank))
            end = 1 + words[f"{name}_start"] + sum((dim - 1) * step for dim, step in zip(dims, steps, strict=True))
            end += max(0, words.get(f"{name}_length", 1) - 1) * words.get(f"{name}_step", 0)
            end += sum((span.extent - 1) // span.spacing * span.stride for span in spans.get(name, ()))
        if array.size < end:
            return False
    return True


def _by_name(kernel: Kernel, arrays: Sequence[Array]) -> dict[str, Array]:
    return {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}


def _of_elements(kernel: Any, arrays: Sequence[Array], values: Parameters, size: int) -> list[Any]:
    """Return the arguments of `lower.loops.map_loops`: steps, size, numbers, then the arrays, read and written."""
    form = kernel.form
    types = [*(read.type for read in form.reads if not read.array), *(write.type for write in form.writes)]
    return [
        np.array([values[name] for name in words_of_places(form, kernel.places)], np.uint64),
        size,
        *(DTYPES[type_](values[name]) for name, type_ in form.numbers.items()),
        *(array.view(DTYPES[type_]) for array, type_ in zip(arrays, types, strict=True)),
    ]


def _bound_hooked(loop: Loop, kernel: FusedKernel, bound: dict[str, Array], values: Parameters) -> _Run:
    """A kernel with hooks, which stays NumPy's, with map functions before or after it."""
    form, binding, count = kernel.form, kernel.hook.binding, threads()
    is_stored = kernel.hook.function == "stored"
    dims = [int(values[f"dim{axis}"]) for axis in range(kernel.places.rank)]
    size = bound[binding].nbytes // 4 if is_stored else kernel.base.elements(values)
    size = math.prod(dims) if dims else size
    names = [declared.name for declared in kernel.base.bindings]
    replacement = replacement_of(kernel.base)
    nbytes = bound[binding].nbytes if is_stored else 4 * size
    arguments = _of_elements(kernel, _of_hooked(kernel, bound, np.empty(nbytes, np.uint8)), values, size)
    if not _are_within(kernel, arguments):
        raise ValueError("the map functions of a fused kernel go beyond its tensors")
    position = 2 + len(form.numbers) + sum(not read.array and read.name != VALUE for read in form.reads)
    before, dtype, after = arguments[:position], arguments[position].dtype, arguments[position + 1 :]
    del arguments

    def run() -> None:
        between = np.empty(nbytes, np.uint8)
        if is_stored:
            replacement(values, *(between if name == binding else bound[name] for name in names))
        loop.bound([*before, between.view(dtype), *after], size, count)()
        if not is_stored:
            replacement(values, *(between if name == binding else bound[name] for name in names))

    return run


def _of_hooked(kernel: FusedKernel, bound: dict[str, Array], between: Array) -> list[Array]:
    """The tensors and outputs of its map functions; `between` is what the kernel with hooks writes or reads."""
    form, hook = kernel.form, kernel.hook
    tensors = [bound[binding_of(read.name)] for read in form.reads if not read.array and read.name != VALUE]
    if hook.function != "stored":
        return [*tensors, between]
    results = [bound[binding_of(write.array)] for write in form.writes[1:]]
    return [*tensors, between, bound[hook.binding], *results]


def _width(kernel: RuleKernel) -> int:
    """Words of a row of `tensor_scalars`."""
    rule = kernel.rule
    return 1 + len(rule.hyper) + len(rule.scalars) + (1 + len(rule.transforms) if rule.stages else 0)


def _rows(kernel: RuleKernel, table: Array) -> int:
    return table.nbytes // (4 * _width(kernel))


def _of_rule(kernel: RuleKernel, bound: dict[str, Array], names: Sequence[str]) -> list[Any]:
    words = bound["tensor_scalars"].view(np.uint32).reshape(-1, _width(kernel))
    widths = {"blocks": 2, "tensors": rule_shell.ENTRY_WORDS, "hyper": len(kernel.rule.hyper)}
    if "partials" in bound:
        struct = f"Partial{kernel.number}" if isinstance(kernel, TransformKernel) else "Measured"
        widths["partials"] = len(shell.member_names(kernel.map_module, struct))

    def viewed(name: str) -> Array:
        if name in ("words", "floats"):
            return words if name == "words" else words.view(np.float32)
        if name in ("transform_words", "transform_floats"):
            return bound["transforms"].view(np.uint32 if name == "transform_words" else np.float32)
        is_half = kernel.slots.get(name, "float32") != "float32" or name == param_storage.SLOTS.get(kernel.param_kind)
        dtype = np.uint32 if name in _WORDS else np.uint16 if is_half else np.float32
        array: Array = bound[name].view(dtype)
        return array.reshape(-1, widths[name]) if name in widths else array

    return [viewed(name) for name in names]
