"""State per row and per column: what it costs, what its state dicts hold, and shapes of every kind."""

import numpy as np
import pytest
from optimizer_problems import assert_close, make_problem, replay_cost
from optimizer_references import result_of

import optirs_web as ow
from optirs_web.errors import CheckpointError, NonFiniteError
from optirs_web.optim.transforms import centralize, clip_by_value
from optirs_web.runtime.arena import Arena

OPTIMIZERS = {"Adafactor": {"lr": 0.1}, "CAME": {"lr": 0.01, "betas": (0.9, 0.99, 0.99)}, "SM3": {"lr": 0.1}}
SHAPES = ((3,), (40, 24), (5, 2, 13))

factored = pytest.mark.parametrize("name", OPTIMIZERS)


def make(name, params, device, **options):
    ours = [ow.Parameter(param, device=device) for param in params]
    return ours, getattr(ow.optim, name)(ours, **OPTIMIZERS[name], **options)


def values(params):
    return [np.asarray(param.read()) for param in params]


@pytest.mark.parametrize(("name", "dispatches"), [("Adafactor", 6), ("CAME", 8), ("SM3", 4)])
def test_a_replayed_step_over_200_tensors_of_mixed_shapes_is_a_few_dispatches_and_one_submit(name, dispatches, device):
    rng = np.random.default_rng(0)
    shapes = [tuple(int(size) for size in rng.integers(1, (3000, 60, 12, 6)[rank], rank + 1)) for rank in range(4)] * 50
    params, optimizer = make(name, [np.ones(shape, np.float32) for shape in shapes], device)
    cost = replay_cost(optimizer, params, device)
    assert (cost.dispatches, cost.submits, cost.replays, cost.copies) == (dispatches, 1, 1, 0)
    assert (cost.bind_groups, cost.pipelines, cost.bytes_up, cost.bytes_down) == (0, 0, 0, 0)


