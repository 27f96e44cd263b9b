"""What fusion does besides where a step moves much: memory is saved, and launches that could run at once become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .backend import Capabilities
from .buffer import Buffer
from .concatenation import concatenated
from .fusion_nodes import Nodes
from .launches import Recorded
from .merging import merge
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
    return recomputed(joined, is_temporary, capabilities, allocate, merges=_merges(capabilities))


def finished(nodes: Nodes, capabilities: Capabilities) -> list[Recorded]:
    """Return the launches and copies that fused nodes become, merged where that is faster."""
    names = written_over(nodes)
    launches = [renamed(one, names) for one in nodes.as_recorded()]
    return merge(launches, capabilities) if _merges(capabilities) else launches


def _merges(capabilities: Capabilities) -> bool:
    """Return whether merged launches are faster: not on adapters that compute on the processor.

    These skip no branch: each workgroup of a merged launch takes the time of all its parts.
    """
    return not capabilities.quads
