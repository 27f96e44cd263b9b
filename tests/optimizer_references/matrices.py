"""Rules with matrix products, in float64, from the papers and torch's documentation."""

from random import Random

import numpy as np

__all__ = ["galore", "muon", "shampoo", "soap"]


def muon(
    params,
    grads,
    *,
    lr,
    weight_decay=0.1,
    momentum=0.95,
    nesterov=True,
    ns_coefficients=(3.4445, -4.7750, 2.0315),
    eps=1e-7,
    ns_steps=5,
    adjust_lr_fn=None,
    maximize=False,
):
    """Jordan et al. 2024 as torch.optim.Muon, which computes the iteration in bfloat16."""
    a, b, c = ns_coefficients
    results, states = [], []
    for index, param in enumerate(params):
        param = param.astype(np.float64)
        buffer = np.zeros_like(param)
        rows, columns = param.shape
        ratio = (
            0.2 * np.sqrt(max(rows, columns)) if adjust_lr_fn == "match_rms_adamw" else np.sqrt(max(1, rows / columns))
        )
        for step_grads in grads:
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64)
            buffer = momentum * buffer + (1 - momentum) * g
            x = (1 - momentum) * g + momentum * buffer if nesterov else buffer
            x = x.T if rows > columns else x
            x = x / max(np.linalg.norm(x), eps)
            for _ in range(ns_steps):
                gram = x @ x.T
                x = a * x + (b * gram + c * gram @ gram) @ x
            x = x.T if rows > columns else x
            param = param * (1 - lr * weight_decay) - lr * ratio * x
        results.append(param)
        states.append({"momentum_buffer": buffer})
    return results, states


def inverse_root(matrix, order, eps):
    """(matrix + ridge)^(-1/order); the ridge is eps, or 1e-6 of the norm if that is more."""
    ridge = max(eps, 1e-6 * np.linalg.norm(matrix))
    values, vectors = np.linalg.eigh(matrix + ridge * np.eye(len(matrix)))
    return (vectors * values ** (-1 / order)) @ vectors.T


def shampoo(
    params,
    grads,
    *,
    lr=0.1,
    momentum=0.0,
    weight_decay=0.0,
    eps=1e-4,
    update_freq=1,
    max_preconditioner_dim=2048,
    maximize=False,
):
    """Gupta et al. 2018, algorithm 1; vectors with one preconditioner, more than two dimensions as (first, others)."""
    results, states = [], []
    for index, param in enumerate(params):
        w = param.astype(np.float64).reshape(len(param), -1)
        modes = [axis for axis in range(min(param.ndim, 2)) if w.shape[axis] <= max_preconditioner_dim]
        statistics = {axis: np.zeros((w.shape[axis],) * 2) for axis in modes}
        roots = {}
        buffer = np.zeros_like(w)
        for step, step_grads in enumerate(grads):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64).reshape(w.shape) + weight_decay * w
            for axis in modes:
                statistics[axis] += g.T @ g if axis else g @ g.T
                if step % update_freq == 0:
                    roots[axis] = inverse_root(statistics[axis], 2 * len(modes), eps)
            buffer = momentum * buffer + roots.get(0, np.eye(w.shape[0])) @ g @ roots.get(1, np.eye(w.shape[1]))
            w = w - lr * buffer
        results.append(w.reshape(param.shape))
        named = {"LR"[axis]: value for axis, value in statistics.items()}
        named |= {"root_" + "LR"[axis]: value for axis, value in roots.items()}
        states.append({"step": float(len(grads)), "momentum_buffer": buffer.reshape(param.shape), **named})
    return results, states


def soap(
    params,
    grads,
    *,
    lr,
    betas=(0.95, 0.95),
    shampoo_beta=-1.0,
    eps=1e-8,
    weight_decay=0.01,
    precondition_frequency=10,
    max_precond_dim=1024,
    precondition_1d=False,
    correct_bias=True,
    maximize=False,
):
    """Vyas et al. 2024, algorithms 3 and 4; exp_avg is kept as in algorithm 3, in the basis of the parameters."""
    beta = shampoo_beta if shampoo_beta >= 0 else betas[1]
    results, states = [], []
    for index, param in enumerate(params):
        w = param.astype(np.float64).reshape(len(param), -1)
        axes = range(min(param.ndim, 2)) if param.ndim > 1 or precondition_1d else ()
        modes = [axis for axis in axes if w.shape[axis] <= max_precond_dim]
        statistics = {axis: np.zeros((w.shape[axis],) * 2) for axis in modes}
        bases = {0: np.eye(w.shape[0]), 1: np.eye(w.shape[1])}
        first, second = np.zeros_like(w), np.zeros_like(w)
        for step, step_grads in enumerate(grads):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64).reshape(w.shape)
            left, right = bases[0], bases[1]
            if step:
                first = betas[0] * first + (1 - betas[0]) * g
                second = betas[1] * second + (1 - betas[1]) * (left.T @ g @ right) ** 2
                turned = left.T @ first @ right / (np.sqrt(second) + eps)
                scale = np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step) if correct_bias else 1.0
                w = (w - lr * scale * left @ turned @ right.T) * (1 - lr * weight_decay)
            for axis in modes:
                statistics[axis] = beta * statistics[axis] + (1 - beta) * (g.T @ g if axis else g @ g.T)
                if step == 0:
                    bases[axis] = np.linalg.eigh(statistics[axis])[1][:, ::-1]
                elif step % precondition_frequency == 0:
                    bases[axis] = np.linalg.qr(statistics[axis] @ bases[axis])[0]
        results.append(w.reshape(param.shape))
        named = {"LR"[axis]: value for axis, value in statistics.items()}
        states.append({"step": float(len(grads)), "exp_avg_sq": second.reshape(param.shape), **named})
    return results, states


def galore(
    params,
    grads,
    *,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    rank=128,
    update_proj_gap=200,
    scale=0.25,
    maximize=False,
):
    """Zhao et al. 2024, algorithm 2, with 5 orthogonal iterations from the same numbers in place of an SVD."""
    results, states = [], []
    for index, param in enumerate(params):
        w = param.astype(np.float64).reshape(len(param), -1)
        is_tall = w.shape[0] > w.shape[1]
        w = w.T if is_tall else w
        r = min(rank, len(w))
        first, second = np.zeros((r, w.shape[1])), np.zeros((r, w.shape[1]))
        for step, step_grads in enumerate(grads, 1):
            g = (-1.0 if maximize else 1.0) * step_grads[index].astype(np.float64).reshape(len(param), -1)
            g = g.T if is_tall else g
            if (step - 1) % update_proj_gap == 0:
                random = Random(0)
                p = np.array([random.gauss(0.0, 1.0) for _ in range(len(w) * r)]).reshape(-1, r)
                for _ in range(5):
                    p, triangle = np.linalg.qr(g @ g.T @ p)
                    p = p * np.where(np.diag(triangle) < 0, -1.0, 1.0)
            projected = p.T @ g
            first = betas[0] * first + (1 - betas[0]) * projected
            second = betas[1] * second + (1 - betas[1]) * projected**2
            n = first / (1 - betas[0] ** step) / (np.sqrt(second / (1 - betas[1] ** step)) + eps)
            w = w - lr * (weight_decay * w + scale * p @ n)
        w, first, second = (array.T if is_tall else array for array in (w, first, second))
        results.append(w.reshape(param.shape))
        states.append({"step": float(len(grads)), "projector": p, "exp_avg": first, "exp_avg_sq": second})
    return results, states
