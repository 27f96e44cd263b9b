"""Gradient transforms in float64, from their papers: functions of lists of gradients and parameters."""

import numpy as np

__all__ = ["make", "noise"]


def rows(values):
    """The axes of an output row."""
    return tuple(range(1, values.ndim)) if values.ndim > 1 else None


def norm(values, norm_type):
    """Return the norm of all values together."""
    magnitudes = np.abs(np.concatenate([np.ravel(value) for value in values]))
    return magnitudes.max() if norm_type == np.inf else (magnitudes**norm_type).sum() ** (1 / norm_type)


def clip_by_value(limit):
    return lambda grads, params: [np.clip(grad, -limit, limit) for grad in grads]


def clip_by_norm(max_norm, norm_type=2.0):
    return lambda grads, params: [grad * min(1.0, max_norm / (norm([grad], norm_type) + 1e-6)) for grad in grads]


def clip_by_global_norm(max_norm, norm_type=2.0):
    return lambda grads, params: [grad * min(1.0, max_norm / (norm(grads, norm_type) + 1e-6)) for grad in grads]


def clip_by_block_rms(threshold):
    return lambda grads, params: [grad / max(1.0, np.sqrt(np.mean(grad**2)) / threshold) for grad in grads]


def adaptive_clip(clipping, eps=1e-3):
    def clip(grad, param):
        sizes = [np.sqrt((array**2).sum(axis=rows(array), keepdims=True)) for array in (grad, param)]
        largest = clipping * np.maximum(sizes[1], eps)
        return np.where(sizes[0] < largest, grad, grad * largest / np.maximum(sizes[0], 1e-6))

    return lambda grads, params: [clip(*pair) for pair in zip(grads, params, strict=True)]


def centralize():
    return lambda grads, params: [
        grad - grad.mean(axis=rows(grad), keepdims=True) if grad.ndim > 1 else grad for grad in grads
    ]


def add_decayed_weights(weight_decay):
    return lambda grads, params: [grad + weight_decay * param for grad, param in zip(grads, params, strict=True)]


def philox(counters, key):
    """Philox 4x32-10 (Salmon et al. 2011): four words for each row of four counters."""
    words = [np.asarray(counter, np.uint64) for counter in counters]
    low, high = (np.uint64(word) for word in key)
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            second >> np.uint64(32) ^ words[1] ^ low,
            second & mask,
            first >> np.uint64(32) ^ words[3] ^ high,
            first & mask,
        ]
        low, high = low + np.uint64(0x9E3779B9) & mask, high + np.uint64(0xBB67AE85) & mask
    return words


def noise(size, seed, tensor, draw):
    """Standard normal numbers for the elements of a tensor, by Box and Muller (1958)."""
    zeros = np.zeros(size, np.uint64)
    first, second, *_ = philox([np.arange(size), zeros + np.uint64(draw), zeros + np.uint64(1), zeros], (seed, tensor))
    uniform = ((first >> np.uint64(8)) + np.uint64(1)).astype(float) / 2**24
    turn = (second >> np.uint64(8)).astype(float) / 2**24
    return np.sqrt(-2 * np.log(uniform)) * np.cos(2 * np.pi * turn)


def add_noise(eta, gamma=0.55, seed=0):
    calls = 0

    def add(grads, params):
        nonlocal calls
        calls += 1
        deviation = np.sqrt(eta / calls**gamma)
        return [
            grad + deviation * noise(grad.size, seed, number, calls).reshape(grad.shape)
            for number, grad in enumerate(grads)
        ]

    return add


def accumulate(every, reduction="mean"):
    kept = []

    def gather(grads, params):
        kept.append(grads)
        if len(kept) < every:
            return None
        totals = [sum(grads_) / (every if reduction == "mean" else 1) for grads_ in zip(*kept, strict=True)]
        kept.clear()
        return totals

    return gather


def make(specs):
    """All of them in order; None from one that still gathers ends the call."""
    steps = [globals()[name](**arguments) for name, arguments in specs]

    def apply(grads, params):
        for step in steps:
            grads = step(grads, params)
            if grads is None:
                return None
        return grads

    return apply
