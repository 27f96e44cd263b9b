"""Kernels in Numba: what the loops of `wgsl.numba_shell` are given, and from when on they take NumPy's place.

LLVM needs about as long for a kernel as NumPy for thousands of launches over little data. So a kernel is NumPy's until
that would have spent half a second on it, or on all kernels of its rule: then they are likely to run on. What it spends
is estimated, not measured, so that the same program computes the same each time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..runtime.fused_kernels import FusedKernel, FusedMapKernel
from ..runtime.kernels import ElementwiseKernel, Kernel
from ..runtime.numba_texts import fused_of, numba_loops
from ..runtime.rule_kernels import AdvanceKernel, MeasureKernel, RuleKernel, SettleKernel, UpdateKernel
from ..runtime.transform_kernels import TransformKernel, TransformMeasureKernel, TransformSettleKernel
from ..wgsl import param_storage, rule_shell, shell
from ..wgsl.fused_shell import Fused
from ..wgsl.syntax import Binary, Call, Unary
from ..wgsl.tree import walk
from .numba_loops import Loop, loop_of, threads
from .numpy_fused import loaded_size
from .numpy_kernels import bind_kernel
from .numpy_library import REPLACEMENTS, Array, Parameters

__all__ = ["NumbaKernels"]

_PATIENCE = 0.5
"""Seconds that NumPy may spend on a kernel."""

# What NumPy takes for one operation: to begin, and for each element.
_SECONDS_PER_OPERATION = 1e-6
_SECONDS_PER_ELEMENT = 1.5e-10

_OF_ELEMENTS = (ElementwiseKernel, FusedMapKernel, FusedKernel)
_OF_TRANSFORMS = (TransformMeasureKernel, TransformSettleKernel)
_OF_RULES = (UpdateKernel, MeasureKernel, AdvanceKernel, SettleKernel, *_OF_TRANSFORMS)
_DTYPES: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}
_WORDS = ("blocks", "tensors", "found_inf")
_OPERATIONS = (Binary, Unary, Call)

_log = logging.getLogger("optirs_web")

_Run = Callable[[], None]


class NumbaKernels:
    """The kernels of a device, each NumPy's or Numba's."""

    def __init__(self, *, at_once: bool) -> None:
        """`at_once`: whatever Numba has a form for is Numba's from its first launch on."""
        self._at_once = at_once
        self._known: dict[Kernel, _Candidate] = {}
        self._accounts: dict[Any, _Account] = {}

    def bind(self, kernel: Kernel, arrays: Sequence[Array], parameters: bytes) -> _Run:
        """A call that runs the kernel over these bytes."""
        if hasattr(kernel, "parts"):  # several side by side, of `runtime.merging`
            calls = [self.bind(*one) for one in kernel.parts(arrays, parameters)]

            def run_all() -> None:
                for call in calls:
                    call()

            return run_all
        if not isinstance(kernel, _OF_ELEMENTS + _OF_RULES):
            return bind_kernel(kernel, arrays, parameters)
        known = self._known.get(kernel)
        if known is None:
            known = self._known[kernel] = _Candidate(kernel, self._account_of(kernel), strict=self._at_once)
        if known.account.is_closed:
            return known.bind(arrays, parameters)
        return _Waiting(known, arrays, parameters).run

    def _account_of(self, kernel: Kernel) -> _Account:
        key = (kernel.rule, kernel.flags) if isinstance(kernel, RuleKernel) else kernel
        return self._accounts.setdefault(key, _Account(0 if self._at_once else _PATIENCE))


