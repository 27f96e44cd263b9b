"""Rules with state per row and per column, from the papers; vectors as the authors' code has them."""

import numpy as np

__all__ = ["came", "sm3"]


def _each(params, grads, maximize):
    """Each parameter with its gradients, in float64."""
    sign = -1.0 if maximize else 1.0
    for index, param in enumerate(params):
        yield param.astype(np.float64), [sign * grad[index].astype(np.float64) for grad in grads]


def came(
    params,
    grads,
    *,
    lr,
    eps=(1e-30, 1e-16),
    clip_threshold=1.0,
    betas=(0.9, 0.999, 0.9999),
    weight_decay=0.0,
    maximize=False,
):
    """Luo et al. 2023, algorithm 2, with means for sums."""
    results, states = [], []
    for param, its_grads in _each(params, grads, maximize):
        is_matrix = param.ndim > 1
        momentum, row, column, res_row, res_column, square = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for g in its_grads:
            if is_matrix:
                row = betas[1] * row + (1 - betas[1]) * np.mean(g**2 + eps[0], -1)
                column = betas[1] * column + (1 - betas[1]) * np.mean(g**2 + eps[0], -2)
                square = _outer(row, column)
            else:
                square = betas[1] * square + (1 - betas[1]) * (g**2 + eps[0])
            u = g / np.sqrt(square)
            u = u / max(1.0, np.sqrt(np.mean(u**2)) / clip_threshold)
            momentum = betas[0] * momentum + (1 - betas[0]) * u
            step = momentum
            if is_matrix:
                residual = (u - momentum) ** 2 + eps[1]
                res_row = betas[2] * res_row + (1 - betas[2]) * residual.mean(-1)
                res_column = betas[2] * res_column + (1 - betas[2]) * residual.mean(-2)
                step = momentum / np.sqrt(_outer(res_row, res_column))
            param = param - lr * (weight_decay * param + step)
        results.append(param)
        state = {"step": float(len(its_grads)), "exp_avg": momentum}
        factors = {
            "exp_avg_sq_row": row,
            "exp_avg_sq_col": column,
            "exp_avg_res_row": res_row,
            "exp_avg_res_col": res_column,
        }
        states.append({**state, **(factors if is_matrix else {"exp_avg_sq": square})})
    return results, states


def _outer(row, column):
    """The matrix of rank 1 with these means of its rows and of its columns."""
    return row[..., :, None] * column[..., None, :] / row.mean(-1)[..., None, None]


def sm3(params, grads, *, lr, momentum=0.9, eps=1e-8, maximize=False):
    """Anil et al. 2019, SM3-II over the rows and columns of each matrix, or over the elements of a vector."""
    results, states = [], []
    for param, its_grads in _each(params, grads, maximize):
        average, mu_row, mu_column, mu = 0.0, np.zeros(1), np.zeros(1), 0.0
        for g in its_grads:
            nu = (np.minimum(mu_row, mu_column) if param.ndim > 1 else mu) + g**2
            if param.ndim > 1:
                mu_row, mu_column = nu.max(-1, keepdims=True), nu.max(-2, keepdims=True)
            mu = nu
            average = momentum * average + (1 - momentum) * g / np.sqrt(nu + eps)
            param = param - lr * average
        results.append(param)
        state = {"momentum_buffer": average} if momentum else {}
        states.append({**state, **({"mu_row": mu_row, "mu_col": mu_column} if param.ndim > 1 else {"mu": mu})})
    return results, states
