"""Optimizers against float64 references, against torch, and against what their users expect."""

import gc
from functools import cache

import numpy as np
import pytest
from optimizer_cases import CASES, DRIVEN_CASES, SPARSE_CASES
from optimizer_problems import assert_close, make_problem, relative_error, replay_cost
from optimizer_references import result_of
from requirements import by_source

import optirs_web as ow
from optirs_web.cli.optimizers import all_optimizers
from optirs_web.errors import NonFiniteError, OutOfDeviceMemoryError, ShapeError, UnsupportedError
from optirs_web.interop.torch import to_torch
from optirs_web.runtime.buffer import View

LARGE = 16_777_217 + 4096
FACTORS = [1.0, -0.5, 2.0, 0.25, -1.5]
STRIDE, TAIL = 97, 5000

torchs = [case for case in CASES if case.source == "torch"]


@pytest.fixture(scope="module")
def reference(requires):
    """`reference(case)`: the problem and what the case's source makes of it, computed once for all devices."""
    known = {}

    def find(case):
        if case.name not in known:
            for library in ("torch", "optax"):
                if case.source.startswith(library):
                    requires(library)
            params, grads = make_problem(case.shapes, case.steps)
            known[case.name] = params, grads, *result_of(case, params, grads)
        return known[case.name]

    return find


@pytest.mark.parametrize("case", by_source(CASES))
def test_follows_its_source(case, numerics, reference, note_error):
    params, grads, want, want_state = reference(case)
    ours, state = numerics("steps", case.name, params, grads)
    for index in range(len(params)):
        assert_close(ours[index], want[index], case.tolerance)
        its_state = state.get(str(index), {})
        if case.source == "torch":
            assert set(its_state) == set(want_state[index])
        for name in set(its_state) & set(want_state[index]):
            assert_close(its_state[name], want_state[index][name], case.state_tolerance)
    note_error(case, max(relative_error(mine, other) for mine, other in zip(ours, want, strict=True)))


LARGE_CASES = {case.name: case for case in CASES if case.name in ("sgd nesterov", "adamw", "lamb uncorrected")}
COMPARED = np.concatenate([np.arange(0, LARGE, STRIDE), np.arange(LARGE - TAIL, LARGE)])


@cache
def large_problem():
    """A parameter of more than 2**24 elements, and its gradient."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(LARGE, np.float32) for _ in range(2)]


@cache
def large_result(name):
    """Return the result of the case's source: every 97th element, and all of the last blocks."""
    case, inputs = LARGE_CASES[name], large_problem()
    if case.source == "torch":  # each element by itself
        inputs = [values[COMPARED] for values in inputs]
    (result,), _ = result_of(case, inputs[:1], [[inputs[1] * np.float32(factor)] for factor in FACTORS])
    return result if case.source == "torch" else result[COMPARED]


@pytest.mark.parametrize("name", LARGE_CASES)
def test_follows_its_source_above_16_million_elements(name, numerics, torch):
    got, _ = numerics("long_steps", name, *large_problem(), FACTORS, STRIDE, TAIL)
    assert_close(got, large_result(name), LARGE_CASES[name].tolerance)


@pytest.mark.parametrize("case", torchs, ids=[case.name for case in torchs])
def test_continues_a_torch_run_and_torch_continues_ours(case, device, torch):
    from optimizer_references import torch_twins

    params, grads = make_problem(case.shapes, 20)
    theirs, torch_optimizer = torch_twins.make(case.optimizer, params, **case.options)
    torch_twins.steps(theirs, torch_optimizer, grads[:10])

    ours = [ow.Parameter(param.detach().numpy().astype(np.float32), device=device) for param in theirs]
    optimizer = getattr(ow.optim, case.optimizer)(ours, **case.options)
    optimizer.load_state_dict(torch_optimizer.state_dict())
    for step_grads in grads[10:15]:
        optimizer.step(grads=step_grads)

    again, torch_again = torch_twins.make(case.optimizer, [mine.numpy() for mine in ours], **case.options)
    torch_again.load_state_dict(to_torch(optimizer.state_dict()))
    torch_twins.steps(again, torch_again, grads[15:])

    torch_twins.steps(theirs, torch_optimizer, grads[10:])
    for got, want in zip(again, theirs, strict=True):
        assert_close(got.detach().numpy(), want.detach().numpy(), case.tolerance)


