"""Reverse-mode differentiation: the edges that operations leave, and the walk back over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .errors import OptirsError, ShapeError, UnsupportedError
from .runtime.buffer import View
from .runtime.dtypes import FLOAT32
from .runtime.flags import used_flags
from .runtime.modes import Block, Mode
from .runtime.program import ProgramBuffer
from .sparse import SparseRows
from .tensors import Edge, Parameter, Tensor, tensor

__all__ = [
    "ObservedGrad",
    "as_gradient",
    "backward",
    "enable_grad",
    "grad_enabled",
    "gradients",
    "no_grad",
    "note_grad",
    "observe_grads",
    "record",
    "set_grad",
    "sources_of",
    "walks_back",
]

_FREED: tuple[Edge, ...] = ()
"""The edges of a tensor whose history `backward` has used up. Compared by identity."""


class ObservedGrad(NamedTuple):
    """A leaf whose gradient was read or written, what it was before, and whether it was read first."""

    leaf: Tensor
    before: Tensor | None
    is_read: bool


_leaves_history = Mode("leaves_history", True)
_walks_back = Mode("walks_back", False)
_made: Mode[set[int] | None] = Mode("made", None)
_observed: Mode[dict[int, ObservedGrad] | None] = Mode("observed_grads", None)

grad_enabled = _leaves_history.get
"""Operations leave history now, in this thread or task."""

walks_back = _walks_back.get
"""Gradients are computed now."""


def no_grad() -> Block[bool]:
    """Operations in the block leave no history: nothing can be differentiated through them.

    It holds in its own thread or asyncio task alone, and decorates functions, coroutines and generators. A generator
    that yields within such a block leaves it open for its caller until it goes on, as in torch; decorate it instead.

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
    """Note how `result` was made, if a gradient may be asked of it.

    Args:
        result: of the operation.
        inputs: each with the rule that carries a gradient of the result to it, which is called with that gradient
            and the result, and only if the input needs one. Inputs that are no tensors have none. A rule is made of
            differentiable operations, so that its result has gradients in turn. It must not hold the result
            itself: a cycle would keep memory alive.
    """
    if not grad_enabled():
        return result
    flags = used_flags()
    if flags is not None:
        for one, _ in inputs:
            if isinstance(one, Tensor) and not isinstance(one.walk.view.buffer.handle, ProgramBuffer):
                flags.note(one, "requires_grad", one._requires_grad)
    edges = [(one, rule) for one, rule in inputs if isinstance(one, Tensor) and one._requires_grad]
    if edges:
        tracked = [one._tracked for one, _ in inputs if isinstance(one, Tensor)]
        used = tuple((one, one._version) for one in tracked if one is not None)
        result._requires_grad = True
        result._edges = tuple(Edge(one, rule, used) for one, rule in edges)
        made = _made.get()
        if made is not None:
            made.add(id(result))
    return result


def sources_of(compute: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor]]:
    """What `compute` returns, with its history, and the tensors from outside whose gradients it has a part in.

    Tensors that it makes and does not return are not to be kept.
    """
    before, made = _made.get(), set[int]()
    with Block(_made, made), enable_grad():
        result = compute()
    if before is not None:
        before |= made
    inside = [one for one in _in_order(result) if id(one) in made] if id(result) in made else []
    outside = {
        id(edge.source): edge.source for one in inside for edge in one._edges or () if id(edge.source) not in made
    }
    return result, list(outside.values())


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
            raise UnsupportedError("the history of this tensor was freed; call backward(retain_graph=True) before")
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
        for hook in one._hooks or ():
            changed = hook(g)
            g = g if changed is None else as_gradient(one, changed)
        if wanted(one):
            yield one, g
        edges = [edge for edge in one._edges or () if id(edge.source) in needed]
        if edges and not (keep or one._keeps_edges):
            one._edges = _FREED
        for source, rule, _ in edges:
            part = rule(g, one)
            if part.shape != source.shape:
                raise OptirsError(f"a gradient rule gave the shape {part.shape} for an input of {source.shape}")
            if source.dtype.itemsize < 4:
                part = part.astype(source.dtype)
            earlier = known.get(id(source))
            known[id(source)] = part if earlier is None else _added(earlier, part)


