"""Optimizers around optimizers, from the papers."""

import numpy as np

__all__ = ["fedprox", "metasgd", "ranger"]


def fedprox(params, grads, *, lr, mu=0.01, momentum=0.0, weight_decay=0.0, maximize=False):
    """Li et al. 2020: SGD on F_k(w) + mu/2 ‖w - w^t‖², where w^t is the model at the beginning of the round."""
    results, states = [], []
    for index, param in enumerate(params):
        server = param.astype(np.float64)
        w, velocity = server, np.zeros_like(server)
        for step_grads in grads:
            loss_gradient = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64)
            velocity = momentum * velocity + (loss_gradient + weight_decay * w + mu * (w - server))
            w = w - lr * velocity
        results.append(w)
        states.append({"global_param": server, **({"momentum_buffer": velocity} if momentum else {})})
    return results, states


def ranger(
    params, grads, *, lr, alpha=0.5, k=6, betas=(0.95, 0.999), eps=1e-5, weight_decay=0.0, maximize=False,
    decoupled_weight_decay=False,
):  # fmt: skip
    """Zhang et al. 2019, algorithm 1, around Liu et al. 2020, algorithm 2, with torch's bound and place of eps."""
    beta1, beta2 = betas
    longest = 2 / (1 - beta2) - 1
    results, states = [], []
    for index, param in enumerate(params):
        fast = slow = param.astype(np.float64)
        first, second = np.zeros_like(fast), np.zeros_like(fast)
        for t, step_grads in enumerate(grads, 1):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64)
            if decoupled_weight_decay:
                fast = fast * (1 - lr * weight_decay)
            else:
                g = g + weight_decay * fast
            first = beta1 * first + (1 - beta1) * g
            second = beta2 * second + (1 - beta2) * g * g
            corrected = first / (1 - beta1**t)
            length = longest - 2 * t * beta2**t / (1 - beta2**t)
            if length > 5:
                variance = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
                denominator = (np.sqrt(second) + eps) / np.sqrt(1 - beta2**t)
                fast = fast - lr * np.sqrt(variance) * corrected / denominator
            else:
                fast = fast - lr * corrected
            if t % k == 0:
                slow = slow + alpha * (fast - slow)
                fast = slow
        results.append(fast)
        states.append({"step": float(len(grads)), "exp_avg": first, "exp_avg_sq": second, "slow_param": slow})
    return results, states


def metasgd(params, grads, *, lr, meta_lr=None, maximize=False):
    """Li et al. 2017, equation 2, with the alpha of the beginning in every step."""
    sign = -1.0 if maximize else 1.0
    results = [
        param.astype(np.float64) - lr * sign * sum(grad[index].astype(np.float64) for grad in grads)
        for index, param in enumerate(params)
    ]
    return results, [{"alpha": np.full_like(result, lr)} for result in results]
