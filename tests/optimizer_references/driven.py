"""Optimizers that ask for gradients themselves, in float64 from the papers; L-BFGS by torch.

Each takes where the parameters start, the curvatures of their loss (see `optimizer_cases/driven_cases.py`), and steps,
and gives the parameters and what state the run of its name gives.
"""

import numpy as np

__all__ = ["gradients", "hessian", "lbfgs", "lookahead", "metasgd", "newton_cg", "reptile", "sam"]


def gradients(values, curvatures, optimum=0.0):
    """Return the gradients of the sum of c (w - optimum)²/2 + (w - optimum)⁴/4."""
    return [c * (w - optimum) + (w - optimum) ** 3 for c, w in zip(curvatures, values, strict=True)]


def hessian(values, curvatures, optimum=0.0):
    """Its diagonal; the rest is zero."""
    return [c + 3 * (w - optimum) ** 2 for c, w in zip(curvatures, values, strict=True)]


def lookahead(values, curvatures, steps, *, optimum, lr, momentum, k, alpha):
    """Zhang et al. 2019, algorithm 1, around SGD with momentum."""
    fast, slow, velocities = values, values, [np.zeros_like(value) for value in values]
    for step in range(1, steps + 1):
        velocities = [momentum * v + g for v, g in zip(velocities, gradients(fast, curvatures, optimum), strict=True)]
        fast = [w - lr * v for w, v in zip(fast, velocities, strict=True)]
        if step % k == 0:
            slow = [s + alpha * (w - s) for s, w in zip(slow, fast, strict=True)]
            fast = slow
    return fast, slow


def sam(values, curvatures, steps, *, optimum, lr, rho, adaptive=False, maximize=False):
    """Foret et al. 2021, algorithm 1; Kwon et al. 2021, algorithm 1 with p = 2 and without eta."""
    sign = -1.0 if maximize else 1.0
    for _ in range(steps):
        grads = [sign * grad for grad in gradients(values, curvatures, optimum)]
        scales = [np.abs(value) if adaptive else np.ones_like(value) for value in values]
        norm = np.sqrt(sum(((t * g) ** 2).sum() for t, g in zip(scales, grads, strict=True)))
        worst = [w + rho * t * t * g / norm for w, t, g in zip(values, scales, grads, strict=True)]
        values = [w - lr * sign * g for w, g in zip(values, gradients(worst, curvatures, optimum), strict=True)]
    return values, []


def reptile(values, curvatures, steps, *, optima, lr, epsilon, inner_steps):
    """Nichol et al. 2018, algorithm 2, with SGD inside."""
    for _ in range(steps):
        moves = [np.zeros_like(value) for value in values]
        for optimum in optima:
            inner = values
            for _ in range(inner_steps):
                inner = [w - lr * g for w, g in zip(inner, gradients(inner, curvatures, optimum), strict=True)]
            moves = [m + (w - v) / len(optima) for m, w, v in zip(moves, inner, values, strict=True)]
        values = [v + epsilon * m for v, m in zip(values, moves, strict=True)]
    return values, []


def metasgd(values, curvatures, steps, *, support, query, is_exact, lr, meta_lr):
    """Li et al. 2017, algorithm 1 with one task; without the Hessian, as Finn et al. 2017 in their section 5.2."""
    alphas = [np.full_like(value, lr) for value in values]
    for _ in range(steps):
        inner = gradients(values, curvatures, support)
        adapted = [w - a * g for w, a, g in zip(values, alphas, inner, strict=True)]
        outer = gradients(adapted, curvatures, query)
        diagonal = hessian(values, curvatures, support)
        through = [q * (1 - h * a) if is_exact else q for q, h, a in zip(outer, diagonal, alphas, strict=True)]
        values = [w - meta_lr * step for w, step in zip(values, through, strict=True)]
        alphas = [a + meta_lr * g * q for a, g, q in zip(alphas, inner, outer, strict=True)]
    return values, alphas


def newton_cg(values, curvatures, steps, *, optimum, lr, max_iter, tolerance, damping=0.0):
    """Nocedal & Wright 2006, algorithm 7.1, where the first length is short enough for their condition."""
    shapes, ends = [value.shape for value in values], np.cumsum([value.size for value in values])

    def flat(tensors):
        return np.concatenate([tensor.reshape(-1) for tensor in tensors])

    for _ in range(steps):
        gradient = flat(gradients(values, curvatures, optimum))
        matrix = flat(hessian(values, curvatures, optimum)) + damping
        norm = np.linalg.norm(gradient)
        bound = min(tolerance, np.sqrt(norm)) * norm
        z, residual, direction = np.zeros_like(gradient), gradient, -gradient
        for number in range(max_iter):
            curvature = direction @ (matrix * direction)
            if curvature <= 0:
                z = -gradient if number == 0 else z
                break
            length = (residual @ residual) / curvature
            z = z + length * direction
            after = residual + length * matrix * direction
            if np.linalg.norm(after) < bound:
                break
            direction = -after + (after @ after) / (residual @ residual) * direction
            residual = after
        moved = np.split(flat(values) + lr * z, ends[:-1])
        values = [array.reshape(shape) for array, shape in zip(moved, shapes, strict=True)]
    return values, []


def lbfgs(values, curvatures, steps, *, optimum, **options):
    """torch's."""
    import torch

    params = [torch.nn.Parameter(torch.tensor(value)) for value in values]
    optimizer = torch.optim.LBFGS(params, **options)

    def closure():
        optimizer.zero_grad()
        moved = [param - optimum for param in params]
        loss = sum((torch.tensor(c) * w**2 / 2 + w**4 / 4).sum() for c, w in zip(curvatures, moved, strict=True))
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return [param.detach().numpy() for param in params], []
