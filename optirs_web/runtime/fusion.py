"""Fusion: a recorded list of launches becomes a shorter one that computes the same.

Chains of map functions become one kernel, and map functions go into the hooks of the kernel before or after
them. What is in between is then never written. A value that others need too is written besides, or computed again where
that is cheap. Copies into a fixed place are spared by writing there at once, and what nobody reads is not computed.

Launches keep their order, but for one that moves down to what it is fused with: nothing on the way may write what it
reads, or touch what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..lower.hooks import Hook
from ..lower.maps import VALUE
from .backend import Capabilities
from .blocked_products import Layout, can_follow, layout_of
from .buffer import Buffer, View
from .fusion_nodes import Node, Nodes, view_of
from .kernels import SourceKernel
from .launches import Copy, Launch, Recorded, overlaps
from .map_kernels import HOOKS, MapKernel
from .mapped import Mapped, Output, cost_of, inlined, with_value

__all__ = ["fuse", "stays"]

_CHEAP = 80
"""Operations for each element that are rather done again than kept."""

_LARGEST_COPIED = 4

_OPERANDS = ("a", "b")
"""The bindings of products."""

_LARGE = 1 << 24
"""Bytes that a step reads and writes from which on more is done: see `large_steps`."""

_WORTH_COMPILING = dict.fromkeys(("convolution", "convolution_band", "convolution_quads", "matmul"), 1 << 17)
"""Bytes of a result from which on a kernel that takes long to compile is compiled for what follows it too."""


class _Fusion:
    """The rules, over a list of nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def run(self) -> None:
        for at, node in self.nodes.items():
            if node.map is not None:
                self._fuse_map(at)
            else:
                self._fuse_before(at)
        self._write_in_place()
        self._remove_unread()

    def _fuse_map(self, at: int) -> None:
        """Take in what computes the operands of a node of map functions, then go into the kernel before it."""
        node = self.nodes[at]
        is_done = False
        while not is_done and node.map is not None:
            consumer = node.map
            is_done = not any(self._take_in(at, consumer, number) for number in range(len(consumer.tensors)))
        if node.map is not None:
            consumer = node.map
            any(self._follow(at, consumer, number) for number in range(len(consumer.tensors)))

    def _take_in(self, at: int, consumer: Mapped, number: int) -> bool:
        """Compute an operand in the node that reads it."""
        view = consumer.tensors[number].view
        first = self.nodes.producer(view, before=at)
        producer = self.nodes[first] if first is not None else None
        if first is None or producer is None or producer.map is None:
            return False
        if not consumer.reads_as_computed(number, producer.map):
            return False
        keeps = self._has_to_keep(producer.map, at, first)
        if keeps is None or (keeps and producer.map.is_constant) or not self.nodes.can_move(first, at, writes=keeps):
            return False
        if keeps and self._is_computed_by_reader(at):
            return False
        output = next(place for place, output in enumerate(producer.map.outputs) if output.view == view)
        is_last = keeps or not self.nodes.others(view.buffer, first, at)
        joined = inlined(consumer, number, producer.map, output, keeps=keeps)
        if joined is None or not self.nodes.fits(joined) or _reads(joined, view):
            return False

        def change(node: Node) -> None:
            node.map = joined

        if is_last:
            self.nodes.remove(first)
        self.nodes.replace(at, change)
        return True

    def _has_to_keep(self, producer: Mapped, at: int, first: int) -> bool | None:
        """Return whether a fused producer's results must be written to memory too; None if it should not be fused."""
        views = [output.view for output in producer.outputs]
        others = {number for view in views for number in self.nodes.others(view.buffer, first, at)}
        if all(self.nodes.is_temporary(view.buffer) for view in views) and len(views) == 1:
            if not others:
                return False
            if cost_of(producer) <= _CHEAP and all(
                self._could_compute(number, views[0], producer) for number in others
            ):
                return False
        if any(first < number < at for number in others):
            return None
        return True

    def _could_compute(self, at: int, view: View, producer: Mapped) -> bool:
        """Node `at` reads the view as an operand of map functions, and what it is computed from is still there."""
        node = self.nodes[at]
        if node.map is None:
            return False
        flat = [
            node.map.reads_as_computed(number, producer)
            for number, tensor in enumerate(node.map.tensors)
            if tensor.view == view
        ]
        (first,) = self.nodes.writers[view.buffer]
        alive = all(
            not self.nodes.is_temporary(tensor.view.buffer) or max(self.nodes.readers[tensor.view.buffer]) >= at
            or tensor.view.nbytes * _LARGEST_COPIED <= view.nbytes
            for tensor in producer.tensors
        )  # fmt: skip
        return bool(flat) and all(flat) and alive and self.nodes.can_move(first, at, writes=False)

    def _follow(self, at: int, consumer: Mapped, number: int) -> bool:
        """Go into the kernel that computes an operand."""
        view = consumer.tensors[number].view
        can_follow_it = consumer.reads_all(number) and not consumer.is_part
        first = self.nodes.producer(view, before=at) if can_follow_it else None
        producer = self.nodes[first] if first is not None else None
        if first is None or producer is None or not isinstance(producer.recorded, Launch):
            return False
        kernel = producer.recorded.kernel
        hook = HOOKS.get(kernel.name, {}).get("stored") if isinstance(kernel, SourceKernel) else None
        if (
            hook is None
            or (producer.before is not None and producer.layout is None)
            or producer.map is not None
            or kernel.name in self.nodes.replaced
        ):
            return False
        if view.nbytes < _WORTH_COMPILING.get(kernel.name, 0):
            return False
        is_kept = bool(self.nodes.others(view.buffer, first, at)) or not self.nodes.is_temporary(view.buffer)
        after = _followed(producer, hook, consumer, number, is_kept=is_kept)
        if is_kept and self._is_computed_by_reader(at):
            return False
        if after is not None and producer.layout is not None and not can_follow(producer.layout, after):
            return False
        if after is None or not self.nodes.can_move(first, at, writes=is_kept or len(producer.writes) > 1):
            return False
        bound = len(producer.recorded.views) - 1
        used = {tensor.view.buffer for tensor in after.tensors} | {read.buffer for read in producer.reads}
        if (
            not self.nodes.fits(after, bound)
            or _reads(after, view)
            or used & {output.view.buffer for output in after.outputs}
        ):
            return False
        recorded, before, layout = producer.recorded, producer.before, producer.layout

        def change(node: Node) -> None:
            node.recorded, node.map, node.after = recorded, None, after
            node.before, node.layout = before, layout

        self.nodes.remove(first)
        self.nodes.replace(at, change)
        return True

    def _fuse_before(self, at: int) -> None:
        """Compute what a kernel with hooks works on in the kernel itself."""
        launch = self.nodes[at].recorded
        if not isinstance(launch, Launch) or not isinstance(launch.kernel, SourceKernel):
            return
        hook = HOOKS.get(launch.kernel.name, {}).get("loaded")
        bindings = _OPERANDS if self._is_product(launch) else () if hook is None else (hook.binding,)
        for binding in bindings:
            if self._load(at, launch, binding):
                return

    def _is_product(self, launch: Launch) -> bool:
        """Return whether an operand of the launch may be computed block by block."""
        is_matmul = isinstance(launch.kernel, SourceKernel) and launch.kernel.name == "matmul"
        return is_matmul and self.nodes.blocked_products

    def _load(self, at: int, launch: Launch, binding: str) -> bool:
        """Compute what a kernel reads at a binding as it is read; return whether that is done."""
        view = view_of(launch, binding)
        first = self.nodes.producer(view, before=at)
        producer = self.nodes[first] if first is not None else None
        if first is None or producer is None or producer.map is None:
            return False
        expression, layout = producer.map, None
        if binding in _OPERANDS:
            layout = _layout(launch, binding, expression)
            if layout is None:
                return False
        keeps = self._has_to_keep(expression, at, first)
        if keeps or keeps is None or not self.nodes.can_move(first, at, writes=False):
            return False
        written = {view.buffer for view in self.nodes[at].writes}
        if not self.nodes.fits(expression, len(launch.views) - 2) or written & {
            tensor.view.buffer for tensor in expression.tensors
        }:
            return False
        is_last = not self.nodes.others(view.buffer, first, at)

        def change(node: Node) -> None:
            node.before, node.layout = (binding, expression), layout

        if is_last:
            self.nodes.remove(first)
        self.nodes.replace(at, change)
        return True

    def _is_computed_by_reader(self, at: int) -> bool:
        """Return whether one product reads the results of a node of map functions, and can compute them itself."""
        expression = self.nodes[at].map
        if expression is None or len(expression.outputs) != 1 or expression.is_part:
            return False
        view = expression.outputs[0].view
        readers = self.nodes.others(view.buffer, at)
        if len(readers) != 1 or not self.nodes.is_temporary(view.buffer):
            return False
        (reader,) = readers
        launch = self.nodes[reader].recorded
        return (
            isinstance(launch, Launch)
            and self._is_product(launch)
            and self.nodes.can_move(at, reader, writes=False)
            and any(view_of(launch, binding) == view and _layout(launch, binding, expression) for binding in _OPERANDS)
        )

    # Copies, and what nobody needs.

    def _write_in_place(self) -> None:
        """Have what is copied somewhere written there in the first place."""
        for at, node in self.nodes.items():
            if isinstance(node.recorded, Copy):
                self._spare(at, node.recorded)

    def _spare(self, at: int, copy: Copy) -> None:
        source, target = copy.source, copy.target
        first = self.nodes.producer(source, before=at)
        if first is None or not self.nodes.is_temporary(source.buffer) or target.offset % self.nodes.alignment:
            return
        users = {first} | self.nodes.others(source.buffer, at)
        last = max({*users, at})
        for number in self.nodes.readers[target.buffer] | self.nodes.writers[target.buffer]:
            if first <= number <= last and number != at and not self._lies_apart(number, target, users):
                return
        producer = self.nodes[first]
        if any(view.buffer is target.buffer for view in producer.reads) or len(users) > 1:
            return

        self.nodes.remove(at)
        self.nodes.replace(first, lambda node: node.redirect(source, target))

    def _lies_apart(self, at: int, target: View, users: set[int]) -> bool:
        """A node that touches the buffer of the target, but no byte of it, and has nothing to do with the source."""
        node = self.nodes[at]
        return at not in users and not overlaps(target, node.reads) and not overlaps(target, node.writes)

    def _remove_unread(self) -> None:
        for at, node in reversed(list(self.nodes.items())):
            if node.writes and all(
                self.nodes.is_temporary(view.buffer) and not self.nodes.others(view.buffer, at) for view in node.writes
            ):
                self.nodes.remove(at)


