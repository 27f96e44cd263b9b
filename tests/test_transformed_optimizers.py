"""Optimizers with gradient transforms: masks, arenas in parts, changed limits, norms that are not finite."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from transform_problems import assert_close, make_problem, of_one

import optirs_web as ow
from optirs_web.errors import NonFiniteError, UnsupportedError

T = ow.optim.transforms

TAKING = sorted(
    name
    for name in ow.optim.__all__
    if hasattr(getattr(ow.optim, name), "rule")
    and name not in ("DiagonalNewton", "KFAC", "Lookahead", "Ranger", "SAM", "Reptile", "SparseAdam")
)


# Of each layout one also where its shaders take seconds to compile.
TAKING_ON = [("cpu", name) for name in TAKING] + [
    ("vulkan", name) for name in ("Adam", "LAMB", "CAME", "Prodigy", "Muon")
]


@pytest.mark.parametrize(("where", "name"), TAKING_ON)
def test_every_optimizer_takes_them(open_device, where, name):
    device = open_device(where)
    # Transforms whose results NumPy gives bit for bit, so that rules that magnify the last bit can be compared.
    params, grads = make_problem(6, shapes=[(16, 5), (7, 33)], factor=1.0)
    transforms = [T.clip_by_value(1.0), T.accumulate(2, "sum"), T.clip_by_norm(1e6), T.clip_by_global_norm(1e6)]
    ours, others = ([ow.Parameter(param, device=device) for param in params] for _ in range(2))
    transformed, plain = getattr(ow.optim, name)(ours, transforms=transforms), getattr(ow.optim, name)(others)
    for first, second in zip(grads[::2], grads[1::2], strict=True):
        transformed.step(grads=first)
        transformed.step(grads=second)
        plain.step(
            grads=[np.clip(grad, -1, 1) + np.clip(other, -1, 1) for grad, other in zip(first, second, strict=True)]
        )
    for mine, other, before in zip(ours, others, params, strict=True):
        assert np.abs(other.numpy() - before).max() > 0
        assert np.abs(mine.numpy() - other.numpy()).max() <= 1e-6 * np.abs(other.numpy()).max()


def test_a_mask_says_what_a_transform_applies_to(device):
    params = [ow.Parameter([0.0, 0.0], device=device, name=name) for name in ("weight", "bias", "scale")]
    masked = [
        T.clip_by_value(1.0, mask=lambda param: param.name == "bias"),
        T.clip_by_global_norm(5.0, mask=lambda param: param.name != "scale"),
    ]
    ow.optim.SGD(params, lr=1.0, transforms=masked).step(grads=[[6.0, 8.0], [9.0, 0.0], [7.0, 7.0]])
    factor = 5.0 / np.sqrt(101.0)
    want = [[-6.0 * factor, -8.0 * factor], [-factor, 0.0], [-7.0, -7.0]]
    assert [param.tolist() for param in params] == [pytest.approx(values, rel=1e-6) for values in want]


def test_frozen_parameters_stay_and_do_not_count(device):
    params = [ow.Parameter([0.0], device=device, name=name) for name in ("frozen", "trained")]
    transforms = [T.freeze(lambda param: param.name == "frozen"), T.clip_by_global_norm(5.0)]
    optimizer = ow.optim.Adam(params, lr=1.0, transforms=transforms)
    optimizer.step(grads=[[1000.0], [3.0]])
    assert params[0].item() == 0.0
    assert params[1].item() == pytest.approx(-1.0)
    assert list(optimizer.state_dict()["state"]) == [1]


def test_an_arena_that_a_kernel_sees_in_parts_gives_the_same(device, monkeypatch):
    params, grads = make_problem(4, shapes=[(20_000,), (3,), (300, 200), (257,)])
    actual = []
    for limit in (device.capabilities.max_binding_bytes, 65536):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=limit))
        ours = [ow.Parameter(param, device=device) for param in params]
        transforms = [T.clip_by_norm(2.0), T.accumulate(2), T.clip_by_global_norm(1.0), T.add_noise(0.01)]
        optimizer = ow.optim.Adam(ours, lr=0.1, transforms=transforms, skip_nonfinite=True)
        for step_grads in grads:
            optimizer.step(grads=step_grads)
        actual.append([mine.numpy() for mine in ours])
    assert_close(*actual, tolerance=1e-6)
    with pytest.raises(UnsupportedError, match="transforms of rows need all parameters"):
        ow.optim.SGD(ours, transforms=[T.centralize()])


def test_a_changed_limit_reaches_a_replayed_step(device):
    clip = T.clip_by_value(1.0)
    param, optimizer = of_one(device, [clip])
    param.grad = [5.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    clip.options["limit"] = 2.0
    step()
    assert param.item() == -3.0


def test_maximize_negates_what_comes_out(device):
    param, optimizer = of_one(device, [T.clip_by_value(1.0)], maximize=True)
    optimizer.step(grads=[[5.0]])
    assert param.item() == 1.0


def test_a_norm_that_is_not_finite_raises_in_check_finite_if_asked_to(device):
    param, optimizer = of_one(device, [T.clip_by_global_norm(1.0, error_if_nonfinite=True)])
    optimizer.step(grads=[[np.nan]])
    assert param.item() == 0.0
    with pytest.raises(NonFiniteError, match=r"1 step\(s\) were skipped"):
        optimizer.check_finite()


def test_clip_by_value_leaves_nan_for_check_finite(device):
    _, optimizer = of_one(device, [T.clip_by_value(1.0)])
    optimizer.step(grads=[[np.nan]])
    with pytest.raises(NonFiniteError, match="a parameter is NaN"):
        optimizer.check_finite()


def test_copies_go_on_with_the_transforms(device):
    param, optimizer = of_one(device, [T.clip_by_value(1.0), T.centralize()])
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        again.step(grads=[[5.0]])
        assert again.param_groups[0]["params"][0].item() == -1.0
    assert param.item() == 0.0


def test_decay_groups_decay_matrices_only(device):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in ((2, 2), (2,))]
    optimizer = ow.optim.SGD(T.decay_groups(params), lr=1.0, weight_decay=0.5)
    optimizer.step(grads=[np.zeros(param.shape, np.float32) for param in params])
    assert [param.numpy().max() for param in params] == [0.5, 1.0]
