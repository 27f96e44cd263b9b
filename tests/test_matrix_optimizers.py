"""Optimizers with matrix products: batches, dispatches, torch's Muon."""

from dataclasses import replace

import numpy as np
import pytest
from optimizer_problems import assert_close, make_problem
from optimizer_references.matrices import inverse_root

import optirs_web as ow
from optirs_web.errors import CheckpointError
from optirs_web.interop.torch import to_torch


def cost_of_a_replayed_step(optimizer, params, device):
    """Return the device's counts of one replayed step with gradients of random numbers."""
    rng = np.random.default_rng(0)
    for param in params:
        param.grad = rng.standard_normal(param.shape).astype(np.float32)
    step = ow.compile(lambda: optimizer.step(), device=device)
    step()
    before = device.stats.copy()
    step()
    return device.stats - before


def make_params(shapes, device):
    return [ow.Parameter(values, device=device) for values in make_problem(shapes, 0)[0]]


@pytest.mark.parametrize("count", [1, 40])
def test_muons_dispatches_do_not_depend_on_the_number_of_matrices_of_a_shape(device, count):
    params = make_params([(8, 12), (12, 8)] * count, device)
    cost = cost_of_a_replayed_step(ow.optim.Muon(params), params, device)
    assert (cost.dispatches, cost.submits, cost.copies) == (5 + 2 * 3 * 5, 1, 0)
    assert (cost.bind_groups, cost.bytes_up, cost.bytes_down) == (0, 0, 0)


def test_a_replayed_step_is_the_step_and_heeds_a_changed_option(device):
    shapes = [(8, 12), (12, 8), (8, 12)]
    params, grads = make_problem(shapes, 4)
    results = []
    for is_compiled in (False, True):
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = ow.optim.Muon(ours, lr=0.1)
        step = ow.compile(lambda: optimizer.step(), device=device) if is_compiled else optimizer.step  # noqa: B023
        for number, step_grads in enumerate(grads):
            for mine, grad in zip(ours, step_grads, strict=True):
                mine.grad = grad
            optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            optimizer.param_groups[0]["ns_coefficients"] = (2.0, -1.5, 0.5 + 0.01 * number)
            step()
        results.append([mine.numpy() for mine in ours])
    for eager, replayed in zip(*results, strict=True):
        np.testing.assert_array_equal(eager, replayed)


def test_a_matrix_without_a_gradient_stays_in_a_batch_with_others(device):
    params = make_params([(4, 4), (4, 4), (4, 4)], device)
    before = [param.numpy() for param in params]
    optimizer = ow.optim.Muon(params, weight_decay=0.0)
    grad = np.arange(16, dtype=np.float32).reshape(4, 4)
    optimizer.step(grads=[grad, None, grad])
    change = [param.numpy() - old for param, old in zip(params, before, strict=True)]
    assert (change[1] == 0).all()
    np.testing.assert_allclose(change[0], change[2], atol=1e-6)
    assert np.abs(change[0]).max() > 1e-4
    assert set(optimizer.state_dict()["state"]) == {0, 2}


