"""Edge cases of compiled steps."""

import asyncio
import gc
from unittest import mock

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web.errors import CheckpointError, NonFiniteError, OutOfDeviceMemoryError, UnsupportedError
from optirs_web.runtime.backend import AllocationFailed


def test_gradients_of_leaves_outside_an_arena_accumulate_too(device):
    w = ow.Parameter([3.0], device=device)
    step = ow.compile(lambda x: (w * x).sum().backward(), device=device)
    for want in (1.0, 2.0, 3.0, 4.0):
        step([1.0])
        assert w.grad.item() == want
    w.grad = [10.0]
    step([1.0])
    assert w.grad.item() == 11.0


@pytest.mark.parametrize("with_optimizer", [True, False])
@pytest.mark.parametrize("ending", ["raises", "returns a number"])
def test_a_recording_that_fails_leaves_gradients_as_they_were(device, with_optimizer, ending):
    w = ow.Parameter([3.0], device=device)
    if with_optimizer:
        ow.optim.SGD([w], lr=1.0)
    w.grad = [7.0]

    def step(x):
        (w * x).sum().backward()
        if ending == "raises":
            raise RuntimeError("stop")
        return 1

    with pytest.raises((RuntimeError, UnsupportedError)):
        ow.compile(step, device=device)([1.0])
    assert w.grad.tolist() == [7.0]
    w.grad = None
    with pytest.raises((RuntimeError, UnsupportedError)):
        ow.compile(step, device=device)([1.0])
    assert w.grad is None


def test_an_optimizer_can_step_twice_in_a_recording(device):
    def losses(compiled):
        first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
        optimizer = ow.optim.SGD([first, second], lr=0.25)

        def train_step():
            for param, factor in ((first, 1.0), (second, 2.0)):
                optimizer.zero_grad()
                (param * factor).sum().backward()
                optimizer.step()

        step = ow.compile(train_step, device=device) if compiled else train_step
        for _ in range(3):
            step()
        return first.item(), second.item()

    assert losses(compiled=True) == losses(compiled=False) == (0.25, -0.5)


def test_options_that_change_between_two_steps_of_a_recording_are_refused(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.25)
    w.grad = [1.0]

    def train_step():
        optimizer.param_groups[0]["lr"] = 0.25
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.5
        optimizer.step()

    with pytest.raises(UnsupportedError, match="not with changed options"):
        ow.compile(train_step, device=device)()


def test_work_on_another_device_than_the_recordings_is_refused(open_device):
    vulkan = open_device("vulkan")
    w = ow.Parameter([1.0], device=vulkan)
    step = ow.compile(lambda: (w * w).sum(), device="cpu")
    with pytest.raises(UnsupportedError, match="put everything on one device"):
        step()
    assert ow.compile(lambda: (w * w).sum(), device=vulkan)().item() == 1.0


def test_arrays_go_where_the_parameters_lie_and_the_step_is_not_recorded_again(open_device, monkeypatch):
    vulkan = open_device("vulkan")
    monkeypatch.setenv("OPTIRS_DEVICE", "cpu")
    w = ow.Parameter([2.0], device=vulkan)
    recordings = []

    @ow.compile
    def step(x, uses_parameters):
        recordings.append(uses_parameters)
        return (w * x if uses_parameters else x + x).sum()

    assert step(ow.tensor([3.0], device=vulkan), True).item() == 6.0
    assert step(np.float32([4.0]), True).item() == 8.0
    recordings.clear()
    for number in range(3):
        result = step(np.float32([number]), True)
        assert (result.item(), result.device) == (2.0 * number, vulkan)
    assert not recordings
    assert step(np.float32([4.0]), False).device.name == "cpu"


def test_a_parameter_is_no_argument(device):
    w = ow.Parameter([1.0], device=device)
    with pytest.raises(UnsupportedError, match="let the step refer to its parameters"):
        ow.compile(lambda p: p * 2.0, device=device)(w)


