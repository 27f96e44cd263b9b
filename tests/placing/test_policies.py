"""Policies of where operations run, what they carry between devices, and how far they reach."""

import threading

import numpy as np
import pytest
from placement_problems import NBYTES, ROWS, counted, matrix
from processes import run_python

import optirs_web as ow
from optirs_web.errors import ShapeError

# Where operations run.


@pytest.mark.parametrize(("policy", "name"), [("cpu", "cpu"), ("gpu", "vulkan")])
@pytest.mark.parametrize("start", ["cpu", "vulkan"])
def test_a_forced_policy_runs_everything_there(policy, name, start):
    x = matrix(start)
    with ow.placement(policy):
        y = (x @ x + 1.0).tanh()
        z = ow.concat([y, x]).sum(axis=0)
    assert (y.device.name, z.device.name, x.device.name) == (name, name, start)
    np.testing.assert_allclose(y.numpy(), np.tanh(np.full((ROWS, ROWS), 0.25 * ROWS + 1)), rtol=1e-5)


def test_results_stay_where_they_were_computed_and_nothing_is_copied_back(gpu):
    def chain(y):
        for _ in range(5):
            y = (y * 0.5 + 1.0).exp().sum(axis=0, keepdims=True) + y
        return y

    x = matrix()
    with ow.placement("gpu"):
        y, first = counted(gpu, lambda: chain(x))
        _, second = counted(gpu, lambda: chain(x))
    assert y.device is gpu
    assert (first, second) == ((NBYTES, 0), (0, 0))


def test_a_weight_is_carried_once_for_each_change(gpu):
    x, w = matrix("vulkan"), ow.Parameter(matrix())
    optimizer = ow.optim.SGD([w], lr=0.5)

    def use():
        with ow.no_grad():
            return [x @ w, x @ w.T, w * 2.0]

    def change():
        w.grad = matrix()
        optimizer.step()

    with ow.placement("gpu"):
        uploads = [counted(gpu, use)[1], counted(gpu, use)[1]]
        w.assign(matrix(value=2.0))
        (product, *_), counts = counted(gpu, use)
        uploads += [counts]
        change()
        (after, *_), counts = counted(gpu, use)
        uploads += [counts, counted(gpu, use)[1]]
    assert uploads == [(NBYTES, 0), (0, 0), (NBYTES, 0), (NBYTES, 0), (0, 0)]
    assert product.numpy()[0, 0] == 0.5 * 2.0 * ROWS
    assert after.numpy()[0, 0] == 0.5 * 1.75 * ROWS


def test_what_a_compiled_step_writes_is_carried_again(gpu):
    w = ow.Parameter([1.0], device="cpu")
    optimizer = ow.optim.SGD([w], lr=0.5)

    def train_step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    step = ow.compile(train_step, device="cpu")
    actual = []
    for _ in range(3):
        with ow.placement("gpu"), ow.no_grad():
            actual.append((w * 2.0).item())
        step()
    assert actual == [2.0, 1.0, 0.0]


def test_a_gradient_that_is_added_to_is_carried_again(gpu):
    w = ow.Parameter([1.0, 1.0], device="cpu")
    norms = []
    for _ in range(3):
        with ow.placement("cpu"):
            (w * 3.0).sum().backward()
        with ow.placement("gpu"):
            norms.append(w.grad.sum().item())
    assert norms == [6.0, 12.0, 18.0]


def test_a_slice_of_something_large_is_carried_alone(gpu):
    x = ow.tensor(np.arange(64, dtype=np.float32).reshape(64, 1), device="cpu")
    with ow.placement("gpu"):
        y, counts = counted(gpu, lambda: x[40:42] * 2.0)
    assert (y.tolist(), counts) == ([[80.0], [82.0]], (8, 0))


def test_minimize_transfers_runs_where_most_bytes_are(gpu):
    large, small = matrix("vulkan"), ow.ones((ROWS, 1), device="cpu")
    with ow.placement("minimize_transfers"):
        y, counts = counted(gpu, lambda: large @ small)
        alone = small * 2.0
        z, others = counted(gpu, lambda: ow.ones((2,), device="vulkan") + matrix().sum())
    assert (y.device.name, counts) == ("vulkan", (4 * ROWS, 0))
    assert alone.device.name == "cpu"
    assert (z.device.name, others) == ("vulkan", (4, 0))


def test_rows_are_looked_up_where_the_table_lies():
    table = ow.Parameter(np.ones((4, 2), np.float32), device="cpu")
    with ow.placement("gpu"):
        rows = ow.nn.functional.embedding(ow.tensor([1, 2, 1], device="vulkan"), table)
        scaled = rows * 2.0
        scaled.sum().backward()
    assert (rows.device.name, scaled.device.name) == ("cpu", "vulkan")
    assert table.grad.tolist() == [[0.0, 0.0], [4.0, 4.0], [2.0, 2.0], [0.0, 0.0]]


