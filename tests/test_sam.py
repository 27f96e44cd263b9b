"""Sharpness-aware minimization: where it goes, how it returns, and what it leaves alone."""

import numpy as np
import pytest
from wrapper_problems import given_gradients, make_closure, parameters

import optirs_web as ow


def test_sam_moves_by_rho_over_all_tensors_and_returns_exactly(device):
    params = parameters(device)
    optimizer = ow.optim.SAM(ow.optim.SGD(params, lr=0.0), rho=0.5)
    before = [param.numpy() for param in params]
    for param, grad in zip(params, given_gradients(1)[0], strict=True):
        param.grad = grad
    optimizer.first_step(zero_grad=True)
    assert params[0].grad is None
    moved = [param.numpy() - old for param, old in zip(params, before, strict=True)]
    assert np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in moved)) == pytest.approx(0.5, rel=1e-5)
    optimizer.second_step()
    for param, old in zip(params, before, strict=True):
        np.testing.assert_array_equal(param.numpy(), old)


def test_a_recorded_sam_step_reads_nothing_back(device):
    params, others = parameters(device), parameters(device)
    optimizer, other = (ow.optim.SAM(ow.optim.SGD(params_, lr=0.01, momentum=0.9)) for params_ in (params, others))
    closure = make_closure(params, device)
    compiled = ow.compile(lambda: other.step(make_closure(others, device)), device=device, fuse=False)
    for _ in range(3):
        loss = optimizer.step(closure)
        before = device.stats.copy()
        recorded_loss = compiled()
        cost = device.stats - before
        assert recorded_loss.item() == loss.item()
    assert (cost.submits, cost.bytes_down) == (1, 0)
    assert [other.tolist() for other in others] == [param.tolist() for param in params]


def test_sam_leaves_a_tensor_alone_that_has_a_gradient_only_now_and_then(device):
    first, second = ow.Parameter([3.0], device=device), ow.Parameter([5.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([first, second], lr=0.1), rho=0.5)

    def both():
        loss = (first * first).sum() + (second * second).sum()
        loss.backward()

    def one():
        (first * first).sum().backward()

    optimizer.step(both)
    second.assign([7.0])
    optimizer.step(one)
    assert second.item() == 7.0


def test_sam_with_skip_nonfinite_keeps_the_parameters(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([w], lr=0.1, skip_nonfinite=True))
    for factor in (1.0, float("nan")):
        before = w.item()
        optimizer.step(lambda factor=factor: (w * w * factor).sum().backward())
    assert w.item() == before
    assert optimizer.skipped_steps == 1


def test_sam_passes_the_state_of_its_inner_optimizer_on(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([w], lr=0.1, momentum=0.9), rho=0.5)
    optimizer.step(lambda: (w * w).sum().backward())
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"momentum_buffer"}
    assert saved["param_groups"][0]["sam_rho"] == 0.5
    other = ow.optim.SAM(ow.optim.SGD([ow.Parameter([w.item()], device=device)], lr=0.3, momentum=0.9))
    other.load_state_dict(saved)
    np.testing.assert_equal(other.state_dict(), saved)
    with pytest.raises(TypeError, match=r"call step\(closure\)"):
        optimizer.step()
