"""Reptile: which gradients it asks for, eager and recorded."""

import pytest
from wrapper_problems import make_closure, parameters

import optirs_web as ow


@pytest.mark.parametrize("tasks", [(0.5,), (1.0, -0.5, 0.25)])
def test_each_inner_step_has_a_fresh_gradient(device, tasks):
    params = parameters(device)
    optimizer = ow.optim.Reptile(ow.optim.SGD(params, lr=0.02), epsilon=0.4, inner_steps=4)
    calls = []

    def counted(optimum):
        closure = make_closure(params, device, optimum)
        return lambda: calls.append(optimum) or closure()

    closures = [counted(task) for task in tasks]
    for _ in range(3):
        losses = optimizer.step(closures if len(tasks) > 1 else closures[0])
    assert calls == [task for _ in range(3) for task in tasks for _ in range(4)]
    assert len(losses) == len(tasks) if len(tasks) > 1 else losses.size == 1


def test_reptile_is_recorded_and_uses_the_parameters_of_now(device):
    params, others = parameters(device), parameters(device)
    optimizer, other = (
        ow.optim.Reptile(ow.optim.Adam(params_, lr=0.01), epsilon=0.5, inner_steps=2) for params_ in (params, others)
    )

    def tasks(its_params):
        return [make_closure(its_params, device, one) for one in (0.5, -1.0)]

    compiled = ow.compile(lambda: other.step(tasks(others)), device=device)
    for number in range(4):
        optimizer.step(tasks(params) if number != 2 else tasks(params)[:1])
        if number == 2:
            other.step(tasks(others)[:1])  # another number of tasks in between
            for param_, its in zip(others, params, strict=True):
                its.assign([[0.5] * 40] * 7 if its.ndim == 2 else [0.5] * its.size)
                param_.assign([[0.5] * 40] * 7 if its.ndim == 2 else [0.5] * its.size)
            continue
        before = device.stats.copy()
        compiled()
        assert (device.stats - before).bytes_down == 0
    assert [other.tolist() for other in others] == [param.tolist() for param in params]
    with pytest.raises(TypeError, match=r"call step\(closure\)"):
        optimizer.step()
