"""Newton-CG: what it waits for, shortens, damps and saves."""

import numpy as np
import pytest
from optimizer_references.driven import gradients, hessian
from wrapper_problems import CURVATURES, STARTS, make_problem, parameters

import optirs_web as ow


def newton(device, **options):
    params = parameters(device)
    problem = make_problem(params, device)
    optimizer = ow.optim.NewtonCG(params, problem.products(0.0), **options)
    return params, optimizer, problem.zeroed(optimizer, 0.0)


def test_newton_cg_with_exact_products_and_many_iterations_is_newtons_method(device):
    params, optimizer, closure = newton(device, max_iter=60, tolerance=1e-6)
    values = [start.astype(np.float32).astype(np.float64) for start in STARTS]
    for _ in range(3):
        optimizer.step(closure)
        steps = zip(values, gradients(values, CURVATURES), hessian(values, CURVATURES), strict=True)
        values = [w - g / h for w, g, h in steps]
    # CG stops at a residual of 1e-6 of the gradient over all tensors.
    for got, want in zip(params, values, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=2e-5)


def test_newton_cg_converges_and_counts_what_it_waits_for(device):
    params, optimizer, closure = newton(device)
    reads, read = [], device.read
    device.read = lambda view: reads.append(view.nbytes) or read(view)
    try:
        losses = [optimizer.step(closure).item() for _ in range(12)]
    finally:
        del device.read
    (entry,) = optimizer.state.values()
    assert entry["n_iter"] == 12
    own = len(reads) - 12  # besides the losses read here
    assert own == entry["func_evals"] + entry["hvp_evals"] + entry["n_iter"]
    assert max(reads) <= 4 * 67
    assert losses[-1] <= 1e-10 * losses[0]
    assert all(np.abs(param.numpy()).max() < 1e-4 for param in params)


def test_newton_cg_goes_down_the_gradient_where_the_curvature_is_negative(device):
    w = ow.Parameter([0.25], device=device)

    def closure():
        optimizer.zero_grad()
        square = w * w
        loss = (square * square - square).sum()  # w⁴ - w²
        loss.backward()
        return loss

    optimizer = ow.optim.NewtonCG([w], lambda v: [(12.0 * (w * w).detach() - 2.0) * v[0]])
    optimizer.step(closure)
    assert w.item() == pytest.approx(0.25 - (4 * 0.25**3 - 2 * 0.25), rel=1e-6)
    for _ in range(10):
        optimizer.step(closure)
    assert w.item() == pytest.approx(0.5**0.5, rel=1e-5)


def test_newton_cg_shortens_steps_and_stays_where_none_helps(device):
    w = ow.Parameter([2.0], device=device)

    def closure():
        w.grad = [1.0]  # uphill: the loss is -w
        return -w.item()

    optimizer = ow.optim.NewtonCG([w], lambda v: [v[0]], max_eval=3)
    optimizer.step(closure)
    assert w.item() == 2.0
    (entry,) = optimizer.state.values()
    assert entry["func_evals"] == 4


def test_newton_cg_damps_and_saves(device):
    w = ow.Parameter([3.0], device=device)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    optimizer = ow.optim.NewtonCG([w], lambda v: [2.0 * v[0]], damping=1.0)
    optimizer.step(closure)
    assert w.item() == pytest.approx(1.0, rel=1e-6)
    saved = optimizer.state_dict()
    other = ow.optim.NewtonCG([ow.Parameter([1.0], device=device)], lambda v: [2.0 * v[0]])
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert saved["param_groups"][0]["damping"] == 1.0
