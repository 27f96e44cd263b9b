"""torch: every optimizer of `optirs_web.optim` as a `torch.optim.Optimizer` over torch parameters, and state dicts.

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)        # in place of this line
    optimizer = ow.interop.torch.AdamW(model.parameters(), lr=1e-3)   # this one

Our optimizers load torch's state dicts unchanged; `to_torch` converts ours for torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from .. import optim

__all__ = ["to_torch"]


def to_torch(tree: Any) -> Any:
    """Convert the arrays and tensors of nested dicts, lists and tuples to torch tensors.

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


def __getattr__(name: str) -> Any:
    """Return the optimizer class of that name for torch, which is made at its first use."""
    if not _is_optimizer(name):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    class_ = importlib.import_module(".torch_optimizer", __package__).made_for_torch(name)
    globals()[name] = class_
    return class_


def __dir__() -> list[str]:
    return sorted({*__all__, *filter(_is_optimizer, dir(optim))})


def _is_optimizer(name: str) -> bool:
    ours = getattr(optim, name) if name in dir(optim) else None
    return isinstance(ours, type) and issubclass(ours, optim.Optimizer)
