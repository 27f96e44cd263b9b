"""Compiled steps under a policy: counted in bytes and dispatches, on the processor and a GPU."""

import numpy as np
import pytest
from placement_problems import counted

import optirs_web as ow


def perceptron(accumulates=False, **options):
    ow.manual_seed(0)
    model = ow.nn.Sequential(ow.nn.Linear(4, 8, device="cpu"), ow.nn.Tanh(), ow.nn.Linear(8, 3, device="cpu"))
    optimizer = ow.optim.AdamW(model.parameters(), lr=0.05)

    def train_step(x, y):
        if not accumulates:
            optimizer.zero_grad()
        loss = ow.cross_entropy(model(x), y)
        loss.backward()
        if not accumulates:
            optimizer.step()
        return loss

    return model, optimizer, ow.compile(train_step, **options)


X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
Y = np.array([0, 1, 2, 0, 1, 2], np.int32)


def trained(policy, calls):
    model, optimizer, step = perceptron()
    with ow.placement(policy):
        results = [step(X, Y) for _ in range(calls)]
    return model, optimizer, [result.device.name for result in results], [result.item() for result in results]


def test_a_forced_step_moves_what_it_uses_and_nothing_else(gpu):
    other = ow.Parameter([1.0], device="cpu")
    model, optimizer, step = perceptron()
    with ow.placement("gpu"):
        loss = step(X, Y)
        _, counts = counted(gpu, lambda: step(X, Y))
    assert loss.device is gpu
    assert {param.device for param in model.parameters()} == {gpu}
    assert {tensor.device for state in optimizer.state.values() for tensor in state.values()} == {gpu}
    assert other.device.name == "cpu"
    assert counts == (X.nbytes + Y.nbytes, 0)


def test_a_step_that_was_moved_goes_on_as_if_it_had_not_been():
    model, optimizer, _, losses = trained(None, 4)
    moved, its_optimizer, devices, its_losses = trained("gpu", 4)
    assert devices == ["vulkan"] * 4
    np.testing.assert_allclose(its_losses, losses, rtol=1e-4)
    for param, other in zip(model.parameters(), moved.parameters(), strict=True):
        np.testing.assert_allclose(other.numpy(), param.numpy(), rtol=1e-3, atol=1e-5)
    state, its_state = (optimizer.state_dict()["state"] for optimizer in (optimizer, its_optimizer))
    assert {key: float(entry["step"]) for key, entry in its_state.items()} == dict.fromkeys(state, 4.0)


def test_auto_tries_both_devices_runs_each_call_once_and_settles():
    calls = 260
    _, _, _, losses = trained(None, calls)
    _, optimizer, devices, its_losses = trained("auto", calls)
    assert set(devices) == {"cpu", "vulkan"}
    assert len(set(devices[-60:])) == 1
    assert float(optimizer.state_dict()["state"][0]["step"]) == calls
    np.testing.assert_allclose(its_losses, losses, rtol=1e-2, atol=1e-4)


def test_a_step_over_the_same_parameters_goes_with_the_first():
    model, _, step = perceptron()
    evaluate = ow.compile(lambda x: model(x))
    with ow.placement("gpu"):
        step(X, Y)
    with ow.placement("auto"):
        devices = {evaluate(X).device.name for _ in range(30)}
    assert devices == {"vulkan"}


def test_a_step_moves_back_under_another_policy():
    model, _, step = perceptron()
    for policy, name in (("gpu", "vulkan"), ("cpu", "cpu"), ("gpu", "vulkan")):
        with ow.placement(policy):
            assert step(X, Y).device.name == name
    assert {param.device.name for param in model.parameters()} == {"vulkan"}


def test_a_step_that_adds_to_gradients_stays_with_them():
    model, _, step = perceptron(accumulates=True)
    step(X, Y)
    before = [param.grad.numpy().copy() for param in model.parameters()]
    with ow.placement("gpu"):
        assert step(X, Y).device.name == "cpu"
    for param, once in zip(model.parameters(), before, strict=True):
        np.testing.assert_allclose(param.grad.numpy(), 2 * once, rtol=1e-5)


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"recover": True}])
def test_a_step_with_a_device_of_its_own_or_with_snapshots_stays(options):
    _, _, step = perceptron(**options)
    with ow.placement("gpu"):
        assert step(X, Y).device.name == "cpu"


def test_a_move_leaves_the_snapshot_that_was_taken():
    w = ow.Parameter([4.0], device="cpu")
    optimizer = ow.optim.SGD([w], lr=0.25)

    def train_step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()

    step = ow.compile(train_step)
    ow.snapshot("cpu")
    step()
    with ow.placement("gpu"):
        step()
    assert w.tolist() == [1.0]
    w.revive(ow.device("cpu"))
    assert w.tolist() == [4.0]


def test_averages_and_buffers_go_with_the_parameters(gpu):
    w, count = ow.Parameter([4.0], device="cpu"), ow.nn.Buffer([0.0], device="cpu")
    optimizer, average = ow.optim.SGD([w], lr=0.25), ow.optim.averaging.EMA([w], decay=0.5)

    def train_step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
        average.update_parameters()
        count.assign(count + 1.0)

    step = ow.compile(train_step)
    step()
    with ow.placement("gpu"):
        step()
    assert (w.device, count.device) == (gpu, gpu)
    assert (w.tolist(), count.tolist()) == ([1.0], [2.0])
    np.testing.assert_allclose(average.averages()[0].tolist(), [(2.0 * 0.25 + 1.0 * 0.5) / 0.75], rtol=1e-6)


def test_constants_come_along_to_a_step(gpu):
    w = ow.Parameter([2.0], device="vulkan")
    constant = ow.tensor([3.0], device="cpu")
    step = ow.compile(lambda: (w * constant).sum())
    with ow.placement("minimize_transfers"):
        assert step().item() == 6.0
    assert w.device is gpu


def test_dropout_in_a_step_that_moves_does_not_draw_the_same_again():
    x = ow.ones((64,), device="cpu")
    w = ow.Parameter(np.ones(64, np.float32), device="cpu")
    step = ow.compile(lambda: ow.nn.functional.dropout(w * x, 0.5))
    ow.manual_seed(1)
    drawn = [step().tolist() for _ in range(3)]
    ow.manual_seed(1)
    with ow.placement("cpu"):
        again = [step().tolist()]
    with ow.placement("gpu"):
        again += [step().tolist() for _ in range(2)]
    assert again == drawn
