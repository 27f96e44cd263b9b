"""A learning rate that is a tensor: each step uses the value that it has on the device at that time."""

import copy
import pickle

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError

GRADS = [[[1.0, -2.0]], [[0.5, 3.0]], [[-1.0, 1.0]]]
RATES = [0.1, 0.02, 0.5]

MAKERS = {
    "SGD": lambda params, lr: ow.optim.SGD(params, lr=lr, momentum=0.9),
    "AdamW": lambda params, lr: ow.optim.AdamW(params, lr=lr),
    "Lookahead": lambda params, lr: ow.optim.Lookahead(ow.optim.AdamW(params, lr=lr), k=2),
    "LAMB": lambda params, lr: ow.optim.LAMB(params, lr=lr),
    "Adafactor": lambda params, lr: ow.optim.Adafactor(params, lr=lr),
    "Rprop": lambda params, lr: ow.optim.Rprop(params, lr=lr),
}


def stepped_with_numbers(make, device):
    w = ow.Parameter([1.0, 2.0], device=device)
    optimizer = make([w], RATES[0])
    for rate, grads in zip(RATES, GRADS, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step(grads=grads)
    return w.tolist()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_step_uses_the_value_of_then(device, name, shape):
    w = ow.Parameter([1.0, 2.0], device=device)
    lr = ow.Parameter(np.full(shape, RATES[0], np.float32), device=device)
    optimizer = MAKERS[name]([w], lr)
    before = device.stats.copy()
    for rate, grads in zip(RATES, GRADS, strict=True):
        lr.assign(np.full(shape, rate, np.float32))
        optimizer.step(grads=grads)
    assert (device.stats - before).bytes_down == 0
    assert w.tolist() == stepped_with_numbers(MAKERS[name], device)
    assert optimizer.param_groups[0]["lr"] is lr


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_so_does_a_recorded_step(device, name):
    w = ow.Parameter([1.0, 2.0], device=device)
    lr = ow.Parameter(RATES[0], device=device)
    optimizer = MAKERS[name]([w], lr)

    @ow.compile
    def step(rate, grad):
        lr.assign(rate)
        optimizer.step(grads=[grad])

    inputs = [
        [ow.tensor(values, device=device) for values in (rate, *grads)]
        for rate, grads in zip(RATES, GRADS, strict=True)
    ]
    before = device.stats.copy()
    for rate, grad in inputs:
        step(rate, grad)
    assert (device.stats - before).bytes_down == 0
    assert w.tolist() == stepped_with_numbers(MAKERS[name], device)


def test_it_costs_a_recorded_step_a_copy(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.AdamW([w], lr=ow.tensor(0.5, device=device))
    w.grad = [1.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    before = device.stats.copy()
    step()
    cost = device.stats - before
    assert (cost.dispatches, cost.submits, cost.replays, cost.copies) == (2, 1, 1, 1)
    assert (cost.bytes_up, cost.bytes_down) == (0, 0)


def test_groups_may_have_tensors_and_numbers(device):
    a, b = (ow.Parameter([1.0], device=device) for _ in range(2))
    lr = ow.tensor([0.5], device=device)
    optimizer = ow.optim.SGD([{"params": [a], "lr": lr}, {"params": [b]}], lr=0.25)
    optimizer.step(grads=[[1.0], [1.0]])
    assert (a.tolist(), b.tolist()) == ([0.5], [0.75])
    optimizer.param_groups[1]["lr"] = lr
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step(grads=[[1.0], [1.0]])
    assert (a.tolist(), b.tolist()) == ([-0.5], [0.25])
    c = ow.Parameter([1.0], device=device)
    optimizer.add_param_group({"params": [c], "lr": lr})
    optimizer.step(grads=[None, None, [1.0]])
    assert c.tolist() == [0.5]


def test_matrices_of_several_shapes_follow_it_too(device):
    values = [np.eye(4, 6, dtype=np.float32), np.eye(5, dtype=np.float32)]

    def trained(rate):
        params = [ow.Parameter(value, device=device) for value in values]
        ow.optim.Muon(params, lr=rate).step(grads=values)
        return [param.tolist() for param in params]

    assert trained(ow.tensor(0.125, device=device)) == trained(0.125)


def test_another_tensor_is_another_program(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=ow.tensor(0.5, device=device))
    step = ow.compile(lambda grad: optimizer.step(grads=[grad]))
    grad = ow.tensor([1.0], device=device)
    step(grad)
    optimizer.param_groups[0]["lr"] = ow.tensor(0.25, device=device)
    step(grad)
    step(grad)
    assert w.tolist() == [0.0]
    optimizer.param_groups[0]["lr"] = 1.0
    step(grad)
    assert w.tolist() == [-1.0]


def test_a_state_dict_has_its_value(device):
    w = ow.Parameter([1.0], device=device)
    lr = ow.Parameter(0.5, device=device)
    optimizer = ow.optim.SGD([w], lr=lr, momentum=0.9)
    optimizer.step(grads=[[1.0]])
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["lr"] == 0.5
    content = ow.dump_checkpoint({"w": w}, optimizer)
    lr.assign(0.125)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.5
    other = ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=0.1, momentum=0.9)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.5
    lr.assign(0.125)
    ow.load_checkpoint(content, {"w": w}, optimizer)
    assert lr.item() == 0.5


def test_one_of_torch_with_a_tensor_is_loaded(device, torch):
    theirs = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=torch.tensor(0.25))
    ours = ow.optim.AdamW([ow.Parameter([0.0], device=device)])
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.25


@pytest.mark.parametrize(
    "through", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)
def test_a_copy_has_a_tensor_of_its_own(device, through):
    w, lr = ow.Parameter([1.0], device=device), ow.Parameter(0.5, device=device)
    optimizer = ow.optim.SGD([w], lr=lr)
    w2, optimizer2 = through((w, optimizer))
    lr.assign(0.0)
    for one in (optimizer, optimizer2):
        one.step(grads=[[1.0]])
    assert (w.tolist(), w2.tolist()) == ([1.0], [0.5])


def test_it_is_shown_without_its_value(device):
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=ow.tensor(0.5, device=device))
    before = device.stats.copy()
    assert "lr: Tensor(" in repr(optimizer) or "lr: <Tensor" in repr(optimizer)
    assert (device.stats - before).bytes_down == 0


