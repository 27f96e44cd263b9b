"""Normalization, attention, and dropout."""

import math

import optirs_web as ow
from optirs_web import ops

from .case import Case, Library, functional, np, torch


def normalized(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def channels(one, x):
    return one.reshape(-1, *[1] * (x.ndim - 2))


def of_running(x, mean, variance, weight, bias):
    scaled = (x - channels(mean, x)) / np.sqrt(channels(variance, x) + 1e-5)
    return scaled * channels(weight, x) + channels(bias, x)


UNEQUAL = ("transposed", "sliced")  # equal rows have no spread
MEAN, VARIANCE = [0.5, -1.0, 0.25], [1.5, 0.75, 2.0]

NORMS = [
    Case(
        "layer_norm",
        lambda x, w, b: ops.layer_norm(x, x.shape[-1], w, b),
        lambda x, w, b: normalized(x, -1) * w + b,
        [
            [(3, 5), (5,), (5,)],
            [(5,), (5,), (5,)],
            [(2, 3, 4), (4,), (4,)],
            [(2, 1, 2, 70), (70,), (70,)],
            [(0, 3), (3,), (3,)],
        ],
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        domain=("distinct", "normal", "normal"),
        walks=UNEQUAL,
        slopes=1e-5,
    ),
    Case(
        "layer_norm over two axes",
        lambda x: ops.layer_norm(x, (3, 4)),
        lambda x: normalized(x, (-1, -2)),
        [[(2, 3, 4)], [(3, 4)]],
        lambda x: functional.layer_norm(x, (3, 4)),
        domain="distinct",
        slopes=1e-5,
        walks=UNEQUAL,
    ),
    Case(
        "batch_norm",
        lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: normalized(x, (0, *range(2, x.ndim))) * channels(w, x) + channels(b, x),
        [[(5, 3), (3,), (3,)], [(2, 3, 4), (3,), (3,)], [(2, 3, 2, 3), (3,), (3,)]],
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        domain=("distinct", "normal", "normal"),
        slopes=1e-5,
        walks=UNEQUAL,
    ),
    Case(
        "batch_norm of running statistics",
        lambda x, w, b: ops.batch_norm(x, ow.tensor(MEAN, device=x.device), ow.tensor(VARIANCE, device=x.device), w, b),
        lambda x, w, b: of_running(x, np.array(MEAN), np.array(VARIANCE), w, b),
        [[(5, 3), (3,), (3,)], [(2, 3, 2, 3), (3,), (3,)]],
        lambda x, w, b: functional.batch_norm(x, torch.tensor(MEAN).double(), torch.tensor(VARIANCE).double(), w, b),
    ),
]


def attention(query, key, value, seen=None, added=0.0, scale=None):
    scores = query @ key.swapaxes(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1])) + added
    if seen is not None:
        scores = np.where(seen, scores, -math.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
    return weights / weights.sum(-1, keepdims=True) @ value


def attention_of_torch(*operands, **options):
    """By the implementation that has second derivatives."""
    backends = Library("torch.nn.attention")
    with backends.sdpa_kernel(backends.SDPBackend(0)):
        return functional.scaled_dot_product_attention(*operands, **options)


def lower(rows, columns):
    return np.tri(rows, columns, dtype=bool)


TRIPLES = [
    [(2, 3, 4), (2, 5, 4), (2, 5, 3)], [(3, 4), (5, 4), (5, 2)], [(2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 3, 4)],
    [(2, 1, 3, 4), (3, 2, 4), (1, 2, 5)], [(0, 4), (3, 4), (3, 2)],
]  # fmt: skip

ATTENTION = [
    Case(
        "scaled_dot_product_attention",
        ops.scaled_dot_product_attention,
        attention,
        TRIPLES,
        attention_of_torch,
        slopes=5e-6,
    ),
    Case(
        "scaled_dot_product_attention over tiles",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, scale=0.5),
        lambda q, k, v: attention(q, k, v, scale=0.5),
        [[(34, 3), (35, 3), (35, 2)]],
        lambda q, k, v: attention_of_torch(q, k, v, scale=0.5),
        slopes=1e-5,
        walks=(),
    ),
    Case(
        "scaled_dot_product_attention with a causal mask",
        lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: attention(q, k, v, lower(q.shape[-2], k.shape[-2])),
        [[(2, 4, 3), (2, 4, 3), (2, 4, 3)], [(4, 2), (3, 2), (3, 1)]],
        lambda q, k, v: attention_of_torch(q, k, v, is_causal=True),
        slopes=5e-6,
    ),
    Case(
        "scaled_dot_product_attention with a mask that is added",
        ops.scaled_dot_product_attention,
        lambda q, k, v, mask: attention(q, k, v, added=mask),
        [[(2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5)], [(3, 4), (5, 4), (5, 2), (5,)]],
        attention_of_torch,
        slopes=5e-6,
    ),
    Case(
        "scaled_dot_product_attention with a mask of bools",
        lambda q, k, v: ops.scaled_dot_product_attention(
            q, k, v, ow.tensor([[True, False, True], [False, True, False]], device=q.device)
        ),
        lambda q, k, v: attention(q, k, v, np.array([[True, False, True], [False, True, False]])),
        [[(2, 4), (3, 4), (3, 2)], [(2, 2, 4), (3, 4), (2, 3, 2)]],
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, torch.tensor([[True, False, True], [False, True, False]])
        ),
        walks=UNEQUAL,  # by equal keys a query has no gradient
        slopes=5e-6,
    ),
]


def dropped_and_kept(x):
    """Return what dropout keeps plus what it drops with the same random numbers: 2 x."""
    ow.manual_seed(7)
    kept = ops.dropout(x, 0.5)
    ow.manual_seed(7)
    mask = ops.dropout(ow.ones(x.shape, device=x.device), 0.5)
    return kept + (2.0 - mask) * x


DROPOUT = [
    Case("dropout", dropped_and_kept, lambda x: 2 * x, [[(3, 4)], [()], [(70,)], [(2, 3, 2, 2)], [(0, 3)]]),
    Case("dropout outside of training", lambda x: ops.dropout(x, 0.5, False) * 1.0, lambda x: x, [[(3, 4)]]),
]

CASES = [*NORMS, *ATTENTION, *DROPOUT]