def test_muon_groups_of_different_iterations_and_shapes(device):
    shapes = [(6, 6), (6, 6), (5, 3)]
    params, grads = make_problem(shapes, 3)
    ours = [ow.Parameter(param, device=device) for param in params]
    groups = [{"params": ours[:1], "ns_steps": 2}, {"params": ours[1:], "adjust_lr_fn": "match_rms_adamw"}]
    optimizer = ow.optim.Muon(groups, lr=0.1)
    alone = [ow.Parameter(param, device=device) for param in params]
    optimizers = [
        ow.optim.Muon([alone[0]], lr=0.1, ns_steps=2),
        ow.optim.Muon([alone[1]], lr=0.1, adjust_lr_fn="match_rms_adamw"),
        ow.optim.Muon([alone[2]], lr=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        for matrix_optimizer, grad in zip(optimizers, step_grads, strict=True):
            matrix_optimizer.step(grads=[grad])
    for together, single in zip(ours, alone, strict=True):
        np.testing.assert_allclose(together.numpy(), single.numpy(), rtol=0, atol=1e-6)


def test_skipped_steps_leave_matrices_alone(device):
    param = ow.Parameter(np.eye(3, dtype=np.float32), device=device)
    optimizer = ow.optim.Muon([param], lr=0.1, skip_nonfinite=True)
    optimizer.step(grads=[np.ones((3, 3))])
    before = param.tolist(), optimizer.state_dict()["state"][0]["momentum_buffer"].tolist()
    optimizer.step(grads=[np.full((3, 3), np.inf)])
    assert (param.tolist(), optimizer.state_dict()["state"][0]["momentum_buffer"].tolist()) == before
    assert optimizer.skipped_steps == 1


def test_muon_continues_a_torch_run_and_torch_continues_ours(device, torch):
    """torch orthogonalises in bfloat16: its step differs from ours by up to 0.03 of the largest element."""
    options = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9, "adjust_lr_fn": "match_rms_adamw"}
    params, grads = make_problem(((16, 16), (40, 24), (7, 30)), 12)
    theirs = [torch.nn.Parameter(torch.tensor(param)) for param in params]
    torch_optimizer = torch.optim.Muon(theirs, **options)

    def torch_steps(optimizer, tensors, some):
        for step_grads in some:
            for tensor, grad in zip(tensors, step_grads, strict=True):
                tensor.grad = torch.tensor(grad)
            optimizer.step()

    torch_steps(torch_optimizer, theirs, grads[:6])
    ours = [ow.Parameter(reference.detach().numpy(), device=device) for reference in theirs]
    optimizer = ow.optim.Muon(ours)
    optimizer.load_state_dict(torch_optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.02
    optimizer.step(grads=grads[6])
    before = [reference.detach().numpy().copy() for reference in theirs]
    torch_steps(torch_optimizer, theirs, grads[6:7])
    for tensor, other, start in zip(ours, theirs, before, strict=True):
        change, want = tensor.numpy() - start, other.detach().numpy() - start
        assert np.abs(change - want).max() <= 0.06 * np.abs(want).max()
    state = optimizer.state_dict()
    for number, entry in state["state"].items():
        assert set(entry) == {"momentum_buffer"}
        want = torch_optimizer.state_dict()["state"][number]["momentum_buffer"].numpy()
        assert_close(entry["momentum_buffer"], want, 1e-6)

    again = [torch.nn.Parameter(torch.tensor(mine.numpy())) for mine in ours]
    torch_again = torch.optim.Muon(again)
    torch_again.load_state_dict(to_torch(state))
    torch_steps(torch_again, again, grads[7:])
    torch_steps(torch_optimizer, theirs, grads[7:])
    for tensor, other in zip(again, theirs, strict=True):
        assert_close(tensor.detach().numpy(), other.detach().numpy(), 2e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1}, "Learning rate should be >= 0 but is: -1"),
        ({"momentum": -1}, "momentum should be >= 0 but is: -1"),
        ({"weight_decay": -1}, "weight decay should be >= 0 but is: -1"),
        ({"adjust_lr_fn": "none"}, "Adjust learning rate function none is not supported"),
        ({"ns_steps": 100}, "Number of steps must be less than 100"),
        ({"ns_coefficients": (1.0, 2.0)}, "Coefficients must be a tuple of exactly 3 values"),
    ],
)
def test_muon_refuses_options_in_torchs_words(options, message):
    with pytest.raises(ValueError, match=message):
        ow.optim.Muon([ow.Parameter([[1.0]], device="cpu")], **options)


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match=r"Muon only supports 2D parameters whereas we found .* size: \(1,\)"):
        ow.optim.Muon([ow.Parameter([1.0], device="cpu")])