class _Account:
    """The seconds that NumPy may still spend on some kernels."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @property
    def is_closed(self) -> bool:
        """It has spent enough."""
        return self.seconds <= 0


class _Candidate:
    """A kernel that Numba may have a form for."""

    def __init__(self, kernel: Any, account: _Account, *, strict: bool) -> None:
        """`strict`: what Numba refuses is an error, and not NumPy's."""
        self.kernel = kernel
        self.account = account
        self._strict = strict
        self._operations = 0
        self._loop: Loop | None = None
        self._is_numpys = False
        self._is_compiled = False

    def spend(self, arrays: Sequence[Array]) -> None:
        """Count a launch over these arrays."""
        if not self._operations:
            self._operations = 1 + sum(isinstance(node, _OPERATIONS) for node in walk(self.kernel.map_module))
        calls = 1
        if not isinstance(self.kernel, (*_OF_ELEMENTS, AdvanceKernel)):
            calls = _rows(self.kernel, _by_name(self.kernel, arrays)["tensor_scalars"])
        elements = max(array.nbytes for array in arrays) / 4
        self.account.seconds -= self._operations * (calls * _SECONDS_PER_OPERATION + elements * _SECONDS_PER_ELEMENT)

    def bind(self, arrays: Sequence[Array], parameters: bytes) -> _Run:
        """A call of Numba's form of it, or of NumPy's if there is none."""
        if self._loop is None and not self._is_numpys:
            loops = numba_loops(self.kernel) if _can_import() else None
            self._loop = loops and loop_of(loops, self.kernel.name)
            self._is_numpys = self._loop is None
        if self._loop is None:
            return bind_kernel(self.kernel, arrays, parameters)
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
                    _log.warning("Numba refuses '%s', which stays NumPy's on cpu: %s", self.kernel.name, error)
                    self._is_numpys, self._loop = True, None
                else:
                    self._is_compiled = True
                    return
            if self._is_compiled:
                call()
                return
            if numpys is None:
                numpys = bind_kernel(self.kernel, arrays, parameters)
            numpys()

        return run


class _Waiting:
    """A launch that is NumPy's for now."""

    def __init__(self, candidate: _Candidate, arrays: Sequence[Array], parameters: bytes) -> None:
        self._candidate = candidate
        self._given = arrays, parameters
        self._call = bind_kernel(candidate.kernel, arrays, parameters)
        self._is_settled = False

    def run(self) -> None:
        candidate = self._candidate
        if not self._is_settled:
            if not candidate.account.is_closed:
                candidate.spend(self._given[0])
            else:
                self._is_settled = True
                self._call = candidate.bind(*self._given)
        self._call()


@cache
def _can_import() -> bool:
    try:
        import numba  # noqa: F401
    except ImportError as error:
        _log.warning("Numba is installed and cannot be imported, so the device cpu goes on with NumPy: %s", error)
        return False
    return True


# What each kernel's `launch` is given.


def _bound(loop: Loop, kernel: Any, arrays: Sequence[Array], parameters: bytes) -> _Run:
    if isinstance(kernel, _OF_ELEMENTS):
        names = (name for name, _ in kernel.parameters)
        values = dict(zip(names, kernel.unpack(parameters), strict=True))
        if isinstance(kernel, FusedKernel):
            return _bound_hooked(loop, kernel, _by_name(kernel, arrays), values)
        size = int(values["size"])
        given = _of_elements(kernel, arrays, values, size)
        if not _are_within(fused_of(kernel), given):
            return bind_kernel(kernel, arrays, parameters)
        return loop.bound(given, size, threads())
    bound = _by_name(kernel, arrays)
    elements = bound["params"].nbytes // 4 if "params" in bound else 0
    return loop.bound(_of_rule(kernel, bound, loop.given), elements, threads())


def _are_within(fused: Fused, given: Sequence[Any]) -> bool:
    """Whether a walk stays within its arrays. Loops do not look; NumPy does, and says what is wrong."""
    steps, size = [int(one) for one in given[0]], given[1]
    arrays = given[2 + len(fused.scalar_types) :]
    dims, rest = steps[: fused.rank], iter(steps[fused.rank :])
    if dims and math.prod(dims) != size:
        return False
    for array, is_flat in zip(arrays, (*fused.flat, *(True for _ in fused.outputs)), strict=True):
        end = size
        if fused.rank and not is_flat:
            end = 1 + next(rest) + sum((dim - 1) * next(rest) for dim in dims)
        if array.size < end:
            return False
    return True


def _by_name(kernel: Kernel, arrays: Sequence[Array]) -> dict[str, Array]:
    return {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}