def _added(a: Any, b: Any) -> Any:
    """The sum of two gradients. Those of rows are taken together."""
    from . import ops

    if isinstance(a, SparseRows) and isinstance(b, SparseRows):
        return SparseRows(ops.concat([a.indices, b.indices]), ops.concat([a.values, b.values]), a.shape)
    a, b = (one.to_dense() if isinstance(one, SparseRows) else one for one in (a, b))
    return ops.add(a, b)


def _first_gradient(root: Tensor, gradient: Any) -> Tensor:
    from . import ops

    if gradient is None:
        if root.size != 1:
            raise ShapeError(f"backward() of a tensor of shape {root.shape} needs a gradient of that shape")
        return ops.full(root.shape, 1.0, root.device)
    return as_gradient(root, gradient)


def as_gradient(of: Tensor, value: Any) -> Tensor:
    """A tensor of float32, or of the same type, on the same device, of the same shape."""
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
    """See `Tensor.backward`."""
    if not root.requires_grad:
        raise UnsupportedError("nothing that this tensor was computed from requires a gradient")
    keep = create_graph if retain_graph is None else retain_graph
    with Block(_leaves_history, create_graph), Block(_walks_back, True):
        for leaf, g in _propagate(root, gradient, lambda one: one._edges is None, keep=keep):
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
            `grad` is left alone.
        gradient: the gradient with respect to `target`, of its shape; 1 for a tensor of one element.
        retain_graph: keep the history for another call; as `create_graph` if None.
        create_graph: leave a history of the gradients, so that they can be differentiated in turn.

    Raises:
        ShapeError: no gradient was given and there is more than one element, or its shape is wrong.
        UnsupportedError: the history was used up by an earlier call.

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
    wanted = {id(one) for one in sources}
    with Block(_leaves_history, create_graph), Block(_walks_back, True):
        found = {id(one): g for one, g in _propagate(target, gradient, lambda one: id(one) in wanted, keep=keep)}
    return [found.get(id(one)) for one in sources]


# The gradient of a leaf. It has a fixed place in an arena, and wherever a program has written it: replays write there.


def _place(leaf: Tensor) -> View | None:
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
    with leaf.device.turn():  # no thread's part is lost
        _accumulate_in_turn(leaf, g)


def _accumulate_in_turn(leaf: Tensor, g: Any) -> None:
    from . import ops

    note_grad(leaf, reads=True)
    earlier: object = leaf._grad
    if isinstance(g, SparseRows):
        if earlier is None or isinstance(earlier, SparseRows):
            rows: Any = g if earlier is None else _added(earlier, g)
            leaf._grad = rows
            return
        g = g.to_dense()
    place = _place(leaf)
    if isinstance(earlier, SparseRows):
        leaf._grad = earlier.to_dense()
    if leaf._grad is None:
        _put(leaf, g, place)
    elif leaf._grad.view == place:
        ops.add_into(leaf._grad, ops.clone(g) if g.walk.view.buffer is place.buffer else g)
    else:
        _put(leaf, ops.add(leaf._grad, g), place)


def _put(leaf: Tensor, value: Tensor, place: View | None) -> None:
    from .ops.launch import contiguous, write_into

    if place is None:
        leaf._grad = value if value.requires_grad else contiguous(value)
    else:
        leaf._grad = Tensor(place, leaf.shape, leaf.dtype)
        write_into(leaf._grad, value)


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
    _put(leaf, ops.clone(given.detach()) if place is None else given, place)


def observe_grads(observed: dict[int, ObservedGrad]) -> Block[Any]:
    """Note in `observed`, by id, each leaf whose gradient is read or written in the block."""
    return Block(_observed, observed)


def note_grad(leaf: Tensor, *, reads: bool) -> None:
    """What happens next depends on the gradient that this leaf has, or replaces it."""
    observed = _observed.get()
    if observed is not None:
        observed.setdefault(id(leaf), ObservedGrad(leaf, leaf._grad, reads))
