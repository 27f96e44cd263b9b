"""Reverse-mode differentiation: the edges that operations leave, and the walk back over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .errors import OptirsError, ShapeError, UnsupportedError
from .runtime.buffer import View
from .runtime.dtypes import FLOAT32
from .sparse import SparseRows
from .tensors import Edge, Parameter, Tensor, tensor

__all__ = [
    "GradientTape",
    "ObservedGrad",
    "as_gradient",
    "backward",
    "grad_enabled",
    "no_grad",
    "note_grad",
    "observe_grads",
    "record",
    "set_grad",
]

_FREED: tuple[Edge, ...] = ()
"""The edges of a tensor whose history `backward` has used up. Compared by identity."""

_enabled = True
_observed: dict[int, ObservedGrad] | None = None


class ObservedGrad(NamedTuple):
    """A leaf whose gradient was read or written, what it was before, and whether it was read first."""

    leaf: Tensor
    before: Tensor | None
    is_read: bool


def grad_enabled() -> bool:
    """Operations leave nodes now."""
    return _enabled


@contextmanager
def no_grad() -> Iterator[None]:
    """Operations in the block leave no history: nothing can be differentiated through them.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([2.0], device="cpu")
        >>> with ow.no_grad():
        ...     (w * 3.0).requires_grad
        False
    """
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def record(result: Tensor, *inputs: tuple[Any, Callable[[Tensor], Tensor]]) -> Tensor:
    """Note how `result` was made, if a gradient may be asked of it.

    Args:
        result: of the operation.
        inputs: each with the rule that carries a gradient of the result to it, which is called only if
            the input needs one. Inputs that are no tensors have none. A rule must not hold the result
            itself, only `result.detach()`: a cycle would keep memory alive.
    """
    if _enabled and any(isinstance(one, Tensor) and one.requires_grad for one, _ in inputs):
        tracked = [one._tracked for one, _ in inputs if isinstance(one, Tensor)]
        used = tuple((one, one._version) for one in tracked if one is not None)
        edges = tuple(Edge(one, rule, used) for one, rule in inputs if isinstance(one, Tensor) and one.requires_grad)
        result.requires_grad = True
        result._edges = edges
    return result


def _in_order(root: Tensor) -> list[Tensor]:
    """Every tensor that `root` was computed from and that requires a gradient, each after its inputs."""
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(root, False)]
    while stack:
        one, is_done = stack.pop()
        if is_done:
            order.append(one)
            continue
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one._edges is _FREED:
            raise UnsupportedError("the history of this tensor is used up; call backward(retain_graph=True) before")
        stack.append((one, True))
        stack.extend((edge.source, False) for edge in one._edges or ())
    return order


def _check_unchanged(edge: Edge) -> None:
    if any(parameter._version != version for parameter, version in edge.used):
        raise UnsupportedError("a parameter was changed by a step after it was used; call backward() before step()")


def _needed(order: list[Tensor], wanted: Callable[[Tensor], bool]) -> set[int]:
    """The ids of those that a wanted tensor can be reached from; `order` has each after its inputs."""
    needed: set[int] = set()
    for one in order:
        if wanted(one) or any(id(edge.source) in needed for edge in one._edges or ()):
            needed.add(id(one))
    return needed


def _propagate(
    root: Tensor, gradient: Any, wanted: Callable[[Tensor], bool], *, keep: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradient of each wanted tensor, as it becomes known. Unless told to keep it, frees the history."""
    from . import ops

    order = _in_order(root)
    needed = _needed(order, wanted)
    for one in order:
        for edge in one._edges or ():
            if id(edge.source) in needed:
                _check_unchanged(edge)
    known: dict[int, Tensor] = {id(root): _first_gradient(root, gradient)}
    while order:
        one = order.pop()
        g = known.pop(id(one), None)
        if g is None:
            continue
        if wanted(one):
            yield one, g
        edges = [edge for edge in one._edges or () if id(edge.source) in needed]
        if edges and not keep:
            one._edges = _FREED
        for source, rule, _ in edges:
            part = rule(g)
            if part.shape != source.shape:
                raise OptirsError(f"a gradient rule gave the shape {part.shape} for an input of {source.shape}")
            earlier = known.get(id(source))
            known[id(source)] = part if earlier is None else ops.add(earlier, part)


def _first_gradient(root: Tensor, gradient: Any) -> Tensor:
    from . import ops

    if gradient is None:
        if root.size != 1:
            raise ShapeError(f"backward() of a tensor of shape {root.shape} needs a gradient of that shape")
        return ops.full(root.shape, 1.0, root.device)
    return as_gradient(root, gradient)


def as_gradient(of: Tensor, value: Any) -> Tensor:
    """A float32 tensor on the same device, of the same shape."""
    if not isinstance(value, Tensor):
        value = tensor(value, device=of.device, dtype="float32")
    elif value.device is not of.device:
        value = tensor(value, device=of.device)
    if value.dtype is not FLOAT32:
        raise UnsupportedError(f"a gradient is float32, not {value.dtype}")
    if value.shape != of.shape:
        raise ShapeError(f"the gradient has the shape {value.shape}, the tensor {of.shape}")
    checked: Tensor = value
    return checked


