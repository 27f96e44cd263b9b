"""Saving memory in a step: what is computed again rather than kept, and written over what nobody reads again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from ..wgsl.fused_shell import Step
from ..wgsl.shell import ELEMENTWISE_PER_WORKGROUP
from .backend import Capabilities
from .buffer import Buffer, View
from .fusion_nodes import Node, Nodes
from .launches import Launch, Recorded, overlaps
from .mapped import Mapped, Output, Walked, cost_of, mapped, relaunched, with_value
from .uses import Uses, renamed

__all__ = ["recomputed", "written_over"]

_CHEAP = 200
"""Operations for each element that are rather done again than kept while memory is scarce."""

_SMALL = 1 << 16
"""Bytes that are not worth it."""

_PAUSE = 8
"""Launches between two that read a value for which it may be dropped."""

_SCARCE = 0.75
"""Of the most memory that is needed: where that much is, dropping a value helps."""


def recomputed(
    recorded: Sequence[Recorded],
    is_temporary: Callable[[Buffer], bool],
    capabilities: Capabilities,
    allocate: Callable[[int], Buffer],
) -> list[Recorded]:
    """The launches, with cheap ones repeated whose results would be kept unread while memory is scarce.

    What they are computed from is there anyway when they are repeated, so that nothing else is kept for longer.

    Args:
        recorded: launches and copies, in order.
        is_temporary: whether nobody reads a buffer but these.
        capabilities: of the device.
        allocate: makes a buffer of so many bytes for a value computed again.
    """
    uses = Uses(recorded)
    held = uses.held(is_temporary, len(recorded))
    scarce = [*accumulate((bytes_ >= _SCARCE * max(held) for bytes_ in held), initial=0)]
    result = [*recorded]
    inserted: defaultdict[int, list[Recorded]] = defaultdict(list)
    for at, one in enumerate(recorded):
        if not isinstance(one, Launch):
            continue
        again = _normalized(one, capabilities) if one.kernel.name == "layer_norm" else one
        expression = mapped(again)
        if expression is None or cost_of(expression) > _CHEAP:
            continue
        kept = again.views[-1].buffer
        if uses.writers[kept] != [at] or not is_temporary(kept) or kept.nbytes < _SMALL:
            continue
        pauses = [(later - earlier, earlier, later) for earlier, later in pairwise([at, *uses.readers[kept]])]
        length, begins, ends = max(pauses, default=(0, at, at))
        if length < _PAUSE or scarce[begins + 1] == scarce[ends]:
            continue
        if not all(_is_there(tensor.view, at, ends, uses, is_temporary) for tensor in expression.tensors):
            continue
        names = {kept: allocate(kept.nbytes)}
        for reader in uses.readers[kept]:
            if reader >= ends:
                result[reader] = renamed(result[reader], names)
        place = max(begins, _known_at(recorded[ends], ends, kept, uses))
        inserted[place].append(renamed(again, names))
    return [each for at, one in enumerate(result) for each in (one, *inserted[at])]


def _normalized(launch: Launch, capabilities: Capabilities) -> Launch:
    """Return a launch for (x - mean) scale weight + bias, with the means and scales that `layer_norm` keeps."""
    values, weight, bias, of_rows, result = launch.views
    rows, columns, has_weight, has_bias, *_ = map(int, launch.parameters)
    tensors = [Walked(values, "f32", 0, (columns, 1)), *(Walked(of_rows, "f32", word, (2, 0)) for word in (0, 1))]
    functions = ["subtract", "multiply"]
    for view, function, is_given in ((weight, "multiply", has_weight), (bias, "add", has_bias)):
        if is_given:
            tensors.append(Walked(view, "f32", 0, (0, 1)))
            functions.append(function)
    steps = tuple(
        Step(function, function, (("step", at - 1) if at else ("tensor", 0), ("tensor", at + 1)), False)
        for at, function in enumerate(functions)
    )
    output = Output(result, "f32", ("step", len(steps) - 1))
    grid = capabilities.grid(-(-rows * columns // ELEMENTWISE_PER_WORKGROUP))
    return relaunched(Mapped((rows, columns), steps, tuple(tensors), (), (output,)), grid)


def _is_there(view: View, at: int, late: int, uses: Uses, is_temporary: Callable[[Buffer], bool]) -> bool:
    """The view holds at `late` what it did at `at`, and would be kept until then anyway."""
    is_kept = not is_temporary(view.buffer) or max(uses.readers[view.buffer]) >= late
    return is_kept and not any(at < writer < late for writer in uses.writers[view.buffer])


def _known_at(one: Recorded, at: int, but: Buffer, uses: Uses) -> int:
    """The last launch that computes what this one needs besides: it waits for that in any case."""
    writers = [
        writer for view in one.reads if view.buffer is not but for writer in uses.writers[view.buffer] if writer < at
    ]
    return max(writers, default=at - 1)


def written_over(nodes: Nodes) -> dict[Buffer, Buffer]:
    """Have map functions write their results over what they read for the last time; which buffer is then which."""
    names: dict[Buffer, Buffer] = {}
    for at, node in nodes.items():
        expression = node.map or node.after
        if expression is None:
            continue
        for place, output in enumerate(expression.outputs):
            number = _replaceable(nodes, at, node, expression, output)
            if number is None:
                continue
            over = expression.tensors[number].view.buffer
            names[output.view.buffer] = names.get(over, over)
            expression = with_value(expression, number, ("old", place))
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
    """The number of a tensor that the output can lie over."""
    target = output.view
    if not nodes.is_temporary(target.buffer) or nodes.writers[target.buffer] != {at} or not _is_whole(target):
        return None
    others = [] if node.map is not None else node.recorded.reads
    for number, one in enumerate(expression.tensors):
        buffer = one.view.buffer
        if (
            nodes.is_temporary(buffer)
            and _is_whole(one.view)
            and buffer.nbytes == target.buffer.nbytes == 4 * expression.size
            and one.type == output.type
            and expression.is_flat(number)
            and max(nodes.readers[buffer]) == at
            and max(nodes.writers[buffer]) < at
            and not overlaps(one.view, others)
            and all(other == one for other in expression.tensors if other.view.buffer is buffer)
        ):
            return number
    return None


def _is_whole(view: View) -> bool:
    return view.offset == 0 and view.nbytes == view.buffer.nbytes