@pytest.mark.parametrize("count", [1, 20])
def test_shampoos_dispatches_do_not_depend_on_the_number_of_matrices_of_a_shape(device, count):
    params = make_params([(6, 9)] * count, device)
    cost = cost_of_a_replayed_step(ow.optim.Shampoo(params), params, device)
    roots = 2 * 86  # of all left sides, and of all right sides
    assert (cost.dispatches, cost.copies, cost.bytes_up, cost.bytes_down) == (3 + 2 + roots + 2, 0, 0, 0)


@pytest.mark.parametrize("count", [1, 20])
def test_soaps_dispatches_do_not_depend_on_the_number_of_matrices_of_a_shape(device, count):
    params = make_params([(6, 9)] * count, device)
    cost = cost_of_a_replayed_step(ow.optim.SOAP(params), params, device)
    bases = 8 + 2 + 10 + 2  # of all left sides, and of all right sides
    turns = 2 + 2 + 2 + 2  # the gradient, the step back, and the average before and after a new basis
    assert (cost.dispatches, cost.copies, cost.bytes_up, cost.bytes_down) == (4 + 2 + turns + bases, 0, 0, 0)


def test_sides_of_one_size_share_their_dispatches(device):
    params = make_params([(6, 9), (9, 6), (6, 6)], device)
    cost = cost_of_a_replayed_step(ow.optim.Shampoo(params), params, device)
    assert cost.dispatches == 3 + 3 * 2 + 2 * 86 + 3 * 2


def with_singular_values(values, rows, columns):
    """A matrix with these singular values and random singular vectors."""
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for size in (rows, columns))
    return (left[:, : len(values)] * values @ right[: len(values)]).astype(np.float32)


@pytest.mark.parametrize(("condition", "tolerance"), [(1e1, 1e-6), (1e3, 1e-5), (1e5, 1e-3)])
@pytest.mark.parametrize("size", [5, 40])
def test_inverse_roots_are_as_accurate_as_the_condition_allows(device, size, condition, tolerance):
    grad = with_singular_values(np.geomspace(1.0, condition**-0.5, size), size, size)
    param = ow.Parameter(np.zeros((size, size), np.float32), device=device)
    optimizer = ow.optim.Shampoo([param], eps=0.0)
    optimizer.step(grads=[grad])
    state = optimizer.state_dict()["state"][0]
    for side in "LR":
        want = inverse_root(state[side].astype(np.float64), 4, 0.0)
        assert np.linalg.norm(state[f"root_{side}"] - want, 2) <= tolerance * np.linalg.norm(want, 2)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_soaps_basis_are_eigenvectors_and_stays_orthogonal_where_gradients_have_low_rank(device, scale):
    rng = np.random.default_rng(2)
    rows, columns = 37, 12
    param = ow.Parameter(np.zeros((rows, columns), np.float32), device=device)
    optimizer = ow.optim.SOAP([param], precondition_frequency=2, shampoo_beta=0.5)
    for step in range(5):
        grad = rng.standard_normal((rows, 3)) @ rng.standard_normal((3, columns))
        grad[:, 0] = 0.0  # of a unit that is dead
        optimizer.step(grads=[grad * scale])
        state = optimizer.state_dict()["state"][0]
        for side, size in (("L", rows), ("R", columns)):
            basis = state[f"Q_{side}"].astype(np.float64)
            assert np.abs(basis.T @ basis - np.eye(size)).max() <= 5e-6
            if step == 0:
                turned = basis.T @ state[side] @ basis
                off_diagonal = turned - np.diag(np.diag(turned))
                assert np.abs(off_diagonal).max() <= 5e-6 * turned.max()
                assert (np.diff(np.diag(turned)) <= 1e-6 * turned.max()).all()
    assert np.isfinite(param.numpy()).all()


