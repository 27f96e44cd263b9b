"""A row of the table of operations, and the ways in which its operation is called."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optirs_web as ow

Shape = tuple[int, ...]


class Library:
    """A module that is imported when one of its functions is called: a page has neither NumPy nor torch."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        function = []

        def call(*arguments, **named):
            if not function:
                function.append(getattr(importlib.import_module(self._name), name))
            return function[0](*arguments, **named)

        return call


np = Library("numpy")
torch = Library("torch")
functional = Library("torch.nn.functional")


class Walk(NamedTuple):
    """How an input of some shape is made of a larger tensor without a copy: that one's shape, and the operation."""

    source: Callable[[Shape], Shape]
    take: Callable[[Any, Shape], Any]


def _swapped(x, _):
    return x.swapaxes(0, -1) if hasattr(x, "swapaxes") else x.transpose(0, -1)


def _repeated(x, shape):
    if isinstance(x, ow.Tensor):
        return ow.ops.broadcast_to(x, shape)
    return x.expand(shape) if hasattr(x, "expand") else np.broadcast_to(x, shape)


# By name; the strings say which shapes they suit.
WALKS = {
    "in order": Walk(lambda shape: shape, lambda x, _: x),
    "transposed": Walk(lambda shape: (shape[-1], *shape[1:-1], shape[0]), _swapped),
    "sliced": Walk(lambda shape: (*shape[:-1], shape[-1] + 1), lambda x, _: x[..., 1:]),
    "repeated": Walk(lambda shape: (1, *shape[1:]), _repeated),
}
LEAST_AXES = {"in order": 0, "transposed": 2, "sliced": 1, "repeated": 1}
NOT_IN_ORDER = ("transposed", "sliced", "repeated")


class Variant(NamedTuple):
    """One way to call a row: the shapes of the inputs, and the strided view of its source that each input is."""

    shapes: Sequence[Shape]
    walk: str = "in order"

    def _walk_of(self, shape):
        return WALKS[self.walk if len(shape) >= LEAST_AXES[self.walk] else "in order"]

    @property
    def sources(self) -> list[Shape]:
        """The shapes of what goes to the device."""
        return [self._walk_of(shape).source(shape) for shape in self.shapes]

    def walked(self, sources: Sequence[Any]) -> list[Any]:
        """The inputs; of tensors, arrays, or torch's tensors."""
        return [self._walk_of(shape).take(source, shape) for source, shape in zip(sources, self.shapes, strict=True)]

    def __str__(self) -> str:
        return f"{' and '.join(map(str, self.shapes))}, {self.walk}"


class Case(NamedTuple):
    """An operation with its arguments.

    Attributes:
        name: the name in `optirs_web.ops` that it tests, and then what is particular to it.
        ours: of tensors.
        reference: of float64 arrays (int32 where the domain says so).
        shapes: the shapes of its inputs, as often as it is called; `gradcheck` and the walks take the first.
        torch: the same of torch's tensors; None where torch has no such operation.
        domain: of what kind the inputs are, see `tests/operation_values.py`; one for all, or one for each. Inputs of
            integers have no derivatives.
        tolerance: of the values: relative to each, or to the largest, as `of_each` says.
        slopes: the tolerance of first derivatives, of the largest.
        of_each: values are compared one by one.
        why_not: why it has no derivatives, where it has none.
        also: other names that it tests in the same way.
        walks: those that its inputs may come by.
    """

    name: str
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: Sequence[Sequence[Shape]]
    torch: Callable[..., Any] | None = None
    domain: str | tuple[str, ...] = "normal"
    tolerance: float = 1e-6
    slopes: float = 2e-6
    of_each: bool = False
    why_not: str = ""
    also: tuple[str, ...] = ()
    walks: Sequence[str] = NOT_IN_ORDER

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of `optirs_web.ops` that it tests."""
        return (self.name.split()[0], *self.also)

    @property
    def variants(self) -> list[Variant]:
        """The ways in which it is called."""
        return [*map(Variant, self.shapes), *(Variant(self.shapes[0], walk) for walk in self.walks)]

    @property
    def domains(self) -> list[str]:
        """The domain of each input."""
        count = len(self.shapes[0])
        return [self.domain] * count if isinstance(self.domain, str) else list(self.domain)


# The shapes of one input and of two, at ranks from 0 to 4, with and without elements. Few kernels serve them all: one
# over elements in order, one for a single number, and one for two axes.
ONE = [[(3, 4)], [()], [(7,)], [(2, 3, 2)], [(2, 1, 3, 2)], [(0,)], [(2, 0, 3)]]
TWO = [
    [(3, 4), (4,)], [(3, 4), (3, 4)], [(), ()], [(7,), ()], [(3, 1), (1, 4)], [(2, 3, 4), (4,)],
    [(2, 3, 2, 4), (2, 4)], [(0, 3), (3,)], [(2, 1), (1, 0)],
]  # fmt: skip
MORE_OF_TWO = [*TWO, [(2, 3, 4), (2, 1, 4)], [(2, 1, 3, 1), (4, 1, 2)]]


def unary(name, ours, reference, torch=None, **options):
    """A row of a function of each element."""
    return Case(name, ours, reference, ONE, torch, **{"of_each": True} | options)


def binary(name, ours, reference, torch=None, shapes=TWO, **options):
    """A row of a function of pairs of elements."""
    return Case(name, ours, reference, shapes, torch, **{"of_each": True} | options)
