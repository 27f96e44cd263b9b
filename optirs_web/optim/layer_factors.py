"""Factors of the Fisher matrix of each layer, and the layer's gradient multiplied by their inverses. See `kfac`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ..launch import apply
from ..ops.creation import ones
from ..ops.reduce import sum as sum_of
from ..runtime.buffer import View
from ..runtime.kernels import cooperative
from ..runtime.rules import Flags
from ..tensors import Parameter, Tensor
from .matrices import Batch, Matrices, MatrixLayout, Scaled
from .stacks import AlikeStack, new_stack, room

__all__ = ["KfacLayout", "Layer", "layers_of"]

_ITEMSIZE = 4
_ITERATIONS = 25
"""Iterations that bring an eigenvalue of 1e-6 of the norm to 1: it doubles at first, then converges quadratically."""


class Layer(NamedTuple):
    """The parameters of a layer by number, and its size."""

    weight: int
    bias: int | None
    inputs: int
    outputs: int

    @property
    def kinds(self) -> tuple[str, str]:
        """The names of the factors: of the inputs, with a coordinate for a bias if there is one, and of the outputs."""
        return "A" if self.bias is None else "A_bar", "G"


def layers_of(params: Sequence[Parameter], in_first: bool) -> list[Layer]:
    """Return the layers of a list of parameters: each weight, with the bias that follows it.

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
        """The numbers of the weights."""
        return [self.stack.tensors[position] for position in self.positions]


