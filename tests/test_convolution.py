"""Convolutions and pooling: passes over the batch, memory, ties, NaN, and what is refused."""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.ops import convolution


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def derivatives(device, x, weight, **options):
    """The result of a convolution, its gradients, and the gradients of these."""
    inputs = [ow.tensor(values, device=device, requires_grad=True) for values in (x, weight)]
    result = ops.conv2d(*inputs, **options)
    first = ow.gradients((result * result * result).sum(), inputs, create_graph=True)
    second = ow.gradients(sum((grad * grad).sum() for grad in first), inputs)
    return [tensor.numpy() for tensor in (result, *first, *second)]


def test_a_batch_that_is_taken_in_turns_gives_the_same(device, monkeypatch):
    x, weight = numbers(7, 4, 5, 6), numbers(6, 2, 3, 3)
    at_once = derivatives(device, x, weight, padding=1, groups=2)
    monkeypatch.setattr(convolution, "_COLUMN_BYTES", 3 * 4 * 36 * 30)  # the columns of three images
    monkeypatch.setattr(convolution, "are_products_of_images", lambda *_: False)
    dispatches = device.stats.dispatches
    in_turns = derivatives(device, x, weight, padding=1, groups=2)
    assert device.stats.dispatches > dispatches
    for got, want in zip(in_turns, at_once, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_columns_are_not_kept_for_the_backward_pass(device):
    x = ow.tensor(numbers(16, 8, 16, 16), device=device, requires_grad=True)
    weight = ow.Parameter(numbers(8, 8, 5, 5), device=device)
    before = device.memory_stats().asked_bytes
    result = ops.conv2d(x, weight, padding=2)
    assert device.memory_stats().asked_bytes - before == result.size * 4
    result.sum().backward()
    del result
    assert device.memory_stats().asked_bytes - before == (x.size + weight.size) * 4


def test_equal_pixels_and_nan_pool_as_in_torch(device, torch):
    inf, nan = np.inf, np.nan
    images = np.array(
        [
            [[1, 1, 2, 0], [1, 1, 2, 2], [0, 0, -0.0, 0], [0, 0, 0, -0.0]],
            [[1, nan, 2, -inf], [nan, 0, -inf, -inf], [-inf, -inf, inf, 3], [-inf, -inf, inf, nan]],
        ],
        np.float32,
    )
    for kernel, stride, padding in ((2, 2, 0), (3, 1, 1), (2, 1, 1)):
        ours = ow.tensor(images, device=device, requires_grad=True)
        theirs = torch.tensor(images, requires_grad=True)
        got = ops.max_pool2d(ours, kernel, stride, padding)
        want = torch.nn.functional.max_pool2d(theirs, kernel, stride, padding)
        weights = numbers(*got.shape)
        got.backward(weights)
        want.backward(torch.tensor(weights))
        np.testing.assert_array_equal(got.numpy(), want.detach().numpy())
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6, atol=1e-6)


def test_a_small_network_of_convolutions_learns_in_a_compiled_step(device):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 32, dtype=np.int32)
    images = rng.standard_normal((32, 1, 6, 6)).astype(np.float32) * 0.1
    images[labels == 1, 0, 2:4] += 1.0  # a horizontal bar
    images[labels == 0, 0, :, 2:4] += 1.0  # an upright one
    params = [
        ow.Parameter(values, device=device) for values in (numbers(4, 1, 3, 3) * 0.3, np.zeros(4), numbers(16, 2) * 0.1)
    ]
    optimizer = ow.optim.Adam(params, lr=0.05)

    @ow.compile
    def step(images, labels):
        optimizer.zero_grad()
        seen = ops.max_pool2d(ops.conv2d(images, params[0], params[1]).relu(), 2)
        loss = ow.cross_entropy(seen.reshape(-1, 16) @ params[2], labels)
        loss.backward()
        optimizer.step()
        return loss

    batch = ow.tensor(images, device=device), ow.tensor(labels, device=device)
    losses = [step(*batch).item() for _ in range(20)]
    assert losses[-1] < 0.05 < losses[0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w: ops.conv2d(x, ow.ones((2, 2, 3, 3), device="cpu")), ShapeError, "filters are for 2 channels"),
        (lambda x, w: ops.conv2d(x, w, groups=2), ShapeError, "in 2 groups"),
        (lambda x, w: ops.conv2d(ops.take(x, 0, 1), ops.take(w, 0, 1)), ShapeError, "needs filters of four axes"),
        (lambda x, w: ops.conv2d(ops.take(ops.take(x, 0), 0), w), ShapeError, r"needs images \(N, C, H, W\)"),
        (lambda x, w: ops.conv2d(x, w, ow.ones((3,), device="cpu")), ShapeError, "with 2 filters needs a bias"),
        (
            lambda x, w: ops.conv2d(x, w, dilation=3),
            ShapeError,
            "a window of 7 by 7 pixels does not fit an image of 4 by 4",
        ),
        (lambda x, w: ops.conv2d(x, w, stride=0), ShapeError, "stride must be an integer >= 1"),
        (lambda x, w: ops.conv2d(x, w, padding=(1, 2, 3)), ShapeError, "padding must be an integer >= 0, or two"),
        (lambda x, w: ops.conv2d(x, w, padding="same", stride=2), ShapeError, "where the stride is 1"),
        (lambda x, w: ops.conv2d(x, w, padding="full"), ShapeError, "'same' or 'valid', not 'full'"),
        (lambda x, w: ops.conv2d(x, ow.tensor([[[[1]]]], device="cpu")), UnsupportedError, "conv2d needs float32"),
        (lambda x, w: ops.conv1d(x, w), ShapeError, r"conv1d needs \(N, C, length\)"),
        (lambda x, w: ops.conv_transpose2d(x, w), ShapeError, "filters are for 2 channels"),
        (lambda x, w: ops.conv_transpose2d(x, ops.take(w, [0, 1, 1]), padding=4), ShapeError, "takes too much off"),
        (lambda x, w: ops.fold(x, 4, 2), ShapeError, r"needs columns \(N, C \* 4, 9\)"),
        (lambda x, w: ops.max_pool2d(x, 5), ShapeError, "does not fit"),
        (lambda x, w: ops.max_pool2d(x, 2, padding=2), ShapeError, "padding up to half of a window"),
        (lambda x, w: ops.avg_pool2d(x, (2, 2, 2)), ShapeError, "kernel_size must be an integer"),
        (lambda x, w: ops.adaptive_avg_pool2d(x, 3), ShapeError, "divides evenly"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.ones((1, 3, 4, 4), device="cpu"), ow.ones((2, 3, 3, 3), device="cpu"))
