"""Gradient transforms: against float64 references, torch and optax, what they cost, and what is refused."""

import numpy as np
import pytest
from optimizer_references import gradients
from transform_problems import SHAPES, assert_close, cost_of_replay, make_problem, of_one

import optirs_web as ow
from optirs_web.runtime.rule_kernels import UpdateKernel
from optirs_web.runtime.rules import Rule, Stage

T = ow.optim.transforms

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


@pytest.mark.parametrize("name", CASES)
def test_a_transform_follows_its_reference(name, numerics):
    params, grads = make_problem()
    got = numerics("transformed", CASES[name], "SGD", {"lr": 0.5}, params, grads)
    reference, want = gradients.make(CASES[name]), [param.astype(float) for param in params]
    for step_grads, after in zip(grads, got, strict=True):
        changed = reference([grad.astype(float) for grad in step_grads], want)
        if changed is not None:
            want = [param - 0.5 * grad for param, grad in zip(want, changed, strict=True)]
        assert_close(after, want)


@pytest.mark.parametrize(
    ("spec", "theirs", "arguments"),
    [
        (["clip_by_block_rms", {"threshold": 0.5}], "clip_by_block_rms", [0.5]),
        (["adaptive_clip", {"clipping": 0.1, "eps": 0.01}], "adaptive_grad_clip", [0.1, 0.01]),
        (["centralize", {}], "centralize", []),
        (["add_decayed_weights", {"weight_decay": 0.1}], "add_decayed_weights", [0.1]),
    ],
)
def test_a_transform_is_optaxs(device, optax, spec, theirs, arguments):
    from optimizer_references import optax_twins  # float64

    assert optax_twins.jax.config.jax_enable_x64
    params, grads = make_problem(1, shapes=[(7,), (16, 65)])
    transposed = spec[0] == "adaptive_clip"  # its units are columns

    def turn(values):
        return [np.asarray(value, np.float64).T if transposed else np.asarray(value, np.float64) for value in values]

    transform = getattr(optax, theirs)(*arguments)
    want, _ = transform.update(turn(grads[0]), transform.init(turn(params)), turn(params))
    ours = [ow.Parameter(param, device=device) for param in params]
    ow.optim.SGD(ours, lr=1.0, transforms=[getattr(T, spec[0])(**spec[1])]).step(grads=grads[0])
    changes = [before - mine.numpy() for before, mine in zip(params, ours, strict=True)]
    assert_close(changes, turn(want), 1e-5)


def test_a_norm_of_17_million_elements_is_exact(device):
    grad = np.random.default_rng(0).standard_normal(17_000_000, np.float32)
    param, optimizer = of_one(device, [T.clip_by_global_norm(1.0)], size=grad.size)
    optimizer.step(grads=[grad])
    assert_close([param.numpy()], [-grad / (np.sqrt((grad.astype(float) ** 2).sum()) + 1e-6)])


def test_noise_is_the_same_in_any_layout_and_falls(device):
    params, grads = make_problem(40, shapes=[(5,), (3000,)], factor=0.0)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = ow.optim.SGD(ours, lr=1.0, transforms=[T.add_noise(0.25, gamma=1.0, seed=3)])
    deviations = []
    for step_grads in grads:
        before = ours[1].numpy()
        optimizer.step(grads=step_grads)
        deviations.append((ours[1].numpy() - before).std())
    assert deviations[0] == pytest.approx(0.5, rel=0.05)
    assert deviations[39] == pytest.approx(0.5 / np.sqrt(40), rel=0.05)


# What they cost.


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
    for param in params:
        param.grad = np.ones(param.shape, np.float32)
    assert cost_of_replay(device, lambda: stepped.step()) == dispatches


def test_clip_skip_scaler_schedule_and_adamw_are_five_dispatches_in_one_submit(device):
    params = [ow.Parameter(np.ones(shape, np.float32), device=device) for shape in SHAPES * 10]
    optimizer = ow.optim.AdamW(params, lr=0.01, skip_nonfinite=True, transforms=[T.clip_by_global_norm(1.0)])
    schedule = ow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    scaler = ow.optim.GradScaler(device)
    for param in params:
        param.grad = np.ones(param.shape, np.float32)

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
    assert sum(4 * (1 + binding.writes) for binding in clipped.bindings if binding.type == "array<vec4<f32>>") == 28


# What is refused.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.clip_by_value(0.0), "Invalid limit value: 0"),
        (lambda: T.clip_by_global_norm(float("nan")), "Invalid max_norm value: nan"),
        (lambda: T.clip_by_norm(1.0, norm_type=3.0), "norm_type must be 1, 2 or infinity"),
        (lambda: T.accumulate(0), "a step needs 1 call or more"),
        (lambda: T.accumulate(2, "max"), 'a reduction must be "mean" or "sum"'),
        (lambda: T.add_noise(0.1, seed=-1), "a seed must be an integer from 0"),
        (lambda: T.add_noise(0.1, gamma=-1.0), "Invalid gamma value"),
        (lambda: T.adaptive_clip(-1.0), "Invalid clipping value"),
    ],
)
def test_arguments_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("wrong", ["clip", [0.9], [len]], ids=repr)
def test_what_is_no_transform_is_refused_when_the_optimizer_is_made(wrong):
    with pytest.raises(TypeError, match=r"transforms are a list of optim\.transforms and projections, not"):
        ow.optim.SGD([ow.Parameter([1.0], device="cpu")], transforms=wrong)


@pytest.mark.parametrize("wrong", [1e300, 10**400, float("inf"), float("nan"), -1.0, "1"], ids=repr)
def test_a_limit_that_is_no_number_of_float32_is_refused_when_it_is_made(wrong):
    with pytest.raises(ValueError, match="Invalid limit value"):
        ow.optim.transforms.clip_by_value(wrong)