@pytest.mark.parametrize(
    "collect", [list, tuple, lambda tensors: [[tensors[0]]], lambda tensors: dict(enumerate(tensors))]
)
def test_of_tensors_in_an_argument_the_message_says_what_is_accepted(device, collect):
    step = ow.compile(lambda tensors: tensors[0] * 2.0, device=device)
    message = r"must be a tensor, an array, nested lists of numbers, or hashable, not .*Tensor.*; pass each tensor"
    with pytest.raises(UnsupportedError, match=message):
        step(collect([ow.ones(2, device), ow.ones(2, device)]))


def test_without_a_function_compile_is_a_decorator_with_these_options(device):
    @ow.compile(device=device, fuse=False)
    def double(x):
        """Double it."""
        return x * 2.0

    class Scale:
        @ow.compile(fuse=False)
        def __call__(self, x):
            return x * 3.0

    assert double([1.0]).tolist() == [2.0]
    assert (double([1.0]).device.name, double.__doc__) == (ow.device(device).name, "Double it.")
    assert Scale()(ow.ones(1, device)).tolist() == [3.0]
    with pytest.raises(TypeError, match="compile takes a function, not list"):
        ow.compile(fuse=False)([1.0])


def test_zeros_of_either_sign_are_different_constants(device):
    step = ow.compile(lambda x, zero: 1.0 / (x * zero), device=device)
    assert [step([1.0], zero).item() for zero in (0.0, -0.0)] == [np.inf, -np.inf]


def test_a_recording_without_gradients_is_another_one(device):
    w = ow.Parameter([2.0], device=device)

    def squared():
        loss = (w * w).sum()
        if loss.requires_grad:
            loss.backward()

    step = ow.compile(squared, device=device)
    with ow.no_grad():
        step()
    assert w.grad is None
    step()
    assert w.grad.tolist() == [4.0]


def test_what_a_callable_object_holds_is_not_mixed_with_its_compiled_steps(device):
    class Doubled:
        def __init__(self):
            self._device, self._find = "mine", "mine"

        def __call__(self, x):
            return x * 2.0

    assert ow.compile(Doubled(), device=device)([1.0]).tolist() == [2.0]


class Scaled:
    def __init__(self, factor, device):
        self.factor = ow.Parameter([factor], device=device)

    @ow.compile
    def step(self, x, power=1):
        """Return the scaled x, to a power."""
        return (self.factor * x) ** power


def test_a_method_is_recorded_for_each_object(device, capsys):
    twice, thrice = Scaled(2.0, device), Scaled(3.0, device)
    x = ow.tensor([1.0], device=device)
    for _ in range(2):
        assert (twice.step(x).item(), thrice.step(x).item()) == (2.0, 3.0)
    assert asyncio.run(thrice.step.call_async(x)).item() == 3.0
    assert ow.explain(twice.step).device == device.name
    assert Scaled.step.__doc__ == "Return the scaled x, to a power."


def test_arguments_by_name_are_those_by_position(device):
    scaled = Scaled(2.0, device)
    x = ow.tensor([1.0], device=device)
    assert scaled.step(x, 3).item() == 8.0
    recorded = Scaled.step.program
    assert scaled.step(power=3, x=x).item() == 8.0
    assert Scaled.step.program is recorded
    with pytest.raises(TypeError, match="unexpected keyword argument 'factor'"):
        scaled.step(x, factor=2)
    with pytest.raises(UnsupportedError, match="take factor by position"):
        ow.compile(lambda x, *, factor=1.0: x * factor, device=device)(x, factor=2.0)


def test_many_recordings_are_dropped_with_a_warning(device):
    step = ow.compile(lambda x, factor: x * factor, device=device)
    for number in range(16):
        assert step([1.0], float(number)).item() == number
    with pytest.warns(UserWarning, match="more than 16 combinations"):
        step([1.0], 16.0)
    assert len(step._recorded) == 16


