"""torch.optim in float64 with sparse gradients: pairs of rows and values, where -1 is no row."""

import numpy as np
import torch

from .torch_twins import make

__all__ = ["run", "sparse", "steps"]


def sparse(pair, shape):
    """torch's sparse tensor."""
    rows, values = (np.asarray(values) for values in pair)
    kept = rows >= 0
    values = torch.tensor(values[kept].reshape(-1, *shape[1:]), dtype=torch.float64)
    indices = torch.tensor(rows[kept][None], dtype=torch.long)
    return torch.sparse_coo_tensor(indices, values, tuple(shape))


def steps(theirs, optimizer, grads):
    """A step with each list of gradients: pairs, dense arrays or None."""
    with torch.sparse.check_sparse_tensor_invariants():
        for step_grads in grads:
            for param, grad in zip(theirs, step_grads, strict=True):
                if isinstance(grad, tuple):
                    param.grad = sparse(grad, param.shape)
                else:
                    param.grad = None if grad is None else torch.tensor(grad, dtype=torch.float64)
            optimizer.step()


def run(params, grads, *, name, **options):
    """The parameters and state after these gradients."""
    theirs, optimizer = make(name, params, **options)
    steps(theirs, optimizer, grads)
    state = optimizer.state_dict()["state"]
    return [reference.detach().numpy() for reference in theirs], [
        {key: _dense(value) for key, value in state.get(index, {}).items()} for index in range(len(params))
    ]


def _dense(value):
    return np.asarray(value.to_dense() if getattr(value, "is_sparse", False) else value)