@pytest.mark.parametrize(
    ("make", "lr", "error", "message"),
    [
        (ow.optim.Adam, [0.1, 0.2], ValueError, "Tensor lr must be 1-element"),
        (ow.optim.Adam, 1, ValueError, "Tensor lr must be float32, not int32"),
        (ow.optim.Prodigy, 1.0, UnsupportedError, "Prodigy reads lr on the host: pass a number"),
        (ow.optim.LBFGS, 1.0, UnsupportedError, "LBFGS reads lr on the host: pass a number"),
    ],
)
def test_what_cannot_be_used_is_refused(make, lr, error, message):
    with pytest.raises(error, match=message):
        make([ow.Parameter([1.0], device="cpu")], lr=ow.tensor(lr, device="cpu"))


def test_it_is_on_the_device_of_the_parameters(open_device):
    w = ow.Parameter([1.0], device=open_device("cpu"))
    with pytest.raises(ValueError, match="on the device of the parameters"):
        ow.optim.SGD([w], lr=ow.tensor(0.1, device=open_device("vulkan")))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_schedule_fills_the_tensor_in_place(device, name, shape, compiled):
    """Each step uses the schedule's value of then, and the group has the same tensor: as with a number."""
    actual = []
    for lr in (0.5, ow.tensor(np.full(shape, 0.5, np.float32), device=device)):
        w = ow.Parameter([1.0, 2.0], device=device)
        optimizer = MAKERS[name]([w], lr)
        schedule = ow.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def step(grad, optimizer=optimizer, schedule=schedule):
            optimizer.step(grads=[grad])
            schedule.step()

        run = ow.compile(step, device=device) if compiled else step
        values = []
        for count, (grad,) in enumerate(GRADS):
            run(ow.tensor(grad, device=device))
            now = optimizer.param_groups[0]["lr"]
            if isinstance(lr, ow.Tensor):
                assert now is lr
                assert now.shape == shape
                now = now.item()
            assert now == schedule.get_last_lr()[0] == 0.5 ** (count + 2)
            values.append(w.tolist())
        actual.append(values)
    assert actual[0] == actual[1]


def test_a_schedule_of_another_option_leaves_the_tensor(device):
    lr = ow.tensor(0.5, device=device)
    optimizer = ow.optim.SGD([ow.Parameter([1.0], device=device)], lr=lr, weight_decay=1.0)
    ow.optim.lr_scheduler.StepLR(optimizer, 1, param="weight_decay").step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert (lr.item(), optimizer.param_groups[0]["weight_decay"]) == (0.5, pytest.approx(0.1))
