"""Reverse-mode differentiation: the edges that operations record, and the backward pass over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .errors import OptirsError, ShapeError, UnsupportedError
from .launch import apply_in_place, contiguous, filled, write_into
from .runtime.buffer import View
from .runtime.dtypes import FLOAT32
from .runtime.flags import used_flags
from .runtime.modes import Block, Mode
from .runtime.program import ProgramBuffer
from .sparse import SparseRows
from .tensor_class import Edge, Parameter, Tensor, empty, tensor

__all__ = [
    "ObservedGrad",
    "as_gradient",
    "as_variable",
    "backward",
    "enable_grad",
    "grad_enabled",
    "gradients",
    "gradients_or_zeros",
    "no_grad",
    "note_grad",
    "observe_grads",
    "pulled_back",
    "record",
    "runs_backward",
    "set_grad",
    "sources_of",
]

_FREED: tuple[Edge, ...] = ()
"""The edges of a tensor whose history `backward` has freed. Compared by identity."""


class ObservedGrad(NamedTuple):
    """A leaf whose gradient was read or written, the gradient before, and whether it was read first."""

    leaf: Tensor
    before: Tensor | None
    is_read: bool


_leaves_history = Mode("leaves_history", True)
_runs_backward = Mode("runs_backward", False)
_made: Mode[set[int] | None] = Mode("made", None)
_observed: Mode[dict[int, ObservedGrad] | None] = Mode("observed_grads", None)

grad_enabled = _leaves_history.get
"""Return whether operations record history now, in this thread or task."""

runs_backward = _runs_backward.get
"""Return whether a backward pass is running now, in this thread or task."""


def no_grad() -> Block[bool]:
    """Operations in the block leave no history: nothing can be differentiated through them.

    It applies to its own thread or asyncio task alone, and decorates functions, coroutines and generators. A generator
    that yields within such a block leaves it open for its caller until it continues, as in torch; decorate it instead.

    Example:
        >>> import optirs_web as ow
        >>> w = ow.Parameter([2.0], device="cpu")
        >>> with ow.no_grad():
        ...     (w * 3.0).requires_grad
        False
    """
    return Block(_leaves_history, False)


def enable_grad() -> Block[bool]:
    """Operations in the block leave history, also within `no_grad` and in the rules of a backward pass.

    Example:
        >>> import optirs_web as ow
        >>> from optirs_web.autograd import enable_grad
        >>> w = ow.Parameter([2.0], device="cpu")
        >>> with ow.no_grad(), enable_grad():
        ...     (w * 3.0).requires_grad
        True
    """
    return Block(_leaves_history, True)


def record(result: Tensor, *inputs: tuple[Any, Callable[[Tensor, Tensor], Tensor]]) -> Tensor:
    """Record the inputs and gradient rules of `result`, if an input requires a gradient.

    Args:
        result: of the operation.
        inputs: each with its rule, which returns the input's gradient from the result's gradient and the result, and
            is only called if the input requires one. Inputs that are no tensors have none. A rule consists of
            differentiable operations, so that its result can be differentiated. It must not reference the result
            itself: a cycle would keep memory alive.
    """
    if not grad_enabled():
        return result
    flags = used_flags()
    if flags is not None:
        for operand, _ in inputs:
            if isinstance(operand, Tensor) and not isinstance(operand.strided.view.buffer.handle, ProgramBuffer):
                flags.note(operand, "requires_grad", operand._requires_grad)
    edges = [(operand, rule) for operand, rule in inputs if isinstance(operand, Tensor) and operand._requires_grad]
    if edges:
        tracked = [operand._tracked for operand, _ in inputs if isinstance(operand, Tensor)]
        used = tuple((param, param._version) for param in tracked if param is not None)
        result._requires_grad = True
        result._edges = tuple(Edge(operand, rule, used) for operand, rule in edges)
        made_ids = _made.get()
        if made_ids is not None:
            made_ids.add(id(result))
    return result


def sources_of(compute: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the result of `compute`, with its history, and the tensors made before that it was computed from.

    Tensors that `compute` makes and does not return must not be kept.
    """
    before, made_ids = _made.get(), set[int]()
    with Block(_made, made_ids), enable_grad():
        result = compute()
    if before is not None:
        before |= made_ids
    inside = [node for node in _in_order(result) if id(node) in made_ids] if id(result) in made_ids else []
    outside = {
        id(edge.source): edge.source for node in inside for edge in node._edges or () if id(edge.source) not in made_ids
    }
    return result, list(outside.values())