def _reads(expression: Mapped, view: View) -> bool:
    """It reads the memory of the view in another order besides, or a part of it."""
    return any(tensor.view.buffer is view.buffer for tensor in expression.tensors)


def _followed(producer: Node, hook: Hook, consumer: Mapped, number: int, *, is_kept: bool) -> Mapped | None:
    """Return the expression after a kernel with `consumer` joined to it; None if they cannot be fused.

    `consumer` reads a result of the kernel, or of the expression after it, as tensor `number`.
    """
    view = consumer.tensors[number].view
    assert isinstance(producer.recorded, Launch)
    if producer.after is not None:
        outputs = producer.after.outputs
        position = next(position for position, output in enumerate(outputs) if output.view == view)
        others = outputs if is_kept else (*outputs[:position], *outputs[position + 1 :])
        joined = inlined(consumer, number, producer.after, position, keeps=False)
        if joined is None:
            return None
        # `inlined` puts the steps of the producer first, so what its outputs get is numbered as before.
        after = joined._replace(outputs=(*joined.outputs, *others))
    else:
        if 4 * consumer.size != view.nbytes or view != view_of(producer.recorded, hook.binding):
            return None
        after = with_value(consumer, number)
        if is_kept:
            after = after._replace(outputs=(*after.outputs, Output(view, "f32", VALUE)))
    return after if after.outputs[0].type == "f32" else None


