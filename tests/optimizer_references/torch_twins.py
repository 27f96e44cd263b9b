"""torch.optim in float64."""

import numpy as np
import torch

__all__ = ["make", "run", "steps"]


def make(name, params, **options):
    """Parameters of torch, and its optimizer over them."""
    theirs = [torch.nn.Parameter(torch.tensor(param, dtype=torch.float64)) for param in params]
    return theirs, getattr(torch.optim, name)(theirs, **options)


def steps(theirs, optimizer, grads):
    """A step with each list of gradients."""
    for step_grads in grads:
        for param, grad in zip(theirs, step_grads, strict=True):
            param.grad = torch.tensor(grad, dtype=param.dtype)
        optimizer.step()


def run(params, grads, *, name, **options):
    """The parameters and state after these gradients."""
    theirs, optimizer = make(name, params, **options)
    steps(theirs, optimizer, grads)
    state = optimizer.state_dict()["state"]
    return [reference.detach().numpy() for reference in theirs], [
        {key: np.asarray(value) for key, value in state.get(index, {}).items()} for index in range(len(params))
    ]