@pytest.mark.parametrize(("name", "per_line", "per_element"), [("Adafactor", 1, 0), ("CAME", 2, 1), ("SM3", 1, 1)])
def test_a_matrix_keeps_a_few_numbers_for_each_row_and_column(name, per_line, per_element):
    _, optimizer = make(name, [np.ones((600, 500), np.float32)], "cpu")
    views = optimizer.state_views()
    nbytes = sum(view.nbytes for name, view in views.items() if name != "scalars")
    blocks = -(-600 * 500 // 256) * 256
    assert nbytes - 4 * per_element * blocks <= 4 * per_line * (600 + 500 + 1)


@factored
def test_state_has_the_names_and_shapes_of_its_source(name, device):
    params, grads = make_problem(SHAPES, 1)
    ours, optimizer = make(name, params, device)
    optimizer.step(grads=grads[0])
    shapes = [{key: value.shape for key, value in entry.items()} for entry in optimizer.state_dict()["state"].values()]
    assert shapes == {
        "Adafactor": [
            {"step": (), "variance": (3,)},
            {"step": (), "row_var": (40, 1), "col_var": (1, 24)},
            {"step": (), "row_var": (5, 2, 1), "col_var": (5, 1, 13)},
        ],
        "CAME": [
            {"step": (), "exp_avg": (3,), "exp_avg_sq": (3,)},
            {
                "step": (), "exp_avg": (40, 24),
                "exp_avg_sq_row": (40,), "exp_avg_res_row": (40,),
                "exp_avg_sq_col": (24,), "exp_avg_res_col": (24,),
            },
            {
                "step": (), "exp_avg": (5, 2, 13),
                "exp_avg_sq_row": (5, 2), "exp_avg_res_row": (5, 2),
                "exp_avg_sq_col": (5, 13), "exp_avg_res_col": (5, 13),
            },
        ],
        "SM3": [
            {"momentum_buffer": (3,), "mu": (3,)},
            {"momentum_buffer": (40, 24), "mu_row": (40, 1), "mu_col": (1, 24)},
            {"momentum_buffer": (5, 2, 13), "mu_row": (5, 2, 1), "mu_col": (5, 1, 13)},
        ],
    }[name]  # fmt: skip
    live = optimizer.state[ours[1]]
    assert {key: array.shape for key, array in live.items()} == shapes[1]


@factored
def test_a_loaded_state_dict_goes_on_as_the_optimizer_it_is_of(name, device):
    params, grads = make_problem(SHAPES, 12)
    ours, optimizer = make(name, params, device)
    for step_grads in grads[:6]:
        optimizer.step(grads=step_grads)
    others, other = make(name, values(ours), device)
    other.load_state_dict(optimizer.state_dict())
    for step_grads in grads[6:]:
        optimizer.step(grads=step_grads)
        other.step(grads=step_grads)
    for value, another in zip(values(ours), values(others), strict=True):
        assert_close(another, value, 1e-6)


@factored
def test_a_group_added_later_leaves_the_state_of_the_others(name, device):
    params, grads = make_problem(SHAPES, 6)
    ours, optimizer = make(name, params, device)
    others, other = make(name, params[:2], device)
    late = ow.Parameter(params[2], device=device)
    for step_grads in grads[:3]:
        optimizer.step(grads=step_grads)
        other.step(grads=step_grads[:2])
    other.add_param_group({"params": [late]})
    for step_grads in grads[3:]:
        optimizer.step(grads=step_grads)
        other.step(grads=step_grads)
    for value, another in zip(values(ours)[:2], values(others), strict=True):
        np.testing.assert_array_equal(value, another)


@factored
def test_skip_nonfinite_leaves_rows_and_columns_as_they_were(name, device):
    params, grads = make_problem(SHAPES, 2)
    ours, optimizer = make(name, params, device, skip_nonfinite=True)
    optimizer.step(grads=grads[0])
    before = values(ours), optimizer.state_dict()["state"]
    poisoned = [grad.copy() for grad in grads[1]]
    poisoned[2][4, 1, 12] = np.nan
    optimizer.step(grads=poisoned)
    np.testing.assert_equal((values(ours), optimizer.state_dict()["state"]), before)
    with pytest.raises(NonFiniteError):
        optimizer.check_finite()


@factored
def test_a_matrix_without_a_gradient_keeps_its_rows_and_columns(name, device):
    params, grads = make_problem(SHAPES, 2)
    ours, optimizer = make(name, params, device)
    optimizer.step(grads=grads[0])
    before = values(ours)[1], optimizer.state_dict()["state"][1]
    optimizer.step(grads=[grads[1][0], None, grads[1][2]])
    np.testing.assert_equal((values(ours)[1], optimizer.state_dict()["state"][1]), before)


@factored
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e-8])
def test_rows_and_columns_without_gradients_stay_and_do_not_spoil_the_others(name, scale, device):
    params, grads = make_problem(((6, 40),), 5)
    (ours,), optimizer = make(name, params, device)
    for (grad,) in grads:
        grad *= np.float32(scale)
        grad[2], grad[:, 33] = 0.0, 0.0
        optimizer.step(grads=[grad])
    change = np.asarray(ours.read()) - params[0]
    is_still = np.zeros((6, 40), bool)
    is_still[2], is_still[:, 33] = True, True
    assert np.isfinite(change).all()
    assert not change[is_still].any()
    assert (change[~is_still] != 0).mean() > 0.9


EXTREMES = (
    (600, 1100),
    (1, 70_000),
    (50_000, 3),
    (3, 40_000),
    (900, 3, 3),
    (2, 300, 5, 7),
    (4, 6554, 5),
    (4, 33_000, 1),
    (0, 4),
    (),
)


