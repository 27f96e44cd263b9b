"""Rules with norms of whole tensors, from the papers."""

import numpy as np

__all__ = ["lamb"]


def lamb(params, grads, *, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, bias_correction=True, maximize=False):
    """You et al. 2020, algorithm 2, with phi the identity."""
    results, states = [], []
    for index, param in enumerate(params):
        param = param.astype(np.float64)
        first, second = np.zeros_like(param), np.zeros_like(param)
        for step, step_grads in enumerate(grads, 1):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64)
            first = betas[0] * first + (1 - betas[0]) * g
            second = betas[1] * second + (1 - betas[1]) * g**2
            m = first / (1 - betas[0] ** step) if bias_correction else first
            v = second / (1 - betas[1] ** step) if bias_correction else second
            direction = m / (np.sqrt(v) + eps) + weight_decay * param
            norms = np.linalg.norm(param), np.linalg.norm(direction)
            param = param - lr * (norms[0] / norms[1] if all(norms) else 1.0) * direction
        results.append(param)
        states.append({"step": float(len(grads)), "exp_avg": first, "exp_avg_sq": second})
    return results, states
