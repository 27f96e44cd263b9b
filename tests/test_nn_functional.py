"""`nn.functional`: torch's names and order of arguments, values and gradients."""

import numpy as np
import pytest
from torch_twins import assert_close, classes, floats, fractions, in_ours, in_torch

from optirs_web import nn

IMAGES, TABLE = floats(2, 4, 6, 5), floats(7, 3)

FUNCTIONS = {
    "adaptive_avg_pool2d": [(lambda F, x: F.adaptive_avg_pool2d(x, 1), [IMAGES])],
    "avg_pool2d": [(lambda F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [IMAGES])],
    "batch_norm": [
        (lambda F, x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b, False, 0.1, 1e-3),
            [floats(4, 3, 2), floats(3), fractions(3), floats(3), floats(3)]),
        (lambda F, x: F.batch_norm(x, None, None, training=True), [floats(4, 3, 2)]),
    ],
    "binary_cross_entropy": [(lambda F, p, y: F.binary_cross_entropy(p, y), [fractions(4, 3), fractions(4, 3)])],
    "binary_cross_entropy_with_logits": [
        (lambda F, x, y: F.binary_cross_entropy_with_logits(x, y, reduction="sum"), [floats(4, 3), fractions(4, 3)]),
    ],
    "conv1d": [(lambda F, x, w, b: F.conv1d(x, w, b, 2, 1), [floats(2, 4, 9), floats(6, 4, 3), floats(6)])],
    "conv2d": [(lambda F, x, w, b: F.conv2d(x, w, b, 2, (1, 0), 1, 2), [IMAGES, floats(6, 2, 3, 2), floats(6)])],
    "conv_transpose2d": [
        (lambda F, x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), [IMAGES, floats(4, 3, 3, 3), floats(3)]),
    ],
    "cross_entropy": [
        (lambda F, x, y: F.cross_entropy(x, y, reduction="sum", label_smoothing=0.2), [floats(6, 4), classes(4, 6)]),
    ],
    "dropout": [
        (lambda F, x: F.dropout(x, 0.5, False), [floats(4, 3)]),
        (lambda F, x: F.dropout(x, p=0.0, training=True, inplace=False), [floats(4, 3)]),
    ],
    "embedding": [(lambda F, i, w: F.embedding(i, w, 2), [classes(7, 5), TABLE])],
    "fold": [(lambda F, x: F.fold(x, (6, 5), (2, 3), 1, 0, 1), [floats(2, 24, 15)])],
    "gelu": [(lambda F, x: F.gelu(x, approximate="tanh"), [floats(4, 3)])],
    "huber_loss": [(lambda F, x, y: F.huber_loss(x, y, "mean", 0.5), [floats(4, 3), floats(4, 3)])],
    "kl_div": [(lambda F, x, y: F.kl_div(x, y, reduction="sum"), [floats(4, 3), fractions(4, 3)])],
    "l1_loss": [(lambda F, x, y: F.l1_loss(x, y, reduction="none"), [floats(4, 3), floats(4, 3)])],
    "layer_norm": [(lambda F, x, w, b: F.layer_norm(x, (3,), w, b, 1e-3), [floats(4, 3), floats(3), floats(3)])],
    "leaky_relu": [(lambda F, x: F.leaky_relu(x, 0.3), [floats(4, 3)])],
    "linear": [
        (lambda F, x, w, b: F.linear(x, w, b), [floats(2, 4, 3), floats(5, 3), floats(5)]),
        (lambda F, x, w: F.linear(x, w), [floats(4, 3), floats(3)]),
    ],
    "log_softmax": [(lambda F, x: F.log_softmax(x, dim=0), [floats(4, 3)])],
    "max_pool2d": [(lambda F, x: F.max_pool2d(x, 2, 1, 1, 2), [IMAGES])],
    "mse_loss": [(lambda F, x, y: F.mse_loss(x, y, reduction="sum"), [floats(4, 3), floats(4, 3)])],
    "nll_loss": [(lambda F, x, y: F.nll_loss(x, y, reduction="none"), [floats(6, 4), classes(4, 6)])],
    "one_hot": [(lambda F, i: F.one_hot(i, 5), [classes(4, 3, 2)])],
    "pad": [
        (lambda F, x: F.pad(x, (1, 2, 0, 3), value=7.0), [floats(2, 4, 3)]),
        (lambda F, x: F.pad(x, (2, 0), "constant", 1.0), [floats(3)]),
    ],
    "relu": [(lambda F, x: F.relu(x, inplace=False), [floats(4, 3)])],
    "scaled_dot_product_attention": [
        (lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, True, scale=0.3),
            [floats(2, 5, 4), floats(2, 5, 4), floats(2, 5, 3)]),
        (lambda F, q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),
            [floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 3), lambda rng: np.arange(5) < 3]),
    ],
    "sigmoid": [(lambda F, x: F.sigmoid(x), [floats(4, 3)])],
    "silu": [(lambda F, x: F.silu(x), [floats(4, 3)])],
    "smooth_l1_loss": [(lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.5), [floats(4, 3), floats(4, 3)])],
    "softmax": [(lambda F, x: F.softmax(x, 0), [floats(4, 3)])],
    "softplus": [(lambda F, x: F.softplus(x, 2.0, 1.0), [floats(4, 3)])],
    "tanh": [(lambda F, x: F.tanh(x), [floats(4, 3)])],
    "unfold": [(lambda F, x: F.unfold(x, (2, 3), 1, 1, 2), [IMAGES])],
}  # fmt: skip

CALLS = [
    pytest.param(*call, id=f"{name}-{number}") for name, calls in FUNCTIONS.items() for number, call in enumerate(calls)
]


def test_every_function_has_a_row():
    assert sorted(FUNCTIONS) == nn.functional.__all__


@pytest.mark.parametrize(("call", "makers"), CALLS)
def test_functions_are_called_as_torchs(torch, call, makers):
    rng = np.random.default_rng(0)
    values = [make(rng) for make in makers]
    their_inputs = [in_torch(torch, value) for value in values]
    our_inputs = [in_ours(value, "cpu") for value in values]
    other = call(torch.nn.functional, *their_inputs).double()
    tensor = call(nn.functional, *our_inputs)
    assert_close(tensor, other, "value")
    if other.requires_grad:
        weights = rng.standard_normal(tuple(other.shape)).astype(np.float32)
        other.backward(torch.from_numpy(weights).double())
        tensor.backward(weights)
        for number, (mine, its) in enumerate(zip(our_inputs, their_inputs, strict=True)):
            assert (mine.grad is None) == (its.grad is None)
            if its.grad is not None:
                assert_close(mine.grad, its.grad, f"the gradient of input {number}")
