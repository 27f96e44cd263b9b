"""APOLLO in float64, from the paper."""

import numpy as np

from .gradients import noise

__all__ = ["apollo"]


def apollo(
    params,
    grads,
    *,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    rank=128,
    update_proj_gap=200,
    scale=1.0,
    scale_type="channel",
    gamma=1.01,
    seed=0,
    maximize=False,
):
    """Zhu et al. 2024, algorithm 1 and equation 4, with the corrections of their code; P as `optim.APOLLO` says."""
    results, states = [], []
    for index, param in enumerate(params):
        is_projected = param.ndim == 2 and min(param.shape) > rank
        w = param.astype(np.float64)
        is_tall = is_projected and w.shape[0] > w.shape[1]
        w = w.T if is_tall else w
        first = second = np.zeros((rank, w.shape[1]) if is_projected else w.shape)
        length = 0.0
        for step, step_grads in enumerate(grads, 1):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64)
            g = g.T if is_tall else g
            r = g
            if is_projected:
                drawn = noise(rank * len(g), seed, index, (step - 1) // update_proj_gap)
                r = drawn.reshape(rank, -1) / np.sqrt(rank) @ g
            first = betas[0] * first + (1 - betas[0]) * r
            second = betas[1] * second + (1 - betas[1]) * r**2
            correction1, correction2 = (1 - beta**step for beta in betas)
            adapted = first / correction1 / (np.sqrt(second / correction2) + eps)
            if is_projected:
                adapted = first / (np.sqrt(second) + eps)
                axis = 0 if scale_type == "channel" else None
                scaled = g * np.linalg.norm(adapted, axis=axis) / np.linalg.norm(r, axis=axis)
                if gamma and length and np.linalg.norm(scaled) > gamma * length:
                    scaled *= gamma * length / np.linalg.norm(scaled)
                length = np.linalg.norm(scaled)
                adapted = scale * scaled * np.sqrt(correction2) / correction1
            w = w - lr * (weight_decay * w + adapted)
        results.append(w.T if is_tall else w)
        moments = {"exp_avg": first, "exp_avg_sq": second}
        moments = {name: moment.T if is_tall else moment for name, moment in moments.items()}
        states.append({"step": float(len(grads)), "norm": length, **moments})
    return results, states
