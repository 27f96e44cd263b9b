"""Gradients gathered over several calls: in recorded steps, with some missing or bad, and through state dicts."""

import numpy as np
import pytest
from transform_problems import make_problem, of_one

import optirs_web as ow

T = ow.optim.transforms


def test_one_recorded_step_serves_all_calls_of_an_accumulation(device):
    param, optimizer = of_one(device, [T.accumulate(3)], "Adam")
    param.grad = [0.0]

    def step(grad):
        param.grad = grad
        optimizer.step()

    recorded = ow.compile(step, device=device)
    values = []
    for number in range(7):
        recorded(np.asarray([1.0 + number], np.float32))
        values.append(param.item())
    assert values[:2] == [0.0, 0.0]
    assert values[2] == values[3] == values[4] == pytest.approx(-1.0)
    assert values[5] == values[6] < values[2]
    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_a_call_with_a_bad_gradient_is_no_part_of_an_accumulation(device):
    param, optimizer = of_one(device, [T.accumulate(2), T.clip_by_global_norm(100.0)], skip_nonfinite=True)
    for grad in (1.0, np.inf, np.nan, 3.0):
        optimizer.step(grads=[[grad]])
    assert param.item() == -2.0
    assert optimizer.skipped_steps == 2


@pytest.mark.parametrize(("others", "second"), [([T.clip_by_norm(3.0)], (-3.0, -6.0)), ([], (-5.0, -12.0))])
def test_a_tensor_without_a_gradient_at_the_last_call_steps_with_what_it_gathered(device, others, second):
    params = [ow.Parameter([0.0], device=device) for _ in range(3)]
    optimizer = ow.optim.SGD(params, lr=1.0, transforms=[T.accumulate(2, "sum"), *others])
    optimizer.step(grads=[[1.0], [5.0], None])
    optimizer.step(grads=[[1.0], None, None])
    assert [param.item() for param in params] == pytest.approx([-2.0, second[0], 0.0], rel=1e-6)
    optimizer.step(grads=[None, None, [1.0]])
    optimizer.step(grads=[None, [7.0], [1.0]])
    assert [param.item() for param in params] == pytest.approx([-2.0, second[1], -2.0], rel=1e-6)


def test_what_was_gathered_survives_a_new_group(device):
    first, second = (ow.Parameter([0.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([first], lr=1.0, transforms=[T.accumulate(2, "sum")])
    optimizer.step(grads=[[1.0]])
    optimizer.add_param_group({"params": [second]})
    optimizer.step(grads=[[2.0], None])
    assert first.item() == -3.0


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "LAMB"])
def test_a_state_dict_goes_on_in_the_middle_of_an_accumulation(device, optimizer):
    params, grads = make_problem(9, shapes=[(3,), (40, 10)])

    def of_this(values):
        ours = [ow.Parameter(value, device=device) for value in values]
        its = [T.add_noise(0.1), T.accumulate(4), T.clip_by_global_norm(5.0), T.add_noise(0.1, seed=1)]
        return ours, getattr(ow.optim, optimizer)(ours, lr=0.1, transforms=its)

    ours, first = of_this(params)
    for number, step_grads in enumerate(grads):
        if number in (2, 6):
            state_dict = first.state_dict()
            ours, second = of_this([mine.numpy() for mine in ours])
            second.load_state_dict(state_dict)
            first = second
        first.step(grads=step_grads)
    whole, unbroken = of_this(params)
    for step_grads in grads:
        unbroken.step(grads=step_grads)
    for mine, other in zip(ours, whole, strict=True):
        assert (mine.numpy() == other.numpy()).all()
    assert unbroken.state_dict()["state"][0]["add_noise_draw"] == 9


def test_a_state_dict_without_what_transforms_keep_is_taken(device):
    param, optimizer = of_one(device, [T.accumulate(2)], "Adam")
    _, plain = of_one(device, [], "Adam")
    plain.step(grads=[[1.0]])
    optimizer.step(grads=[[1.0]])
    optimizer.load_state_dict(plain.state_dict())
    for _ in range(2):
        optimizer.step(grads=[[1.0]])
    assert optimizer.state_dict()["state"][0]["step"] == 2
    assert param.item() == pytest.approx(-1.0)
