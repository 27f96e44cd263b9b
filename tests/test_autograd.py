"""The tape: accumulation, shared inputs, no_grad, GradientTape, memory."""

import copy
import gc
import inspect
import pickle
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import tensor_class
from optirs_web.errors import OutOfDeviceMemoryError, ShapeError, UnsupportedError


def test_gradients_of_a_shared_input_add_up(device):
    x = ow.tensor([2.0, 3.0], device=device, requires_grad=True)
    y = x * x
    (y * y + y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.array([8, 27]) + 2 * np.array([2, 3]), rtol=1e-6)


def test_backward_adds_to_what_is_there(device):
    x = ow.Parameter([1.0, 2.0], device=device)
    for _ in range(3):
        (x * 2.0).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_both_parents_of_a_sum_have_gradients_of_their_own(device):
    a, b = (ow.tensor([1.0], device=device, requires_grad=True) for _ in range(2))
    (a + b).sum().backward()
    (a * 5.0).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([6.0], [1.0])


def test_backward_through_a_deep_graph_does_not_recurse(device):
    x = ow.tensor([1.0], device=device, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + 1.0
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_no_grad_leaves_no_history(device):
    x = ow.Parameter([1.0], device=device)
    with ow.no_grad():
        y = x * 2.0
    assert not y.requires_grad
    assert (x * 2.0).requires_grad


def test_detach_stops_the_gradient(device):
    x = ow.Parameter([3.0], device=device)
    (x * x.detach()).sum().backward()
    assert x.grad.tolist() == [3.0]


def test_backward_of_many_elements_needs_a_gradient(device):
    x = ow.Parameter([1.0, 2.0], device=device)
    with pytest.raises(ShapeError, match="needs a gradient"):
        (x * 2.0).backward()
    with pytest.raises(ShapeError, match=r"\(3,\), the tensor \(2,\)"):
        (x * 2.0).backward([1.0, 1.0, 1.0])


def test_tape_gives_gradients_by_source(device):
    w, x, unused = (
        ow.Parameter([2.0], device=device),
        ow.tensor([5.0], device=device),
        ow.Parameter([1.0], device=device),
    )
    with ow.GradientTape() as tape:
        tape.watch(x)
        y = (w * x).sum()
    of_w, of_x, of_unused = tape.gradient(y, [w, x, unused])
    assert (of_w.tolist(), of_x.tolist(), of_unused) == ([5.0], [2.0], None)
    assert w.grad is None
    assert not x.requires_grad


def test_tape_gives_gradients_of_intermediate_values(device):
    x = ow.Parameter([3.0], device=device)
    with ow.GradientTape() as tape:
        y = x * x
        z = (y * 2.0).sum()
    assert tape.gradient(z, [y])[0].tolist() == [2.0]


def test_a_tape_is_used_once_unless_persistent(device):
    x = ow.Parameter([3.0], device=device)
    with ow.GradientTape() as tape:
        y = (x * x).sum()
    tape.gradient(y, [x])
    with pytest.raises(UnsupportedError, match="persistent=True"):
        tape.gradient(y, [x])
    with ow.GradientTape(persistent=True) as lasting:
        y = (x * x).sum()
    assert [lasting.gradient(y, [x])[0].tolist() for _ in range(2)] == [[6.0], [6.0]]


def test_integers_have_no_gradients(device):
    with pytest.raises(UnsupportedError, match="only float32"):
        ow.tensor([1, 2], device=device, requires_grad=True)
    with pytest.raises(UnsupportedError, match="only float32"):
        ow.GradientTape().watch(ow.arange(3, device=device))


def test_a_graph_that_is_dropped_frees_its_memory_without_the_collector(device):
    gc.collect()
    before = device.memory_stats().live_buffers
    gc.disable()
    try:
        x = ow.tensor(np.ones((4, 4), np.float32), device=device, requires_grad=True)
        y = (x @ x).relu().exp().log_softmax().sum()
        alive = weakref.ref(y)
        y.backward()
        del x, y
        assert alive() is None
        assert device.memory_stats().live_buffers == before
    finally:
        gc.enable()


def test_assigning_a_gradient_copies_and_checks_it(device):
    x = ow.Parameter([1.0, 2.0], device=device)
    inputs = ow.tensor([3.0, 4.0], device=device)
    x.grad = inputs
    assert x.grad.view != inputs.view
    assert x.grad.tolist() == [3.0, 4.0]
    with pytest.raises(ShapeError, match="the gradient has the shape"):
        x.grad = [1.0]
    x.grad = None
    assert x.grad is None


def test_gradients_move_between_parameters_of_one_arena(device):
    a, b = ow.Parameter([1.0, 2.0], device=device), ow.Parameter([3.0, 4.0], device=device)
    ow.optim.SGD([a, b], lr=1.0)
    a.grad = [5.0, 6.0]
    b.grad = a.grad
    b.grad = b.grad
    assert b.grad.tolist() == [5.0, 6.0]
    (a * b).sum().backward()
    (a + a).sum().backward()
    assert a.grad.tolist() == [10.0, 12.0]


def test_backward_frees_the_history_unless_it_is_retained(device):
    x = ow.Parameter([1.0, 2.0], device=device)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    with pytest.raises(UnsupportedError, match="retain_graph=True"):
        y.backward()
    assert x.grad.tolist() == [4.0, 8.0]


def test_losses_that_are_kept_do_not_keep_their_history(device):
    x = ow.Parameter(np.ones(10_000, np.float32), device=device)
    losses = []
    for _ in range(5):
        loss = (x * 2.0 * 3.0 * 4.0).sum()
        loss.backward()
        losses.append(loss)
        if len(losses) == 1:
            before = device.memory_stats().live_bytes
    assert device.memory_stats().live_bytes - before < 10_000


def test_a_parameter_changed_between_forward_and_backward_is_noticed(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)
    loss = (w * w).sum()
    optimizer.step(grads=[[1.0]])
    with pytest.raises(UnsupportedError, match="changed by a step"):
        loss.backward()


def test_gradients_are_float32(device):
    w = ow.Parameter([1.0, 2.0], device=device)
    integers = ow.tensor([1, 2], device=device)
    with pytest.raises(UnsupportedError, match="a gradient must be float32"):
        w.grad = integers
    with pytest.raises(UnsupportedError, match="a gradient must be float32"):
        (w * 1.0).backward(integers)
    assert w.grad is None


def test_a_gradient_can_be_another_parameters_in_the_same_arena(device):
    v, w = (ow.Parameter([[1.0, 2.0]], device=device) for _ in range(2))
    ow.optim.SGD([v, w], lr=1.0)
    v.grad = w.grad = [[5.0, 6.0]]
    w.reshape(2).backward(v.grad.reshape(2))
    assert w.grad.tolist() == [[10.0, 12.0]]


def test_nested_tapes_watch_the_same_tensor(device):
    x = ow.tensor([3.0], device=device)
    with ow.GradientTape() as outer:
        outer.watch(x)
        with ow.GradientTape() as inner:
            inner.watch(x)
            y = (x * x).sum()
            z = (x * 2.0).sum()
    assert inner.gradient(y, [x])[0].tolist() == [6.0]
    assert outer.gradient(z, [x])[0].tolist() == [2.0]
    assert not x.requires_grad


def test_a_copy_of_a_tensor_has_its_gradient_and_one_of_a_parameter_has_none(device):
    """As torch's have."""
    for leaf in (ow.tensor([3.0], device=device, requires_grad=True), ow.Parameter([3.0], device=device)):
        (leaf * leaf).sum().backward()
        other = copy.deepcopy(leaf)
        assert other.requires_grad
        if isinstance(leaf, ow.Parameter):
            assert other.grad is None
            continue
        leaf.grad = [0.0]
        assert other.grad.tolist() == [6.0]


def test_copies_of_tensors_are_tensors(device):
    w = ow.Parameter([1.0], device=device, name="w")
    other = copy.deepcopy(w)
    assert isinstance(other, ow.Parameter)
    assert (other.name, other.tolist(), other.view == w.view) == ("w", [1.0], False)
    assert copy.deepcopy(w * 2.0).tolist() == [2.0]
    again = pickle.loads(pickle.dumps(w))
    assert isinstance(again, ow.Parameter)
    assert (again.name, again.tolist(), again.device) == ("w", [1.0], w.device)
    same = pickle.loads(pickle.dumps(ow.tensor([[1, 2]], device=device, dtype="int32")))
    assert (same.tolist(), same.shape, same.dtype) == ([[1, 2]], (1, 2), "int32")


def test_a_step_on_other_parameters_does_not_disturb_a_graph(device):
    """As when a discriminator steps between the forward and the backward of its generator."""
    v, w = (ow.Parameter([3.0], device=device) for _ in range(2))
    ow.optim.SGD([v, w], lr=1.0)  # both in one arena
    other = ow.optim.SGD([v], lr=1.0)
    loss = (w * w).sum()
    other.step(grads=[[1.0]])
    loss.backward()
    assert w.grad.tolist() == [6.0]


def test_values_changed_under_a_graph_are_noticed_wherever_the_change_came_from(device, tmp_path):
    w, x = ow.Parameter([2.0], device=device), ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)

    def train_step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    step = ow.compile(train_step, device=device)
    step()
    ow.save_checkpoint(tmp_path / "w", {"w": w})
    changes = {
        "a replayed step": step,
        "a checkpoint": lambda: ow.load_checkpoint(tmp_path / "w", {"w": w}),
        "an assignment": lambda: w.assign([5.0]),
    }
    for change in changes.values():
        for loss in ((w * w).sum(), (x * w.detach()).sum(), (x * w.reshape(1).detach()).sum()):
            change()
            with pytest.raises(UnsupportedError, match="changed by a step"):
                loss.backward()


