"""Between our state dicts and torch's. Ours load from torch's as they are; this is the way back."""

from __future__ import annotations

from typing import Any

__all__ = ["to_torch"]


def to_torch(tree: Any) -> Any:
    """The same nesting of dicts, lists and tuples with torch tensors in place of arrays and tensors of ours.

    ``torch_optimizer.load_state_dict(to_torch(ours.state_dict()))`` continues our run in torch.

    Raises:
        ImportError: torch is not installed.
    """
    import numpy as np
    import torch

    if isinstance(tree, dict):
        return {key: to_torch(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(to_torch(value) for value in tree)
    if hasattr(tree, "__array__"):
        return torch.from_numpy(np.array(tree))
    return tree
