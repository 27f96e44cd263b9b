"""Reverse-mode differentiation: nodes that operations leave, and the walk back over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .errors import OptirsError, ShapeError, UnsupportedError
from .tensors import Parameter, Tensor, tensor

__all__ = ["GradientTape", "Node", "backward", "grad_enabled", "no_grad", "note_grad", "record", "set_grad"]

Gradient = Callable[[Tensor], Sequence[Tensor | None]]
"""From the gradient of a result to those of its inputs (None where an input has none)."""

_enabled = True


class Node:
    """How a tensor was made: its inputs, and the rule that carries a gradient to them.

    The rule must not hold the result itself, only `result.detach()`: a cycle would keep memory alive.
    """

    __slots__ = ("gradient", "inputs")

    def __init__(self, inputs: tuple[Tensor, ...], gradient: Gradient) -> None:
        self.inputs = inputs
        self.gradient = gradient


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


def record(result: Tensor, inputs: Sequence[Any], gradient: Gradient) -> Tensor:
    """Note how `result` was made, if a gradient may be asked of it. Inputs that are no tensors have none."""
    if _enabled and any(isinstance(one, Tensor) and one.requires_grad for one in inputs):
        result.requires_grad = True
        tensors = [one for one in inputs if isinstance(one, Tensor)]

        def of_tensors(g: Tensor) -> Sequence[Tensor | None]:
            return [one for one, source in zip(gradient(g), inputs, strict=True) if isinstance(source, Tensor)]

        result._node = Node(tuple(tensors), gradient if len(tensors) == len(inputs) else of_tensors)
    return result


def _in_reverse(root: Tensor) -> list[Tensor]:
    """Every tensor that `root` was computed from and that requires a gradient, each before its inputs."""
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
        stack.append((one, True))
        if one._node is not None:
            stack.extend((source, False) for source in one._node.inputs if source.requires_grad)
    order.reverse()
    return order


def _propagate(root: Tensor, gradient: Any, wanted: Callable[[Tensor], bool]) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradient of each wanted tensor, as it becomes known."""
    from . import ops

    if not root.requires_grad:
        raise UnsupportedError("nothing that this tensor was computed from requires a gradient")
    if gradient is None:
        if root.size != 1:
            raise ShapeError(f"backward() of a tensor of shape {root.shape} needs a gradient of that shape")
        gradient = ops.full(root.shape, 1.0, root.device)
    elif not isinstance(gradient, Tensor):
        gradient = tensor(gradient, device=root.device, dtype="float32")
    if gradient.shape != root.shape:
        raise ShapeError(f"the gradient has the shape {gradient.shape}, the tensor {root.shape}")

    known: dict[int, Tensor] = {id(root): gradient}
    for one in _in_reverse(root):
        g = known.pop(id(one), None)
        if g is None:
            continue
        if wanted(one):
            yield one, g
        if one._node is None:
            continue
        for source, part in zip(one._node.inputs, one._node.gradient(g), strict=True):
            if part is None or not source.requires_grad:
                continue
            if part.shape != source.shape:
                raise OptirsError(f"a gradient rule gave the shape {part.shape} for an input of {source.shape}")
            earlier = known.get(id(source))
            known[id(source)] = part if earlier is None else ops.add(earlier, part)


def backward(root: Tensor, gradient: Any = None) -> None:
    """See `Tensor.backward`."""
    with no_grad():
        for leaf, g in _propagate(root, gradient, lambda one: one._node is None):
            _accumulate(leaf, g)


def _accumulate(leaf: Tensor, g: Tensor) -> None:
    from . import ops

    note_grad(leaf)
    if leaf._grad is None:
        set_grad(leaf, g, copy=False)
    elif isinstance(leaf, Parameter) and leaf._home is not None:
        ops.add_into(leaf._grad, g)
    else:
        leaf._grad = ops.add(leaf._grad, g)


def set_grad(leaf: Tensor, value: Any, *, copy: bool = True) -> None:
    """Make `value` the gradient of `leaf`; in an arena it is copied to its place.

    Raises:
        ShapeError: the shapes differ.
    """
    from . import ops

    note_grad(leaf)
    if value is None:
        leaf._grad = None
        return
    if not isinstance(value, Tensor):
        value = tensor(value, device=leaf.device, dtype="float32")
    elif value.device is not leaf.device:
        value = tensor(value, device=leaf.device)
    if value.shape != leaf.shape:
        raise ShapeError(f"the gradient has the shape {value.shape}, the tensor {leaf.shape}")
    if isinstance(leaf, Parameter) and leaf._home is not None:
        place = leaf._home.grad_view()
        leaf.device.copy(value.view, place)
        leaf._grad = Tensor(place, leaf.shape, leaf.dtype)
    else:
        leaf._grad = ops.clone(value) if copy else value


def note_grad(leaf: Tensor) -> None:
    """While a program is recorded: what it found, so that it is replayed only where it finds the same."""
    recording = leaf.device.recording
    if recording is not None and id(leaf) not in recording.grads_before:
        recording.grads_before[id(leaf)] = (leaf, leaf._grad)


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
            if one.dtype.name != "float32":
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
        reopened = [one for one in self._watched if not one.requires_grad]
        for one in reopened:
            one.requires_grad = True
        try:
            with no_grad():
                wanted = {id(one) for one in sources}
                found = dict(_found(target, output_gradient, wanted))
        finally:
            for one in reopened:
                one.requires_grad = False
        return [found.get(id(one)) for one in sources]


def _found(target: Tensor, output_gradient: Any, wanted: set[int]) -> Iterator[tuple[int, Tensor]]:
    for one, g in _propagate(target, output_gradient, lambda one: id(one) in wanted):
        yield id(one), g