def test_a_tapes_gradient_leaves_the_history_behind_its_sources(device):
    w = ow.Parameter([2.0], device=device)
    with ow.GradientTape() as tape:
        h = w * w
        y = (h * 3.0).sum()
    assert tape.gradient(y, [h])[0].tolist() == [3.0]
    h.sum().backward()
    assert w.grad.tolist() == [4.0]


def test_an_optimizer_tried_again_after_it_found_no_memory_keeps_the_gradients(device):
    gc.collect()
    device.trim()
    params = [ow.Parameter(np.ones(100_000, np.float32), device=device) for _ in range(3)]
    for param in params:
        param.grad = np.full(100_000, 2.0, np.float32)
    device.set_memory_limit(device.memory_stats().live_bytes + 3 * 400_000 + 20_000)
    try:
        with pytest.raises(OutOfDeviceMemoryError):
            ow.optim.SGD(params, lr=1.0)
    finally:
        device.set_memory_limit(None)
    ow.optim.SGD(params, lr=1.0).step()
    assert [param.numpy()[0] for param in params] == [-1.0] * 3


def test_parameters_are_not_changed_in_place_by_operators(device):
    w = ow.Parameter([1.0], device=device)
    with pytest.raises(UnsupportedError, match="assign"):
        w -= 1.0
    with pytest.raises(ShapeError, match="cannot take"):
        w.assign([1.0, 2.0])
    w.assign(ow.full((1,), 4.0, device=device))
    assert w.tolist() == [4.0]


@pytest.mark.parametrize(
    "program",
    [
        "from optirs_web.ops import ones; print((ones((2,), device='cpu') + 1.0).tolist())",
        "from optirs_web.ops import full; print(full((2,), 2.0, device='cpu', dtype='float16').float().tolist())",
        "from optirs_web.sparse import SparseRows\n"
        "print((SparseRows([0, 1], [2.0, 2.0], (2,), device='cpu').to_dense() * 1.0).tolist())",
    ],
)
def test_tensors_work_whatever_was_imported(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2.0, 2.0]"


def test_asking_for_a_device_loads_no_tensors():
    program = "import sys, optirs_web as ow; ow.device_async; print([n for n in sys.modules if 'tensor' in n])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_methods_of_tensors_call_operations_that_there_are():
    called = set(re.findall(r"\bops\.(\w+)\(", inspect.getsource(tensor_class)))
    assert len(called) > 50
    assert called <= set(ow.ops.__all__)
