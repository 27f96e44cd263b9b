"""Rules with norms of whole tensors, from the papers; those that estimate a distance, with the details of the authors'
releases (`prodigyopt` 1.1.2, `dadaptation` 3.2), with which these references agree."""

import numpy as np

__all__ = ["adam_mini", "dadapt_adagrad", "dadapt_adam", "dadapt_sgd", "lamb", "lars", "prodigy"]


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


def lars(
    params,
    grads,
    *,
    lr,
    momentum=0.9,
    weight_decay=0.0,
    trust_coefficient=1e-3,
    eps=0.0,
    nesterov=False,
    maximize=False,
):
    """You et al. 2017, algorithm 1; the ratio is 1 where it would be 0 or 1 / 0."""
    params, grads = _in_float64(params, grads, maximize)
    velocities = [np.zeros_like(param) for param in params]
    for step_grads in grads:
        for i, (w, g) in enumerate(zip(params, step_grads, strict=True)):
            w_norm = np.sqrt(np.sum(w**2))
            divisor = np.sqrt(np.sum(g**2)) + weight_decay * w_norm
            local = trust_coefficient * w_norm / (divisor + eps) if w_norm and divisor else 1.0
            change = lr * local * (g + weight_decay * w)
            velocities[i] = momentum * velocities[i] + change
            params[i] = w - (change + momentum * velocities[i] if nesterov else velocities[i])
    return params, [{"momentum_buffer": velocity} for velocity in velocities] if momentum else [{} for _ in params]


def adam_mini(params, grads, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, maximize=False):
    """Zhang et al. 2024, where every tensor is one block."""
    params, grads = _in_float64(params, grads, maximize)
    states = []
    for i, w in enumerate(params):
        m, v = np.zeros_like(w), 0.0
        for t, step_grads in enumerate(grads, 1):
            w = w - lr * weight_decay * w
            m = (1 - betas[0]) * step_grads[i] + betas[0] * m
            v = (1 - betas[1]) * np.mean(step_grads[i] * step_grads[i]) + betas[1] * v
            w = w - lr * m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
        params[i] = w
        states.append({"step": float(len(grads)), "exp_avg": m, "exp_avg_sq": np.asarray(v)})
    return params, states


def prodigy(
    params,
    grads,
    *,
    lr=1.0,
    betas=(0.9, 0.999),
    beta3=None,
    eps=1e-8,
    weight_decay=0.0,
    decouple=True,
    use_bias_correction=False,
    safeguard_warmup=False,
    d0=1e-6,
    d_coef=1.0,
    growth_rate=np.inf,
    maximize=False,
):
    """Mishchenko & Defazio 2023. A gradient may be None: then that tensor rests."""
    params, grads = _in_float64(params, grads, maximize)
    beta1, beta2 = betas
    beta3 = np.sqrt(beta2) if beta3 is None else beta3
    starts = [None] * len(params)
    counts = [0] * len(params)
    s, m, v = ([np.zeros_like(param) for param in params] for _ in range(3))
    d = d_max = d0
    r = 0.0
    for k, step_grads in enumerate(grads, 1):
        correction = np.sqrt(1 - beta2**k) / (1 - beta1**k) if use_bias_correction else 1.0
        dlr = d * lr * correction
        r, l1 = beta3 * r, 0.0
        live = [i for i, g in enumerate(step_grads) if g is not None]
        for i in live:
            starts[i] = params[i] if starts[i] is None else starts[i]
            g = step_grads[i] + (0.0 if decouple else weight_decay * params[i])
            r += d / d0 * dlr * np.sum(g * (starts[i] - params[i]))
            m[i] = beta1 * m[i] + (1 - beta1) * d * g
            v[i] = beta2 * v[i] + (1 - beta2) * d**2 * g**2
            s[i] = beta3 * s[i] + d / d0 * (d if safeguard_warmup else dlr) * g
            l1 += np.abs(s[i]).sum()
        d_hat = d_coef * r / l1
        d = max(d, d_hat) if d == d0 else d
        d_max = max(d_max, d_hat)
        d = min(d_max, d * growth_rate)
        for i in live:
            decay = weight_decay * params[i] if decouple else 0.0
            params[i] = params[i] - dlr * (decay + m[i] / (np.sqrt(v[i]) + d * eps))
            counts[i] += 1
    shared = {"k": float(len(grads)), "d": d, "d_max": d_max, "d_numerator": r}
    return params, [
        {**_scalars(step=counts[i], **shared), "s": s[i], "p0": starts[i], "exp_avg": m[i], "exp_avg_sq": v[i]}
        for i in range(len(params))
    ]


