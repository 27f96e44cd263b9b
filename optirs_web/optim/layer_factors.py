"""Factors of the Fisher matrix of each layer, and what their inverses make of its gradient. See `kfac`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ..ops.creation import ones
from ..ops.launch import apply
from ..ops.reduce import sum as sum_of
from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from ..runtime.rules import Flags
from ..tensors import Parameter, Tensor
from .matrices import Batch, Matrices, Scaled
from .stacks import AlikeStack, StackedLayout, room

__all__ = ["KfacLayout", "Layer", "layers_of"]

_ITEMSIZE = 4
_ITERATIONS = 25
"""So many bring an eigenvalue of 1e-6 of the norm to 1: it doubles at first, and then comes nearer quadratically."""


class Layer(NamedTuple):
    """The parameters of a layer by number, and its size."""

    weight: int
    bias: int | None
    inputs: int
    outputs: int

    @property
    def kinds(self) -> tuple[str, str]:
        """The factors: of the inputs, with a coordinate for the bias if there is one, and of the outputs."""
        return "A" if self.bias is None else "A_bar", "G"


def layers_of(params: Sequence[Parameter], in_first: bool) -> list[Layer]:
    """Each weight, with the bias that follows it.

    Raises:
        ValueError: they are no layers.
    """
    layers: list[Layer] = []
    for number, param in enumerate(params):
        if param.ndim == 2 and param.size:
            inputs, outputs = param.shape if in_first else param.shape[::-1]
            layers.append(Layer(number, None, inputs, outputs))
        elif layers and layers[-1].bias is None and param.shape == (layers[-1].outputs,):
            layers[-1] = layers[-1]._replace(bias=number)
        else:
            raise ValueError(
                "KFAC takes the parameters of layers: weights of two dimensions, each followed by its bias if it has "
                f"one, a vector of as many elements as outputs; parameter {number} of a group has the shape "
                f"{param.shape}"
            )
    return layers


class _Side(NamedTuple):
    """A factor of some layers of one size."""

    stack: AlikeStack
    kind: str
    other: str
    positions: list[int]

    @property
    def tensors(self) -> list[int]:
        """The weights."""
        return [self.stack.tensors[position] for position in self.positions]


class KfacLayout(StackedLayout):
    """Multiplies the directions with the inverses of both factors, between `prepare` and `measure`."""

    scratch: ClassVar[tuple[str, ...]] = ("direction", "gradient")
    more_state: ClassVar[tuple[str, ...]] = tuple(
        kind + suffix for kind in ("A", "A_bar", "G") for suffix in ("", "_inverse")
    )

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """See `Layout`."""
        super().__init__(*arguments, **more)
        self.statistics: Sequence[tuple[Tensor, Tensor]] = ()
        self._alike: list[AlikeStack] = []
        self._place: dict[int, tuple[int, int]] = {}  # of each tensor: index in `_alike`, and the place there
        by_shape: dict[tuple[int, int, bool], list[Layer]] = {}
        for layer in self.layers:
            by_shape.setdefault((layer.inputs, layer.outputs, layer.bias is None), []).append(layer)
        for layers in by_shape.values():
            self._add(layers)

    def _look_at(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        kinds = {dict(one)["in_first"] for one in flags}
        if len(kinds) > 1:
            raise ValueError("KFAC needs one in_first for all groups")
        (self._in_first,) = kinds
        self.layers: list[Layer] = []
        for group in dict.fromkeys(self.groups):
            first, count = self.groups.index(group), self.groups.count(group)
            for layer in layers_of(params[first : first + count], self._in_first):
                bias = None if layer.bias is None else first + layer.bias
                self.layers.append(layer._replace(weight=first + layer.weight, bias=bias))
        self._layer = {number: one for one in self.layers for number in one[:2] if number is not None}
        super()._look_at(params, flags)

    def _stacks(self) -> Sequence[AlikeStack]:
        return self._alike

    def _add(self, layers: Sequence[Layer]) -> None:
        shapes = self._shapes(layers[0])
        largest = max(layers[0].inputs * layers[0].outputs, *(room(a * b) for a, b in shapes.values()))
        limit = max(1, self.device.capabilities.max_binding_bytes // (largest * _ITEMSIZE))
        for start in range(0, len(layers), limit):
            part = layers[start : start + limit]
            for position, layer in enumerate(part):
                for number in layer[:2]:
                    if number is not None:
                        self._place[number] = len(self._alike), position
            self._alike.append(self._new_stack([one.weight for one in part], shapes))

    @staticmethod
    def _shapes(layer: Layer) -> dict[str, tuple[int, int]]:
        sizes = dict(zip(layer.kinds, (layer.inputs + (layer.bias is not None), layer.outputs), strict=True))
        return {kind + suffix: (size, size) for kind, size in sizes.items() for suffix in ("", "_inverse")}

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of the state of that name of a parameter."""
        if name not in self.more_state or len(shape) != 2:
            return super().state_shape(name, shape)
        inputs, outputs = shape if self._in_first else shape[::-1]
        size = {"G": outputs, "A": inputs, "A_bar": inputs + 1}[name.removesuffix("_inverse")]
        return size, size

    def _batch_key(self, number: int) -> tuple[int, ...]:
        return (*self.shapes[number], self._place[number][0], self._layer[number].weight == number)

    # A step.

    def dispatch(self, live: Sequence[bool], scaler: View | None = None) -> None:
        """See `Layout`; statistics whose squares do not sum to a finite number count as gradients that are not."""
        if self.checked:
            squares = [sum_of(one * one) for pair in self.statistics for one in pair]
            counts = [apply("vectors", "count_nonfinite", one) for one in squares]
            total = counts[0]
            for one in counts[1:]:
                total = total + one
            self.device.copy(total.view, View(self._found_inf, 0, _ITEMSIZE))
        super().dispatch(live, scaler)

    def _before_measure(self, live: Sequence[bool], shared: Mapping[str, View]) -> None:
        self._run_part("prepare", shared)
        for layer, (a, g) in zip(self.layers, self.statistics, strict=True):
            if live[layer.weight]:
                self._gather(layer, _matrix(a), _matrix(g))
        for sides in self._sides(live):
            self._invert(sides)
        self._precondition(list(self._batches(live)))

    def _gather(self, layer: Layer, a: Matrices, g: Matrices) -> None:
        """A = keep A + take E[a aᵀ], with a last coordinate of 1 for the bias; G likewise."""
        index, position = self._place[layer.weight]
        inputs, outputs = (self._alike[index].matrices(kind, [position]) for kind in layer.kinds)
        n = layer.inputs
        pairs = [(a, a, _block(inputs, 0, 0, n, n)), (g, g, outputs)]
        if layer.bias is not None:
            one = _matrix(ones((a.rows, 1), self.device))
            pairs += [(a, one, _block(inputs, 0, n, n, 1)), (one, a, _block(inputs, n, 0, 1, n))]
            pairs += [(one, one, _block(inputs, n, n, 1, 1))]
        for x, y, factor in pairs:
            take, keep = Scaled(1 / a.rows, "take"), Scaled(1.0, "keep")
            self.products.multiply([layer.weight], x.transposed, y, factor, take, factor, keep)

    def _sides(self, live: Sequence[bool]) -> Iterator[list[_Side]]:
        """The factors of live layers, those of one size together as far as a kernel can see them."""
        by_size: dict[int, list[_Side]] = {}
        for stack in self._alike:
            positions = [position for position, number in enumerate(stack.tensors) if live[number]]
            kinds = self._layer[stack.tensors[0]].kinds
            for kind, other in (kinds, kinds[::-1]):
                if positions:
                    by_size.setdefault(stack.shapes[kind][0], []).append(_Side(stack, kind, other, positions))
        for size, sides in by_size.items():
            limit = self.device.capabilities.max_binding_bytes // (size * size * _ITEMSIZE)
            found: list[_Side] = []
            for side in sides:
                if found and sum(len(one.positions) for one in [*found, side]) > limit:
                    yield found
                    found = []
                found.append(side)
            yield found

    def _invert(self, sides: Sequence[_Side]) -> None:
        """X = X (2 I - D X) until it is the inverse of the damped factor D."""
        tensors = [number for side in sides for number in side.tensors]
        size, _ = sides[0].stack.shapes[sides[0].kind]
        stack = partial(self.products.stack, len(tensors), size, size)
        damped, x = stack(), stack()
        parts: list[slice] = []
        for side in sides:
            first = parts[-1].stop if parts else 0
            parts.append(slice(first, first + len(side.positions)))
            factor, other = (side.stack.matrices(kind, side.positions) for kind in (side.kind, side.other))
            table = self.products.table(
                zip(side.tensors, factor.firsts, other.firsts, damped.firsts[parts[-1]], strict=True)
            )
            views = [factor.view, other.view, damped.view, x.view, table, View.whole(self._tensor_scalars)]
            parameters = (size, other.rows, *self.products.words("refresh", "ridge"))
            self.device.dispatch(cooperative("damped_inverse_start"), views, len(side.positions), parameters)
        multiply = partial(self.products.multiply, tensors, gate="refresh")
        for _ in range(_ITERATIONS - 1):
            correction, better = stack(), stack()
            multiply(damped, x, correction, Scaled(-1.0), diagonal=2.0)
            multiply(x, correction, better)
            x = better
        for side, part in zip(sides, parts, strict=True):
            inverse = side.stack.matrices(f"{side.kind}_inverse", side.positions)
            self.products.copy(side.tensors, x.part(part), inverse, gate="refresh")

    def _precondition(self, batches: Sequence[Batch]) -> None:
        """A⁻¹ D G⁻¹, where the rows of D are the weights of the inputs, and then the bias.

        Products with a bias are only made if that is updated, and those with a weight if that is.
        """
        weights, biases = {}, {}  # D G⁻¹ of all layers of a stack
        for index, stack in enumerate(self._alike):
            layer = self._layer[stack.tensors[0]]
            weights[index] = self.products.stack(len(stack.tensors), layer.inputs, layer.outputs)
            biases[index] = self.products.stack(len(stack.tensors), 1, layer.outputs)
        for batch in batches:
            index, positions = self._positions(batch)
            inverse = self._alike[index].matrices("G_inverse", positions)
            is_weight = self._layer[batch.tensors[0]].weight == batch.tensors[0]
            result = _at(weights[index] if is_weight else biases[index], positions)
            self.products.multiply(batch.tensors, self._direction(batch), inverse, result)
        for batch in batches:
            index, positions = self._positions(batch)
            layers = [self._layer[number] for number in batch.tensors]
            inverse = self._alike[index].matrices(f"{layers[0].kinds[0]}_inverse", positions)
            n = layers[0].inputs
            direction, is_bias = self._direction(batch), layers[0].weight != batch.tensors[0]
            rows = (n, 1) if is_bias else (0, n)  # of the inverse: the first, and how many
            from_weights = [one.weight for one in layers], _block(inverse, rows[0], 0, rows[1], n), weights[index]
            parts = [from_weights]
            if layers[0].bias is not None:
                tensors = [one.bias for one in layers if one.bias is not None]
                parts.append((tensors, _block(inverse, rows[0], n, rows[1], 1), biases[index]))
            for number, (tensors, left, right) in enumerate(reversed(parts) if is_bias else parts):
                plus = direction if number else None
                self.products.multiply(tensors, left, _at(right, positions), direction, plus=plus)

    def _positions(self, batch: Batch) -> tuple[int, list[int]]:
        """The stack of the layers of a batch, and their places there."""
        places = [self._place[number] for number in batch.tensors]
        return places[0][0], [position for _, position in places]

    def _direction(self, batch: Batch) -> Matrices:
        """The directions: a row for each input, and a column for each output."""
        found = batch.matrices(batch.shard.state["direction"])
        is_weight = self._layer[batch.tensors[0]].weight == batch.tensors[0]
        return found if is_weight and self._in_first else found.transposed


def _matrix(tensor: Tensor) -> Matrices:
    rows, columns = tensor.shape
    return Matrices(tensor.view, (0,), rows, columns, columns, 1)


def _at(matrices: Matrices, positions: Sequence[int]) -> Matrices:
    """Those in these places."""
    return replace(matrices, firsts=tuple(matrices.firsts[position] for position in positions))


def _block(matrices: Matrices, row: int, column: int, rows: int, columns: int) -> Matrices:
    """A block of each."""
    offset = row * matrices.row_stride + column * matrices.column_stride
    return replace(matrices, firsts=tuple(first + offset for first in matrices.firsts), rows=rows, columns=columns)