def test_no_memory_for_results_stops_the_step_before_it_runs(device):
    w = ow.Parameter(np.zeros(300_000, np.float32), device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)
    w.grad = ow.ones(w.shape, device=device)

    def train_step():
        optimizer.step()
        return w * 2.0

    step = ow.compile(train_step, device=device)
    step()
    gc.collect()
    device.trim()
    device.set_memory_limit(device.memory_stats().live_bytes + 1000)
    try:
        with pytest.raises(OutOfDeviceMemoryError):
            step()
    finally:
        device.set_memory_limit(None)
    assert w.numpy()[0] == -1.0
    assert step().numpy()[0] == -4.0


def test_a_compiled_step_records_again_on_a_device_that_was_opened_again(open_device):
    open_device("vulkan")
    lines = run_python(
        """
        import optirs_web as ow
        step = ow.compile(lambda x: x * 2.0, device="vulkan")
        print(step([1.0]).tolist())
        ow.close_device(ow.device("vulkan"))
        print(step([2.0]).tolist())
        """
    )
    assert lines == ["[2.0]", "[4.0]"]


def test_a_compiled_step_is_not_called_inside_another(device):
    inner = ow.compile(lambda x: x * 2.0, device=device)
    inner([1.0])
    with pytest.raises(UnsupportedError, match="inside another one"):
        ow.compile(lambda x: inner(x) + 1.0, device=device)([1.0])


def test_a_gradient_that_is_read_in_a_step_is_part_of_its_recording(device):
    w = ow.Parameter([1.0, 2.0], device=device)
    norm = ow.compile(lambda: (w.grad * w.grad).sum(), device=device)
    for factor in (1.0, 2.0, 3.0):
        w.grad = None
        (w * factor).sum().backward()
        assert norm().item() == 2 * factor**2
    scaled = ow.compile(lambda x: x if w.grad is None else w.grad * x, device=device)
    w.grad = None
    assert scaled([5.0, 5.0]).tolist() == [5.0, 5.0]
    w.grad = [3.0, 3.0]
    assert scaled([5.0, 5.0]).tolist() == [15.0, 15.0]


def test_zeroing_gradients_in_a_step_leaves_those_that_do_not_exist_alone(device):
    def run(compiled):
        w, u = (ow.Parameter([1.0], device=device) for _ in range(2))
        optimizer = ow.optim.SGD([w, u], lr=1.0, weight_decay=0.5)

        def train_step(x):
            optimizer.zero_grad(set_to_none=False)
            (w * x).sum().backward()
            optimizer.step()

        step = ow.compile(train_step, device=device) if compiled else lambda x: train_step(ow.tensor(x, device=device))
        step([1.0])
        u.grad = [9.0]
        step([1.0])
        return w.item(), u.item(), u.grad.tolist()

    assert run(compiled=True) == run(compiled=False) == (-1.25, 0.5, [0.0])


def test_a_recording_that_wrote_a_gradient_notices_the_move_into_an_arena(device):
    w = ow.Parameter([1.0], device=device)
    set_gradient = ow.compile(lambda x: setattr(w, "grad", x), device=device)
    set_gradient([5.0])
    optimizer = ow.optim.SGD([w], lr=1.0)
    set_gradient([7.0])
    optimizer.step()
    assert w.item() == -6.0


def test_an_option_that_changes_the_shader_may_change_before_a_recording(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.25)

    def train_step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    step = ow.compile(train_step, device=device)
    for momentum, x in ((0.0, [1.0]), (0.5, [1.0, 1.0]), (0.5, [1.0, 1.0])):
        optimizer.param_groups[0]["momentum"] = momentum
        step(x)
    assert w.item() == 1.0 - 0.25 * (1.0 + 2.0 + 3.0)


def test_nan_in_a_compiled_run_shows_in_check_finite(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)

    def train_step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    ow.compile(train_step, device=device)([float("nan")])
    with pytest.raises(NonFiniteError):
        optimizer.check_finite()