def test_one_replayed_adamw_step_over_200_tensors_is_two_dispatches_and_one_submit(device):
    rng = np.random.default_rng(0)
    sizes = [int(size) for size in rng.integers(1, 3000, 200)]
    params = [ow.Parameter(rng.standard_normal(size).astype(np.float32), device=device) for size in sizes]
    groups = [
        {"params": params[:50]},
        {"params": params[50:120], "lr": 1e-2},
        {"params": params[120:], "weight_decay": 0.0},
    ]
    optimizer = ow.optim.AdamW(groups)
    cost = replay_cost(optimizer, params, device)
    assert (cost.dispatches, cost.submits, cost.replays, cost.copies) == (2, 1, 1, 0)
    assert (cost.bind_groups, cost.pipelines, cost.bytes_up, cost.bytes_down) == (0, 0, 0, 0)


def test_skip_nonfinite_costs_one_dispatch_and_no_readback(device):
    params = [ow.Parameter(np.ones(size, np.float32), device=device) for size in (5, 700, 1)]
    optimizer = ow.optim.AdamW(params, skip_nonfinite=True)
    cost = replay_cost(optimizer, params, device)
    assert (cost.dispatches, cost.submits, cost.bytes_up, cost.bytes_down) == (3, 1, 0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_skip_nonfinite_leaves_everything_as_it_was(device, bad):
    params = [
        ow.Parameter(np.ones(3, np.float32), device=device),
        ow.Parameter(np.ones(600, np.float32), device=device),
    ]
    optimizer = ow.optim.Adam(params, lr=0.1, skip_nonfinite=True)
    good = [np.ones(3), np.ones(600)]
    poisoned = [np.ones(3), np.where(np.arange(600) == 599, bad, 1.0)]
    optimizer.step(grads=good)
    before = [param.tolist() for param in params], optimizer.state_dict()["state"]
    optimizer.step(grads=poisoned)
    after = [param.tolist() for param in params], optimizer.state_dict()["state"]
    assert before[0] == after[0]
    assert after[1][0]["step"] == 1
    np.testing.assert_equal(before[1], after[1])
    with pytest.raises(NonFiniteError, match=r"1 step\(s\) were skipped"):
        optimizer.check_finite()
    assert optimizer.skipped_steps == 1
    optimizer.step(grads=good)
    optimizer.check_finite()
    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_without_skip_nonfinite_a_nan_gradient_shows_in_check_finite(device):
    param = ow.Parameter([1.0, 2.0], device=device)
    optimizer = ow.optim.SGD([param], lr=0.1)
    optimizer.step(grads=[[1.0, 1.0]])
    optimizer.check_finite()
    optimizer.step(grads=[[float("nan"), 1.0]])
    with pytest.raises(NonFiniteError, match="a parameter is NaN or infinite"):
        optimizer.check_finite()


def test_parameters_without_a_gradient_stay_and_do_not_count_steps(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.Adam([first, second], lr=0.1)
    optimizer.step(grads=[[1.0], None])
    optimizer.step(grads=[[1.0], [1.0]])
    assert second.item() == pytest.approx(0.9)
    state = optimizer.state_dict()["state"]
    assert (state[0]["step"], state[1]["step"]) == (2, 1)


def test_a_learning_rate_changed_in_its_group_reaches_a_replayed_step(device):
    param = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.SGD([param], lr=0.5)
    param.grad = [1.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    optimizer.param_groups[0]["lr"] = 0.25
    before = device.stats.copy()
    step()
    assert param.item() == 0.25
    assert (device.stats - before).bytes_up == 4  # what has changed


def test_add_param_group_keeps_the_state(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.Adam([first], lr=0.1)
    optimizer.step(grads=[[1.0]])
    optimizer.add_param_group({"params": [second], "lr": 0.2})
    optimizer.step(grads=[[1.0], [1.0]])
    state = optimizer.state_dict()
    assert (state["state"][0]["step"], state["state"][1]["step"]) == (2, 1)
    assert state["param_groups"][1]["lr"] == 0.2
    assert second.item() == pytest.approx(0.8)


def test_a_recorded_step_notices_a_rebuilt_optimizer(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([first], lr=0.5)
    first.grad = [1.0]
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    optimizer.add_param_group({"params": [second]})
    second.grad = [1.0]
    step()
    assert (first.item(), second.item()) == (0.0, 0.5)


def test_a_flag_changed_in_its_group_takes_effect(device):
    param = ow.Parameter([0.0], device=device)
    optimizer = ow.optim.Adam([param], lr=0.1)
    optimizer.step(grads=[[1.0]])
    optimizer.param_groups[0]["maximize"] = True
    optimizer.step(grads=[[-1.0]])
    assert param.item() == pytest.approx(-0.2)


def test_two_optimizers_share_the_place_of_a_parameter(device):
    shared, other = ow.Parameter([1.0], device=device), ow.Parameter([1.0], device=device)
    first = ow.optim.SGD([shared, other], lr=0.5)
    second = ow.optim.Adam([shared], lr=0.25)
    place = shared.view
    first.step(grads=[[1.0], [1.0]])
    second.step(grads=[[1.0]])
    assert shared.view == place
    assert shared.item() == pytest.approx(0.25)
    assert other.item() == 0.5


def test_a_parameter_keeps_value_and_gradient_when_it_moves_into_an_arena(device):
    param = ow.Parameter([[1.0, 2.0]], device=device)
    (param * 3.0).sum().backward()
    ow.optim.SGD([param], lr=0.1)
    assert param.tolist() == [[1.0, 2.0]]
    assert param.grad.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        ("SGD", {"lr": -1.0}, "Invalid learning rate: -1"),
        ("SGD", {"lr": float("nan")}, "Invalid learning rate: nan"),
        ("SGD", {"momentum": -0.1}, "Invalid momentum value: -0.1"),
        ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ("Adam", {"eps": -1e-8}, "Invalid epsilon value: -1e-08"),
        ("AdamW", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
        ("Adamax", {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
        ("NAdam", {"momentum_decay": -0.1}, "Invalid momentum_decay value: -0.1"),
        ("RAdam", {"eps": float("nan")}, "Invalid epsilon value: nan"),
        ("Adagrad", {"lr_decay": -0.1}, "Invalid lr_decay value: -0.1"),
        ("Adagrad", {"initial_accumulator_value": -1.0}, "Invalid initial_accumulator_value value: -1.0"),
        ("Adadelta", {"rho": 1.1}, "Invalid rho value: 1.1"),
        ("Adadelta", {"rho": -0.1}, "Invalid rho value: -0.1"),
        ("RMSprop", {"alpha": -0.1}, "Invalid alpha value: -0.1"),
        ("RMSprop", {"momentum": -1.0}, "Invalid momentum value: -1.0"),
        ("Rprop", {"etas": (0.5, 0.9)}, "Invalid eta values: 0.5, 0.9"),
        ("ASGD", {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
    ],
)
def test_options_out_of_range_are_refused_in_torchs_words(optimizer, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, optimizer)([ow.Parameter([1.0], device="cpu")], **options)


def test_a_parameter_in_two_groups_is_refused():
    param = ow.Parameter([1.0], device="cpu")
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        ow.optim.SGD([{"params": [param]}, {"params": [param]}])
    with pytest.raises(ValueError, match="twice in one"):
        ow.optim.SGD([param, param])


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ([], ValueError, "empty parameter list"),
        ([1.0], TypeError, r"takes optirs_web\.Parameter, not builtins\.float"),
        ([{"lr": 1.0}], TypeError, 'a dict with "params"'),
    ],
)
def test_what_is_no_list_of_parameters_is_refused(params, error, message):
    with pytest.raises(error, match=message):
        ow.optim.SGD(params)


def test_gradients_that_do_not_fit_change_nothing(device):
    params = [ow.Parameter([1.0, 1.0], device=device), ow.Parameter([1.0], device=device)]
    optimizer = ow.optim.SGD(params, lr=1.0)
    with pytest.raises(ShapeError, match="1 gradients were given for 2 parameters"):
        optimizer.step(grads=[[1.0, 1.0]])
    with pytest.raises(ShapeError, match=r"shape \(3,\), its parameter \(1,\)"):
        optimizer.step(grads=[[1.0, 1.0], [1.0, 1.0, 1.0]])
    assert [param.tolist() for param in params] == [[1.0, 1.0], [1.0]]
    assert params[0].grad is None


def test_every_option_of_every_optimizer_has_a_row():
    rows = {name: [case for case in [*CASES, *SPARSE_CASES] if case.optimizer == name] for name in all_optimizers()}
    assert {name for name in rows if not rows[name]} <= {case.optimizer for case in DRIVEN_CASES}
    for name in (name for name in rows if rows[name]):
        options = set(getattr(ow.optim, name)([ow.Parameter([[1.0]], device="cpu")]).defaults)
        assert not options - set().union(*(case.options for case in rows[name])), name


def test_the_rest_of_a_tensors_last_block_stays_zero(device):
    params = [ow.Parameter(np.ones(size, np.float32), device=device) for size in (3, 257)]
    optimizer = ow.optim.AdamW(params, lr=0.1, eps=0.0, amsgrad=True)  # 0 / 0 where nothing belongs to a tensor
    for _ in range(3):
        optimizer.step(grads=[np.ones(param.shape, np.float32) for param in params])
    arena = params[0]._home.arena
    shard = optimizer._layout.shards[0]
    for buffer in (arena.params, *shard.state.values()):
        values = np.frombuffer(device.read(View.whole(buffer)), np.float32)
        outside = np.concatenate([values[3:256], values[256 + 257 :]])
        assert (outside == 0).all()
        assert np.isfinite(values).all()
    optimizer.check_finite()


def test_gradients_of_each_other_are_exchanged(device):
    a, b = (ow.Parameter([0.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([a, b], lr=1.0)
    a.grad, b.grad = [10.0], [20.0]
    optimizer.step(grads=[b.grad, a.grad])
    assert (a.item(), b.item()) == (-20.0, -10.0)


def test_skipped_steps_are_still_counted_after_a_rebuild(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.SGD([first], skip_nonfinite=True)
    optimizer.step(grads=[[float("nan")]])
    with pytest.raises(NonFiniteError):
        optimizer.check_finite()
    optimizer.add_param_group({"params": [second]})
    optimizer.check_finite()
    assert optimizer.skipped_steps == 1


def test_groups_may_be_empty_but_not_exchanged(device):
    w, other = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.Adam([{"params": [w]}, {"params": []}], lr=0.5)
    optimizer.step(grads=[[1.0]])
    assert w.item() == pytest.approx(0.5)
    optimizer.param_groups[0]["params"][0] = other
    with pytest.raises(UnsupportedError, match="add_param_group"):
        optimizer.step(grads=[[1.0]])


@pytest.mark.parametrize(
    ("optimizer", "option", "values"),
    [("SGD", "momentum", [0.9, 0.9, 0.0, 0.0, 0.9, 0.9]), ("Adam", "amsgrad", [True, True, False, False, True, True])],
)
def test_an_option_that_comes_and_goes_keeps_its_state_as_in_torch(device, torch, optimizer, option, values):
    ours, theirs = ow.Parameter([1.0], device=device), torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    options = {"lr": 0.1, **({"betas": (0.9, 0.5)} if optimizer == "Adam" else {})}
    mine = getattr(ow.optim, optimizer)([ours], **options, **{option: values[0]})
    torchs = getattr(torch.optim, optimizer)([theirs], **options, **{option: values[0]})
    for number, value in enumerate(values):
        mine.param_groups[0][option] = torchs.param_groups[0][option] = value
        grad = 3.0 - number
        mine.step(grads=[[grad]])
        theirs.grad = torch.tensor([grad], dtype=torch.float64)
        torchs.step()
    assert ours.item() == pytest.approx(theirs.item(), rel=2e-6)


@pytest.mark.parametrize("lr", [np.float32(0.5), np.int64(1), 1])
def test_numbers_of_any_kind_are_options(lr):
    w = ow.Parameter([1.0], device="cpu")
    ow.optim.SGD([w], lr=lr).step(grads=[[1.0]])
    assert w.item() == 1.0 - float(lr)


def test_options_that_float32_cannot_hold_are_refused():
    for options in ({"lr": 1e300}, {"weight_decay": 1e39}, {"dampening": float("nan")}, {"momentum": "much"}):
        with pytest.raises(ValueError, match="Invalid"):
            ow.optim.SGD([ow.Parameter([1.0], device="cpu")], **options)


def test_a_state_dict_for_which_there_is_no_memory_changes_nothing(device):
    param = ow.Parameter(np.ones(300_000, np.float32), device=device)
    optimizer = ow.optim.Adam([param], lr=0.1)
    optimizer.step(grads=[np.ones(300_000, np.float32)])
    state_dict = optimizer.state_dict()
    state_dict["param_groups"][0].update(lr=0.7, amsgrad=True)
    gc.collect()
    device.trim()
    device.set_memory_limit(device.memory_stats().live_bytes + 1000)
    try:
        with pytest.raises(OutOfDeviceMemoryError):
            optimizer.load_state_dict(state_dict)
    finally:
        device.set_memory_limit(None)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["amsgrad"]) == (0.1, False)
    optimizer.load_state_dict(state_dict)
    assert "max_exp_avg_sq" in optimizer.state_dict()["state"][0]
