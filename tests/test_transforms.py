"""Gradient transforms against float64 references, torch and optax; what they cost, and what optimizers make of them."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from optimizer_references import gradients

import optirs_web as ow
from optirs_web.errors import NonFiniteError, UnsupportedError
from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.runtime.rules import Rule, Stage

T = ow.optim.transforms
SHAPES = [(1,), (3,), (255,), (257,), (16, 65), (3, 4, 5)]

CASES = {
    "value": [["clip_by_value", {"limit": 1.0}]],
    "norm": [["clip_by_norm", {"max_norm": 2.0}]],
    "norm 1": [["clip_by_norm", {"max_norm": 2.0, "norm_type": 1.0}]],
    "global norm": [["clip_by_global_norm", {"max_norm": 5.0}]],
    "global norm 1": [["clip_by_global_norm", {"max_norm": 5.0, "norm_type": 1.0}]],
    "global norm not reached": [["clip_by_global_norm", {"max_norm": 1e6}]],
    "block rms": [["clip_by_block_rms", {"threshold": 0.5}]],
    "adaptive": [["adaptive_clip", {"clipping": 0.1}]],
    "adaptive eps": [["adaptive_clip", {"clipping": 0.5, "eps": 10.0}]],
    "centralize": [["centralize", {}]],
    "decayed weights": [["add_decayed_weights", {"weight_decay": 0.1}]],
    "noise": [["add_noise", {"eta": 0.3, "gamma": 0.55, "seed": 4_000_000_000}]],
    "accumulate": [["accumulate", {"every": 3}]],
    "accumulate sum": [["accumulate", {"every": 2, "reduction": "sum"}]],
    "value, then global norm": [["clip_by_value", {"limit": 1.0}], ["clip_by_global_norm", {"max_norm": 3.0}]],
    "norm, then global norm": [["clip_by_norm", {"max_norm": 3.0}], ["clip_by_global_norm", {"max_norm": 5.0}]],
    "global norm twice": [["clip_by_global_norm", {"max_norm": 9.0}], ["clip_by_global_norm", {"max_norm": 5.0}]],
    "rows, then global norm": [
        ["centralize", {}],
        ["adaptive_clip", {"clipping": 0.1}],
        ["clip_by_global_norm", {"max_norm": 1.0}],
    ],
    "clip, accumulate, clip": [
        ["clip_by_norm", {"max_norm": 2.0}],
        ["accumulate", {"every": 3}],
        ["clip_by_global_norm", {"max_norm": 1.0}],
    ],
    "rows of what was gathered": [["accumulate", {"every": 2}], ["centralize", {}], ["add_noise", {"eta": 0.01}]],
}


def make_problem(steps=7, shapes=SHAPES, factor=3.0):
    rng = np.random.default_rng(0)
    params = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    grads = [[(factor * rng.standard_normal(shape)).astype(np.float32) for shape in shapes] for _ in range(steps)]
    return params, grads


def assert_close(got, want, tolerance=5e-6):
    for one, other in zip(got, want, strict=True):
        assert np.abs(np.asarray(one) - other).max() <= tolerance * np.abs(other).max()


@pytest.mark.parametrize("name", CASES)
def test_a_transform_follows_its_reference(name, numerics):
    params, grads = make_problem()
    got = numerics("transformed", CASES[name], "SGD", {"lr": 0.5}, params, grads)
    reference, want = gradients.make(CASES[name]), [one.astype(float) for one in params]
    for step_grads, after in zip(grads, got, strict=True):
        changed = reference([one.astype(float) for one in step_grads], want)
        if changed is not None:
            want = [param - 0.5 * grad for param, grad in zip(want, changed, strict=True)]
        assert_close(after, want)


@pytest.mark.parametrize(("norm_type", "max_norm"), [(1.0, 50.0), (2.0, 3.0), (np.inf, 1.5), (2.0, 1e4)])
def test_the_global_norm_and_the_functions_in_place_are_torchs(numerics, requires, norm_type, max_norm):
    torch = requires("torch")
    _, (grads,) = make_problem(1)
    theirs = [torch.nn.Parameter(torch.zeros(one.shape, dtype=torch.float64)) for one in grads]
    for one, grad in zip(theirs, grads, strict=True):
        one.grad = torch.tensor(grad.astype(float))
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type).item()
    by_norm = [one.grad.numpy().copy() for one in theirs]
    torch.nn.utils.clip_grad_value_(theirs, 0.01)
    norm, ours, by_value = numerics("clipped_grads", grads, max_norm, str(norm_type), 0.01)
    assert norm == pytest.approx(want, rel=1e-6)
    assert_close(ours, by_norm)
    assert_close(by_value, [one.grad.numpy() for one in theirs])
    if norm_type != np.inf:  # JSON has none
        spec = [["clip_by_global_norm", {"max_norm": max_norm, "norm_type": norm_type}]]
        ((*after,),) = numerics("transformed", spec, "SGD", {"lr": 1.0}, [0 * one for one in grads], [grads])
        assert_close(after, [-one for one in by_norm])


@pytest.mark.parametrize(
    ("spec", "theirs", "arguments"),
    [
        (["clip_by_block_rms", {"threshold": 0.5}], "clip_by_block_rms", [0.5]),
        (["adaptive_clip", {"clipping": 0.1, "eps": 0.01}], "adaptive_grad_clip", [0.1, 0.01]),
        (["centralize", {}], "centralize", []),
        (["add_decayed_weights", {"weight_decay": 0.1}], "add_decayed_weights", [0.1]),
    ],
)
def test_a_transform_is_optaxs(device, requires, spec, theirs, arguments):
    optax = requires("optax")
    from optimizer_references import optax_twins  # float64

    assert optax_twins.jax.config.jax_enable_x64
    params, grads = make_problem(1, shapes=[(7,), (16, 65)])
    transposed = spec[0] == "adaptive_clip"  # its units are columns

    def turn(values):
        return [np.asarray(one, np.float64).T if transposed else np.asarray(one, np.float64) for one in values]

    transform = getattr(optax, theirs)(*arguments)
    want, _ = transform.update(turn(grads[0]), transform.init(turn(params)), turn(params))
    ours = [ow.Parameter(one, device=device) for one in params]
    ow.optim.SGD(ours, lr=1.0, transforms=[getattr(T, spec[0])(**spec[1])]).step(grads=grads[0])
    changes = [before - one.numpy() for before, one in zip(params, ours, strict=True)]
    assert_close(changes, turn(want), 1e-5)


# What they cost.


def cost_of_replay(device, step, *arguments):
    recorded = ow.compile(step, device=device)
    recorded(*arguments)
    before = device.stats.copy()
    recorded(*arguments)
    cost = device.stats - before
    assert (cost.submits, cost.bytes_up, cost.bytes_down, cost.bind_groups, cost.pipelines) == (1, 0, 0, 0, 0)
    return cost.dispatches


COSTS = [
    ("AdamW", [], False, 2),
    ("AdamW", [], True, 3),
    ("LAMB", [], False, 4),
    ("AdamW", [T.clip_by_value(1.0), T.add_noise(0.1)], False, 2),
    ("AdamW", [T.clip_by_global_norm(1.0)], False, 3),
    ("AdamW", [T.clip_by_global_norm(1.0)], True, 3),
    ("AdamW", [T.clip_by_value(1.0), T.clip_by_global_norm(1.0), T.accumulate(2)], True, 3),
    ("AdamW", [T.clip_by_norm(1.0)], True, 4),
    ("AdamW", [T.centralize()], False, 3),
    ("AdamW", [T.clip_by_norm(1.0), T.clip_by_global_norm(1.0)], True, 6),
    ("LAMB", [T.clip_by_global_norm(1.0)], True, 5),
]


@pytest.mark.parametrize(("optimizer", "transforms", "skip", "dispatches"), COSTS)
def test_the_dispatches_of_a_recorded_step(device, optimizer, transforms, skip, dispatches):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in SHAPES * 10]
    stepped = getattr(ow.optim, optimizer)(params, skip_nonfinite=skip, transforms=transforms)
    for one in params:
        one.grad = np.ones(one.shape, np.float32)
    assert cost_of_replay(device, lambda: stepped.step()) == dispatches


def test_clip_skip_scaler_schedule_and_adamw_are_five_dispatches_in_one_submit(device):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in SHAPES * 10]
    optimizer = ow.optim.AdamW(params, lr=0.01, skip_nonfinite=True, transforms=[T.clip_by_global_norm(1.0)])
    schedule = ow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    scaler = ow.optim.GradScaler(device)
    for one in params:
        one.grad = np.ones(one.shape, np.float32)

    def step():
        scaler.step(optimizer)
        scaler.update()
        schedule.step()

    assert cost_of_replay(device, step) == 5


def test_an_update_binds_what_it_did_before_and_reads_28_bytes():
    flags = (("decoupled_weight_decay", True),)
    stages = (Stage("clip_by_value", ("limit",)), Stage("clip_by_norm", ("max_norm", "norm_type"), "all"))
    plain, clipped = UpdateKernel.of(Rule("adam"), flags), UpdateKernel.of(Rule("adam", stages=stages), flags)
    assert plain.bindings == clipped.bindings
    assert sum(4 * (1 + one.writes) for one in clipped.bindings if one.type == "array<vec4<f32>>") == 28


# What an optimizer makes of them.


def of_one(device, transforms, optimizer="SGD", size=1, **options):
    param = ow.Parameter(np.zeros(size, np.float32), device=device)
    return param, getattr(ow.optim, optimizer)([param], **{"lr": 1.0, **options}, transforms=transforms)


TAKING = sorted(
    name
    for name in ow.optim.__all__
    if hasattr(getattr(ow.optim, name), "rule")
    and name not in ("DiagonalNewton", "KFAC", "Lookahead", "Ranger", "SAM", "Reptile", "SparseAdam")
)


# Of each layout one also where its shaders take seconds to compile.
TAKING_ON = [("cpu", name) for name in TAKING] + [
    ("vulkan", one) for one in ("Adam", "LAMB", "CAME", "Prodigy", "Muon")
]


@pytest.mark.parametrize(("where", "name"), TAKING_ON)
def test_every_optimizer_takes_them(open_device, where, name):
    device = open_device(where)
    # Transforms whose results NumPy gives bit for bit, so that rules that magnify the last bit can be compared.
    params, grads = make_problem(6, shapes=[(16, 5), (7, 33)], factor=1.0)
    its = [T.clip_by_value(1.0), T.accumulate(2, "sum"), T.clip_by_norm(1e6), T.clip_by_global_norm(1e6)]
    ours, others = ([ow.Parameter(one, device=device) for one in params] for _ in range(2))
    transformed, plain = getattr(ow.optim, name)(ours, transforms=its), getattr(ow.optim, name)(others)
    for first, second in zip(grads[::2], grads[1::2], strict=True):
        transformed.step(grads=first)
        transformed.step(grads=second)
        plain.step(
            grads=[np.clip(one, -1, 1) + np.clip(other, -1, 1) for one, other in zip(first, second, strict=True)]
        )
    for one, other, before in zip(ours, others, params, strict=True):
        assert np.abs(other.numpy() - before).max() > 0
        assert np.abs(one.numpy() - other.numpy()).max() <= 1e-6 * np.abs(other.numpy()).max()


def test_a_mask_says_what_a_transform_applies_to(device):
    params = [ow.Parameter([0.0, 0.0], device=device, name=name) for name in ("weight", "bias", "scale")]
    masked = [
        T.clip_by_value(1.0, mask=lambda one: one.name == "bias"),
        T.clip_by_global_norm(5.0, mask=lambda one: one.name != "scale"),
    ]
    ow.optim.SGD(params, lr=1.0, transforms=masked).step(grads=[[6.0, 8.0], [9.0, 0.0], [7.0, 7.0]])
    factor = 5.0 / np.sqrt(101.0)
    want = [[-6.0 * factor, -8.0 * factor], [-factor, 0.0], [-7.0, -7.0]]
    assert [one.tolist() for one in params] == [pytest.approx(one, rel=1e-6) for one in want]


def test_frozen_parameters_stay_and_do_not_count(device):
    params = [ow.Parameter([0.0], device=device, name=name) for name in ("frozen", "trained")]
    its = [T.freeze(lambda one: one.name == "frozen"), T.clip_by_global_norm(5.0)]
    optimizer = ow.optim.Adam(params, lr=1.0, transforms=its)
    optimizer.step(grads=[[1000.0], [3.0]])
    assert params[0].item() == 0.0
    assert params[1].item() == pytest.approx(-1.0)
    assert list(optimizer.state_dict()["state"]) == [1]


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


def test_a_tensor_without_a_gradient_at_the_last_call_steps_with_what_it_gathered(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(3)]
    optimizer = ow.optim.SGD(params, lr=1.0, transforms=[T.accumulate(2, "sum"), T.clip_by_norm(3.0)])
    optimizer.step(grads=[[1.0], [5.0], None])
    optimizer.step(grads=[[1.0], None, None])
    assert [one.item() for one in params] == pytest.approx([-2.0, -3.0, 0.0], rel=1e-6)
    optimizer.step(grads=[None, None, [1.0]])
    optimizer.step(grads=[None, [7.0], [1.0]])
    assert [one.item() for one in params] == pytest.approx([-2.0, -6.0, -2.0], rel=1e-6)


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
        ours = [ow.Parameter(one, device=device) for one in values]
        its = [T.add_noise(0.1), T.accumulate(4), T.clip_by_global_norm(5.0), T.add_noise(0.1, seed=1)]
        return ours, getattr(ow.optim, optimizer)(ours, lr=0.1, transforms=its)

    ours, first = of_this(params)
    for number, step_grads in enumerate(grads):
        if number in (2, 6):
            state_dict = first.state_dict()
            ours, second = of_this([one.numpy() for one in ours])
            second.load_state_dict(state_dict)
            first = second
        first.step(grads=step_grads)
    whole, unbroken = of_this(params)
    for step_grads in grads:
        unbroken.step(grads=step_grads)
    for one, other in zip(ours, whole, strict=True):
        assert (one.numpy() == other.numpy()).all()
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


def test_an_arena_that_a_kernel_sees_in_parts_gives_the_same(device, monkeypatch):
    params, grads = make_problem(4, shapes=[(20_000,), (3,), (300, 200), (257,)])
    found = []
    for limit in (device.capabilities.max_binding_bytes, 65536):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=limit))
        ours = [ow.Parameter(one, device=device) for one in params]
        its = [T.clip_by_norm(2.0), T.accumulate(2), T.clip_by_global_norm(1.0), T.add_noise(0.01)]
        optimizer = ow.optim.Adam(ours, lr=0.1, transforms=its, skip_nonfinite=True)
        for step_grads in grads:
            optimizer.step(grads=step_grads)
        found.append([one.numpy() for one in ours])
    assert_close(*found, tolerance=1e-6)
    with pytest.raises(UnsupportedError, match="transforms of rows need all parameters"):
        ow.optim.SGD(ours, transforms=[T.centralize()])


def test_a_norm_of_17_million_elements_is_exact(device):
    grad = np.random.default_rng(0).standard_normal(17_000_000, np.float32)
    param, optimizer = of_one(device, [T.clip_by_global_norm(1.0)], size=grad.size)
    optimizer.step(grads=[grad])
    assert_close([param.numpy()], [-grad / (np.sqrt((grad.astype(float) ** 2).sum()) + 1e-6)])


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


def test_noise_is_the_same_in_any_layout_and_falls(device):
    params, grads = make_problem(40, shapes=[(5,), (3000,)], factor=0.0)
    ours = [ow.Parameter(one, device=device) for one in params]
    optimizer = ow.optim.SGD(ours, lr=1.0, transforms=[T.add_noise(0.25, gamma=1.0, seed=3)])
    deviations = []
    for step_grads in grads:
        before = ours[1].numpy()
        optimizer.step(grads=step_grads)
        deviations.append((ours[1].numpy() - before).std())
    assert deviations[0] == pytest.approx(0.5, rel=0.05)
    assert deviations[39] == pytest.approx(0.5 / np.sqrt(40), rel=0.05)


def test_copies_go_on_with_the_transforms(device):
    param, optimizer = of_one(device, [T.clip_by_value(1.0), T.centralize()])
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        again.step(grads=[[5.0]])
        assert again.param_groups[0]["params"][0].item() == -1.0
    assert param.item() == 0.0


def test_decay_groups_decay_matrices_only(device):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in ((2, 2), (2,))]
    optimizer = ow.optim.SGD(T.decay_groups(params), lr=1.0, weight_decay=0.5)
    optimizer.step(grads=[np.zeros(one.shape, np.float32) for one in params])
    assert [one.numpy().max() for one in params] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.clip_by_value(0.0), "Invalid limit value: 0"),
        (lambda: T.clip_by_global_norm(float("nan")), "Invalid max_norm value: nan"),
        (lambda: T.clip_by_norm(1.0, norm_type=3.0), "a norm_type is 1, 2 or infinity"),
        (lambda: T.accumulate(0), "a step is made of 1 call or more"),
        (lambda: T.accumulate(2, "max"), 'a reduction is "mean" or "sum"'),
        (lambda: T.add_noise(0.1, seed=-1), "a seed is an integer from 0"),
        (lambda: T.add_noise(0.1, gamma=-1.0), "Invalid gamma value"),
        (lambda: T.adaptive_clip(-1.0), "Invalid clipping value"),
    ],
)
def test_arguments_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Clipping in place.


def test_clip_grad_norm_in_a_recorded_step_costs_four_dispatches(device):
    params = [ow.Parameter(np.zeros(shape, np.float32), device=device) for shape in SHAPES]
    for one in params:
        one.grad = np.ones(one.shape, np.float32)
    ow.optim.clip_grad_norm_(params, 1.0)
    assert cost_of_replay(device, lambda: ow.optim.clip_grad_norm_(params, 1.0)) == 4


def test_clip_grad_norm_raises_before_anything_is_changed(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(2)]
    params[0].grad, params[1].grad = [np.inf], [2.0]
    with pytest.raises(RuntimeError, match="The total norm for gradients from `parameters` is non-finite"):
        ow.optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert params[1].grad.item() == 2.0
    with pytest.raises(UnsupportedError, match="clip_by_global_norm"):
        ow.compile(lambda: ow.optim.clip_grad_norm_(params, 1.0, error_if_nonfinite=True), device=device)()


def test_clip_grad_norm_leaves_out_what_has_no_gradient(device):
    params = [ow.Parameter([0.0], device=device) for _ in range(2)]
    assert ow.optim.clip_grad_norm_(params, 1.0).item() == 0.0
    params[1].grad = [4.0]
    assert ow.optim.clip_grad_norm_(params, 1.0).item() == 4.0
    assert params[0].grad is None
    assert params[1].grad.item() == pytest.approx(1.0, rel=1e-6)
