"""The list that fusion works on: launches and copies, with what has been fused with them, and who reads what."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..kernel import Part
from ..lower.hooks import Hook
from ..lower.maps import binding_of
from .backend import Capabilities
from .blocked_products import Layout, blocked_product
from .buffer import Buffer, View
from .kernels import SourceKernel
from .launches import Copy, Launch, Recorded, overlaps
from .map_kernels import HOOKS, fused_kernel
from .mapped import Mapped, Shape, form_of, mapped, relaunched

__all__ = ["Node", "Nodes", "view_of"]

_MOST_PARTS = 24


@dataclass(slots=True, eq=False)
class Node:
    """A launch or a copy, with what has been fused with it."""

    recorded: Recorded
    map: Mapped | None = None  # the whole of it is map functions
    before: tuple[str, Mapped] | None = None  # what comes before it, in place of a binding
    layout: Layout | None = None  # of the operand of a product that `before` computes
    after: Mapped | None = None  # what follows it
    is_changed: bool = False
    reads: list[View] = field(default_factory=list)
    writes: list[View] = field(default_factory=list)

    def update(self) -> None:
        """Bring reads and writes up to date."""
        if self.map is not None:
            self.writes = [output.view for output in self.map.outputs]
            self.reads = [tensor.view for tensor in self.map.tensors]
            self.reads += self.writes if self.map.uses_old or self.map.is_part else []
            return
        self.reads, self.writes = self.recorded.reads, self.recorded.writes
        if self.before is not None:
            assert isinstance(self.recorded, Launch)
            replaced = view_of(self.recorded, self.before[0])
            self.reads = [view for view in self.reads if view is not replaced]
            self.reads += [tensor.view for tensor in self.before[1].tensors]
        if self.after is not None:
            self.reads = [*self.reads, *(tensor.view for tensor in self.after.tensors)]
            self.writes = [output.view for output in self.after.outputs]
            self.reads += self.writes if self.after.uses_old else []

    @property
    def kernel_reads(self) -> list[View]:
        """The views that are read before the functions that follow the kernel."""
        if self.map is not None:
            return []
        tensors = self.before[1].tensors if self.before is not None else ()
        return [*self.recorded.reads, *(tensor.view for tensor in tensors)]

    def redirect(self, source: View, target: View) -> None:
        """Write the target where the source was written."""

        def moved(expression: Mapped) -> Mapped:
            outputs = tuple(
                output._replace(view=target) if output.view == source else output for output in expression.outputs
            )
            return expression._replace(outputs=outputs)

        if self.map is not None:
            self.map = moved(self.map)
        elif self.after is not None:
            self.after = moved(self.after)
        elif isinstance(self.recorded, Copy):
            self.recorded = Copy(self.recorded.source, target)
        else:
            views = tuple(target if view == source else view for view in self.recorded.views)
            self.recorded = Launch(self.recorded.kernel, views, self.recorded.grid, self.recorded.parameters)

    def as_recorded(self) -> Recorded:
        """The launch that does what the node does."""
        launch = self.recorded
        if not self.is_changed or not isinstance(launch, Launch):
            return launch
        if self.map is not None:
            return relaunched(self.map, launch.grid)
        if self.after is None and self.before is None:
            return launch
        if self.layout is not None and self.before is not None:
            return blocked_product(launch, *self.before, self.after, self.layout)
        kernel = launch.kernel
        assert isinstance(kernel, SourceKernel)
        views = {binding.name: view for binding, view in zip(kernel.bindings, launch.views, strict=True)}
        if self.after is not None:
            hook, expression = HOOKS[kernel.name]["stored"], self.after
            views[hook.binding] = expression.outputs[0].view
            views |= {binding_of(f"y{number}"): output.view for number, output in enumerate(expression.outputs)}
        else:
            assert self.before is not None
            hook, expression = HOOKS[kernel.name]["loaded"], self.before[1]
        views |= {binding_of(f"x{number}"): tensor.view for number, tensor in enumerate(expression.tensors)}
        form, places, parameters = form_of(expression, _axes(launch, hook, expression))
        joined = fused_kernel(kernel, hook, form, places)
        bound = tuple(views[binding.name] for binding in joined.bindings)
        return Launch(joined, bound, launch.grid, (*launch.parameters, *parameters))


def _axes(launch: Launch, hook: Hook, expression: Mapped) -> Shape:
    """Return the number of products, rows and columns, if the hook is told places along them."""
    if not hook.axes:
        return ()
    numbers = dict(zip((name for name, _ in launch.kernel.parameters), launch.parameters, strict=True))
    sizes = tuple(int(numbers[name]) for name in hook.axes)
    return (expression.size // math.prod(sizes), *sizes)


def view_of(launch: Launch, binding: str) -> View:
    """Return the view that a launch binds to the binding of this name."""
    return next(view for slot, view in zip(launch.kernel.bindings, launch.views, strict=True) if slot.name == binding)


class Nodes:
    """Recorded launches and copies in order, with who reads and writes each buffer. What is removed leaves a gap."""

    def __init__(
        self, recorded: Sequence[Recorded], is_temporary: Callable[[Buffer], bool], capabilities: Capabilities
    ) -> None:
        self._nodes: list[Node | None] = []
        self.is_temporary = is_temporary
        self.most_buffers = capabilities.max_storage_buffers
        self.alignment = capabilities.offset_alignment
        self.replaced = capabilities.replaced
        self.blocked_products = capabilities.blocked_products
        self.readers: defaultdict[Buffer, set[int]] = defaultdict(set)
        self.writers: defaultdict[Buffer, set[int]] = defaultdict(set)
        for command in recorded:
            node = Node(command, mapped(command) if isinstance(command, Launch) else None)
            node.update()
            self._nodes.append(node)
            self._enter(len(self._nodes) - 1)

    def items(self) -> Iterator[tuple[int, Node]]:
        """Yield the nodes that are left, with their indices. They may be changed and removed meanwhile."""
        for at in range(len(self._nodes)):
            node = self._nodes[at]
            if node is not None:
                yield at, node

    def as_recorded(self) -> list[Recorded]:
        """Return the nodes that are left, as launches and copies in order."""
        return [node.as_recorded() for _, node in self.items()]

    def __getitem__(self, at: int) -> Node:
        node = self._nodes[at]
        assert node is not None
        return node

    def _enter(self, at: int) -> None:
        node = self[at]
        for view in node.reads:
            self.readers[view.buffer].add(at)
        for view in node.writes:
            self.writers[view.buffer].add(at)

    def _leave(self, at: int) -> None:
        node = self[at]
        for view in node.reads:
            self.readers[view.buffer].discard(at)
        for view in node.writes:
            self.writers[view.buffer].discard(at)

    def replace(self, at: int, change: Callable[[Node], None]) -> None:
        """Change a node, and the tables with it."""
        self._leave(at)
        node = self[at]
        change(node)
        node.is_changed = True
        node.update()
        self._enter(at)

    def remove(self, at: int) -> None:
        """Leave a gap."""
        self._leave(at)
        self._nodes[at] = None

    def producer(self, view: View, before: int) -> int | None:
        """The one node that writes the buffer of this view, if it writes all of the view and before another node."""
        writers = self.writers[view.buffer]
        if len(writers) != 1:
            return None
        (at,) = writers
        node = self[at]
        if at >= before or view not in node.writes or (node.map is not None and node.map.is_part):
            return None
        return at

    def others(self, buffer: Buffer, *but: int) -> set[int]:
        """Who reads the buffer, but for these."""
        return self.readers[buffer] - {*but}

    def can_move(self, first: int, last: int, *, writes: bool) -> bool:
        """Return whether node `first` can run at `last` instead; `writes` says that the results are kept."""
        node = self[first]
        if any(first < number < last for view in node.reads for number in self.writers[view.buffer]) and any(
            overlaps(view, other.writes) for view in node.reads for other in self.between(first, last)
        ):
            return False
        if not writes:
            return True
        return not any(
            first < number < last
            for view in node.writes
            for number in self.readers[view.buffer] | self.writers[view.buffer]
        )

    def between(self, first: int, last: int) -> Iterator[Node]:
        """Those after the first and before the last."""
        return (node for node in self._nodes[first + 1 : last] if node is not None)

    def fits(self, expression: Mapped, bound: int = 0) -> bool:
        """It can be launched: few enough buffers, none of which is read while it is written."""
        read = {tensor.view.buffer for tensor in expression.tensors}
        written = {output.view.buffer for output in expression.outputs}
        functions: dict[str, tuple[str, str] | None] = {}
        for part in expression.parts:
            if isinstance(part, Part) and functions.setdefault(part.function, part.file) != part.file:
                return False
        buffers = len(expression.tensors) + len(expression.outputs) + bound
        return buffers <= self.most_buffers and not read & written and len(expression.parts) <= _MOST_PARTS
