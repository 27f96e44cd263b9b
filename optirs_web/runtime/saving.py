"""Lower the peak memory of a step: recompute cheap values instead of keeping them, and write results in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from ..kernel import Part, Take
from ..lower.maps import ELEMENTS_PER_WORKGROUP
from .backend import Capabilities
from .buffer import Buffer, View
from .fusion_nodes import Node, Nodes
from .launches import Launch, Recorded, overlaps
from .mapped import Mapped, Output, StridedView, cost_of, mapped, old, relaunched, with_value
from .uses import Uses, renamed

__all__ = ["recomputed", "written_over"]

_CHEAP = 200
"""Operations for each element, by all launches, up to which a value is recomputed where memory is scarce."""

_SMALL = 1 << 16
"""Bytes below which a value is kept."""

_PAUSE = 8
"""Fewest launches between two readers of a value for which it is dropped."""

_SCARCE = 0.75
"""Share of the peak from which on memory counts as scarce."""


def recomputed(
    recorded: Sequence[Recorded],
    is_temporary: Callable[[Buffer], bool],
    capabilities: Capabilities,
    allocate: Callable[[int], Buffer],
) -> list[Recorded]:
    """Return the launches, with cheap ones repeated whose results would be kept unread while memory is scarce.

    Each is repeated just before the result is read again, and only where its operands still hold their values then, or
    are cheap in their turn, so that no other buffer is kept for longer. The last ones come first, since what is
    repeated may be read later than before.

    Args:
        recorded: launches and copies, in order.
        is_temporary: whether only these launches read a buffer.
        capabilities: of the device.
        allocate: makes a buffer of a number of bytes for a recomputed value.
    """
    uses = Uses(recorded)
    held = uses.held(is_temporary, len(recorded))
    scarce = [*accumulate((bytes_ >= _SCARCE * max(held) for bytes_ in held), initial=0)]
    result = [[launch] for launch in recorded]
    for at in reversed(range(len(recorded))):
        written = recorded[at].writes
        kept = written[-1].buffer if written else None
        if kept is None or uses.writers[kept] != [at] or not is_temporary(kept) or kept.nbytes < _SMALL:
            continue
        pauses = [(later - earlier, earlier, later) for earlier, later in pairwise([at, *uses.readers[kept]])]
        length, begins, ends = max(pauses, default=(0, at, at))
        if length < _PAUSE or scarce[begins + 1] == scarce[ends]:
            continue
        again = _Again(recorded, uses, is_temporary, capabilities, allocate, ends)
        if not again.repeat(at, kept):
            continue
        for reader in {reader for name in again.names for reader in uses.readers[name] if reader >= ends}:
            result[reader] = [renamed(launch, again.names) for launch in result[reader]]
        result[ends] = [*again.launches, *result[ends]]
        uses.repeat(again.launches, kept, ends)
    return [launch for launches in result for launch in launches]


class _Again:
    """Cheap launches that are repeated before another, so that a value need not be kept until then.

    Attributes:
        launches: in order.
        names: for each result the buffer of the repeated value.
    """

    def __init__(
        self,
        recorded: Sequence[Recorded],
        uses: Uses,
        is_temporary: Callable[[Buffer], bool],
        capabilities: Capabilities,
        allocate: Callable[[int], Buffer],
        late: int,
    ) -> None:
        self.launches: list[Recorded] = []
        self.names: dict[Buffer, Buffer] = {}
        self._cost = 0
        self._recorded, self._uses, self._late = recorded, uses, late
        self._is_temporary, self._capabilities, self._allocate = is_temporary, capabilities, allocate

    def repeat(self, at: int, kept: Buffer) -> bool:
        """Repeat the launch with that index for its result, after those of its operands that are not there any more.

        Returns:
            False if that is not cheap.
        """
        launch = self._recorded[at]
        again = _for_result(launch, self._capabilities) if isinstance(launch, Launch) else None
        if again is None or again.views[-1].buffer is not kept:
            return False
        expression = mapped(again)
        self._cost += 1 if expression is None else cost_of(expression)
        if self._cost > _CHEAP:
            return False
        for view in again.views[:-1]:
            if view.buffer not in self.names and not self._is_there(view, at):
                producer = self._uses.writer(view, at)
                if producer is None or not self.repeat(producer, view.buffer):
                    return False
        self.names[kept] = self._allocate(kept.nbytes)
        self.launches.append(renamed(again, self.names))
        return True

    def _is_there(self, view: View, at: int) -> bool:
        """Return whether the view has the same values as at `at`, and is kept until then anyway."""
        is_kept = not self._is_temporary(view.buffer) or max(self._uses.readers[view.buffer], default=-1) >= self._late
        return is_kept and not any(at < writer < self._late for writer in self._uses.writers[view.buffer])


def _for_result(launch: Launch, capabilities: Capabilities) -> Launch | None:
    """Return a launch for the last result alone, of map functions, rows of a table or normalized rows; or None."""
    if launch.kernel.name == "layer_norm":
        return _normalized(launch, capabilities)
    expression = mapped(launch)
    return launch if expression is not None and not expression.is_part else None


def _normalized(launch: Launch, capabilities: Capabilities) -> Launch:
    """Return a launch for (x - mean) (scale weight) + bias, with the means and scales that `layer_norm` keeps.

    The operations are those of the kernel, in its order, so that the bits are the same: a maximum is still found again.
    """
    views = {binding.name: view for binding, view in zip(launch.kernel.bindings, launch.views, strict=True)}
    rows, columns, *_ = map(int, launch.parameters)
    strides = {"x": (columns, 1), "mean": (1, 0), "scale": (1, 0), "weight": (0, 1), "bias": (0, 1)}
    present = [name for name in strides if f"{name}_values" in views]
    tensors = [StridedView(views[f"{name}_values"], "f32", 0, strides[name]) for name in present]
    names = {name: f"x{number}" for number, name in enumerate(present)}
    parts: list[Part | Take] = []

    def computed(function: str, *arguments: str) -> str:
        name = f"t{len(parts)}"
        parts.append(Part(function, gives=name, file=("elementwise", function), arguments=arguments))
        return name

    centred = computed("subtract", names["x"], names["mean"])
    factor = computed("multiply", names["scale"], names["weight"]) if "weight" in present else names["scale"]
    result = computed("multiply", centred, factor)
    if "bias" in present:
        result = computed("add", result, names["bias"])
    output = Output(launch.views[-1], "f32", result)
    grid = capabilities.grid(-(-rows * columns // ELEMENTS_PER_WORKGROUP))
    return relaunched(Mapped((rows, columns), tuple(parts), tuple(tensors), (), (output,)), grid)


def written_over(nodes: Nodes) -> dict[Buffer, Buffer]:
    """Let map functions write their results over operands that nothing reads afterwards.

    Returns:
        For each buffer that is no longer needed, the buffer that takes its place.
    """
    names: dict[Buffer, Buffer] = {}
    for at, node in nodes.items():
        expression = node.map or node.after
        if expression is None:
            continue
        for position, output in enumerate(expression.outputs):
            number = _replaceable(nodes, at, node, expression, output)
            if number is None:
                continue
            over = expression.tensors[number].view.buffer
            names[output.view.buffer] = names.get(over, over)
            expression = with_value(expression, number, old(position))
        if expression is not (node.map or node.after):
            nodes.replace(at, _changed_to(expression))
    return names


def _changed_to(expression: Mapped) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        if node.map is not None:
            node.map = expression
        else:
            node.after = expression

    return change


def _replaceable(nodes: Nodes, at: int, node: Node, expression: Mapped, output: Output) -> int | None:
    """Return the index of a tensor of the expression that the output can be written over."""
    target = output.view
    if output.strides is not None or not nodes.is_temporary(target.buffer) or not _is_whole(target):
        return None
    if nodes.writers[target.buffer] != {at}:
        return None
    others = node.kernel_reads
    for number, tensor in enumerate(expression.tensors):
        buffer = tensor.view.buffer
        if (
            nodes.is_temporary(buffer)
            and _is_whole(tensor.view)
            and buffer.nbytes == target.buffer.nbytes == 4 * expression.size
            and tensor.type == output.type
            and expression.is_flat(number)
            and max(nodes.readers[buffer]) == at
            and max(nodes.writers[buffer]) < at
            and not overlaps(tensor.view, others)
            and all(other == tensor for other in expression.tensors if other.view.buffer is buffer)
        ):
            return number
    return None


def _is_whole(view: View) -> bool:
    return view.offset == 0 and view.nbytes == view.buffer.nbytes
