"""Element-wise rules of today in float64, from the papers and, where it says so, from the authors' releases."""

import numpy as np

__all__ = [
    "adabound",
    "adamw_schedule_free",
    "adan",
    "adopt",
    "cautious_adamw",
    "cautious_lion",
    "diagonal_newton",
    "ftrl",
    "mars",
    "sgd_schedule_free",
    "signum",
    "sophia",
]


def each(params, grads, maximize, make):
    """`make(param)` gives a generator of one parameter: sent a gradient, it yields the parameter and its state."""
    results, states = [], []
    for index, param in enumerate(params):
        steps = make(np.asarray(param, np.float64))
        next(steps)
        for step_grads in grads:
            sign = -1.0 if maximize else 1.0
            result, state = steps.send(sign * np.asarray(step_grads[index], np.float64))
        results.append(result)
        states.append(state)
    return results, states


def signum(params, grads, *, lr, momentum=0.9, weight_decay=0.0, maximize=False):
    """Bernstein et al. 2018, algorithms 1 and 2, with the weight decay of their experiments."""

    def steps(w):
        m, state = np.zeros_like(w), {}
        while True:
            g = yield w, state
            m = momentum * m + (1 - momentum) * g
            w = w - lr * np.sign(m) - lr * weight_decay * w
            state = {"exp_avg": m} if momentum else {}

    return each(params, grads, maximize, steps)


def cautious_adamw(params, grads, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, maximize=False):
    """Liang et al. 2024, algorithm 1, with the mask of the authors' release."""

    def steps(w):
        m, v, state, t = np.zeros_like(w), np.zeros_like(w), {}, 0
        while True:
            g = yield w, state
            t += 1
            m = betas[0] * m + (1 - betas[0]) * g
            v = betas[1] * v + (1 - betas[1]) * g**2
            u = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
            mask = (u * g > 0).astype(np.float64)
            w = w * (1 - lr * weight_decay) - lr * u * mask / max(mask.mean(), 1e-3)
            state = {"step": float(t), "exp_avg": m, "exp_avg_sq": v}

    return each(params, grads, maximize, steps)


def cautious_lion(params, grads, *, lr, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
    """Liang et al. 2024, algorithm 2, as in the authors' release."""

    def steps(w):
        m, state = np.zeros_like(w), {}
        while True:
            g = yield w, state
            u = np.sign(betas[0] * m + (1 - betas[0]) * g)
            mask = (u * g > 0).astype(np.float64)
            w = w * (1 - lr * weight_decay) - lr * u * mask * mask.size / (mask.sum() + 1)
            m = betas[1] * m + (1 - betas[1]) * g
            state = {"exp_avg": m}

    return each(params, grads, maximize, steps)


def adan(params, grads, *, lr, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.0, no_prox=False, maximize=False):
    """Xie et al. 2022, algorithm 1, in the paper's betas; bias corrections and `no_prox` as in the authors' release."""
    beta1, beta2, beta3 = (1 - beta for beta in betas)

    def steps(w):
        m, v, n, before, state, t = *np.zeros((3, *w.shape)), None, {}, 0
        while True:
            g = yield w, state
            t += 1
            d = g - (g if before is None else before)
            m = (1 - beta1) * m + beta1 * g
            v = (1 - beta2) * v + beta2 * d
            n = (1 - beta3) * n + beta3 * (g + (1 - beta2) * d) ** 2
            m_hat, v_hat, n_hat = (
                moment / (1 - (1 - beta) ** t) for moment, beta in ((m, beta1), (v, beta2), (n, beta3))
            )
            u = (m_hat + (1 - beta2) * v_hat) / (np.sqrt(n_hat) + eps)
            w = w * (1 - lr * weight_decay) - lr * u if no_prox else (w - lr * u) / (1 + lr * weight_decay)
            before = g
            state = {"step": float(t), "exp_avg": m, "exp_avg_diff": v, "exp_avg_sq": n, "neg_pre_grad": -g}

    return each(params, grads, maximize, steps)


def adopt(params, grads, *, lr, betas=(0.9, 0.9999), eps=1e-6, weight_decay=0.0, decouple=False, maximize=False):
    """Taniguchi et al. 2024, algorithm 2, with the weight decay of the authors' release."""

    def steps(w):
        g = yield w, {}
        g = g if decouple else g + weight_decay * w
        m, v, t = np.zeros_like(w), g**2, 0
        while True:
            g = yield w, {"step": float(t + 1), "exp_avg": m, "exp_avg_sq": v}
            t += 1
            if decouple:
                w = w * (1 - lr * weight_decay)
            else:
                g = g + weight_decay * w
            clipped = np.clip(g / np.maximum(np.sqrt(v), eps), -(t**0.25), t**0.25)
            m = betas[0] * m + (1 - betas[0]) * clipped
            w = w - lr * m
            v = betas[1] * v + (1 - betas[1]) * g**2

    return each(params, grads, maximize, steps)


def adabound(
    params,
    grads,
    *,
    lr,
    betas=(0.9, 0.999),
    final_lr=0.1,
    gamma=1e-3,
    eps=1e-8,
    weight_decay=0.0,
    amsbound=False,
    maximize=False,
):
    """Luo et al. 2019, algorithms 2 and 3, as in the authors' release."""

    def steps(w):
        m, v, largest, state, t = *np.zeros((3, *w.shape)), {}, 0
        while True:
            g = yield w, state
            t += 1
            g = g + weight_decay * w
            m = betas[0] * m + (1 - betas[0]) * g
            v = betas[1] * v + (1 - betas[1]) * g**2
            largest = np.maximum(largest, v)
            rate = lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)
            rate = rate / (np.sqrt(largest if amsbound else v) + eps)
            lower, upper = final_lr * (1 - 1 / (gamma * t + 1)), final_lr * (1 + 1 / (gamma * t))
            w = w - np.clip(rate, lower, upper) * m
            state = {"step": float(t), "exp_avg": m, "exp_avg_sq": v}
            if amsbound:
                state["max_exp_avg_sq"] = largest

    return each(params, grads, maximize, steps)


