"""K-FAC in float64, from the paper."""

import numpy as np

__all__ = ["damped", "kfac"]


def damped(a, g, damping):
    """Both factors with Tikhonov damping (section 6.3), at least 1e-6 of the norm."""
    means = [np.trace(factor) / len(factor) for factor in (a, g)]
    pi = np.sqrt(means[0] / means[1]) if min(means) > 0 else 1.0
    ridges = np.sqrt(damping) * pi, np.sqrt(damping) / pi
    return [
        factor + max(ridge, 1e-6 * np.linalg.norm(factor)) * np.eye(len(factor))
        for factor, ridge in zip((a, g), ridges, strict=True)
    ]


def kfac(
    params,
    grads,
    *,
    statistics,
    lr=0.1,
    momentum=0.9,
    weight_decay=0.0,
    damping=1e-3,
    stat_decay=0.95,
    kl_clip=1e-3,
    update_freq=10,
    in_first=False,
    maximize=False,
):
    """Martens & Grosse 2015, sections 3 to 6, with the momentum of SGD and the clipping of Ba et al. 2017."""
    values = [param.astype(np.float64) for param in params]
    buffers = [np.zeros_like(value) for value in values]
    layers = []
    for number, value in enumerate(values):
        if value.ndim == 2:
            layers.append([number])
        else:
            layers[-1].append(number)
    factors, inverses = {}, {}
    for step, step_grads in enumerate(grads):
        gradients = [
            (-1.0 if maximize else 1.0) * grad.astype(np.float64) + weight_decay * value
            for grad, value in zip(step_grads, values, strict=True)
        ]
        directions = [None] * len(values)
        decay = min(1 - 1 / (step + 1), stat_decay)
        for layer, pair in zip(layers, statistics(), strict=True):
            a, g = (np.asarray(values, np.float64) for values in pair)
            has_bias = len(layer) == 2
            a = np.hstack([a, np.ones((len(a), 1))]) if has_bias else a
            old = factors.get(layer[0], (0.0, 0.0))
            factors[layer[0]] = tuple(
                decay * factor + (1 - decay) * x.T @ x / len(x) for factor, x in zip(old, (a, g), strict=True)
            )
            if step % update_freq == 0:
                result = damped(*factors[layer[0]], damping + weight_decay)
                inverses[layer[0]] = [np.linalg.inv(factor) for factor in result]
            joined = gradients[layer[0]].T if in_first else gradients[layer[0]]
            joined = np.hstack([joined, gradients[layer[1]][:, None]]) if has_bias else joined
            natural = inverses[layer[0]][1] @ joined @ inverses[layer[0]][0]
            if has_bias:
                directions[layer[1]] = natural[:, -1]
                natural = natural[:, :-1]
            directions[layer[0]] = natural.T if in_first else natural
        change = lr**2 * sum(np.sum(d * g) for d, g in zip(directions, gradients, strict=True))
        clipping = min(1.0, np.sqrt(kl_clip / abs(change))) if kl_clip else 1.0
        for number, direction in enumerate(directions):
            buffers[number] = momentum * buffers[number] + clipping * direction
            values[number] = values[number] - lr * buffers[number]
    states = [{"step": float(len(grads))} for _ in values]
    for state, buffer in zip(states, buffers, strict=True):
        state["momentum_buffer"] = buffer
    for layer in layers:
        names = ("A_bar" if len(layer) == 2 else "A", "G")
        for name, factor, inverse in zip(names, factors[layer[0]], inverses[layer[0]], strict=True):
            states[layer[0]] |= {name: factor, f"{name}_inverse": inverse}
    return values, states
