"""A compiled step depends on more than its arguments: flags of tensors and modules, and the storage of parameters."""

import copy
import pickle
import weakref

import numpy as np
import pytest
from processes import run_python

import optirs_web as ow
from optirs_web import nn
from optirs_web.errors import ShapeError, UnsupportedError


class Step:
    """A compiled training step of two parameters, and how often it was recorded."""

    def __init__(self, device, asked=None):
        self.recorded = 0
        self.weight = ow.Parameter([1.0, 2.0], device=device)
        self.bias = ow.Parameter([0.5], device=device)
        self.optimizer = ow.optim.SGD([self.weight, self.bias], lr=0.5)
        self.compiled = ow.compile(self.step, asked)

    def step(self, x):
        self.recorded += 1
        self.optimizer.zero_grad()
        loss = ((x * self.weight).sum() + self.bias).sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def __call__(self):
        """Run it, and say which parameters have changed."""
        before = self.weight.tolist(), self.bias.tolist()
        self.compiled([0.5, 0.25])
        return self.weight.tolist() != before[0], self.bias.tolist() != before[1]


# Flags.


def test_a_frozen_parameter_is_not_trained_on_and_trains_again_when_it_is_not(device):
    step = Step(device)
    assert step() == (True, True)
    step.weight.requires_grad = False
    assert step() == (False, True)
    step.weight.requires_grad = True
    assert step() == (True, True)


def test_each_combination_of_flags_is_recorded_once(device):
    step = Step(device, device)
    for _ in range(3):
        for weight, bias in ((True, True), (False, True), (True, False)):
            step.weight.requires_grad, step.bias.requires_grad = weight, bias
            assert step() == (weight, bias)
    assert step.recorded == 3


def test_other_flags_do_not_have_it_recorded_again(device):
    step, other = Step(device, device), ow.Parameter([1.0], device=device)
    step()
    for _ in range(3):
        other.requires_grad = not other.requires_grad
        step()
    assert step.recorded == 1


def test_a_replay_looks_at_flags_only_when_one_has_changed(device, monkeypatch):
    step = Step(device, device)
    step()
    step()
    looks = []
    own = ow.Parameter.requires_grad
    monkeypatch.setattr(ow.Parameter, "requires_grad", property(lambda self: looks.append(self) or own.fget(self)))
    step()
    assert not looks
    own.fset(step.weight, False)
    own.fset(step.weight, True)
    step()
    assert {id(look) for look in looks} == {id(step.weight), id(step.bias)}
    looks.clear()
    step()
    assert not looks
    assert step.recorded == 1


def test_dropout_and_batch_norm_follow_train_and_eval(device):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)).to(device)
    recorded = []
    step = ow.compile(lambda x: recorded.append(model.training) or model(x), device)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    for _ in range(2):
        assert 0.0 in np.ravel(step(x).numpy()[1:])
        statistics = model[0].running_mean.tolist()
        model.eval()
        np.testing.assert_allclose(step(x).numpy(), model(ow.tensor(x, device=device)).numpy(), rtol=1e-6)
        assert model[0].running_mean.tolist() == statistics
        model.train()
    assert recorded == [True, False]


