"""Optimizers in float64 NumPy, written from the papers and torch's documentation, apart from the WGSL."""

import numpy as np


def sgd(param, grads, *, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    """Sutskever et al. 2013 in torch's form; returns the parameter and {"momentum_buffer"}."""
    param = param.astype(np.float64)
    buffer = None
    for grad in grads:
        g = (-1.0 if maximize else 1.0) * grad.astype(np.float64) + weight_decay * param
        if momentum:
            buffer = g.copy() if buffer is None else momentum * buffer + (1 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        param = param - lr * g
    return param, {"momentum_buffer": buffer} if momentum else {}


def adam(
    param,
    grads,
    *,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    amsgrad=False,
    maximize=False,
    decoupled=False,
):
    """Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2; Reddi et al. 2018 as in torch."""
    param = param.astype(np.float64)
    first, second, largest = (np.zeros_like(param) for _ in range(3))
    for step, grad in enumerate(grads, 1):
        g = (-1.0 if maximize else 1.0) * grad.astype(np.float64)
        if decoupled:
            param = param * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * param
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g**2
        largest = np.maximum(largest, second)
        corrected = (largest if amsgrad else second) / (1 - betas[1] ** step)
        param = param - lr * (first / (1 - betas[0] ** step)) / (np.sqrt(corrected) + eps)
    state = {"step": float(len(grads)), "exp_avg": first, "exp_avg_sq": second}
    return param, {**state, "max_exp_avg_sq": largest} if amsgrad else state
