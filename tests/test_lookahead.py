"""Lookahead: recorded, saved, copied, and together with what else changes steps."""

import copy

import numpy as np
import pytest
from wrapper_problems import given_gradients, parameters

import optirs_web as ow
from optirs_web.errors import CheckpointError, UnsupportedError


def test_a_recorded_lookahead_step_counts_on_the_device(device):
    params, others, grads = parameters(device), parameters(device), given_gradients(12)
    optimizer = ow.optim.Lookahead(ow.optim.AdamW(params, lr=0.01), k=5)
    other = ow.optim.Lookahead(ow.optim.AdamW(others, lr=0.01), k=5)

    def step(*given):
        other.step(grads=given)

    compiled = ow.compile(step, device=device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        device.flush()
        before = device.stats.copy()
        compiled(*step_grads)
    cost = device.stats - before
    assert (cost.dispatches, cost.submits, cost.bytes_down) == (4, 1, 0)
    assert [other.tolist() for other in others] == [param.tolist() for param in params]


def test_lookahead_begins_at_what_was_assigned_before_its_first_step(device):
    w = ow.Parameter([0.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=1.0), k=2, alpha=0.5)
    w.assign([8.0])
    optimizer.step(grads=[[1.0]])
    assert w.item() == 7.0
    w.assign([4.0])  # the fast weights are the parameters
    optimizer.step(grads=[[1.0]])
    assert w.item() == 8.0 + 0.5 * (3.0 - 8.0)


def test_lookahead_goes_on_from_its_state_dict(device):
    params, grads = parameters(device), given_gradients(13)
    optimizer = ow.optim.Lookahead(ow.optim.Adam(params, lr=0.01), k=5, alpha=0.25)
    for step_grads in grads[:7]:
        optimizer.step(grads=step_grads)
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "slow_step", "slow_param"}
    assert (float(saved["state"][0]["step"]), float(saved["state"][0]["slow_step"])) == (7, 2)
    assert saved["param_groups"][0]["lookahead_k"] == 5
    others = parameters(device, [param.numpy() for param in params])
    other = ow.optim.Lookahead(ow.optim.Adam(others))
    other.load_state_dict(saved)
    for step_grads in grads[7:]:
        optimizer.step(grads=step_grads)
        other.step(grads=step_grads)
    assert [other.tolist() for other in others] == [param.tolist() for param in params]


def test_lookahead_survives_copies_and_checkpoints(device):
    params, grads = parameters(device), given_gradients(9)
    optimizer = ow.optim.Lookahead(ow.optim.Adam(params, lr=0.01), k=4)
    for step_grads in grads[:5]:
        optimizer.step(grads=step_grads)
    copied = copy.deepcopy(optimizer)
    named = {str(number): param for number, param in enumerate(params)}
    content = ow.dump_checkpoint(named, optimizer)
    restored = {name: ow.Parameter(np.zeros(array.shape, np.float32), device=device) for name, array in named.items()}
    other = ow.optim.Lookahead(ow.optim.Adam(list(restored.values())))
    ow.load_checkpoint(content, restored, other)
    for step_grads in grads[5:]:
        for optimizer_ in (optimizer, copied, other):
            optimizer_.step(grads=step_grads)
    assert copied.param_groups is copied.optimizer.param_groups
    for got in (copied.param_groups[0]["params"], restored.values()):
        assert [tensor.tolist() for tensor in got] == [param.tolist() for param in params]


def test_a_state_dict_that_does_not_fit_lookahead_changes_nothing(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.Adam([w]), k=3)
    optimizer.step(grads=[[1.0]])
    before = optimizer.state_dict()
    for damage in ({"slow_param": np.zeros(2)}, {"slow_step": "many"}, {"exp_avg": np.zeros(2)}, {"unknown": 1.0}):
        damaged = {**before, "state": {0: {**before["state"][0], **damage}}}
        with pytest.raises(CheckpointError):
            optimizer.load_state_dict(damaged)
    for key, entry in ((9, {}), (9, {"slow_step": 1.0}), (0, {})):
        with pytest.raises(CheckpointError):
            optimizer.load_state_dict({**before, "state": {**before["state"], key: entry}})
    options = [{**before["param_groups"][0], "lookahead_k": 0}]
    with pytest.raises(CheckpointError, match="Invalid k value: 0"):
        optimizer.load_state_dict({**before, "param_groups": options})
    np.testing.assert_equal(optimizer.state_dict(), before)


def test_a_hook_may_make_a_state_dict_fit(device):
    """The state dict that the hook returns decides which parameters have slow weights, not the one passed to it."""
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.5), k=2)
    optimizer.step(grads=[[1.0]])
    saved = optimizer.state_dict()
    optimizer.register_load_state_dict_pre_hook(lambda one, given: given["ours"])
    optimizer.load_state_dict({"ours": saved})
    optimizer.step(grads=[[1.0]])
    assert w.item() == 0.5


def test_a_group_added_to_lookahead_has_options_of_both(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.Lookahead(ow.optim.SGD([first], lr=0.5), k=2, alpha=0.5)
    optimizer.step(grads=[[1.0]])
    optimizer.add_param_group({"params": [second], "lr": 0.25, "lookahead_k": 1})
    optimizer.step(grads=[[1.0], [1.0]])
    assert (first.item(), second.item()) == (0.5, 0.875)
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step(grads=[[1.0], None])
    assert first.item() == -0.5
    optimizer.zero_grad()
    assert first.grad is None
    with pytest.raises(ValueError, match="Invalid alpha value: 2"):
        optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)], "lookahead_alpha": 2})
    with pytest.raises(TypeError, match="no option colour"):
        optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)], "colour": 2})
    assert len(optimizer.param_groups) == 2


def test_lookahead_does_not_count_a_step_that_was_skipped(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.5, skip_nonfinite=True), k=2)
    for grad in (1.0, float("nan"), 1.0):
        optimizer.step(grads=[[grad]])
    assert w.item() == 0.5
    assert optimizer.skipped_steps == 1


def test_lookahead_goes_with_a_scaler_of_the_loss_and_with_a_schedule(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.5), k=2)
    scaler = ow.optim.GradScaler(device=device)
    schedule = ow.optim.lr_scheduler.StepLR(optimizer, 2)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert w.item() == 0.5  # from 1 by two steps to 0, and half-way back
    schedule.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    with pytest.raises(UnsupportedError, match="several gradients in a step"):
        scaler.step(ow.optim.SAM(ow.optim.SGD([w])))