def _of_elements(kernel: Any, arrays: Sequence[Array], values: Parameters, size: int) -> list[Any]:
    """What `numba_shell.walk` takes, of tensors and outputs in that order."""
    fused = fused_of(kernel)
    if isinstance(kernel, ElementwiseKernel):
        tensors = [one.name.removesuffix("_values") for one in kernel.bindings[:-1]]
        declared = [name for name, _ in kernel.parameters]
        scalars = declared[len(declared) - len(fused.scalar_types) :]
    else:
        tensors = [f"x{number}" for number in range(len(fused.tensor_types))]
        scalars = [f"s{number}" for number in range(len(fused.scalar_types))]
    steps = [f"dim{axis}" for axis in range(fused.rank)]
    for name, is_flat in zip(tensors, fused.flat, strict=True):
        if fused.rank and not is_flat:
            steps += [f"{name}_start", *(f"{name}_stride{axis}" for axis in range(fused.rank))]
    types = (*fused.tensor_types, *fused.output_types)
    return [
        np.array([values[name] for name in steps], np.uint64),
        size,
        *(_DTYPES[type_](values[name]) for name, type_ in zip(scalars, fused.scalar_types, strict=True)),
        *(array.view(_DTYPES[type_]) for array, type_ in zip(arrays, types, strict=True)),
    ]


def _bound_hooked(loop: Loop, kernel: FusedKernel, bound: dict[str, Array], values: Parameters) -> _Run:
    """A cooperative kernel, which stays NumPy's, with map functions before or after it."""
    fused, binding, count = kernel.fused, kernel.hook.binding, threads()
    is_stored = kernel.hook.function == "stored"
    dims = [int(values[f"dim{axis}"]) for axis in range(fused.rank)]
    size = bound[binding].nbytes // 4 if is_stored else loaded_size(kernel, values)
    size = math.prod(dims) if dims else size
    names = [one.name for one in kernel.base.bindings]
    replacement = REPLACEMENTS[kernel.base.name]
    tensors = [bound[f"x{number}_values"] for number in range(len(fused.tensor_types))]

    def run() -> None:
        between = np.empty(bound[binding].nbytes if is_stored else 4 * size, np.uint8)
        if is_stored:
            replacement(values, *(between if name == binding else bound[name] for name in names))
            rest = [bound[f"y{number}_values"] for number in range(1, len(fused.outputs))]
            arrays = [*tensors, between, bound[binding], *rest]
        else:
            arrays = [*tensors, between]
        given = _of_elements(kernel, arrays, values, size)
        if not _are_within(fused_of(kernel), given):
            raise ValueError("the map functions of a fused kernel go beyond its tensors")
        loop.bound(given, size, count)()
        if not is_stored:
            replacement(values, *(between if name == binding else bound[name] for name in names))

    return run


def _width(kernel: RuleKernel) -> int:
    """Words of a row of `tensor_scalars`."""
    rule = kernel.rule
    return 1 + len(rule.hyper) + len(rule.scalars) + (1 + len(rule.transforms) if rule.stages else 0)


def _rows(kernel: RuleKernel, table: Array) -> int:
    return table.nbytes // (4 * _width(kernel))


def _of_rule(kernel: RuleKernel, bound: dict[str, Array], given: Sequence[str]) -> list[Any]:
    words = bound["tensor_scalars"].view(np.uint32).reshape(-1, _width(kernel))
    widths = {"blocks": 2, "tensors": rule_shell.ENTRY_WORDS, "hyper": len(kernel.rule.hyper)}
    if "partials" in bound:
        struct = f"Partial{kernel.number}" if isinstance(kernel, TransformKernel) else "Measured"
        widths["partials"] = len(shell.member_names(kernel.map_module, struct))

    def viewed(name: str) -> Array:
        if name in ("words", "floats"):
            return words if name == "words" else words.view(np.float32)
        if name in ("given_words", "given_floats"):
            return bound["transforms"].view(np.uint32 if name == "given_words" else np.float32)
        is_half = kernel.slots.get(name, "float32") != "float32" or name == param_storage.SLOTS.get(kernel.param_kind)
        dtype = np.uint32 if name in _WORDS else np.uint16 if is_half else np.float32
        array: Array = bound[name].view(dtype)
        return array.reshape(-1, widths[name]) if name in widths else array

    return [viewed(name) for name in given]
