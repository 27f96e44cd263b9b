"""Clipping in place, as torch's `clip_grad_norm_` and `clip_grad_value_` do it."""

import numpy as np
import pytest
from transform_problems import SHAPES, assert_close, cost_of_replay, make_problem

import optirs_web as ow
from optirs_web.errors import UnsupportedError

CASES = pytest.mark.parametrize(("norm_type", "max_norm"), [(1.0, 50.0), (2.0, 3.0), (np.inf, 1.5), (2.0, 1e4)])
LARGEST = 0.01


def clipped(grads, norm_type, max_norm):
    """The norm of all gradients, and they after clipping by it and then by value, in float64."""
    grads = [grad.astype(float) for grad in grads]
    norm = np.linalg.norm(np.concatenate([grad.ravel() for grad in grads]), norm_type)
    by_norm = [grad * min(1.0, max_norm / (norm + 1e-6)) for grad in grads]
    return norm, by_norm, [np.clip(grad, -LARGEST, LARGEST) for grad in by_norm]


@CASES
def test_the_global_norm_and_the_functions_in_place_are_those_in_float64(numerics, norm_type, max_norm):
    _, (grads,) = make_problem(1)
    want, by_norm, by_value = clipped(grads, norm_type, max_norm)
    norm, ours, ours_by_value = numerics("clipped_grads", grads, max_norm, str(norm_type), LARGEST)
    assert norm == pytest.approx(want, rel=1e-6)
    assert_close(ours, by_norm)
    assert_close(ours_by_value, by_value)
    if norm_type != np.inf:  # JSON has none
        spec = [["clip_by_global_norm", {"max_norm": max_norm, "norm_type": norm_type}]]
        ((*after,),) = numerics("transformed", spec, "SGD", {"lr": 1.0}, [0 * grad for grad in grads], [grads])
        assert_close(after, [-grad for grad in by_norm])


@CASES
def test_the_reference_is_torchs(torch, norm_type, max_norm):
    _, (grads,) = make_problem(1)
    want, by_norm, by_value = clipped(grads, norm_type, max_norm)
    theirs = [torch.nn.Parameter(torch.zeros(grad.shape, dtype=torch.float64)) for grad in grads]
    for reference, grad in zip(theirs, grads, strict=True):
        reference.grad = torch.tensor(grad.astype(float))
    assert torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type).item() == pytest.approx(want, rel=1e-12)
    assert_close([reference.grad.numpy() for reference in theirs], by_norm, 1e-12)
    torch.nn.utils.clip_grad_value_(theirs, LARGEST)
    assert_close([reference.grad.numpy() for reference in theirs], by_value, 1e-12)


def test_clip_grad_norm_in_a_recorded_step_costs_four_dispatches(device):
    params = [ow.Parameter(np.zeros(shape, np.float32), device=device) for shape in SHAPES]
    for param in params:
        param.grad = np.ones(param.shape, np.float32)
    ow.optim.clip_grad_norm_(params, 1.0)
    assert cost_of_replay(device, lambda: ow.optim.clip_grad_norm_(params, 1.0)) == 4


def test_clip_grad_norm_raises_before_anything_is_changed(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(2)]
    params[0].grad, params[1].grad = [np.inf], [2.0]
    with pytest.raises(RuntimeError, match="The total norm for gradients from `parameters` is non-finite"):
        ow.optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert params[1].grad.item() == 2.0
    with pytest.raises(UnsupportedError, match="clip_by_global_norm"):
        ow.compile(lambda: ow.optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True), device=device)()


def test_clip_grad_norm_leaves_out_what_has_no_gradient(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(2)]
    assert ow.optim.clip_grad_norm_(params, 1.0).item() == 0.0
    params[1].grad = [4.0]
    assert ow.optim.clip_grad_norm_(params, 1.0).item() == 4.0
    assert params[0].grad is None
    assert params[1].grad.item() == pytest.approx(1.0, rel=1e-6)