def dadapt_adam(
    params,
    grads,
    *,
    lr=1.0,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    decouple=False,
    use_bias_correction=False,
    d0=1e-6,
    growth_rate=np.inf,
    maximize=False,
):
    """Defazio & Mishchenko 2023, the version for Adam."""
    params, grads = _in_float64(params, grads, maximize)
    beta1, beta2 = betas
    root = np.sqrt(beta2)
    s, m, v = ([np.zeros_like(param) for param in params] for _ in range(3))
    d, r = d0, 0.0
    for k, step_grads in enumerate(grads, 1):
        correction = np.sqrt(1 - beta2**k) / (1 - beta1**k) if use_bias_correction else 1.0
        dlr = d * lr * correction
        product = l1 = 0.0
        for i, g in enumerate(step_grads):
            g = g if decouple else g + weight_decay * params[i]
            product += dlr * np.sum(g * s[i] / (np.sqrt(v[i]) + eps))
            m[i] = beta1 * m[i] + (1 - beta1) * dlr * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            s[i] = root * s[i] + (1 - root) * dlr * g
            l1 += np.abs(s[i]).sum()
        r = root * r + (1 - root) * product
        d = max(d, min(r / ((1 - root) * l1), d * growth_rate))
        for i, p in enumerate(params):
            decay = dlr * weight_decay * p if decouple else 0.0
            params[i] = p - decay - m[i] / (np.sqrt(v[i]) + eps)
    shared = _scalars(step=len(grads), k=len(grads), d=d, numerator_weighted=r)
    return params, [{**shared, "s": s[i], "exp_avg": m[i], "exp_avg_sq": v[i]} for i in range(len(params))]


def dadapt_sgd(params, grads, *, lr=1.0, momentum=0.0, weight_decay=0.0, d0=1e-6, growth_rate=np.inf, maximize=False):
    """Defazio & Mishchenko 2023, the version for SGD."""
    params, grads = _in_float64(params, grads, maximize)
    starts = list(params)
    s = [np.zeros_like(param) for param in params]
    d, r = d0, 0.0
    g0_norm = np.sqrt(sum(np.sum(g**2) for g in grads[0]))
    for step_grads in grads:
        dlr = d * lr / g0_norm
        square = 0.0
        for i, g in enumerate(step_grads):
            g = g + weight_decay * params[i]
            r += dlr * np.sum(g * s[i])
            s[i] = s[i] + dlr * g
            square += np.sum(s[i] ** 2)
        d = max(d, min(2 * r / np.sqrt(square), d * growth_rate))
        params = [momentum * p + (1 - momentum) * (starts[i] - s[i]) for i, p in enumerate(params)]
    shared = _scalars(step=len(grads), d=d, g0_norm=g0_norm, numerator_weighted=r)
    return params, [{**shared, "s": s[i], "x0": starts[i]} for i in range(len(params))]


def dadapt_adagrad(
    params, grads, *, lr=1.0, momentum=0.0, weight_decay=0.0, eps=1e-6, d0=1e-6, growth_rate=np.inf, maximize=False
):
    """Defazio & Mishchenko 2023, the version for AdaGrad, with its sums made anew at each step."""
    params, grads = _in_float64(params, grads, maximize)
    starts = list(params)
    sk = [np.zeros_like(param) for param in params]
    alphak = [np.full_like(param, 1e-6) for param in params]
    d, gsq_weighted = d0, 0.0
    for step_grads in grads:
        dlr = d * lr
        sksq_weighted = skl1 = 0.0
        for i, g in enumerate(step_grads):
            g = g + weight_decay * params[i]
            alphak[i] = alphak[i] + g**2
            sk[i] = sk[i] + dlr * g
            divisor = np.sqrt(alphak[i]) + eps
            gsq_weighted += dlr**2 * np.sum(g**2 / divisor)
            sksq_weighted += np.sum(sk[i] ** 2 / divisor)
            skl1 += np.abs(sk[i]).sum()
        d = max(d, min((sksq_weighted - gsq_weighted) / skl1, d * growth_rate))
        for i, p in enumerate(params):
            params[i] = momentum * p + (1 - momentum) * (starts[i] - sk[i] / (np.sqrt(alphak[i]) + eps))
    shared = _scalars(step=len(grads), d=d, numerator_weighted=sksq_weighted - gsq_weighted, skl1=skl1)
    return params, [{**shared, "alphak": alphak[i], "sk": sk[i], "x0": starts[i]} for i in range(len(params))]


def _in_float64(params, grads, maximize):
    sign = -1.0 if maximize else 1.0
    return [np.asarray(param, np.float64) for param in params], [
        [None if grad is None else sign * np.asarray(grad, np.float64) for grad in step_grads] for step_grads in grads
    ]


def _scalars(**values):
    return {name: np.asarray(value, np.float64) for name, value in values.items()}