def test_a_module_inside_that_is_set_by_itself_counts_too(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(device)
    step = ow.compile(model)
    x = np.ones((8, 4), np.float32)
    model[1].eval()
    np.testing.assert_array_equal(step(x).numpy(), step(x).numpy())
    model[1].training = True
    assert 0.0 in np.ravel(step(x).numpy())


def test_a_flag_that_the_step_asks_for_itself_is_part_of_the_recording(device):
    w = ow.Parameter([1.0], device=device)
    step = ow.compile(lambda x: x * (2.0 if w.requires_grad else 3.0), device)
    assert step([1.0]).tolist() == [2.0]
    w.requires_grad = False
    assert step([1.0]).tolist() == [3.0]


def test_a_step_that_sets_flags_for_its_own_use_is_recorded_once(device):
    recorded = []
    model = nn.Sequential(nn.Dropout(0.5)).to(device)

    def slope(x):
        recorded.append(x)
        model.eval()
        with ow.GradientTape() as tape:
            tape.watch(x)
            y = (model(x) * x).sum()
        model.train()
        return tape.gradient(y, [x])[0]

    step = ow.compile(slope, device)
    assert [step([3.0]).tolist() for _ in range(3)] == [[6.0]] * 3
    assert len(recorded) == 1


def test_the_flags_of_a_recording_keep_no_tensor_alive(device):
    constants = [ow.tensor([1.0, 1.0], device=device)]
    step = ow.compile(lambda x: x * constants[0], device)
    step([1.0, 1.0])
    kept = weakref.ref(constants.pop())
    assert kept() is None


def test_a_module_s_mode_survives_copies_and_pickles(device):
    model = nn.Sequential(nn.Dropout(0.5)).eval()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (copied.training, copied[0].training) == (False, False)


# Devices.


@pytest.mark.parametrize("default", ["cpu", "vulkan"])
def test_a_step_runs_where_its_parameters_lie(device, open_device, default, monkeypatch):
    monkeypatch.setenv("OPTIRS_DEVICE", open_device(default).name)
    step = Step(device)
    for arguments in ([0.5, 0.25], np.float32([0.5, 0.25]), ow.tensor([0.5, 0.25], device=default)):
        assert step.compiled(arguments).device is device
    assert step.recorded <= 2  # at a first try elsewhere, and here


def test_a_step_without_parameters_runs_where_its_arguments_lie(open_device):
    double = ow.compile(lambda x: x * 2.0)
    for name in ("cpu", "vulkan", "cpu"):
        assert double(ow.ones((2,), device=open_device(name))).device.name == name


def test_a_method_runs_where_its_object_lies(open_device):
    class Scale(nn.Module):
        def __init__(self, device):
            super().__init__()
            self.weight = ow.Parameter([3.0], device=device)

        @ow.compile
        def scaled(self, x):
            return x * self.weight

    models = [Scale(open_device(name)) for name in ("cpu", "vulkan")]
    for _ in range(2):
        assert [(model.scaled([2.0]).tolist(), model.scaled([2.0]).device.name) for model in models] == [
            ([6.0], "cpu"),
            ([6.0], "vulkan"),
        ]


def test_parameters_on_two_devices_are_an_error_and_so_are_those_elsewhere_than_asked_for(open_device):
    a, b = (ow.Parameter([1.0], device=open_device(name)) for name in ("cpu", "vulkan"))
    with pytest.raises(ShapeError, match="got tensors on cpu and vulkan"):
        ow.compile(lambda x: (x * a) + b)([1.0])
    with pytest.raises(ShapeError, match="got tensors on cpu and vulkan"):
        ow.compile(lambda x: x * b, "cpu")([1.0])


# Copies.


def test_a_device_copies_as_itself_and_is_not_pickled(device):
    assert copy.copy(device) is copy.deepcopy(device) is copy.deepcopy({"device": device})["device"] is device
    with pytest.raises(UnsupportedError, match=f"'{device.name}' cannot be pickled: pickle its name"):
        pickle.dumps(device)


def test_a_copy_of_a_compiled_step_is_one_that_was_not_recorded(device):
    step = ow.compile(lambda x: x * 2.0, device)
    step([1.0])
    for copied in (copy.copy(step), copy.deepcopy(step)):
        assert copied.program is None
        assert copied([3.0]).tolist() == [6.0]


def test_a_copied_model_has_a_compiled_step_of_its_own(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = ow.Parameter([2.0], device=device)
            self.step = ow.compile(self.scaled)

        def scaled(self, x):
            return x * self.weight

    model = Model()
    model.step([1.0])
    copied = copy.deepcopy(model)
    copied.weight.assign([5.0])
    assert (model.step([1.0]).tolist(), copied.step([1.0]).tolist()) == ([2.0], [5.0])


def test_a_copied_step_guards_what_it_trains_as_before(device):
    step = copy.deepcopy(ow.compile(lambda x: x, device, recover="auto", snapshot_every=7))
    assert (step._guard.to, step._guard.every) == ("auto", 7)


def test_what_cannot_be_pickled_says_what_to_do_instead(device):
    step = ow.compile(lambda x: x * 2.0, device)
    result = step([1.0])
    for one, message in (
        (step, "the compiled step '.*' cannot be pickled: pickle the state_dict()"),
        (step.program, "record it again"),
        (result.view, "copy the tensor"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            pickle.dumps(one)


def test_memory_is_not_copied_by_itself(device):
    x = ow.ones((2,), device=device)
    for copies in (copy.copy, copy.deepcopy):
        with pytest.raises(UnsupportedError, match="copy the tensor"):
            copies(x.view.buffer)
    assert x.tolist() == [1.0, 1.0]


def test_autocast_is_copied_and_pickled():
    block = ow.autocast("float16", cache_enabled=False)
    for copied in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert (copied.dtype.name, copied.enabled, copied.cache_enabled) == ("float16", True, False)


# A device that was closed.

CLOSED = """
import numpy as np
import optirs_web as ow
from optirs_web.errors import DeviceLostError

w = ow.Parameter([[1.0, 2.0]], device="{device}")
x = ow.ones((2, 1), device="{device}")
optimizer = ow.optim.Adam([w], lr=0.1)

def train(x):
    optimizer.zero_grad()
    loss = (x @ w).sum()
    loss.backward()
    optimizer.step()
    return loss

steps = [ow.compile(train), ow.compile(train, "{device}")]
for step in steps:
    step(x)
device, program, loss = ow.device("{device}"), steps[0].program, (x @ w).sum()
(x @ w).sum().backward()
ow.close_device("{device}")
calls = dict(
    operation=lambda: x + 1.0,
    in_place=lambda: ow.ops.add_into(x, x),
    read=x.tolist,
    assign=lambda: w.assign(x.reshape(1, 2)),
    backward=loss.backward,
    step=optimizer.step,
    step_with_gradients=lambda: optimizer.step(grads=[[[1.0, 1.0]]]),
    skipped=lambda: optimizer.skipped_steps,
    clip=lambda: ow.optim.clip_grad_norm_([w], 1.0),
    compiled=lambda: steps[0](x),
    compiled_array=lambda: steps[0](np.ones((2, 1), np.float32)),
    compiled_by_name=lambda: steps[1](np.ones((2, 1), np.float32)),
    compiled_by_device=lambda: ow.compile(lambda x: x, device)([1.0]),
    replay=lambda: device.replay(program),
    flush=device.flush,
    synchronize=device.synchronize,
    create=lambda: ow.zeros((2,), device=device),
)
for name, call in calls.items():
    try:
        call()
    except DeviceLostError as error:
        assert "closed" in str(error), (name, error)
    else:
        raise AssertionError(name)
print((ow.ones((2,), device="{device}") + 1.0).tolist())
"""


def test_nothing_is_done_silently_on_a_closed_device(device):
    assert run_python(CLOSED.format(device=device.name)) == ["[2.0, 2.0]"]