def backward(root: Tensor, gradient: Any = None, retain_graph: bool = False) -> None:
    """See `Tensor.backward`."""
    if not root.requires_grad:
        raise UnsupportedError("nothing that this tensor was computed from requires a gradient")
    with no_grad():
        for leaf, g in _propagate(root, gradient, lambda one: one._edges is None, keep=retain_graph):
            _accumulate(leaf, g)


# The gradient of a leaf. It has a fixed place in an arena, and wherever a program has written it: replays write there.


def _place(leaf: Tensor) -> View | None:
    if isinstance(leaf, Parameter) and leaf._home is not None:
        return leaf._home.grad_view()
    recording = leaf.device.recording
    if leaf._grad_place is None and recording is not None:
        buffer = leaf.device.allocate_zeroed(max(4, leaf.view.nbytes))
        recording.keep(buffer)
        leaf._grad_place = View(buffer, 0, leaf.view.nbytes)
    return leaf._grad_place


def _accumulate(leaf: Tensor, g: Tensor) -> None:
    from . import ops

    note_grad(leaf, reads=True)
    place = _place(leaf)
    earlier: object = leaf._grad
    if isinstance(earlier, SparseRows):
        leaf._grad = earlier.to_dense()
    if leaf._grad is None:
        _put(leaf, g, place)
    elif leaf._grad.view == place:
        ops.add_into(leaf._grad, ops.clone(g) if g.view.buffer is place.buffer else g)
    else:
        _put(leaf, ops.add(leaf._grad, g), place)


def _put(leaf: Tensor, value: Tensor, place: View | None) -> None:
    if place is None:
        leaf._grad = value
    else:
        leaf.device.copy(value.view, place)
        leaf._grad = Tensor(place, leaf.shape, leaf.dtype)


def set_grad(leaf: Tensor, value: Any) -> None:
    """Make a copy of `value` the gradient of `leaf`; or `SparseRows` themselves.

    Raises:
        ShapeError: the shapes differ.
        UnsupportedError: it is not float32.
    """
    from . import ops

    if isinstance(value, SparseRows):
        if value.shape != leaf.shape:
            raise ShapeError(f"the gradient has the shape {value.shape}, the tensor {leaf.shape}")
        value = value.to(leaf.device)
        note_grad(leaf, reads=False)
        leaf._grad = value
        return
    given = None if value is None else as_gradient(leaf, value)
    note_grad(leaf, reads=False)
    if given is None:
        leaf._grad = None
        return
    place = _place(leaf)
    _put(leaf, ops.clone(given) if place is None else given, place)


@contextmanager
def observe_grads() -> Iterator[dict[int, ObservedGrad]]:
    """Note, by id, each leaf whose gradient is read or written in the block."""
    global _observed
    before, _observed = _observed, {}
    try:
        yield _observed
    finally:
        _observed = before


def note_grad(leaf: Tensor, *, reads: bool) -> None:
    """What happens next depends on the gradient that this leaf has, or replaces it."""
    if _observed is not None:
        _observed.setdefault(id(leaf), ObservedGrad(leaf, leaf._grad, reads))


class GradientTape:
    """Gradients by name instead of by `backward`: of a result with respect to the sources asked for.

    Args:
        persistent: `gradient` may be called more than once.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([3.0], device="cpu")
        >>> with ow.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = (x * x).sum()
        >>> tape.gradient(y, [x])[0].tolist()
        [6.0]
    """

    def __init__(self, persistent: bool = False) -> None:
        self._persistent = persistent
        self._is_used = False
        self._watched: list[Tensor] = []

    def __enter__(self) -> GradientTape:
        return self

    def __exit__(self, *exception: object) -> None:
        for one in self._watched:
            one.requires_grad = False

    def watch(self, *tensors: Tensor) -> None:
        """Differentiate with respect to these too, while the tape is open. Parameters are watched always.

        Raises:
            UnsupportedError: a tensor is not float32.
        """
        for one in tensors:
            if one.dtype is not FLOAT32:
                raise UnsupportedError(f"only float32 tensors have gradients, not {one.dtype}")
            if not one.requires_grad:
                one.requires_grad = True
                self._watched.append(one)

    def gradient(self, target: Tensor, sources: Iterable[Tensor], output_gradient: Any = None) -> list[Tensor | None]:
        """The gradient of `target` with respect to each source; None for one that it does not depend on.

        Raises:
            UnsupportedError: called a second time on a tape that is not persistent.
            ShapeError: `target` has more than one element and no `output_gradient` was given.
        """
        if self._is_used and not self._persistent:
            raise UnsupportedError("gradient() was called already; use GradientTape(persistent=True)")
        self._is_used = True
        sources = list(sources)
        wanted = {id(one) for one in sources}
        with no_grad():
            found = {
                id(one): g
                for one, g in _propagate(target, output_gradient, lambda one: id(one) in wanted, keep=self._persistent)
            }
        return [found.get(id(one)) for one in sources]
