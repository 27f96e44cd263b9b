"""GradScaler against torch's, on the device and without a readback."""

import copy
import math
import pickle

import numpy as np
import pytest
from scaled_problem import BAD, INIT_SCALE, LR, RULE, SHAPES, TRANSFORMS, make_problem, torchs

import optirs_web as ow
from optirs_web.errors import CheckpointError

T = ow.optim.transforms


def test_the_default_rule_is_torchs():
    scaler = ow.optim.GradScaler("cpu")
    assert scaler.state_dict() == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }


@pytest.mark.parametrize("name", TRANSFORMS)
def test_steps_and_scales_are_torchs(numerics, torch, name):
    params, grads = make_problem()
    want, want_scales = torchs(name)
    scaler = {"init_scale": INIT_SCALE, **RULE}
    ours, scales, step = numerics("scaled_steps", TRANSFORMS[name], {"lr": LR}, params, grads, scaler)
    assert scales == want_scales
    assert step == len(grads) - len(BAD)
    for mine, other in zip(ours, want, strict=True):
        assert np.abs(np.asarray(mine) - other).max() <= 5e-6 * np.abs(other).max()


@pytest.mark.parametrize(("transforms", "dispatches"), [([], 4), ([T.clip_by_global_norm(1.0)], 4)])
def test_a_recorded_step_goes_on_scaling_without_a_readback(device, transforms, dispatches):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in SHAPES]
    optimizer = ow.optim.AdamW(params, lr=0.01, transforms=transforms)
    scaler = ow.optim.GradScaler(device, growth_interval=2)

    def step(grad):
        params[0].grad = grad
        params[1].grad = params[2].grad = None
        scaler.step(optimizer)
        scaler.update()

    recorded = ow.compile(step, device=device)
    scales = []
    for value in (1.0, 1.0, np.inf, 1.0, 1.0):
        before = device.stats.copy()
        recorded(np.full(3, value, np.float32))
        cost = device.stats - before
        scales.append(scaler.get_scale())
    assert (cost.dispatches, cost.submits, cost.bytes_down) == (dispatches, 1, 0)
    assert scales == [65536.0, 131072.0, 65536.0, 65536.0, 131072.0]
    assert optimizer.state_dict()["state"][0]["step"] == 4
    assert optimizer.skipped_steps == 1


def test_a_scaled_loss_trains_as_the_loss_itself(device):
    def train(scaler):
        w = ow.Parameter([3.0, -2.0], device=device)
        optimizer = ow.optim.SGD([w], lr=0.125, momentum=0.5)
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale((w * w).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return w.tolist()

    assert train(ow.optim.GradScaler(device)) == train(ow.optim.GradScaler(enabled=False))


def test_unscaled_gradients_can_be_looked_at_and_are_not_unscaled_again(device):
    w = ow.Parameter([0.0, 0.0], device=device)
    optimizer, scaler = ow.optim.SGD([w], lr=1.0), ow.optim.GradScaler(device, init_scale=8.0)
    for grad, want in (([8.0, 16.0], [-1.0, -2.0]), ([np.inf, 8.0], [-1.0, -2.0]), ([4.0, 4.0], [-2.0, -3.0])):
        w.grad = grad
        scaler.unscale_(optimizer)
        if np.isfinite(grad).all():
            assert w.grad.tolist() == [value / scaler.get_scale() for value in grad]
        scaler.step(optimizer)
        scaler.update()
        assert w.tolist() == want
    assert scaler.get_scale() == 4.0


def test_unscaling_within_a_recorded_step(device):
    w = ow.Parameter([0.0, 0.0], device=device)
    optimizer, scaler = ow.optim.SGD([w], lr=1.0), ow.optim.GradScaler(device, init_scale=2.0, growth_interval=1)

    def step(grad):
        w.grad = grad
        scaler.unscale_(optimizer)
        norm = ow.optim.clip_grad_norm_([w], 5.0)
        scaler.step(optimizer)
        scaler.update()
        return norm

    recorded = ow.compile(step, device=device)
    norms = [recorded(np.asarray([6.0, 8.0], np.float32)).item() for _ in range(3)]
    assert norms == [5.0, 2.5, 1.25]
    assert scaler.get_scale() == 16.0
    assert w.tolist() == pytest.approx([-(3.0 + 1.5 + 0.75), -(4.0 + 2.0 + 1.0)], rel=1e-6)


def test_two_optimizers_share_a_scaler(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(2)]
    optimizers = [ow.optim.SGD([param], lr=1.0) for param in params]
    scaler = ow.optim.GradScaler(device, init_scale=4.0)
    params[0].grad, params[1].grad = [np.nan], [8.0]
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert [param.item() for param in params] == [0.0, -2.0]
    assert scaler.get_scale() == 2.0


def test_a_step_outside_the_scaler_takes_gradients_as_they_are(device):
    w = ow.Parameter([0.0], device=device)
    optimizer, scaler = ow.optim.Adam([w], lr=1.0), ow.optim.GradScaler(device)
    w.grad = [65536.0]
    scaler.step(optimizer)
    scaler.update()
    optimizer.step(grads=[[1.0]])
    assert w.item() == pytest.approx(-2.0)
    state = optimizer.state_dict()["state"][0]
    assert (state["step"], state["exp_avg"].tolist()) == (2.0, pytest.approx([0.19]))


def test_state_dicts_go_both_ways(device, torch):
    theirs = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=7)
    theirs.scale(torch.zeros(1))
    ours = ow.optim.GradScaler(device)
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict() == theirs.state_dict()
    ours.update(32.0)
    theirs.load_state_dict(ours.state_dict())
    assert theirs.get_scale() == ours.get_scale() == 32.0
    ours.update(ow.tensor([16.0], device=device))
    assert ours.get_scale() == 16.0


