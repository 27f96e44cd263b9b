"""A kernel of a rule with the arrays that it is bound to, and the parts of an arena that it takes at once.

The kernels of `rule_kernels` are written over these, once for NumPy and JAX. A library supplies a `Rule` and its
`Part`s: NumPy has one for each run of elements that fits its caches, and writes in place; JAX has one for each shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...runtime.rule_kernels import RuleKernel
from ...wgsl import param_storage, rule_shell, shell, slot_storage, transform_lookup
from . import Array, Parameters
from .lines import Lines, Stack
from .storage import decoded, encoded, split_params, whole_params
from .transforms import BINDINGS, RowsOfTensors, Transforms, binding_of_rows

__all__ = ["Part", "RowPart", "Rule", "TensorScalars"]


class TensorScalars(NamedTuple):
    """Rows of `tensor_scalars`, by columns.

    Attributes:
        is_active: 1 if the tensor takes part, 2 if its Scalars alone do.
        hyper: the members of Hyper.
        scalars: the members of Scalars.
        step: one of these.
        on: which transforms apply, if there are any.
        words: the members of Transforms.
    """

    is_active: Any
    hyper: Sequence[Any]
    scalars: Sequence[Any]
    step: Any
    on: Any
    words: Sequence[Any]

    def expanded(self, axes: int) -> TensorScalars:
        """Return the columns, (tensors,), followed by a number of axes of length 1."""

        def along(column: Array) -> Array:
            return column.reshape(-1, *(1,) * axes)

        hyper, scalars, words = (list(map(along, columns)) for columns in (self.hyper, self.scalars, self.words))
        on = None if self.on is None else along(self.on)
        return TensorScalars(along(self.is_active), hyper, scalars, along(self.step), on, words)


_FLOATS = ("grads", "kept", "line_partials", "params", "sums")
"""Bindings of float32, besides slots and the rows of transforms."""


def _unused(*members: Any) -> None:
    """Return None, for a struct for which a rule has no use."""


class Rule(ABC):
    """A kernel of a rule with what it is bound to.

    Attributes:
        xp: the array library: `numpy_arrays` or `jax_arrays`.
        kernel: the kernel.
        module: its functions, in WGSL.
        functions: these and their structs, in Python.
        bound: the arrays, by the names of the bindings.
        vectors: those of numbers, as these are stored: float32, or unsigned integers of 8 or 16 bits.
        parameters: of the launch.
        table: `tensor_scalars`, (tensors, words).
        on_at: the column of the table with `TensorScalars.on`, after Hyper and Scalars.
        param_kind: how parameters are kept; "" for float32.
        param_codes: the binding of what is stored next to them in 16 bits; "" for none.
        slots: how those are stored that are bound.
        gradient: the binding of gradients; "" for none.
        transforms: their tables, if there are any.
        lines: the tables of rows and columns, likewise.
    """

    xp: Any

    def __init__(self, kernel: RuleKernel, arrays: Sequence[Array], parameters: Parameters) -> None:
        self.kernel = kernel
        self.module = kernel.map_module
        self.functions = self.xp.functions_of(kernel)
        self.bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
        self.parameters = parameters
        rule = kernel.rule
        self._scalars_at = 1 + len(rule.hyper)
        self._step = rule.scalars.index("step")
        self.on_at = self._scalars_at + len(rule.scalars)
        width = self.on_at + (1 + len(rule.transforms) if rule.stages else 0)
        self.table = self.xp.words(self.bound["tensor_scalars"]).reshape(-1, width)
        self.transforms = Transforms(self.xp, kernel, self.functions, self.bound) if rule.stages else None
        self.lines = Lines(self.xp, kernel, self.functions, self.bound) if "shapes" in self.bound else None
        self.param_kind = kernel.param_kind
        name = param_storage.SLOTS.get(self.param_kind, "")
        self.param_codes = name if name in self.bound else ""
        self.slots = {name: kind for name, kind in kernel.slots.items() if name in self.bound}
        self.gradient = next((name for name in ("grads", "sums") if name in self.bound), "")
        self.vectors = dict(self._vectors())
        self._hyper, self._scalars = (self.functions.get(name, _unused) for name in ("Hyper", "Scalars"))
        self._arguments: dict[str, list[str]] = {}  # of each function that was called

    @cached_property
    def block_entries(self) -> Array:
        """The table of blocks for transforms, by rows: the number in the tensor, the first row, the length of rows."""
        return self.xp.words(self.bound["block_entries"]).reshape(-1, transform_lookup.BLOCK_ENTRY_WORDS)

    @cached_property
    def entries(self) -> Array:
        """The table of tensors, by rows."""
        return self.xp.words(self.bound["tensors"]).reshape(-1, rule_shell.ENTRY_WORDS)

    def _vectors(self) -> Iterator[tuple[str, Array]]:
        """Yield the bindings that are numbers, as these are stored: float32, or unsigned integers of 8 or 16 bits."""
        for name, bound in self.bound.items():
            kind = "bfloat16" if name == self.param_codes else self.slots.get(name, "")
            if kind in slot_storage.BITS and kind != "float32":
                yield name, self.xp.codes(bound, slot_storage.BITS[kind])
            elif kind or name in _FLOATS or name.startswith("rows"):
                yield name, self.xp.floats(bound)

    def scalars_of(self, rows: Array) -> TensorScalars:
        """Return a row of the table, (width,), or several, (tensors, width), by columns."""
        columns, first, end = self.xp.columns(rows), self._scalars_at, self.on_at
        hyper, scalars = self.xp.all_floats(columns[1:first]), self.xp.all_floats(columns[first:end])
        on = None if self.transforms is None else columns[end]
        return TensorScalars(columns[0], hyper, scalars, scalars[self._step], on, columns[end + 1 :])

    def of_tensor(self, scalars: TensorScalars) -> dict[str, Any]:
        """Return the arguments that every function of the rule takes for tensors: `h` (Hyper) and `s` (Scalars)."""
        return {"h": self._hyper(*scalars.hyper), "s": self._scalars(*scalars.scalars)}

    def struct(self, name: str, columns: Iterable[Any]) -> Any:
        """Return a struct of the rule, where it has a use for it."""
        return self.functions[name](*columns) if name in self.functions else None

    def call(self, function: str, values: Mapping[str, Any]) -> Any:
        """Return the result of a function of the rule, called with the values that its parameters name."""
        names = self._arguments.get(function)
        if names is None:
            names = rule_shell.arguments_of(self.module, function, dict.fromkeys(values, ""))
            self._arguments[function] = names
        return self.functions[function](*[values[name] for name in names])

    def member_names(self, struct: str) -> list[str]:
        """Return the names of the members of a struct."""
        return shell.member_names(self.module, struct)

    def totals(self, struct: str, *, over_all: bool) -> dict[str, Any]:
        """Return the members of a struct of what was measured: of each tensor of `entries`, or of all."""
        names = self.member_names(struct)
        partials = self.xp.floats(self.bound["partials"]).reshape(-1, len(names))
        return dict(zip(names, self.xp.totals(names, partials, None if over_all else self.entries), strict=True))

    @abstractmethod
    def put_tensors(self, tensors: TensorScalars) -> None:
        """Write the rows of all tensors of `entries`; Hyper and Scalars only where `is_active` is not 0."""

    @abstractmethod
    def put(self, name: str, values: Array, start: int = 0) -> None:
        """Write values, of any shape, to a binding from a 32-bit element on."""

    def scalars_along(self, tensors: Sequence[int], axes: int) -> TensorScalars:
        """Return the rows of some tensors, by columns, (tensors,), followed by a number of axes of length 1."""
        return self.scalars_of(self.table_rows(tensors)).expanded(axes)

    @abstractmethod
    def table_rows(self, tensors: Sequence[int]) -> Array:
        """Return the rows of the table for some tensors, (tensors, width)."""

    @abstractmethod
    def parts(self) -> Iterable[Part]:
        """Return the parts of the arena; `partials` that are bound are set to zero before, but for JAX."""

    @abstractmethod
    def parts_with_rows(self) -> Iterable[Part]:
        """Return the parts of a tensor of which some rows have a gradient."""

    @abstractmethod
    def rows_at_once(self, rows: RowsOfTensors) -> Iterable[RowsOfTensors]:
        """Return the rows of tensors in the parts that are measured at once."""

    @abstractmethod
    def stacks(self) -> Iterable[Stack]:
        """Return all tensors with elements in the stacks of which lines are measured and settled at once."""

    @abstractmethod
    def measured_in(self, stack: Stack) -> Iterator[list[Array]]:
        """Yield what the kernel's function measures of the lines of a stack's tensors.

        Yields:
            Each member, as an array of (tensors, matrices, rows, columns): of some whole matrices, or of as many rows
            of each of them in turn.
        """


class Part(ABC):
    """Elements for which a rule's functions are called at once.

    Attributes:
        rule: the kernel.
        tensor: the number of their tensor, or an array that is broadcast.
        scalars: of their tensor, likewise.
        of_tensor: the same, as arguments of the rule's functions.
        shape: how the elements are seen.
    """

    rule: Rule
    tensor: Any
    scalars: TensorScalars
    of_tensor: Mapping[str, Any]
    shape: tuple[int, ...]

    @abstractmethod
    def read(self, name: str) -> Array:
        """Return the elements of a binding that is laid out like the arena, as they are stored."""

    @abstractmethod
    def write(self, name: str, values: Array, mask: Any) -> None:
        """Write the elements, as they are stored, to a binding, where the mask is set.

        In NumPy a mask that is a number is set: elements of which none is written are left out before.
        """

    @property
    @abstractmethod
    def rounding_index(self) -> Array:
        """The number of each element by which it is rounded at random."""

    @property
    @abstractmethod
    def index(self) -> Array:
        """The number of each element in its tensor."""

    @property
    @abstractmethod
    def first_row(self) -> tuple[Any, Any]:
        """The number of the first row of the tensor for transforms, and the length of rows."""

    def largest(self, name: str) -> Array:
        """Return for each element the largest magnitude that is stored of its block, for a slot in 8 bits."""
        raise NotImplementedError("rows with a gradient are not seen by blocks")

    def put_largest(self, name: str, values: Array, mask: Any) -> Array:
        """Store the largest magnitude of each block, and return it for each element; the mask is one of tensors."""
        raise NotImplementedError("rows with a gradient are not seen by blocks")

    def put_partials(self, names: Sequence[str], values: Sequence[Array], mask: Any) -> None:
        """Store the sum or maximum of each member over each tensor at its first block; or over parts, at theirs."""
        raise NotImplementedError("rows with a gradient are not seen by blocks")

    def of_lines(self) -> dict[str, Any]:
        """Return the arguments of the rule's functions that depend on rows and columns, by name."""
        raise NotImplementedError("these elements are not those of lines")

    def call(self, function: str, grad: Array | None = None) -> Any:
        """Return the results of a function of the rule; `grad` as `arguments` takes it."""
        return self.rule.call(function, self.arguments(grad))

    def arguments(self, grad: Array | None = None) -> dict[str, Any]:
        """Return arguments of the rule's functions by name.

        Args:
            grad: the gradient after transforms, if it is not the one that is bound.
        """
        rule = self.rule
        values = {**self.of_tensor}
        if "params" in rule.bound:
            values["param"] = self.param() if rule.param_codes else self.read("params")
        if grad is None and rule.gradient:
            grad = self.read(rule.gradient)
            if rule.transforms is not None:
                grad = self.transformed("transform_gradient", grad)
        if grad is not None:
            values["grad"] = -grad if rule.kernel.negates else grad
        if "State" in rule.functions:
            state: dict[str, Any] = dict.fromkeys(rule.kernel.rule.state, np.float32(0))
            for name, kind in rule.slots.items():
                state[name] = self.read(name) if kind == "float32" else self._decoded(name, kind)
            values["state"] = rule.functions["State"](*state.values())
        if rule.lines is not None and rule.lines.are_used:
            values |= self.of_lines()
        return values

    def param(self) -> Array:
        """Return the parameters that are updated, as float32."""
        rule, params = self.rule, self.read("params")
        if not rule.param_codes:
            return params
        codes = self.read(rule.param_codes).astype(np.uint32)
        return whole_params(rule.xp, rule.param_kind, params, codes)

    def _decoded(self, name: str, kind: str) -> Array:
        """Return a slot in fewer bits as float32."""
        largest = self.largest(slot_storage.largest_name(name)) if slot_storage.is_blockwise([kind]) else None
        return decoded(self.rule.xp, kind, self.read(name), largest)

    def store(self, updated: Any, slots: Collection[str], mask: Any) -> None:
        """Store the parameters and some slots of a result of the rule where the mask is set."""
        rule, kernel = self.rule, self.rule.kernel
        results = dict(zip(kernel.rule.state, getattr(updated, "state", ()), strict=False))
        for name in slots:  # a rule may give a view of what is about to be overwritten
            if getattr(results[name], "base", None) is not None:
                results[name] = results[name].copy()
        count = len(kernel.slots)
        if rule.param_kind:
            self.store_params(updated.param, mask, count if rule.param_kind == "stochastic" else None)
        else:
            self.write("params", updated.param, mask)
        for number, (name, kind) in enumerate(kernel.slots.items()):
            if name in slots and kind == "float32":
                self.write(name, results[name], mask)
            elif name in slots:
                self._store(name, kind, results[name], mask, (count, number))

    def store_params(self, values: Array, mask: Any, number: int | None = None) -> None:
        """Store parameters in fewer bits where the mask is set.

        Args:
            values: float32.
            mask: where.
            number: of the parameters among the slots, for what is rounded at random; None to round to the nearest.
        """
        rule = self.rule
        random = None if number is None else (self.rounding_index, self._seed(number + 1, number))
        rounded, codes = split_params(rule.xp, rule.param_kind, values, random)
        self.write("params", rounded, mask)
        if codes is not None:
            self.write(rule.param_codes, codes, mask)

    def _seed(self, count: int, number: int) -> Any:
        """Return the seed of one of `count` roundings at random of a step."""
        return self.rule.xp.uint32(self.scalars.step) * np.uint32(count) + np.uint32(number)

    def _store(self, name: str, kind: str, values: Array, mask: Any, number: tuple[int, int]) -> None:
        """Store a slot in fewer bits where the mask is set; the number of slots and its own seed what is random."""
        xp, largest, random = self.rule.xp, None, (None, None)
        if slot_storage.is_blockwise([kind]):
            values = xp.broadcast_to(values, self.shape)  # a rule may give a number
            largest = self.put_largest(slot_storage.largest_name(name), values, mask)
        elif kind == "bfloat16":
            random = self.rounding_index, self._seed(*number)
        self.write(name, encoded(xp, kind, values, *random, largest), mask)

    def transformed(self, function: str, grad: Array, t: Any = None, on: Any = None) -> Any:
        """Return the result of a function of the transforms.

        Args:
            function: its name.
            grad: the gradient before the transforms.
            t: the struct Transforms, if it is not the one of the tensor.
            on: which transforms apply, likewise.
        """
        rule, transforms, scalars = self.rule, self.rule.transforms, self.scalars
        assert transforms is not None
        t = transforms.struct(scalars.words) if t is None else t
        values = {"grad": grad, "t": t, "on": scalars.on if on is None else on}
        names = transform_lookup.parameters_of(rule.module, function)
        for name in names:
            if name not in values:
                values[name] = self._of_transforms(name)
        return rule.functions[function](*(values[name] for name in names))

    def _of_transforms(self, name: str) -> Any:
        match name:
            case "tensor":
                return self.rule.xp.uint32(self.tensor)
            case "index":
                return self.index
            case "grad" | "param" | "kept":
                return self.read(BINDINGS[name])
        return self.of_rows(self.rule.vectors[binding_of_rows(name)])

    def of_rows(self, values: Array) -> Array:
        """Return for each element the value of its row, of those of all rows for transforms."""
        first, size = self.first_row
        return self.rule.xp.take(values, first + self.index // size, mode="clip")

    def gather(self, is_due: Any) -> Array | None:
        """Add the gradient to the kept one; where a step is due, keep 0, and return the gradient of the step.

        Returns:
            None if no step is due.
        """
        rule, changes = self.rule, is_due | (self.scalars.on & 1 != 0)
        if not rule.xp.is_somewhere(changes):
            return None
        kept = rule.xp.owned(self.transformed("gather_gradient", self.read(rule.gradient)))
        result = self.transformed("finish_gradient", kept) if rule.xp.is_somewhere(is_due) else None
        self.write("kept", rule.xp.where(is_due, np.float32(0), kept), changes)
        return result


class RowPart(Part):
    """Rows of a tensor that have a gradient, (rows, length).

    Args:
        rule: the kernel.
        rows: their numbers.
    """

    def __init__(self, rule: Rule, rows: Array) -> None:
        p = rule.parameters
        self.rule, self.tensor = rule, p["tensor"]
        self.scalars = rule.scalars_of(rule.table[p["tensor"]])
        self.of_tensor = rule.of_tensor(self.scalars)
        self.rows, self.shape = rows, (rows.size, p["length"])

    def as_rows(self, vector: Array) -> Array:
        """Return a vector that is laid out like the tensor as rows; what follows the last row is left out."""
        length = self.shape[1]
        return vector[: vector.size // length * length].reshape(-1, length)

    @property
    def rounding_index(self) -> Array:
        return self.index

    @property
    def index(self) -> Array:
        length = self.shape[1]
        return self.rows[:, None] * np.uint32(length) + np.arange(length, dtype=np.uint32)

    @property
    def first_row(self) -> tuple[Any, Any]:
        _, first, size = self.rule.block_entries[self.rule.parameters["block"]]
        return first, size