@pytest.mark.parametrize("name", ["Adafactor", "CAME"])
def test_long_rows_tall_columns_and_many_small_matrices_follow_the_source(name, device, torch):
    from optimizer_cases import Case

    params, grads = make_problem(EXTREMES, 4)
    case = Case("", name, OPTIMIZERS[name], "torch" if name == "Adafactor" else "factored.came")
    shown = [index for index, param in enumerate(params) if param.size]
    want, _ = result_of(case, [params[index] for index in shown], [[grad[index] for index in shown] for grad in grads])
    ours, optimizer = make(name, params, device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    got = values(ours)
    for index, expected in zip(shown, want, strict=True):
        assert_close(got[index], expected, 5e-6)


@factored
def test_a_matrix_that_kernels_see_in_parts_is_stepped_as_a_whole(name, open_device, monkeypatch):
    vulkan = open_device("vulkan")  # on `cpu` everything is seen at once
    shapes = ((7,), (300, 130), (5,), (60, 33, 20), (2, 9000))
    params, grads = make_problem(shapes, 5)
    results = []
    for blocks in (10_000, 64):

        def binding_ranges(arena, blocks=blocks):
            for first in range(0, arena.blocks, blocks):
                yield first, min(blocks, arena.blocks - first)

        monkeypatch.setattr(Arena, "binding_ranges", binding_ranges)
        ours, optimizer = make(name, params, vulkan)
        for step_grads in grads:
            optimizer.step(grads=step_grads)
        results.append(values(ours))
    for param, another in zip(*results, strict=True):
        assert_close(another, param, 1e-6)


def rows_mean(grad):
    return grad.mean(tuple(range(1, grad.ndim)), keepdims=True) if grad.ndim > 1 else 0.0


@factored
@pytest.mark.parametrize("shapes", [SHAPES, [(300, 145), (3, 190, 70), (300, 145)]], ids=["small", "in several parts"])
def test_lines_are_measured_of_what_gradient_transforms_leave(name, shapes, device):
    params, grads = make_problem(shapes, 3)
    transforms = [clip_by_value(0.5), centralize()]
    ours, optimizer = make(name, params, device, transforms=transforms)
    others, other = make(name, params, device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        clipped = [np.clip(grad, -0.5, 0.5) for grad in step_grads]
        other.step(grads=[grad - rows_mean(grad) for grad in clipped])
    for value, another in zip(values(ours), values(others), strict=True):
        assert_close(another, value, 5e-6)


def test_state_that_fits_another_shape_is_refused():
    params, grads = make_problem(SHAPES, 1)
    _, optimizer = make("Adafactor", params, "cpu")
    optimizer.step(grads=grads[0])
    good = optimizer.state_dict()
    good["state"][1]["row_var"] = np.ones((24, 1), np.float32)
    with pytest.raises(CheckpointError, match=r"'row_var' of parameter 1 has the shape \(24, 1\)"):
        optimizer.load_state_dict(good)
    good["state"][1] = {"step": 1.0, "variance": params[1]}
    with pytest.raises(CheckpointError, match=r"shape \(40, 24\) has no state 'variance'"):
        optimizer.load_state_dict(good)


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        ("Adafactor", {"lr": -1.0}, "Learning rate should be >= 0 but is: -1"),
        ("Adafactor", {"beta2_decay": 0.1}, "beta2_decay should be <= 0 but is: 0.1"),
        ("Adafactor", {"eps": (-1.0, 1e-3)}, "epsilon1 should be >= 0 but is: -1"),
        ("Adafactor", {"eps": (None, -1.0)}, "epsilon2 should be >= 0 but is: -1"),
        ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
        ("Adafactor", {"weight_decay": -1.0}, "weight_decay should be >= 0 but is: -1"),
        ("CAME", {"clip_threshold": 0.0}, "Invalid clip_threshold value: 0"),
        ("CAME", {"betas": (0.9, 0.999)}, "betas must be 3 numbers"),
        ("CAME", {"eps": (1e-30, -1.0)}, "Invalid epsilon value: -1"),
        ("SM3", {"momentum": 1.0}, "Invalid momentum value: 1"),
    ],
)
def test_options_out_of_range_are_refused(optimizer, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, optimizer)([ow.Parameter([1.0], device="cpu")], **options)
