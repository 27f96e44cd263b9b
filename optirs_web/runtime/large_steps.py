"""Fusion of large steps: values are computed again or written over others, to save memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .backend import Capabilities
from .buffer import Buffer
from .concatenation import concatenated
from .fusion_nodes import Nodes
from .launches import Recorded
from .saving import recomputed, written_over
from .uses import renamed

__all__ = ["finished", "prepared"]


def prepared(
    recorded: Sequence[Recorded],
    is_temporary: Callable[[Buffer], bool],
    capabilities: Capabilities,
    allocate: Callable[[int], Buffer],
) -> list[Recorded]:
    """Launches and copies that are better to fuse; see `fusion.fuse` for the arguments."""
    joined = concatenated(recorded, is_temporary, allocate)
    return recomputed(joined, is_temporary, capabilities, allocate)


def finished(nodes: Nodes) -> list[Recorded]:
    """Return the launches and copies that fused nodes become, results written over operands read for the last time."""
    names = written_over(nodes)
    return [renamed(launch, names) for launch in nodes.as_recorded()]