def _in_order(root: Tensor) -> list[Tensor]:
    """Return every tensor that `root` was computed from and that requires a gradient, each after its inputs."""
    order: list[Tensor] = []
    seen: set[int] = set()
    stack: list[tuple[Tensor, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node._edges is _FREED:
            raise UnsupportedError("the history of this tensor was freed; call backward(retain_graph=True) before")
        stack.append((node, True))
        stack.extend((edge.source, False) for edge in node._edges or ())
    return order


def _check_unchanged(edge: Edge) -> None:
    if any(parameter._version != version for parameter, version in edge.used):
        raise UnsupportedError("a parameter was changed by a step after it was used; call backward() before step()")


def _needed(order: list[Tensor], is_wanted: Callable[[Tensor], bool]) -> set[int]:
    """Return the ids of the tensors computed from a wanted one; `order` has each after its inputs."""
    needed: set[int] = set()
    for node in order:
        if is_wanted(node) or any(id(edge.source) in needed for edge in node._edges or ()):
            needed.add(id(node))
    return needed


def _propagate(
    root: Tensor, gradient: Any, is_wanted: Callable[[Tensor], bool], *, keep: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each wanted tensor with its gradient, once that is complete. Free the history unless `keep` is set."""
    order = _in_order(root)
    needed = _needed(order, is_wanted)
    for node in order:
        for edge in node._edges or ():
            if id(edge.source) in needed:
                _check_unchanged(edge)
    pending: dict[int, Tensor] = {id(root): _first_gradient(root, gradient)}
    while order:
        node = order.pop()
        g = pending.pop(id(node), None)
        if g is None:
            continue
        for hook in node._hooks or ():
            changed = hook(g)
            g = g if changed is None else as_gradient(node, changed)
        if is_wanted(node):
            yield node, g
        edges = [edge for edge in node._edges or () if id(edge.source) in needed]
        if edges and not (keep or node._keeps_edges):
            node._edges = _FREED
        for source, rule, _ in edges:
            part = rule(g, node)
            if part.shape != source.shape:
                raise OptirsError(f"a gradient rule gave the shape {part.shape} for an input of {source.shape}")
            if source.dtype.itemsize < 4:
                part = part.astype(source.dtype)
            earlier = pending.get(id(source))
            pending[id(source)] = part if earlier is None else _added(earlier, part)


def _added(a: Any, b: Any) -> Any:
    """Return the sum of two gradients. Those of rows are concatenated."""
    if isinstance(a, SparseRows) and isinstance(b, SparseRows):
        return SparseRows(_joined(a.indices, b.indices), _joined(a.values, b.values), a.shape)
    a, b = (addend.to_dense() if isinstance(addend, SparseRows) else addend for addend in (a, b))
    return a + b


def _joined(first: Tensor, second: Tensor) -> Tensor:
    """Return the entries of two tensors, those of the second after those of the first. Leaves no history."""
    result = empty((first.shape[0] + second.shape[0], *first.shape[1:]), first.dtype, first.device)
    before, after = first.view, second.view
    first.device.copy(before, result.view.part(0, before.nbytes))
    first.device.copy(after, result.view.part(before.nbytes, after.nbytes))
    return result


def _first_gradient(root: Tensor, gradient: Any) -> Tensor:
    if gradient is None:
        if root.size != 1:
            raise ShapeError(f"backward() of a tensor of shape {root.shape} needs a gradient of that shape")
        return filled(root.shape, 1.0, root.device)
    return as_gradient(root, gradient)


def as_gradient(of: Tensor, value: Any) -> Tensor:
    """Return a gradient as a tensor on the device of `of`, after checking its type and shape."""
    if not isinstance(value, Tensor):
        value = tensor(value, device=of.device, dtype="float32")
    elif value.device is not of.device:
        value = tensor(value, device=of.device)
    if value.dtype not in (FLOAT32, of.dtype):
        raise UnsupportedError(f"a gradient must be float32, not {value.dtype}")
    if value.shape != of.shape:
        raise ShapeError(f"the gradient has the shape {value.shape}, the tensor {of.shape}")
    checked: Tensor = value
    return checked


def backward(root: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
    """Add the gradients of a tensor to those of its leaves; see `Tensor.backward`."""
    if not root.requires_grad:
        raise UnsupportedError("nothing that this tensor was computed from requires a gradient")
    keep = create_graph if retain_graph is None else retain_graph
    with Block(_leaves_history, create_graph), Block(_runs_backward, True):
        for leaf, g in _propagate(root, gradient, lambda node: node._edges is None, keep=keep):
            _accumulate(leaf, g)


def gradients(
    target: Tensor,
    sources: Tensor | Iterable[Tensor],
    gradient: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """The gradient of `target` with respect to each source; None for one that it does not depend on.

    Args:
        target: what to differentiate.
        sources: any tensors that it may have been computed from, leaves or not; one counts as a list of one. Their
            `grad` does not change.
        gradient: the gradient with respect to `target`, of its shape; 1 for a tensor of one element.
        retain_graph: keep the history for another call; as `create_graph` if None.
        create_graph: record a history of the gradients, so that they can be differentiated.

    Raises:
        ShapeError: no gradient was passed and there is more than one element, or its shape is wrong.
        UnsupportedError: the history was freed by an earlier call.

    Example:
        >>> import optirs_web as ow
        >>> x = ow.tensor([3.0], device="cpu", requires_grad=True)
        >>> (first,) = ow.gradients((x * x * x).sum(), [x], create_graph=True)
        >>> (second,) = ow.gradients(first.sum(), [x])
        >>> first.item(), second.item(), x.grad
        (27.0, 18.0, None)
    """
    keep = create_graph if retain_graph is None else retain_graph
    sources = [sources] if isinstance(sources, Tensor) else list(sources)
    source_ids = {id(source) for source in sources}
    with Block(_leaves_history, create_graph), Block(_runs_backward, True):
        gradient_of = {
            id(node): g for node, g in _propagate(target, gradient, lambda node: id(node) in source_ids, keep=keep)
        }
    return [gradient_of.get(id(source)) for source in sources]


def as_variable(x: Tensor) -> Tensor:
    """Return a tensor of the same values that requires a gradient, and whose history continues to `x`."""
    alias = record(x.detach(), (x, lambda g, _: g))
    alias._requires_grad = True
    return alias


def gradients_or_zeros(value: Tensor, sources: Sequence[Tensor], g: Any = None) -> list[Tensor]:
    """Return the gradients of a value by sources, with a history, and zeros by those that it does not depend on."""
    slopes: Sequence[Tensor | None] = [None for _ in sources]
    if value.requires_grad:
        slopes = gradients(value, sources, g, create_graph=True)
    return [
        filled(source.shape, 0.0, source.device) if slope is None else slope
        for slope, source in zip(slopes, sources, strict=True)
    ]


def pulled_back(formula: Callable[..., Tensor], inputs: Sequence[Tensor], g: Tensor) -> list[Tensor]:
    """Return the gradients by the inputs of a formula, where that by its value is `g`. They have a history."""
    with enable_grad():
        sources = [as_variable(x) for x in inputs]
        return gradients_or_zeros(formula(*sources), sources, g)


# The gradient of a leaf. Its memory is fixed in an arena, and where a program has written it: replays write there.


def _grad_memory(leaf: Tensor) -> View | None:
    if isinstance(leaf, Parameter) and leaf._home is not None:
        return leaf._home.grad_view()
    recording = leaf.device.recording
    if leaf._grad_view is None and recording is not None:
        nbytes = leaf.dtype.nbytes(leaf.size)
        buffer = leaf.device.allocate_zeroed(max(4, nbytes))
        recording.keep(buffer)
        leaf._grad_view = View(buffer, 0, nbytes)
    return leaf._grad_view


def _accumulate(leaf: Tensor, g: Any) -> None:
    with leaf.device.turn():  # so that concurrent additions are not lost
        _accumulate_locked(leaf, g)


def _accumulate_locked(leaf: Tensor, g: Any) -> None:
    note_grad(leaf, reads=True)
    earlier: object = leaf._grad
    if isinstance(g, SparseRows):
        if earlier is None or isinstance(earlier, SparseRows):
            rows: Any = g if earlier is None else _added(earlier, g)
            leaf._grad = rows
            return
        g = g.to_dense()
    target = _grad_memory(leaf)
    if isinstance(earlier, SparseRows):
        leaf._grad = earlier.to_dense()
    if leaf._grad is None:
        _put(leaf, g, target)
    elif leaf._grad.view == target:
        apply_in_place("add", "add", leaf._grad, g.clone() if g.strided.view.buffer is target.buffer else g)
    else:
        _put(leaf, leaf._grad + g, target)


def _put(leaf: Tensor, value: Tensor, target: View | None) -> None:
    if target is None:
        leaf._grad = value if value.requires_grad else contiguous(value)
    else:
        leaf._grad = Tensor(target, leaf.shape, leaf.dtype)
        write_into(leaf._grad, value)


def set_grad(leaf: Tensor, value: Any) -> None:
    """Set the gradient of `leaf` to a copy of `value`, or to `SparseRows` themselves.

    Raises:
        ShapeError: the shapes differ.
        UnsupportedError: it is not float32.
    """
    if isinstance(value, SparseRows):
        if value.shape != leaf.shape:
            raise ShapeError(f"the gradient has the shape {value.shape}, the tensor {leaf.shape}")
        value = value.to(leaf.device)
        note_grad(leaf, reads=False)
        leaf._grad = value
        return
    gradient = None if value is None else as_gradient(leaf, value)
    note_grad(leaf, reads=False)
    if gradient is None:
        leaf._grad = None
        return
    target = _grad_memory(leaf)
    _put(leaf, gradient.detach().clone() if target is None else gradient, target)


def observe_grads(observed: dict[int, ObservedGrad]) -> Block[Any]:
    """Record in `observed`, by id, each leaf whose gradient is read or written in the block."""
    return Block(_observed, observed)


def note_grad(leaf: Tensor, *, reads: bool) -> None:
    """Record that the gradient of a leaf is about to be read, or replaced."""
    observed = _observed.get()
    if observed is not None:
        observed.setdefault(id(leaf), ObservedGrad(leaf, leaf._grad, reads))