def _layout(launch: Launch, binding: str, expression: Mapped) -> Layout | None:
    """Return the blocks in which an operand of a product is computed; None where it is not."""
    result, other = expression.outputs[0], view_of(launch, "b" if binding == "a" else "a")
    if other.buffer is result.view.buffer or result.type != "f32" or expression.uses_old:
        return None
    return layout_of(launch, binding, expression)


def stays(launch: Launch) -> bool:
    """Nothing is fused with the launch, whatever comes before it and after it (a large step may merge it)."""
    kernel = launch.kernel
    if isinstance(kernel, MapKernel):
        return False
    hooks = HOOKS.get(kernel.name, {}).values() if isinstance(kernel, SourceKernel) else ()
    smallest = _WORTH_COMPILING.get(kernel.name, 0)
    return all(hook.function == "stored" and view_of(launch, hook.binding).nbytes < smallest for hook in hooks)


def fuse(
    recorded: Sequence[Recorded],
    is_temporary: Callable[[Buffer], bool],
    capabilities: Capabilities,
    allocate: Callable[[int], Buffer],
) -> list[Recorded]:
    """A shorter list of launches and copies with the same results.

    Args:
        recorded: what was recorded, in order.
        is_temporary: whether nobody reads a buffer but these.
        capabilities: of the device.
        allocate: a buffer of so many bytes that nobody reads but these.
    """
    moved = sum(view.nbytes for node in recorded for view in (*node.reads, *node.writes))
    if moved < _LARGE:
        return _fused(recorded, is_temporary, capabilities).as_recorded()
    from . import large_steps  # which few steps need

    prepared = large_steps.prepared(recorded, is_temporary, capabilities, allocate)
    return large_steps.finished(_fused(prepared, is_temporary, capabilities))


def _fused(recorded: Sequence[Recorded], is_temporary: Callable[[Buffer], bool], capabilities: Capabilities) -> Nodes:
    nodes = Nodes(recorded, is_temporary, capabilities)
    _Fusion(nodes).run()
    return nodes