def test_soap_skips_the_first_step_and_then_is_adam_without_sides(device):
    start = np.array([1.0, 2.0], np.float32)
    grads = [np.array(values, np.float32) for values in ([3.0, 1.0], [0.5, -1.0], [0.25, 2.0])]
    param, other = (ow.Parameter(start, device=device) for _ in range(2))
    soap = ow.optim.SOAP([param], lr=0.1, betas=(0.9, 0.99), weight_decay=0.0, eps=0.0)
    adam = ow.optim.Adam([other], lr=0.1, betas=(0.9, 0.99), eps=0.0)
    soap.step(grads=[grads[0]])
    assert param.tolist() == start.tolist()
    for grad in grads[1:]:
        soap.step(grads=[grad])
        adam.step(grads=[grad])
    np.testing.assert_allclose(param.numpy(), other.numpy(), rtol=1e-6)


SHAPES = {
    "Shampoo": {"L": (3, 3), "R": (4, 4), "root_L": (3, 3), "root_R": (4, 4)},
    "SOAP": {"L": (3, 3), "R": (4, 4), "Q_L": (3, 3), "Q_R": (4, 4), "exp_avg": (3, 2, 2)},
    "GaLore": {"projector": (3, 2), "exp_avg": (2, 4), "exp_avg_sq": (2, 4)},
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Shampoo", {"update_freq": 3, "momentum": 0.9}),
        ("SOAP", {"precondition_frequency": 3}),
        ("GaLore", {"rank": 2, "update_proj_gap": 3}),
    ],
)
def test_a_state_dict_goes_on_where_it_was_taken(device, name, options):
    shapes = [(4, 6), (5,), (6, 4), (3, 2, 2)]
    params, grads = make_problem(shapes, 9)
    ours = [ow.Parameter(param, device=device) for param in params]
    optimizer = getattr(ow.optim, name)(ours, lr=0.05, **options)
    for step_grads in grads[:5]:
        optimizer.step(grads=step_grads)
    state = optimizer.state_dict()
    shapes = {name: array.shape for name, array in state["state"][3].items()}  # of a tensor seen as (3, 4)
    assert shapes | SHAPES[name] == shapes
    assert "direction" not in state["state"][0]
    lying = {name: (array + 0.0).numpy() for name, array in optimizer.state[ours[0]].items() if array.shape}
    assert set(lying) == {name for name, array in state["state"][0].items() if array.shape}
    for key, tensor in lying.items():
        np.testing.assert_array_equal(tensor, state["state"][0][key])
    others = [ow.Parameter(mine.numpy(), device=device) for mine in ours]
    again = getattr(ow.optim, name)(others, **({"rank": 2} if name == "GaLore" else {}))
    again.load_state_dict(state)
    for step_grads in grads[5:]:
        optimizer.step(grads=step_grads)
        again.step(grads=step_grads)
    for tensor, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), other.numpy())
    other_shape = {"exp_avg_sq" if name != "Shampoo" else "L": np.zeros((7, 7), np.float32)}
    with pytest.raises(CheckpointError, match=r"of parameter 0 has the shape \(7, 7\)"):
        again.load_state_dict({**state, "state": {0: {**state["state"][0], **other_shape}}})


@pytest.mark.parametrize("name", ["Shampoo", "SOAP", "GaLore"])
def test_matrices_keep_their_state_when_a_group_is_added_and_steps_are_skipped(device, name):
    params, grads = make_problem([(4, 6), (6, 5)], 6)
    results = []
    for is_disturbed in (False, True):
        first, second = (ow.Parameter(param, device=device) for param in params)
        optimizer = getattr(ow.optim, name)([first], lr=0.05, skip_nonfinite=True)
        for number, (grad, other) in enumerate(grads):
            if number == 3 and is_disturbed:
                optimizer.add_param_group({"params": [second]})
            extra = [other] if len(optimizer.param_groups) == 2 else []
            if is_disturbed:
                bad = grad.copy()
                bad[0, 0] = np.nan
                optimizer.step(grads=[bad, *extra])
            optimizer.step(grads=[grad, *extra])
        results.append(first.numpy())
    np.testing.assert_array_equal(*results)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Muon", "Shampoo", "SOAP", "GaLore"])
