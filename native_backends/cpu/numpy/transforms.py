"""Gradient transforms in NumPy: the shells of `wgsl.transform_shell`, and what `kernels` needs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.rule_kernels import RuleKernel
from ....runtime.transform_kernels import TransformMeasureKernel, TransformRowsKernel, TransformSettleKernel
from ....wgsl import rule_shell, shell, transform_lookup

if TYPE_CHECKING:
    from .rules import BoundRule

__all__ = [
    "TransformTables",
    "bind_measure_transform",
    "bind_rows_transform",
    "bind_settle_transform",
    "total",
]

Array = np.ndarray[Any, Any]


class TransformTables:
    """The tables of transforms that a kernel is bound to.

    Args:
        kernel: of a rule with transforms.
        bound: arrays of bytes by name of the binding.
        functions: of the kernel, as Python.
        columns: those of `tensor_scalars` that are the transforms': `on`, then all members.
    """

    def __init__(
        self, kernel: RuleKernel, bound: Mapping[str, Array], functions: Mapping[str, Any], columns: Array
    ) -> None:
        self.rule = kernel.rule
        self.module = kernel.map_module
        self.bound = bound
        self.functions = functions
        self.on = columns[:, 0]
        self.words = columns[:, 1:]
        self.gathers = kernel.rule.gathers
        self.kept = bound["kept"].view(np.float32) if "kept" in bound else None
        if "block_places" in bound:
            self.places = bound["block_places"].view(np.uint32).reshape(-1, transform_lookup.PLACE_WORDS)

    def struct(self, words: Array) -> Any:
        """The struct Transforms of one row of words, or of a table of them."""
        columns = iter(np.moveaxis(words, -1, 0))
        members = iter(self.rule.transforms)
        values = [[_as(next(columns), next(members).type) for _ in range(stage.members)] for stage in self.rule.stages]
        names = shell.struct_of(self.module, "Transforms").members
        return self.functions["Transforms"](
            *(self.functions[str(name.type)](*value) for name, value in zip(names, values, strict=True))
        )

    @staticmethod
    def columns_of(struct: Any, count: int) -> Array:
        """A table of words from a struct Transforms of arrays."""
        values = [value for member in struct for value in member]
        return np.stack([_words(np.broadcast_to(value, count)) for value in values], axis=1)

    def takes_part(self, on: Any) -> Any:
        """Return whether transforms apply to the tensors with this `on`."""
        return on != 0 if self.gathers else (on & 1) != 0

    def call(self, function: str, tensor: int, part: slice, grad: Array, t: Any = None, on: Any = None) -> Any:
        """A function of the glue over some elements of a tensor."""
        return self.functions[function](*self._arguments(function, tensor, part, grad, t, on))

    def _arguments(self, function: str, tensor: int, part: slice, grad: Array, t: Any, on: Any) -> Iterator[Any]:
        for name in transform_lookup.parameters_of(self.module, function):
            match name:
                case "grad":
                    yield grad
                case "param":
                    yield self.bound["params"].view(np.float32)[part]
                case "kept":
                    assert self.kept is not None
                    yield self.kept[part]
                case "tensor":
                    yield np.uint32(tensor)
                case "t":
                    yield self.struct(self.words[tensor]) if t is None else t
                case "on":
                    yield self.on[tensor] if on is None else on
                case "index":
                    yield self._index(part)
                case _:
                    block = part.start // shell.BLOCK
                    _, first_row, row_size = self.places[block]
                    rows = self.bound[f"rows{name.removeprefix('row')}"].view(np.float32)
                    yield rows[first_row + self._index(part) // row_size]

    def _index(self, part: slice) -> Array:
        first = int(self.places[part.start // shell.BLOCK, 0]) * shell.BLOCK
        return np.arange(first, first + part.stop - part.start, dtype=np.uint32)

    def gradient(self, tensor: int, part: slice, raw: Array) -> Array:
        """Return the transformed gradient of some elements; `raw` is the gradient before the transforms."""
        result: Array = self.call("transform_gradient", tensor, part, raw)
        return result

    def gradient_of_rows(self, tensor: int, block: int, index: Array, param: Array, raw: Array) -> Array:
        """Return the transformed gradient of elements of a tensor of which only some rows have a gradient.

        Args:
            tensor: the number of the tensor.
            block: the first block of the tensor.
            index: the numbers of the elements in the tensor.
            param: the parameters of the elements.
            raw: their gradient before the transforms.
        """
        given = {"grad": raw, "param": param, "index": index, "tensor": np.uint32(tensor)}
        given |= {"t": self.struct(self.words[tensor]), "on": self.on[tensor]}
        names = transform_lookup.parameters_of(self.module, "transform_gradient")
        for name in names:
            if name not in given:
                _, first_row, row_size = self.places[block]
                rows = self.bound[f"rows{name.removeprefix('row')}"].view(np.float32)
                given[name] = rows[first_row + index // row_size]
        result: Array = self.functions["transform_gradient"](*(given[name] for name in names))
        return result

    def gather(self, tensor: int, part: slice, raw: Array, is_step: bool) -> Array | None:
        """Gather a gradient into `kept`; at a step, set it to 0 and return the transformed gradient, else None."""
        assert self.kept is not None
        gathered = np.array(self.call("gather_gradient", tensor, part, raw))
        result = self.call("finish_gradient", tensor, part, gathered) if is_step else None
        self.kept[part] = 0 if is_step else gathered
        return result

    def begin(
        self, entries: Array, partials: Callable[[], Any] | None, number: int | None, rest: int, skip: bool
    ) -> Any:
        """Run the transforms' part of `advance` for all tensors.

        Args:
            entries: of all tensors.
            partials: gives what was measured over all tensors.
            number: of the transform that is settled here.
            rest: what is_active is where a tensor has no gradient.
            skip: this call is left out.

        Returns:
            is_active of each tensor.
        """
        count = len(entries)
        self.on[:] = 0 if skip else entries[:, 1]
        if skip:
            return np.zeros(count, np.uint32)
        scale = self.bound["scaler"].view(np.float32)[0] if "scaler" in self.bound else np.float32(1)
        given = self.struct(self.bound["transforms"].view(np.uint32))
        live = (self.on & 1).astype(np.float32)
        t = self.functions["begin_transforms"](self.struct(self.words), given, scale, live)
        if number is not None and partials is not None:
            t = self.functions[f"settle_transform_{number}"](t, partials(), entries[:, 4].astype(np.float32))
        self.words[:] = self.columns_of(t, count)
        return np.broadcast_to(self.functions["activity"](t, self.on, np.uint32(rest)), count)


def _as(value: Any, type_: str) -> Any:
    return value.view(np.float32) if type_ == "f32" else value


def _words(value: Array) -> Array:
    return np.ascontiguousarray(value).view(np.uint32)


def _tables(rule: BoundRule) -> TransformTables:
    assert rule.transforms is not None
    return rule.transforms


def total(rows: Array, names: Sequence[str]) -> list[Any]:
    """Sums of columns, or largest values."""
    return [
        np.float32(column.max(initial=0) if name.startswith(rule_shell.MAXIMUM) else column.sum(dtype=np.float64))
        for name, column in zip(names, rows.T, strict=True)
    ]


def bind_measure_transform(
    rule: BoundRule, kernel: TransformMeasureKernel, runs: Callable[[Array], Any], chunks: Callable[..., Any]
) -> Callable[[], None]:
    """`transform_shell.measure`."""
    tables, number = _tables(rule), kernel.number
    names = shell.member_names(rule.module, f"Partial{number}")
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))
    grads = rule.bound["grads"].view(np.float32)

    def at(tensor: int) -> tuple[Any, Any]:
        if not kernel.is_first:
            return tables.on[tensor], tables.struct(tables.words[tensor])
        on = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)[tensor, 1]
        scale = rule.bound["scaler"].view(np.float32)[0] if "scaler" in rule.bound else np.float32(1)
        given = tables.struct(rule.bound["transforms"].view(np.uint32))
        t = rule.functions["begin_transforms"](tables.struct(tables.words[tensor]), given, scale, np.float32(on & 1))
        return on, t

    def run() -> None:
        partials[:] = 0
        for tensor, first, end in runs(rule.bound["blocks"]):
            on, t = at(tensor)
            if not tables.takes_part(on):
                continue
            for part in chunks(first, end):
                measured = tables.call(f"measure_transform_{number}", tensor, part, grads[part], t, on)
                columns = [np.broadcast_to(value, part.stop - part.start) for value in measured]
                partials[part.start // shell.BLOCK] = total(np.stack(columns, axis=1), names)

    return run


def bind_settle_transform(rule: BoundRule, kernel: TransformSettleKernel) -> Callable[[], None]:
    """`transform_shell.settle`."""
    tables, number = _tables(rule), kernel.number
    struct = f"Partial{number}"
    names = shell.member_names(rule.module, struct)
    partials = rule.bound["partials"].view(np.float32).reshape(-1, len(names))
    entries = rule.bound["tensors"].view(np.uint32).reshape(-1, rule_shell.ENTRY_WORDS)

    def run() -> None:
        everything = total(partials, names) if kernel.over_all else None
        for tensor in np.flatnonzero(tables.takes_part(tables.on)):
            _, _, first, blocks, size = entries[tensor]
            measured = rule.functions[struct](*(everything or total(partials[first : first + blocks], names)))
            t = tables.struct(tables.words[tensor])
            settled = rule.functions[f"settle_transform_{number}"](t, measured, np.float32(size))
            tables.words[tensor] = tables.columns_of(settled, 1)[0]

    return run


def bind_rows_transform(rule: BoundRule, kernel: TransformRowsKernel) -> Callable[[], None]:
    """`transform_shell.rows`."""
    tables, number = _tables(rule), kernel.number
    struct = f"Partial{number}"
    names = shell.member_names(rule.module, struct)
    entries = rule.bound["row_entries"].view(np.uint32).reshape(-1, 4)
    result = rule.bound[f"rows{number}"].view(np.float32)
    floats = {name: rule.bound[name].view(np.float32) for name in ("params", "grads", "kept") if name in rule.bound}
    earlier = {name: array.view(np.float32) for name, array in rule.bound.items() if name.startswith("rows")}

    def run() -> None:
        for row, (tensor, first, index, size) in enumerate(entries):
            on = tables.on[tensor]
            t = tables.struct(tables.words[tensor])
            measured = [np.float32(0)] * len(names)
            if tables.takes_part(on):
                part = slice(int(first), int(first) + int(size))
                values = {"grad": "grads", "param": "params", "kept": "kept"}
                given: dict[str, Any] = {key: floats[name][part] for key, name in values.items() if name in floats}
                given |= {"index": np.arange(index, index + size, dtype=np.uint32), "tensor": np.uint32(tensor)}
                given |= {"t": t, "on": on}
                given |= {f"row{name.removeprefix('rows')}": array[row] for name, array in earlier.items()}
                function = f"measure_transform_{number}"
                arguments = [given[name] for name in transform_lookup.parameters_of(rule.module, function)]
                values_of = [np.broadcast_to(one, size) for one in rule.functions[function](*arguments)]
                measured = total(np.stack(values_of, axis=1), names)
            settle = rule.functions[f"settle_transform_{number}"]
            result[row] = settle(t, rule.functions[struct](*measured), np.float32(size))

    return run
