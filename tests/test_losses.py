"""Losses where their formulas have edges, how many dispatches they take, and bad calls."""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShapeError, UnsupportedError

LOGITS = np.array([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0], [1.0, 1.0, 3.0]], np.float32)


def with_gradient(loss, values, device):
    x = ow.Parameter(values, device=device)
    result = loss(x)
    result.sum().backward()
    return result.numpy(), x.grad.numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_takes_few_dispatches(device, smoothing):
    logits = ow.Parameter(LOGITS, device=device)
    target = ow.tensor([0, 1, 2], device=device)
    before = device.stats.copy()
    loss = ow.cross_entropy(logits, target, label_smoothing=smoothing)
    assert (device.stats - before).dispatches == 3  # the rows, their sums, the quotient
    scalar = ow.ones((), device=device)
    before = device.stats.copy()
    loss.backward(scalar)
    assert (device.stats - before).dispatches <= 2  # the quotient, the rows


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
@pytest.mark.parametrize("label", [3, -1])
def test_a_class_that_does_not_exist_makes_the_loss_nan(device, loss, label):
    value, gradient = with_gradient(lambda x: loss(x, [0, label, 1], reduction="none"), LOGITS, device)
    assert np.isnan(value).tolist() == [False, True, False]
    assert np.isnan(gradient).any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
def test_ignored_rows_count_for_nothing(device, loss):
    value, gradient = with_gradient(lambda x: loss(x, [0, -100, 2]), LOGITS, device)
    want, of_rest = with_gradient(lambda x: loss(x, [0, 2]), LOGITS[[0, 2]], device)
    assert value == pytest.approx(want, rel=1e-6)
    assert gradient[1].tolist() == [0.0] * 3
    np.testing.assert_allclose(gradient[[0, 2]], of_rest, rtol=1e-6, atol=1e-9)
    assert np.isnan(loss(ow.tensor(LOGITS, device=device), [1, 1, 1], ignore_index=1).item())  # a mean of nothing


def test_cross_entropy_of_logits_whose_exponentials_overflow(device):
    value, gradient = with_gradient(lambda x: ow.cross_entropy(x, [0]), np.array([[-1e4, 1e4]], np.float32), device)
    assert value == 2e4
    assert gradient.tolist() == [[-1.0, 1.0]]


def test_impossible_classes_may_have_a_logit_of_minus_infinity(device):
    logits = np.array([[1.0, -np.inf, 1.0]], np.float32)
    value, gradient = with_gradient(lambda x: ow.cross_entropy(x, [0]), logits, device)
    assert value == pytest.approx(np.log(2), rel=1e-6)
    np.testing.assert_allclose(gradient, [[-0.5, 0.0, 0.5]], rtol=1e-6)


def test_log_likelihood_of_a_class_beside_impossible_ones(device):
    value, gradient = with_gradient(lambda x: ops.nll_loss(x, [0]), np.array([[-0.5, -np.inf]], np.float32), device)
    assert value == 0.5
    assert gradient.tolist() == [[-1.0, 0.0]]


@pytest.mark.parametrize("target", [0.0, 0.5, 1.0])
def test_binary_cross_entropy_is_finite_at_its_ends_as_in_torch(device, torch, target):
    values, targets = np.array([0.0, 1.0, 1e-30, 0.5], np.float32), np.full(4, target, np.float32)
    loss, gradient = with_gradient(lambda x: ops.binary_cross_entropy(x, targets, reduction="none"), values, device)
    x = torch.tensor(values, requires_grad=True)
    want = torch.nn.functional.binary_cross_entropy(x, torch.tensor(targets), reduction="none")
    want.sum().backward()
    np.testing.assert_allclose(loss, want.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-6)


def test_binary_cross_entropy_of_large_logits_neither_overflows_nor_loses_its_gradient(device):
    values = np.array([200.0, -200.0, 0.0], np.float32)
    loss, gradient = with_gradient(
        lambda x: ops.binary_cross_entropy_with_logits(x, [0.0, 0.0, 1.0], reduction="none"), values, device
    )
    np.testing.assert_allclose(loss, [200.0, 0.0, np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(gradient, [1.0, 0.0, -0.5], rtol=1e-6)


def test_distances_of_equal_values_have_no_gradient(device):
    for loss in (ops.l1_loss, ops.mse_loss, ops.huber_loss, ops.smooth_l1_loss):
        value, gradient = with_gradient(lambda x, loss=loss: loss(x, [1.0, 2.0]), np.array([1.0, 2.0], "f"), device)
        assert value == 0.0
        assert gradient.tolist() == [0.0, 0.0]


def test_a_divergence_from_impossible_events_is_zero_there(device):
    value, gradient = with_gradient(lambda x: ops.kl_div(x, [0.0, 1.0], "none"), np.array([-9.0, -1.0], "f"), device)
    assert value.tolist() == [0.0, 1.0]
    assert gradient.tolist() == [0.0, -1.0]


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "mse_loss", "kl_div", "binary_cross_entropy"])
def test_a_reduction_that_does_not_exist_is_refused(name):
    x = ow.full((2, 2), 0.5, device="cpu")
    target = [0, 1] if name in ("cross_entropy", "nll_loss") else x
    with pytest.raises(ValueError, match="'mean', 'sum' or 'none', not 'median'"):
        getattr(ops, name)(x, target, reduction="median")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: ops.cross_entropy(x, [0, 1, 2]), ShapeError, "cross_entropy needs"),
        (lambda x: ops.cross_entropy(x, [0.0, 1.0]), UnsupportedError, "int32 class numbers"),
        (lambda x: ops.cross_entropy(x, [0, 1], ow.ones((2,), device="cpu")), ShapeError, "weights"),
        (lambda x: ops.cross_entropy(x, [0, 1], label_smoothing=1.5), ValueError, "from 0 to 1"),
        (lambda x: ops.nll_loss(x, [[0], [1]]), ShapeError, "nll_loss needs"),
        (lambda x: ops.mse_loss(x, [1.0, 2.0]), ShapeError, "broadcast"),
        (lambda x: ops.mse_loss(x, ow.arange(3, device="cpu")), UnsupportedError, "float32"),
        (lambda x: ops.huber_loss(x, x, delta=0.0), ValueError, "positive delta"),
        (lambda x: ops.binary_cross_entropy(x, [0.5] * 3), ShapeError, "one shape"),
        (lambda x: ops.binary_cross_entropy_with_logits(x, [0.5] * 3), ShapeError, "one shape"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.zeros((2, 3), device="cpu"))