def mars(
    params,
    grads,
    *,
    lr,
    betas=(0.95, 0.99),
    eps=1e-8,
    weight_decay=0.0,
    amsgrad=False,
    gamma=0.025,
    maximize=False,
):
    """Yuan et al. 2024, algorithm 2, with the gradient before the first 0 as in the authors' release."""

    def steps(w):
        m, v, largest, before, state, t = *np.zeros((4, *w.shape)), {}, 0
        while True:
            g = yield w, state
            t += 1
            c = g + gamma * betas[0] / (1 - betas[0]) * (g - before)
            c = c / max(np.linalg.norm(c), 1.0)
            m = betas[0] * m + (1 - betas[0]) * c
            v = betas[1] * v + (1 - betas[1]) * c**2
            largest = np.maximum(largest, v)
            m_hat, v_hat = m / (1 - betas[0] ** t), (largest if amsgrad else v) / (1 - betas[1] ** t)
            w = w - lr * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * w)
            before = g
            state = {"step": float(t), "exp_avg": m, "exp_avg_sq": v, "last_grad": g}

    return each(params, grads, maximize, steps)


def ftrl(params, grads, *, lr, beta=1.0, lambda1=0.0, lambda2=0.0, maximize=False):
    """McMahan et al. 2013, algorithm 1, with z so that beta pulls to where the parameter begins, which is 0 there."""

    def steps(w):
        z, n, state = -beta / lr * w, np.zeros_like(w), {}
        while True:
            g = yield w, state
            sigma = (np.sqrt(n + g**2) - np.sqrt(n)) / lr
            z = z + g - sigma * w
            n = n + g**2
            w = np.where(np.abs(z) <= lambda1, 0.0, -(z - np.sign(z) * lambda1) / ((beta + np.sqrt(n)) / lr + lambda2))
            state = {"linear": z, "accumulator": n}

    return each(params, grads, maximize, steps)


def sgd_schedule_free(params, grads, *, momentum=0.9, **options):
    """Defazio et al. 2024, equations 2 to 4."""
    return schedule_free(params, grads, beta=momentum, direction=lambda g, v, t: g, **options)


def adamw_schedule_free(params, grads, *, betas=(0.9, 0.999), eps=1e-8, **options):
    """Defazio et al. 2024, algorithm 1, where eps is added to the root as in the authors' release."""

    def direction(g, v, t):
        v *= betas[1]
        v += (1 - betas[1]) * g**2
        return g / (np.sqrt(v / (1 - betas[1] ** t)) + eps)

    return schedule_free(params, grads, beta=betas[0], direction=direction, **options)


def schedule_free(
    params,
    grads,
    *,
    lr,
    beta,
    direction,
    weight_decay=0.0,
    warmup_steps=0,
    r=0.0,
    weight_lr_power=2.0,
    maximize=False,
    average=False,
):
    """The parameters are y, or with `average` x; weights and warm-up are those of the authors' release."""

    def steps(w):
        x, y, z, v = w, w, w, np.zeros_like(w)
        t, total, lr_max, state = 0, 0.0, 0.0, {}
        while True:
            g = yield (x if average else y), state
            t += 1
            rate = lr * min(t / max(warmup_steps, 1), 1)
            lr_max = max(lr_max, rate)
            weight = t**r * lr_max**weight_lr_power
            total += weight
            z = z - rate * (direction(g, v, t) + weight_decay * y)
            x = (1 - weight / total) * x + weight / total * z
            y = (1 - beta) * z + beta * x
            state = {"step": float(t), "z": z, "lr_max": lr_max, "weight_sum": total / weight}

    return each(params, grads, maximize, steps)


def sophia(
    params,
    grads,
    *,
    lr,
    diagonals,
    betas=(0.96, 0.99),
    eps=1e-12,
    weight_decay=0.0,
    gamma=0.01,
    clip_threshold=1.0,
    update_interval=10,
    maximize=False,
    **_,
):
    """Liu et al. 2023, algorithm 3; `diagonals(estimate, index)` is an estimate for a parameter."""
    indices = iter(range(len(params)))

    def steps(w):
        index, m, h, state, t = next(indices), np.zeros_like(w), np.zeros_like(w), {}, 0
        while True:
            g = yield w, state
            if t % update_interval == 0:
                estimate = (-1.0 if maximize else 1.0) * diagonals(t // update_interval, index)
                h = betas[1] * h + (1 - betas[1]) * estimate
            t += 1
            m = betas[0] * m + (1 - betas[0]) * g
            w = w - lr * weight_decay * w
            w = w - lr * np.clip(m / np.maximum(gamma * h, eps), -clip_threshold, clip_threshold)
            state = {"step": float(t), "exp_avg": m, "hessian": h}

    return each(params, grads, maximize, steps)


def diagonal_newton(params, grads, *, lr=1.0, damping=1e-4, diagonal, maximize=False):
    """Becker & LeCun 1988: the diagonal in absolute value, plus mu."""
    inputs = iter(diagonal())

    def steps(w):
        h = np.asarray(next(inputs), np.float64)
        g = yield w, {}
        while True:
            w = w - lr * g / (np.abs(h) + damping)
            g = yield w, {"hessian": h}

    return each(params, grads, maximize, steps)
