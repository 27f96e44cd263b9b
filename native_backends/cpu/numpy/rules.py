"""A kernel of a rule in NumPy: its functions as Python, over arrays that go by the names of the bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ....runtime.rule_kernels import RuleKernel
from ....wgsl import param_storage, rule_shell, shell, slot_storage
from ...arrays.numpy_arrays import functions_of, runs
from .library import Array
from .line_tables import LineTables
from .storage import Params, Slot
from .transform_tables import TransformTables

__all__ = ["BoundRule", "Run"]


class Run(NamedTuple):
    """Elements for which a rule does the same: those of a tensor, or of adjacent tensors with equal tables.

    Attributes:
        tensor: the number of the first tensor.
        first: the first element.
        end: the end of the last tensor.
        gaps: the elements between the tensors, which are of none.
    """

    tensor: int
    first: int
    end: int
    gaps: list[slice]


class BoundRule:
    """A kernel of a rule with the tables that it is bound to."""

    def __init__(self, kernel: RuleKernel, arrays: Sequence[Array]) -> None:
        self.bound = {binding.name: array for binding, array in zip(kernel.bindings, arrays, strict=True)}
        self.functions = functions_of(kernel)
        self.module = kernel.map_module
        self._arguments: dict[str, list[str]] = {}  # of each function that was called
        self.hyper_names, self.scalar_names, self.state_names = (
            kernel.rule.hyper,
            kernel.rule.scalars,
            kernel.rule.state,
        )
        width = 1 + len(self.hyper_names) + len(self.scalar_names)
        more = 1 + len(kernel.rule.transforms) if kernel.rule.stages else 0
        table = self.bound["tensor_scalars"].view(np.uint32).reshape(-1, width + more)
        self.is_active = table[:, 0]
        self.hyper = table[:, 1 : 1 + len(self.hyper_names)].view(np.float32)
        self.scalars = table[:, 1 + len(self.hyper_names) : width].view(np.float32)
        self.slots = {
            name: Slot(kind, self.bound[name], self.bound.get(slot_storage.largest_name(name)))
            for name, kind in kernel.slots.items()
            if name in self.bound
        }
        if "params" in self.bound:
            codes = self.bound.get(param_storage.SLOTS.get(kernel.param_kind, ""))
            self.params = Params(kernel.param_kind, self.bound["params"], codes)
        self.negates = kernel.negates
        self.transforms = (
            TransformTables(kernel, self.bound, self.functions, table[:, width:]) if kernel.rule.stages else None
        )
        self.lines = LineTables(kernel, self.bound, self.functions) if "shapes" in self.bound else None
        self._table = table
        self._kinds = {kernel.param_kind or "float32", *kernel.slots.values()}

    @cached_property
    def _tells_tensors_apart(self) -> bool:
        """Elements need more of their tensor than its table, or are stored block by block."""
        return bool(self.transforms or self.lines or self._kinds != {"float32"})

    @cached_property
    def _arrays(self) -> list[Array]:
        """The parameters and slots, of float32."""
        return [self.bound[name].view(np.float32) for name in ("params", *self.slots) if name in self.bound]

    def runs(self) -> Iterator[Run]:
        """Yield each run of elements for which the rule does the same."""
        run, table_of_run = None, b""
        for tensor, first, end in runs(self.bound["blocks"]):
            table = b"" if self._tells_tensors_apart else self._table[tensor].tobytes()
            if run is not None and table and table == table_of_run and first - run.end < shell.BLOCK:
                if run.end < first:
                    run.gaps.append(slice(run.end, first))
                run = run._replace(end=end)
                continue
            if run is not None:
                yield run
            run, table_of_run = Run(tensor, first, end, []), table
        if run is not None:
            yield run

    def clear(self, gaps: Iterable[slice]) -> None:
        """Set the parameters and states of elements between tensors to zero, as all kernels keep them."""
        for gap in gaps:
            for array in self._arrays:
                array[gap] = 0

    def tensor_at(self, part: slice) -> int:
        """The tensor that these elements belong to."""
        if self.lines is not None:
            return self.lines.tensor_at(part)
        return int(self.bound["blocks"].view(np.uint32)[2 * (part.start // shell.BLOCK)])

    def struct(self, name: str, columns: Iterable[Any]) -> Any:
        """A struct of the rule, where it has a use for it."""
        return self.functions[name](*columns) if name in self.functions else None

    def of_tensor(self, tensor: int) -> dict[str, Any]:
        """Return the arguments that every function of the rule takes for a tensor: `h` (Hyper) and `s` (Scalars)."""
        return {"h": self.struct("Hyper", self.hyper[tensor]), "s": self.struct("Scalars", self.scalars[tensor])}

    def of_elements(self, part: slice, is_step: bool | None = None) -> dict[str, Any]:
        """Return the arguments of the rule's functions for some elements, by name.

        Args:
            part: the elements.
            is_step: for `update` where gradients are kept for a step: whether this call is that step.
        """
        values = {"param": self.params.load(part)} if "params" in self.bound else {}
        if "grads" in self.bound:
            grad = self.bound["grads"].view(np.float32)[part]
            if self.transforms is not None:
                tensor = self.tensor_at(part)
                if is_step is None:
                    grad = self.transforms.gradient(tensor, part, grad)
                else:
                    gathered = self.transforms.gather(tensor, part, grad, is_step)
                    grad = grad if gathered is None else gathered
            values["grad"] = -grad if self.negates else grad
        if "State" in self.functions:
            zero = np.float32(0)
            values["state"] = self.struct(
                "State", [self.slots[name].load(part) if name in self.slots else zero for name in self.state_names]
            )
        if self.lines is not None and self.lines.are_used:
            values |= self.lines.of_elements(self.tensor_at(part), part)
        return values

    def call(self, function: str, values: Mapping[str, Any]) -> Any:
        """Return the result of a function of the rule, called with the values that its parameters name."""
        names = self._arguments.get(function)
        if names is None:
            names = self._arguments[function] = rule_shell.arguments_of(self.module, function, values)
        return self.functions[function](*(values[name] for name in names))
