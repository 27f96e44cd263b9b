"""Losses."""

import optirs_web as ow
from optirs_web import ops

from .case import Case, functional, np, torch
from .reductions import log_softmax

LABELS = [0, 4, 2, 2, 1, 3, 0]
WEIGHTS = [0.5, 1.5, 1.0, 2.0, 0.75]
OF_IMAGES = [[[0, 4, 2]], [[2, 1, 3]]]  # (2, 1, 3)


def rows_of(shares, x):
    return -(shares * log_softmax(x)).sum(-1)


def shares_of(labels, classes, weights=None, smoothing=0.0, ignored=None):
    """Return the target probability of each class of each row."""
    weights = np.ones(classes) if weights is None else np.array(weights)
    labels = np.array(labels)
    one_hot = (labels[:, None] == np.arange(classes)) * 1.0
    shares = weights * ((1 - smoothing) * one_hot + smoothing / classes)
    return shares * (labels != ignored)[:, None]


def logistic(x, t, positive=1.0):
    return (1 - t) * x + (1 + (positive - 1) * t) * np.logaddexp(0, -x)


PAIRS = [[(3, 4), (3, 4)], [(), ()], [(7,), (7,)], [(2, 3, 2), (2, 3, 2)]]

CASES = [
    Case(
        "cross_entropy",
        lambda a: ow.cross_entropy(a, LABELS),
        lambda a: -log_softmax(a)[np.arange(len(LABELS)), LABELS].mean(),
        [[(7, 5)]],
        lambda a: functional.cross_entropy(a, torch.tensor(LABELS)),
    ),
    Case(
        "cross_entropy of smoothed labels with weights, of which some are ignored",
        lambda a: ow.cross_entropy(a, LABELS, ow.tensor(WEIGHTS, device=a.device), 2, label_smoothing=0.25),
        lambda a: rows_of(shares_of(LABELS, 5, WEIGHTS, 0.25, 2), a).sum() / shares_of(LABELS, 5, WEIGHTS, 0, 2).sum(),
        [[(7, 5)]],
        lambda a: functional.cross_entropy(
            a, torch.tensor(LABELS), torch.tensor(WEIGHTS).double(), ignore_index=2, label_smoothing=0.25
        ),
        slopes=5e-6,
    ),
    Case(
        "cross_entropy of images, each by itself",
        lambda a: ow.cross_entropy(a, OF_IMAGES, reduction="none"),
        lambda a: rows_of(shares_of(np.reshape(OF_IMAGES, -1), 5), np.moveaxis(a, 1, -1).reshape(-1, 5)).reshape(
            2, 1, 3
        ),
        [[(2, 5, 1, 3)]],
        lambda a: functional.cross_entropy(a, torch.tensor(OF_IMAGES), reduction="none"),
        walks=("sliced",),
    ),
    Case(
        "cross_entropy of many classes",
        lambda a: ow.cross_entropy(a, [150, 3], reduction="sum"),
        lambda a: rows_of(shares_of([150, 3], 200), a).sum(),
        [[(2, 200)]],
        lambda a: functional.cross_entropy(a, torch.tensor([150, 3]), reduction="sum"),
        walks=(),
    ),
    Case(
        "cross_entropy of probabilities",
        lambda a, t: ow.cross_entropy(a, t, label_smoothing=0.1),
        lambda a, t: rows_of(t * 0.9 + 0.1 / 5, a).mean(),
        [[(3, 5), (3, 5)]],
        lambda a, t: functional.cross_entropy(a, t, label_smoothing=0.1),
        domain=("normal", "share"),
        walks=("sliced",),
    ),
    Case(
        "nll_loss",
        lambda a: ops.nll_loss(a * a, LABELS, ow.tensor(WEIGHTS, device=a.device), 2),
        lambda a: -(a * a * shares_of(LABELS, 5, WEIGHTS, 0, 2)).sum() / shares_of(LABELS, 5, WEIGHTS, 0, 2).sum(),
        [[(7, 5)]],
        lambda a: functional.nll_loss(a * a, torch.tensor(LABELS), torch.tensor(WEIGHTS).double(), ignore_index=2),
    ),
    Case("mse_loss", ops.mse_loss, lambda a, b: ((a - b) ** 2).mean(), PAIRS, functional.mse_loss),
    Case(
        "l1_loss",
        lambda a, b: ops.l1_loss(a * 3.0, b, reduction="sum"),
        lambda a, b: np.abs(3 * a - b).sum(),
        PAIRS,
        lambda a, b: functional.l1_loss(a * 3.0, b, reduction="sum"),
        domain=("high", "low"),
    ),
    Case(
        "huber_loss",
        lambda a, b: ops.huber_loss(a, b, delta=0.75, reduction="none"),
        lambda a, b: np.where(np.abs(a - b) < 0.75, (a - b) ** 2 / 2, 0.75 * (np.abs(a - b) - 0.375)),
        PAIRS,
        lambda a, b: functional.huber_loss(a, b, delta=0.75, reduction="none"),
        domain=("halves", "between"),
    ),
    Case(
        "smooth_l1_loss",
        lambda a, b: ops.smooth_l1_loss(a, b, beta=0.75),
        lambda a, b: (np.where(np.abs(a - b) < 0.75, (a - b) ** 2 / 1.5, np.abs(a - b) - 0.375)).mean(),
        PAIRS,
        lambda a, b: functional.smooth_l1_loss(a, b, beta=0.75),
        domain=("halves", "between"),
    ),
    Case(
        "binary_cross_entropy",
        lambda a, t: ops.binary_cross_entropy(a * 0.5 + 0.25, t),
        lambda a, t: -(t * np.log(a / 2 + 0.25) + (1 - t) * np.log(0.75 - a / 2)).mean(),
        PAIRS,
        lambda a, t: functional.binary_cross_entropy(a * 0.5 + 0.25, t),
        domain="share",
        slopes=5e-6,
    ),
    Case(
        "binary_cross_entropy_with_logits",
        ops.binary_cross_entropy_with_logits,
        lambda a, t: logistic(a, t).mean(),
        PAIRS,
        functional.binary_cross_entropy_with_logits,
        domain=("normal", "share"),
    ),
    Case(
        "binary_cross_entropy_with_logits and weights",
        lambda a, t: ops.binary_cross_entropy_with_logits(
            a, t, ow.tensor([0.5, 2.0, 1.0], device=a.device), "none", ow.tensor([3.0, 0.5, 1.0], device=a.device)
        ),
        lambda a, t: logistic(a, t, np.array([3.0, 0.5, 1.0])) * np.array([0.5, 2.0, 1.0]),
        [[(4, 3), (4, 3)]],
        lambda a, t: functional.binary_cross_entropy_with_logits(
            a,
            t,
            torch.tensor([0.5, 2.0, 1.0]).double(),
            reduction="none",
            pos_weight=torch.tensor([3.0, 0.5, 1.0]).double(),
        ),
        domain=("normal", "share"),
    ),
    Case(
        "kl_div",
        lambda a, t: ops.kl_div(a, t, reduction="sum"),
        lambda a, t: (t * (np.log(t) - a)).sum(),
        PAIRS,
        lambda a, t: functional.kl_div(a, t, reduction="sum"),
        domain=("normal", "share"),
        slopes=5e-6,
    ),
    Case(
        "kl_div of logarithms",
        lambda a, t: ops.kl_div(a, t, reduction="batchmean", log_target=True),
        lambda a, t: (np.exp(t) * (t - a)).sum() / len(a),
        [[(3, 4), (3, 4)]],
        lambda a, t: functional.kl_div(a, t, reduction="batchmean", log_target=True),
    ),
]