# Backward.


def test_backward_runs_where_forward_ran_and_a_gradient_comes_back_once(gpu):
    x, w = matrix(), ow.Parameter(matrix(value=0.1))
    devices = []
    with ow.placement("gpu"):
        y = x @ w
        z = (y.tanh() * w).sum()
        for tensor in (y, z):
            tensor.register_hook(lambda g: devices.append(g.device.name))
        _, counts = counted(gpu, z.backward)
    assert devices == ["vulkan", "vulkan"]
    assert w.grad.device.name == "cpu"
    assert counts == (0, NBYTES)
    inner = np.full((ROWS, ROWS), 0.05 * ROWS)
    slope = 0.1 * (1 - np.tanh(inner) ** 2)
    expected = np.tanh(inner) + np.full((ROWS, ROWS), 0.5) @ slope
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-5)


def test_backward_outside_of_the_block_and_under_another_policy_is_where_forward_was():
    w = ow.Parameter([2.0], device="cpu")
    devices = []
    with ow.placement("gpu"):
        y = w * w
        y.register_hook(lambda g: devices.append(g.device.name))
        loss = y.sum()
    with ow.placement("cpu"):
        loss.backward()
    assert (devices, w.grad.tolist()) == (["vulkan"], [4.0])


def test_a_checkpointed_part_is_computed_again_under_a_policy():
    w = ow.Parameter([2.0], device="cpu")
    x = ow.tensor([3.0], device="vulkan")
    with ow.placement("gpu"):
        ow.checkpoint(lambda value: (w * value).exp(), x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3.0 * np.exp(6.0), rtol=1e-5)


def test_second_derivatives_pass_through_moves():
    x = ow.tensor([3.0], device="cpu", requires_grad=True)
    with ow.placement("gpu"):
        (first,) = ow.gradients((x * x * x).sum(), [x], create_graph=True)
        (second,) = ow.gradients(first.sum(), [x])
    assert (first.item(), second.item(), second.device.name) == (27.0, 18.0, "cpu")


# Blocks.


def mixes():
    return matrix("cpu") + matrix("vulkan")


def test_without_a_policy_operands_on_two_devices_are_an_error():
    with ow.placement("gpu"):
        mixes()
        with pytest.raises(ShapeError, match="on cpu and vulkan"), ow.placement(None):
            mixes()
    with pytest.raises(ShapeError, match="on cpu and vulkan"):
        mixes()


def test_blocks_nest_and_a_plain_call_stays():
    with ow.placement("gpu") as outer:
        with ow.placement("cpu"):
            assert mixes().device.name == "cpu"
        assert mixes().device.name == "vulkan"
    ow.placement("cpu")
    assert mixes().device.name == "cpu"
    with outer:
        assert mixes().device.name == "vulkan"
    ow.placement(None)
    with pytest.raises(ShapeError):
        mixes()


def test_a_policy_ends_with_its_block_when_an_error_leaves_it():
    with pytest.raises(ZeroDivisionError), ow.placement("gpu"):
        raise ZeroDivisionError
    with pytest.raises(ShapeError):
        mixes()


def test_a_policy_goes_on_with_the_device_opened_anew():
    lines = run_python(
        """
        import optirs_web as ow

        with ow.placement("cpu"):
            ow.close_device(ow.device("cpu"))
            x = ow.ones((2,), device="cpu") + 1.0
            print(x.device is ow.device("cpu"), x.tolist())
        """
    )
    assert lines == ["True [2.0, 2.0]"]


def test_a_policy_holds_in_its_thread_alone():
    actual = []

    def other():
        try:
            mixes()
        except ShapeError as error:
            actual.append(error)

    with ow.placement("gpu"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(actual) == 1


@pytest.mark.parametrize("name", ["fast", "GPU", "", 3])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="one of auto, gpu, cpu, minimize_transfers"):
        ow.placement(name)
    with pytest.raises(ShapeError):
        mixes()


def test_which_gpu_may_be_said(gpu):
    with ow.placement("gpu", gpu="vulkan"):
        assert mixes().device is gpu


@pytest.mark.parametrize("policy", ["gpu", "auto"])
def test_the_processor_is_no_gpu(policy):
    for processor in ("cpu", "cpu:0", ow.device("cpu")):
        with pytest.raises(ValueError, match="the gpu of a placement cannot be the processor"):
            ow.placement(policy, gpu=processor)