class KfacLayout(MatrixLayout):
    """A layout that multiplies the directions by the inverses of both factors, between `prepare` and `measure`."""

    scratch: ClassVar[tuple[str, ...]] = ("direction", "gradient")
    more_state: ClassVar[tuple[str, ...]] = tuple(
        kind + suffix for kind in ("A", "A_bar", "G") for suffix in ("", "_inverse")
    )

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.statistics: Sequence[tuple[Tensor, Tensor]] = ()
        self._alike: list[AlikeStack] = []
        self._location: dict[int, tuple[int, int]] = {}  # of each tensor: index in `_alike`, and its position there
        by_shape: dict[tuple[int, int, bool], list[Layer]] = {}
        for layer in self.layers:
            by_shape.setdefault((layer.inputs, layer.outputs, layer.bias is None), []).append(layer)
        for layers in by_shape.values():
            self._add(layers)

    def _inspect(self, params: Sequence[Parameter], flags: Sequence[Flags]) -> None:
        kinds = {dict(param_flags)["in_first"] for param_flags in flags}
        if len(kinds) > 1:
            raise ValueError("KFAC needs one in_first for all groups")
        (self._in_first,) = kinds
        self.layers: list[Layer] = []
        for group in dict.fromkeys(self.groups):
            first_number, count = self.groups.index(group), self.groups.count(group)
            for layer in layers_of(params[first_number : first_number + count], self._in_first):
                bias = None if layer.bias is None else first_number + layer.bias
                self.layers.append(layer._replace(weight=first_number + layer.weight, bias=bias))
        self._layer = {number: layer for layer in self.layers for number in layer[:2] if number is not None}
        super()._inspect(params, flags)

    def _add(self, layers: Sequence[Layer]) -> None:
        shapes = self._shapes(layers[0])
        largest = max(layers[0].inputs * layers[0].outputs, *(room(a * b) for a, b in shapes.values()))
        limit = max(1, self.device.capabilities.max_binding_bytes // (largest * _ITEMSIZE))
        for start in range(0, len(layers), limit):
            part = layers[start : start + limit]
            for position, layer in enumerate(part):
                for number in layer[:2]:
                    if number is not None:
                        self._location[number] = len(self._alike), position
            self._alike.append(new_stack(self.device, [layer.weight for layer in part], shapes))
            self.state.add(self._alike[-1])

    @staticmethod
    def _shapes(layer: Layer) -> dict[str, tuple[int, int]]:
        sizes = dict(zip(layer.kinds, (layer.inputs + (layer.bias is not None), layer.outputs), strict=True))
        return {kind + suffix: (size, size) for kind, size in sizes.items() for suffix in ("", "_inverse")}

    def state_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:  # type: ignore[override]
        """Return the shape of a parameter's state of that name."""
        if name not in self.more_state or len(shape) != 2:
            return super().state_shape(name, shape)
        inputs, outputs = shape if self._in_first else shape[::-1]
        size = {"G": outputs, "A": inputs, "A_bar": inputs + 1}[name.removesuffix("_inverse")]
        return size, size

    def _batch_key(self, number: int) -> tuple[int, ...]:
        return (*self.shapes[number], self._location[number][0], self._layer[number].weight == number)

    # A step.

    def dispatch(self, live: Sequence[bool], scaler: View | None = None) -> None:
        """See `Layout`; statistics whose squares do not sum to a finite number count as non-finite gradients."""
        if self.checked:
            squares = [sum_of(statistic * statistic) for pair in self.statistics for statistic in pair]
            counts = [apply("vectors", "count_nonfinite", square) for square in squares]
            total = counts[0]
            for count in counts[1:]:
                total = total + count
            self.device.copy(total.view, self._found_inf.part(0, _ITEMSIZE))
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
        """Compute A = keep A + take E[a aᵀ], with a last coordinate of 1 for the bias; G likewise."""
        index, position = self._location[layer.weight]
        inputs, outputs = (self._alike[index].matrices(kind, [position]) for kind in layer.kinds)
        n = layer.inputs
        pairs = [(a, a, _block(inputs, 0, 0, n, n)), (g, g, outputs)]
        if layer.bias is not None:
            ones_column = _matrix(ones((a.rows, 1), self.device))
            pairs += [(a, ones_column, _block(inputs, 0, n, n, 1)), (ones_column, a, _block(inputs, n, 0, 1, n))]
            pairs += [(ones_column, ones_column, _block(inputs, n, n, 1, 1))]
        for x, y, factor in pairs:
            new_share, old_share = Scaled(1 / a.rows, "take"), Scaled(1.0, "keep")
            self.products.multiply([layer.weight], x.transposed, y, factor, new_share, factor, old_share)

    def _sides(self, live: Sequence[bool]) -> Iterator[list[_Side]]:
        """Yield the factors of live layers in batches of one size that fit a binding."""
        by_size: dict[int, list[_Side]] = {}
        for stack in self._alike:
            positions = [position for position, number in enumerate(stack.tensors) if live[number]]
            kinds = self._layer[stack.tensors[0]].kinds
            for kind, other in (kinds, kinds[::-1]):
                if positions:
                    by_size.setdefault(stack.shapes[kind][0], []).append(_Side(stack, kind, other, positions))
        for size, sides in by_size.items():
            limit = self.device.capabilities.max_binding_bytes // (size * size * _ITEMSIZE)
            batch: list[_Side] = []
            for side in sides:
                if batch and sum(len(side_.positions) for side_ in [*batch, side]) > limit:
                    yield batch
                    batch = []
                batch.append(side)
            yield batch

    def _invert(self, sides: Sequence[_Side]) -> None:
        """Compute the inverses X of the damped factors D by X = X (2 I - D X)."""
        tensors = [number for side in sides for number in side.tensors]
        size, _ = sides[0].stack.shapes[sides[0].kind]
        stack = partial(self.products.stack, len(tensors), size, size)
        damped, x = stack(), stack()
        parts: list[slice] = []
        for side in sides:
            start = parts[-1].stop if parts else 0
            parts.append(slice(start, start + len(side.positions)))
            factor, other = (side.stack.matrices(kind, side.positions) for kind in (side.kind, side.other))
            table = self.products.table(
                zip(side.tensors, factor.firsts, other.firsts, damped.firsts[parts[-1]], strict=True)
            )
            views = [factor.view, other.view, damped.view, x.view, table, self.scalars.view]
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
        """Compute A⁻¹ D G⁻¹, where the rows of D are the weights of the inputs, and then the bias.

        Products with a bias are only computed if the bias is updated, and those with a weight if the weight is.
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
            rows = (n, 1) if is_bias else (0, n)  # of the inverse: the first, and their number
            from_weights = [layer.weight for layer in layers], _block(inverse, rows[0], 0, rows[1], n), weights[index]
            parts = [from_weights]
            if layers[0].bias is not None:
                tensors = [layer.bias for layer in layers if layer.bias is not None]
                parts.append((tensors, _block(inverse, rows[0], n, rows[1], 1), biases[index]))
            for number, (tensors, left, right) in enumerate(reversed(parts) if is_bias else parts):
                plus = direction if number else None
                self.products.multiply(tensors, left, _at(right, positions), direction, plus=plus)

    def _positions(self, batch: Batch) -> tuple[int, list[int]]:
        """Return the index of the stack of a batch's layers, and their positions there."""
        locations = [self._location[number] for number in batch.tensors]
        return locations[0][0], [position for _, position in locations]

    def _direction(self, batch: Batch) -> Matrices:
        """Return the directions: a row for each input, and a column for each output."""
        direction = batch.matrices(batch.shard.state["direction"])
        is_weight = self._layer[batch.tensors[0]].weight == batch.tensors[0]
        return direction if is_weight and self._in_first else direction.transposed


def _matrix(tensor: Tensor) -> Matrices:
    rows, columns = tensor.shape
    return Matrices(tensor.view, (0,), rows, columns, columns, 1)


def _at(matrices: Matrices, positions: Sequence[int]) -> Matrices:
    """Return the matrices at these positions."""
    return replace(matrices, firsts=tuple(matrices.firsts[position] for position in positions))


def _block(matrices: Matrices, row: int, column: int, rows: int, columns: int) -> Matrices:
    """Return a block of each matrix."""
    offset = row * matrices.row_stride + column * matrices.column_stride
    return replace(matrices, firsts=tuple(first + offset for first in matrices.firsts), rows=rows, columns=columns)