def test_more_matrices_than_a_kernel_sees_at_once(device, monkeypatch, name):
    shapes = [(40, 60), (64, 64), (40, 60), (40, 60), (64, 64), (40, 60), (40, 60), (40, 60)]
    params, grads = make_problem(shapes, 3)
    results = []
    for limit in (device.capabilities.max_binding_bytes, 65536):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=limit))
        ours = [ow.Parameter(param, device=device) for param in params]
        optimizer = getattr(ow.optim, name)(ours, lr=0.05)
        for step_grads in grads:
            optimizer.step(grads=step_grads)
        results.append([mine.numpy() for mine in ours])
    for whole, in_parts in zip(*results, strict=True):
        np.testing.assert_allclose(whole, in_parts, rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 20])
def test_galores_dispatches_do_not_depend_on_the_number_of_matrices_of_a_shape(device, count):
    params = make_params([(6, 9)] * count, device)
    cost = cost_of_a_replayed_step(ow.optim.GaLore(params, rank=3), params, device)
    projectors = 1 + 5 * 2
    assert (cost.dispatches, cost.copies, cost.bytes_up, cost.bytes_down) == (3 + projectors + 3, 0, 0, 0)


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_galores_projectors_are_singular_vectors(device, shape):
    """To (σ[k + 1] / σ[k])^10, which is 1e-7 here, and float32's rounding of g gᵀ."""
    grad = with_singular_values(0.2 ** np.arange(6), *shape)
    optimizer = ow.optim.GaLore([ow.Parameter(np.zeros(shape, np.float32), device=device)], rank=3)
    optimizer.step(grads=[grad])
    state = optimizer.state_dict()["state"][0]
    vectors = np.linalg.svd(grad if shape[0] < shape[1] else grad.T)[0][:, :3]
    assert np.abs(np.abs(vectors.T @ state["projector"]) - np.eye(3)).max() <= 1e-4
    moments = sum(state[name].size for name in ("exp_avg", "exp_avg_sq", "projector"))
    assert moments == 3 * (30 + 30 + 12)


def test_galore_has_one_rank():
    groups = [{"params": [ow.Parameter([[1.0]], device="cpu")], "rank": rank} for rank in (1, 2)]
    with pytest.raises(ValueError, match="GaLore needs one rank for all groups, not 1, 2"):
        ow.optim.GaLore(groups)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Shampoo", {"update_freq": 0}, "Invalid update_freq value: 0"),
        ("Shampoo", {"max_preconditioner_dim": -1}, "Invalid max_preconditioner_dim value: -1"),
        ("Shampoo", {"momentum": -1}, "Invalid momentum value: -1"),
        ("SOAP", {"precondition_frequency": 0}, "Invalid precondition_frequency value: 0"),
        ("SOAP", {"shampoo_beta": 1.0}, "Invalid shampoo_beta value: 1.0"),
        ("SOAP", {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        ("GaLore", {"rank": 0}, "Invalid rank value: 0"),
        ("GaLore", {"update_proj_gap": 0}, "Invalid update_proj_gap value: 0"),
        ("SOAP", {"max_precond_dim": -1}, "Invalid max_precond_dim value: -1"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, name)([ow.Parameter([[1.0]], device="cpu")], **options)


@pytest.mark.parametrize("name", ["SOAP", "Shampoo", "GaLore"])
def test_tensors_of_other_shapes_that_are_as_large_matrices_are_updated_alike(device, name):
    values = np.random.default_rng(0).standard_normal((4, 3, 8, 40)).astype(np.float32)
    results = []
    for shapes in ([(8, 40), (8, 2, 20), (8, 40)], [(8, 40)] * 3):
        start, *steps = ([v.reshape(s) for v, s in zip(rows, shapes, strict=True)] for rows in values)
        params = [ow.Parameter(value, device=device) for value in start]
        optimizer = getattr(ow.optim, name)(params, lr=0.01)
        for grads in steps:
            optimizer.step(grads=[ow.tensor(grad, device=device) for grad in grads])
        results.append([param.numpy().ravel() for param in params])
    np.testing.assert_array_equal(*results)