def test_work_is_kept_when_a_submit_finds_no_memory(device):
    submit, tries = device._backend.submit, []

    def refuse_once(commands):
        tries.append(1)
        if len(tries) == 1:
            raise AllocationFailed("none left")
        submit(commands)

    x = ow.ones((4,), device=device)
    device.flush()
    device._backend.submit = refuse_once
    try:
        y = x * 2.0 * 3.0
        with pytest.raises(OutOfDeviceMemoryError):
            y.tolist()
        assert y.tolist() == [6.0] * 4
    finally:
        del device._backend.submit


def _new_betas(optimizer):
    optimizer.param_groups[0]["betas"] = (0.5, 0.9)


def _betas_in_place(optimizer):
    optimizer.param_groups[0]["betas"][1] = 0.9


def _tensor_lr(optimizer):
    optimizer.param_groups[0]["lr"] = ow.tensor([0.02], device=optimizer.param_groups[0]["params"][0].device)


def _another_group(optimizer):
    device = optimizer.param_groups[0]["params"][0].device
    optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)], "lr": 0.3})


def _scaler_of(optimizer):
    return ow.optim.GradScaler(optimizer.param_groups[0]["params"][0].device, init_scale=1.0)


CHANGES = {
    "lr": lambda optimizer: optimizer.param_groups[0].update(lr=0.25),
    "lr of NumPy": lambda optimizer: optimizer.param_groups[0].update(lr=np.float32(0.25)),
    "lr that is a tensor": _tensor_lr,
    "betas": _new_betas,
    "betas in place": _betas_in_place,
    "a flag": lambda optimizer: optimizer.param_groups[0].update(amsgrad=True),
    "the sign": lambda optimizer: optimizer.param_groups[0].update(maximize=True),
    "another group": _another_group,
    "a scaler": lambda optimizer: _scaler_of(optimizer).unscale_(optimizer),
    "an option of a transform": lambda optimizer: optimizer._transforms[0].options.update(max_norm=0.01),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_in_an_optimizer_holds_for_the_next_replay(device, change):
    def values(compiled):
        w = ow.Parameter([1.0, -2.0, 3.0], device=device)
        transforms = [ow.optim.transforms.clip_by_global_norm(0.5)] if "transform" in change else []
        betas = [0.9, 0.99] if "in place" in change else (0.9, 0.99)
        optimizer = ow.optim.AdamW([w], lr=0.1, betas=betas, transforms=transforms)

        def train_step(x):
            optimizer.zero_grad()
            (w * w * x).sum().backward()
            optimizer.step()

        step = ow.compile(train_step, device=device) if compiled else train_step
        results = []
        for number in range(8):
            if number == 4:
                CHANGES[change](optimizer)
            step(ow.tensor([1.0, 0.5, 0.1 * number], device=device))
            results.append(w.numpy())
        return results

    np.testing.assert_allclose(values(compiled=True), values(compiled=False), rtol=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_options_of_a_state_dict_that_fails_to_load_are_not_used(device, compiled):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([w], lr=0.125)
    w.grad = [1.0]
    step = ow.compile(optimizer.step, device=device) if compiled else optimizer.step
    step()
    step()
    saved = optimizer.state_dict()
    saved["param_groups"][0]["lr"] = 0.5
    with mock.patch("optirs_web.optim.state.write", side_effect=ValueError), pytest.raises(CheckpointError):
        optimizer.load_state_dict(saved)
    step()
    assert w.item() == 1.0 - 3 * 0.125


def test_a_parameter_that_is_replaced_in_its_group_is_refused_at_a_replay(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.AdamW([w])
    w.grad = [1.0]
    step = ow.compile(optimizer.step, device=device)
    for _ in range(3):
        step()
    optimizer.param_groups[0]["params"][0] = ow.Parameter([1.0], device=device)
    with pytest.raises(UnsupportedError, match="cannot be replaced"):
        step()