def test_the_scale_does_not_grow_beyond_what_a_float_holds(device):
    w = ow.Parameter([0.0], device=device)
    scaler = ow.optim.GradScaler(device, init_scale=2.0**127, growth_interval=1)
    optimizer = ow.optim.SGD([w])
    w.grad = [1.0]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127


def test_the_scale_does_not_shrink_to_nothing(device):
    w = ow.Parameter([1.0], device=device)
    optimizer, scaler = ow.optim.SGD([w], lr=0.1), ow.optim.GradScaler(device, init_scale=2.0**-125)
    for _ in range(3):
        w.grad = [np.inf]
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0**-126
    scaler.load_state_dict(scaler.state_dict())


def test_calls_out_of_order_are_refused_in_torchs_words(device):
    w = ow.Parameter([0.0], device=device)
    optimizer, scaler = ow.optim.SGD([w]), ow.optim.GradScaler(device)
    w.grad = [1.0]
    with pytest.raises(RuntimeError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, lambda: 1.0)


def test_one_that_is_not_enabled_passes_everything_through(device):
    w = ow.Parameter([1.0], device=device)
    optimizer, scaler = ow.optim.SGD([w], lr=1.0), ow.optim.GradScaler(enabled=False)
    w.grad = [0.5]
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert (w.item(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (0.5, 1.0, {}, False)
    assert scaler.scale([w])[0] is w


def test_losses_are_scaled_in_any_nesting(device):
    scaler = ow.optim.GradScaler(device, init_scale=4.0)
    scaled = scaler.scale({"a": [ow.tensor(1.0, device=device)], "b": (ow.tensor([2.0], device=device),)})
    assert (scaled["a"][0].item(), scaled["b"][0].item()) == (4.0, 8.0)
    with pytest.raises(ValueError, match="outputs must be a Tensor"):
        scaler.scale("loss")


@pytest.mark.parametrize("broken", [{"scale": 1.0}, {"scale": math.inf, "growth_factor": 2.0}])
def test_a_state_dict_that_does_not_fit_is_refused(broken):
    with pytest.raises(CheckpointError, match="no usable"):
        ow.optim.GradScaler("cpu").load_state_dict(broken)
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        ow.optim.GradScaler("cpu").load_state_dict({})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"growth_factor": value}, "The growth factor must be > 1.0") for value in (1.0, math.nan, 1e39)),
        *(({"backoff_factor": value}, "The backoff factor must be < 1.0") for value in (1.0, math.nan, 0.0, -1.0)),
        *(({"growth_interval": value}, "The growth interval") for value in (0, math.nan, 2.5, 1 << 24)),
        *(({"init_scale": value}, "The scale must be > 0.0") for value in (0.0, -1.0, math.nan, math.inf, 1e39)),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.GradScaler("cpu", **arguments)
    scaler = ow.optim.GradScaler("cpu")
    before = scaler.state_dict()
    [(name, value)] = arguments.items()
    setter = scaler.update if name == "init_scale" else getattr(scaler, f"set_{name}")
    with pytest.raises(ValueError, match=message):
        setter(value)
    with pytest.raises(CheckpointError, match=message):
        scaler.load_state_dict({**before, "scale": 4.0, name.removeprefix("init_"): value})
    assert scaler.state_dict() == before


def test_an_optimizer_on_another_device_is_refused(open_device):
    other = open_device("vulkan")
    w = ow.Parameter([1.0, 2.0], device="cpu")
    optimizer, scaler = ow.optim.SGD([w], lr=0.1), ow.optim.GradScaler(other)
    w.grad = [1.0, 1.0]
    for call in (
        lambda: scaler.step(optimizer),
        lambda: scaler.unscale_(optimizer),
        lambda: scaler.update(ow.tensor(2.0, device="cpu")),
    ):
        with pytest.raises(ValueError, match="GradScaler got tensors on"):
            call()
    assert w.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda scaler: pickle.loads(pickle.dumps(scaler))])
def test_a_copy_goes_on_by_itself(device, copied):
    scaler = ow.optim.GradScaler(device, init_scale=8.0, growth_interval=3)
    again = copied(scaler)
    assert again.state_dict() == scaler.state_dict()
    again.update(2.0)
    assert (scaler.get_scale(), again.get_scale()) == (8.0, 2.0)
    assert not copied(ow.optim.GradScaler(enabled=False)).is_enabled()
