"""Optimizers around optimizers, and Newton-CG, against float64 references written from the papers."""

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import run_python
from test_optimizer_convergence import PROBLEMS

import optirs_web as ow
from optirs_web.errors import CheckpointError, ShapeError, UnsupportedError

SHAPES = [(1,), (257,), (7, 40)]
RNG = np.random.default_rng(0)
STARTS = [RNG.standard_normal(shape) for shape in SHAPES]
CURVATURES = [RNG.uniform(0.5, 2.0, shape) for shape in SHAPES]
TOLERANCE = 5e-6


def parameters(device, starts=STARTS):
    return [ow.Parameter(one.astype(np.float32), device=device) for one in starts]


def gradients(values, curvatures=CURVATURES, optimum=0.0):
    """Of c (w - optimum)²/2 + (w - optimum)⁴/4, summed."""
    return [c * (w - optimum) + (w - optimum) ** 3 for c, w in zip(curvatures, values, strict=True)]


def make_closure(params, device, optimum=0.0):
    """That loss and its gradients."""
    curvatures = [ow.tensor(one.astype(np.float32), device=device) for one in CURVATURES]

    def closure():
        total = 0.0
        for param, curvature in zip(params, curvatures, strict=True):
            moved = param - optimum
            square = moved * moved
            total = total + (curvature * square * 0.5 + square * square * 0.25).sum()
        total.backward()
        return total

    return closure


def assert_close(params, want, tolerance=TOLERANCE):
    for param, one in zip(params, want, strict=True):
        assert np.abs(param.numpy() - one).max() <= tolerance * np.abs(one).max()


def given_gradients(steps, seed=1):
    rng = np.random.default_rng(seed)
    return [[rng.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(steps)]


# Lookahead.


def lookahead_reference(grads, lr, momentum, k, alpha):
    """Zhang et al. 2019, algorithm 1, around SGD with momentum."""
    fast, slow = [one.astype(np.float32).astype(np.float64) for one in STARTS], []
    slow = [one.copy() for one in fast]
    buffers = [np.zeros_like(one) for one in fast]
    for step, step_grads in enumerate(grads, 1):
        for index, grad in enumerate(step_grads):
            buffers[index] = momentum * buffers[index] + grad
            fast[index] = fast[index] - lr * buffers[index]
            if step % k == 0:
                slow[index] = slow[index] + alpha * (fast[index] - slow[index])
                fast[index] = slow[index].copy()
    return fast, slow


@pytest.mark.parametrize(("k", "alpha"), [(5, 0.5), (1, 0.3), (7, 1.0)])
def test_lookahead_follows_the_paper(device, k, alpha):
    params, grads = parameters(device), given_gradients(100)
    optimizer = ow.optim.Lookahead(ow.optim.SGD(params, lr=0.01, momentum=0.9), k=k, alpha=alpha)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
    fast, slow = lookahead_reference(grads, 0.01, 0.9, k, alpha)
    assert_close(params, fast)
    assert_close([optimizer.state[one]["slow_param"] for one in params], slow)


def test_a_recorded_lookahead_step_counts_on_the_device(device):
    params, others, grads = parameters(device), parameters(device), given_gradients(12)
    optimizer = ow.optim.Lookahead(ow.optim.AdamW(params, lr=0.01), k=5)
    other = ow.optim.Lookahead(ow.optim.AdamW(others, lr=0.01), k=5)

    def step(*given):
        other.step(grads=given)

    compiled = ow.compile(step, device=device)
    for step_grads in grads:
        optimizer.step(grads=step_grads)
        device.flush()
        before = device.stats.copy()
        compiled(*step_grads)
    cost = device.stats - before
    assert (cost.dispatches, cost.submits, cost.bytes_down) == (4, 1, 0)
    assert [one.tolist() for one in others] == [one.tolist() for one in params]


def test_lookahead_begins_at_what_was_assigned_before_its_first_step(device):
    w = ow.Parameter([0.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=1.0), k=2, alpha=0.5)
    w.assign([8.0])
    optimizer.step(grads=[[1.0]])
    assert w.item() == 7.0
    w.assign([4.0])  # the fast weights are the parameters
    optimizer.step(grads=[[1.0]])
    assert w.item() == 8.0 + 0.5 * (3.0 - 8.0)


def test_lookahead_goes_on_from_its_state_dict(device):
    params, grads = parameters(device), given_gradients(13)
    optimizer = ow.optim.Lookahead(ow.optim.Adam(params, lr=0.01), k=5, alpha=0.25)
    for step_grads in grads[:7]:
        optimizer.step(grads=step_grads)
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"step", "exp_avg", "exp_avg_sq", "slow_step", "slow_param"}
    assert (float(saved["state"][0]["step"]), float(saved["state"][0]["slow_step"])) == (7, 2)
    assert saved["param_groups"][0]["lookahead_k"] == 5
    others = parameters(device, [one.numpy() for one in params])
    other = ow.optim.Lookahead(ow.optim.Adam(others))
    other.load_state_dict(saved)
    for step_grads in grads[7:]:
        optimizer.step(grads=step_grads)
        other.step(grads=step_grads)
    assert [one.tolist() for one in others] == [one.tolist() for one in params]


def test_lookahead_survives_copies_and_checkpoints(device):
    params, grads = parameters(device), given_gradients(9)
    optimizer = ow.optim.Lookahead(ow.optim.Adam(params, lr=0.01), k=4)
    for step_grads in grads[:5]:
        optimizer.step(grads=step_grads)
    copied = copy.deepcopy(optimizer)
    named = {str(number): one for number, one in enumerate(params)}
    content = ow.dump_checkpoint(named, optimizer)
    restored = {name: ow.Parameter(np.zeros(one.shape, np.float32), device=device) for name, one in named.items()}
    other = ow.optim.Lookahead(ow.optim.Adam(list(restored.values())))
    ow.load_checkpoint(content, restored, other)
    for step_grads in grads[5:]:
        for one in (optimizer, copied, other):
            one.step(grads=step_grads)
    assert copied.param_groups is copied.optimizer.param_groups
    for got in (copied.param_groups[0]["params"], restored.values()):
        assert [one.tolist() for one in got] == [one.tolist() for one in params]


def test_a_state_dict_that_does_not_fit_lookahead_changes_nothing(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.Adam([w]), k=3)
    optimizer.step(grads=[[1.0]])
    before = optimizer.state_dict()
    for damage in ({"slow_param": np.zeros(2)}, {"slow_step": "many"}, {"exp_avg": np.zeros(2)}, {"unknown": 1.0}):
        damaged = {**before, "state": {0: {**before["state"][0], **damage}}}
        with pytest.raises(CheckpointError):
            optimizer.load_state_dict(damaged)
    options = [{**before["param_groups"][0], "lookahead_k": 0}]
    with pytest.raises(CheckpointError, match="Invalid k value: 0"):
        optimizer.load_state_dict({**before, "param_groups": options})
    np.testing.assert_equal(optimizer.state_dict(), before)


def test_a_group_added_to_lookahead_has_options_of_both(device):
    first, second = (ow.Parameter([1.0], device=device) for _ in range(2))
    optimizer = ow.optim.Lookahead(ow.optim.SGD([first], lr=0.5), k=2, alpha=0.5)
    optimizer.step(grads=[[1.0]])
    optimizer.add_param_group({"params": [second], "lr": 0.25, "lookahead_k": 1})
    optimizer.step(grads=[[1.0], [1.0]])
    assert (first.item(), second.item()) == (0.5, 0.875)
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step(grads=[[1.0], None])
    assert first.item() == -0.5
    optimizer.zero_grad()
    assert first.grad is None
    with pytest.raises(ValueError, match="Invalid alpha value: 2"):
        optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)], "lookahead_alpha": 2})
    with pytest.raises(TypeError, match="no option colour"):
        optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)], "colour": 2})
    assert len(optimizer.param_groups) == 2


def test_lookahead_does_not_count_a_step_that_was_skipped(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.5, skip_nonfinite=True), k=2)
    for grad in (1.0, float("nan"), 1.0):
        optimizer.step(grads=[[grad]])
    assert w.item() == 0.5
    assert optimizer.skipped_steps == 1


def test_wrappers_refuse_what_is_no_optimizer_of_their_kind():
    w = ow.Parameter([1.0], device="cpu")
    for make in (ow.optim.Lookahead, ow.optim.SAM, ow.optim.Reptile):
        with pytest.raises(TypeError, match="around an optimizer"):
            make([w])
        with pytest.raises(TypeError, match="around an optimizer that has a rule"):
            make(ow.optim.LBFGS([w]))
    with pytest.raises(ValueError, match="Invalid rho value: -1"):
        ow.optim.SAM(ow.optim.SGD([w]), rho=-1)


# Sharpness-aware minimization.


def sam_reference(steps, lr, rho, adaptive, maximize):
    """Foret et al. 2021, algorithm 1; Kwon et al. 2021, algorithm 1 with p = 2 and without eta."""
    values = [one.astype(np.float32).astype(np.float64) for one in STARTS]
    sign = -1.0 if maximize else 1.0
    for _ in range(steps):
        grads = [sign * one for one in gradients(values)]
        scales = [np.abs(one) if adaptive else np.ones_like(one) for one in values]
        norm = np.sqrt(sum(((t * g) ** 2).sum() for t, g in zip(scales, grads, strict=True)))
        worst = [w + rho * t * t * g / norm for w, t, g in zip(values, scales, grads, strict=True)]
        values = [w - lr * sign * g for w, g in zip(values, gradients(worst), strict=True)]
    return values


@pytest.mark.parametrize(
    ("rho", "adaptive", "maximize", "steps"),
    [(0.05, False, False, 100), (0.5, True, False, 100), (0.2, False, True, 20), (0.0, False, False, 20)],
)
def test_sam_follows_the_papers(device, rho, adaptive, maximize, steps):
    params = parameters(device)
    lr = 0.002 if maximize else 0.02
    inner = ow.optim.SGD(params, lr=lr, maximize=maximize)
    optimizer = ow.optim.SAM(inner, rho=rho, adaptive=adaptive)
    closure = make_closure(params, device)
    for _ in range(steps):
        optimizer.step(closure)
    assert_close(params, sam_reference(steps, lr, rho, adaptive, maximize))


def test_sam_moves_by_rho_over_all_tensors_and_returns_exactly(device):
    params = parameters(device)
    optimizer = ow.optim.SAM(ow.optim.SGD(params, lr=0.0), rho=0.5)
    before = [one.numpy() for one in params]
    for one, grad in zip(params, given_gradients(1)[0], strict=True):
        one.grad = grad
    optimizer.first_step(zero_grad=True)
    assert params[0].grad is None
    moved = [one.numpy() - old for one, old in zip(params, before, strict=True)]
    assert np.sqrt(sum((one.astype(np.float64) ** 2).sum() for one in moved)) == pytest.approx(0.5, rel=1e-5)
    optimizer.second_step()
    for one, old in zip(params, before, strict=True):
        np.testing.assert_array_equal(one.numpy(), old)


def test_a_recorded_sam_step_reads_nothing_back(device):
    params, others = parameters(device), parameters(device)
    optimizer, other = (ow.optim.SAM(ow.optim.SGD(one, lr=0.01, momentum=0.9)) for one in (params, others))
    closure = make_closure(params, device)
    compiled = ow.compile(lambda: other.step(make_closure(others, device)), device=device)
    for _ in range(3):
        loss = optimizer.step(closure)
        before = device.stats.copy()
        recorded_loss = compiled()
        cost = device.stats - before
        assert recorded_loss.item() == loss.item()
    assert (cost.submits, cost.bytes_down) == (1, 0)
    assert [one.tolist() for one in others] == [one.tolist() for one in params]


def test_sam_leaves_a_tensor_alone_that_has_a_gradient_only_now_and_then(device):
    first, second = ow.Parameter([3.0], device=device), ow.Parameter([5.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([first, second], lr=0.1), rho=0.5)

    def both():
        loss = (first * first).sum() + (second * second).sum()
        loss.backward()

    def one():
        (first * first).sum().backward()

    optimizer.step(both)
    second.assign([7.0])
    optimizer.step(one)
    assert second.item() == 7.0


def test_sam_with_skip_nonfinite_keeps_the_parameters(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([w], lr=0.1, skip_nonfinite=True))
    for factor in (1.0, float("nan")):
        before = w.item()
        optimizer.step(lambda factor=factor: (w * w * factor).sum().backward())
    assert w.item() == before
    assert optimizer.skipped_steps == 1


def test_sam_passes_the_state_of_its_inner_optimizer_on(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.SAM(ow.optim.SGD([w], lr=0.1, momentum=0.9), rho=0.5)
    optimizer.step(lambda: (w * w).sum().backward())
    saved = optimizer.state_dict()
    assert set(saved["state"][0]) == {"momentum_buffer"}
    assert saved["param_groups"][0]["sam_rho"] == 0.5
    other = ow.optim.SAM(ow.optim.SGD([ow.Parameter([w.item()], device=device)], lr=0.3, momentum=0.9))
    other.load_state_dict(saved)
    np.testing.assert_equal(other.state_dict(), saved)
    with pytest.raises(TypeError, match=r"call step\(closure\)"):
        optimizer.step()


# FedProx.


def test_fedprox_takes_the_global_model_at_the_beginning_of_a_round(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0)
    w.assign([4.0])  # still before the first step
    optimizer.step(grads=[[0.0]])
    assert w.item() == 4.0
    w.assign([2.0])
    optimizer.step(grads=[[0.0]])
    assert w.item() == 3.0  # half-way back to 4
    optimizer.begin_round()
    optimizer.step(grads=[[0.0]])
    assert w.item() == 3.0


def test_fedprox_goes_on_from_its_state_dict_with_the_global_model(device):
    w = ow.Parameter([4.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0, momentum=0.5)
    optimizer.step(grads=[[2.0]])
    other_w = ow.Parameter([w.item()], device=device)
    other = ow.optim.FedProx([other_w])
    other.load_state_dict(optimizer.state_dict())
    for one in (optimizer, other):
        one.step(grads=[[1.0]])
    assert other_w.item() == w.item()
    assert other.state[other_w]["global_param"].item() == 4.0


def test_fedprox_is_recorded(device):
    w = ow.Parameter([4.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0)
    w.grad = [2.0]
    compiled = ow.compile(lambda: optimizer.step(), device=device)
    compiled()
    compiled()
    assert w.item() == 3.0 - 0.5 * (2.0 + (3.0 - 4.0))
    with pytest.raises(UnsupportedError, match="outside the compiled step"):
        ow.compile(lambda: optimizer.begin_round(), device=device)()


# Reptile.


def reptile_reference(meta_steps, tasks, lr, epsilon, inner_steps):
    """Nichol et al. 2018, algorithm 2, with SGD inside."""
    values = [one.astype(np.float32).astype(np.float64) for one in STARTS]
    for _ in range(meta_steps):
        moves = [np.zeros_like(one) for one in values]
        for optimum in tasks:
            inner = [one.copy() for one in values]
            for _ in range(inner_steps):
                inner = [w - lr * g for w, g in zip(inner, gradients(inner, optimum=optimum), strict=True)]
            moves = [m + (w - v) / len(tasks) for m, w, v in zip(moves, inner, values, strict=True)]
        values = [v + epsilon * m for v, m in zip(values, moves, strict=True)]
    return values


@pytest.mark.parametrize("tasks", [(0.5,), (1.0, -0.5, 0.25)])
def test_reptile_follows_the_paper_with_a_fresh_gradient_in_each_inner_step(device, tasks):
    params = parameters(device)
    optimizer = ow.optim.Reptile(ow.optim.SGD(params, lr=0.02), epsilon=0.4, inner_steps=4)
    calls = []

    def counted(optimum):
        closure = make_closure(params, device, optimum)
        return lambda: calls.append(optimum) or closure()

    closures = [counted(one) for one in tasks]
    for _ in range(20):
        losses = optimizer.step(closures if len(tasks) > 1 else closures[0])
    assert calls == [one for _ in range(20) for one in tasks for _ in range(4)]
    assert len(losses) == len(tasks) if len(tasks) > 1 else losses.size == 1
    assert_close(params, reptile_reference(20, tasks, 0.02, 0.4, 4))


def test_reptile_is_recorded_and_uses_the_parameters_of_now(device):
    params, others = parameters(device), parameters(device)
    optimizer, other = (
        ow.optim.Reptile(ow.optim.Adam(one, lr=0.01), epsilon=0.5, inner_steps=2) for one in (params, others)
    )

    def tasks(its_params):
        return [make_closure(its_params, device, one) for one in (0.5, -1.0)]

    compiled = ow.compile(lambda: other.step(tasks(others)), device=device)
    for number in range(4):
        optimizer.step(tasks(params) if number != 2 else tasks(params)[:1])
        if number == 2:
            other.step(tasks(others)[:1])  # another number of tasks in between
            for one, its in zip(others, params, strict=True):
                its.assign([[0.5] * 40] * 7 if its.ndim == 2 else [0.5] * its.size)
                one.assign([[0.5] * 40] * 7 if its.ndim == 2 else [0.5] * its.size)
            continue
        before = device.stats.copy()
        compiled()
        assert (device.stats - before).bytes_down == 0
    assert [one.tolist() for one in others] == [one.tolist() for one in params]
    with pytest.raises(TypeError, match=r"call step\(closure\)"):
        optimizer.step()


# Meta-SGD, on c (w - a)²/2 + (w - a)⁴/4, whose Hessian is diagonal.

SUPPORT, QUERY = 0.5, -0.25


def query_loss(values, alphas):
    """The query loss after the step on the support loss: what Meta-SGD goes down."""
    total = 0.0
    for c, w, alpha, g in zip(CURVATURES, values, alphas, gradients(values, optimum=SUPPORT), strict=True):
        moved = w - alpha * g - QUERY
        total += (c * moved**2 / 2 + moved**4 / 4).sum()
    return total


def metasgd_reference(meta_steps, lr, meta_lr, exact):
    values = [one.astype(np.float32).astype(np.float64) for one in STARTS]
    alphas = [np.full_like(one, lr) for one in values]
    for _ in range(meta_steps):
        support = gradients(values, optimum=SUPPORT)
        adapted = [w - a * g for w, a, g in zip(values, alphas, support, strict=True)]
        query = gradients(adapted, optimum=QUERY)
        hessian = [c + 3 * (w - SUPPORT) ** 2 for c, w in zip(CURVATURES, values, strict=True)]
        through = [q * (1 - h * a) if exact else q for q, h, a in zip(query, hessian, alphas, strict=True)]
        values = [w - meta_lr * one for w, one in zip(values, through, strict=True)]
        alphas = [a + meta_lr * g * q for a, g, q in zip(alphas, support, query, strict=True)]
    return values, alphas


def test_the_reference_of_metasgd_goes_down_the_query_loss():
    lr, small = 0.05, 1e-6
    values = [one.astype(np.float32).astype(np.float64) for one in STARTS]
    alphas = [np.full_like(one, lr) for one in values]
    after, rates = metasgd_reference(1, lr, 1.0, exact=True)
    for which, moved in ((values, after), (alphas, rates)):
        old = which[1][3]
        losses = []
        for sign in (1, -1):
            which[1][3] = old + sign * small
            losses.append(query_loss(values, alphas))
        which[1][3] = old
        assert old - moved[1][3] == pytest.approx((losses[0] - losses[1]) / (2 * small), rel=1e-5)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("recorded", [False, True])
def test_metasgd_follows_the_paper(device, exact, recorded):
    params = parameters(device)
    support, query = (make_closure(params, device, one) for one in (SUPPORT, QUERY))

    def hvp(vectors):
        return [
            (ow.tensor(c.astype(np.float32), device=device) + 3.0 * ((w - SUPPORT) * (w - SUPPORT))).detach() * v
            for c, w, v in zip(CURVATURES, params, vectors, strict=True)
        ]

    optimizer = ow.optim.MetaSGD(params, lr=0.02, meta_lr=1e-5, hvp=hvp if exact else None)

    def episode():
        optimizer.zero_grad()
        optimizer.step(support)
        optimizer.zero_grad()
        return optimizer.meta_step(query)

    run = ow.compile(episode, device=device) if recorded else episode
    for _ in range(30):
        run()
    values, alphas = metasgd_reference(30, 0.02, 1e-5, exact)
    assert_close(params, values)
    assert_close([optimizer.state[one]["alpha"] for one in params], alphas)


def test_metasgd_adapts_with_the_rates_it_learned(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.MetaSGD([w], lr=0.5, meta_lr=0.25)
    with pytest.raises(RuntimeError, match=r"call step\(\) on the support loss before"):
        optimizer.meta_step(grads=[[1.0, 1.0]])
    optimizer.step(grads=[[1.0, 1.0]])
    optimizer.meta_step(grads=[[2.0, 0.0]])
    assert w.tolist() == [0.5, 1.0]
    other_w = ow.Parameter(w.tolist(), device=device)
    other = ow.optim.MetaSGD([other_w])
    other.load_state_dict(optimizer.state_dict())
    for one in (optimizer, other):
        one.step(grads=[[1.0, 1.0]])
    assert w.tolist() == other_w.tolist() == [-0.5, 0.5]


def test_metasgd_refuses_hessian_products_of_another_shape(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.MetaSGD([w], hvp=lambda _: [[1.0]])
    optimizer.step(grads=[[1.0, 1.0]])
    with pytest.raises(ShapeError, match=r"hvp gave the shape \(1,\)"):
        optimizer.meta_step(grads=[[1.0, 1.0]])


# Newton-CG.


def newton(device, **options):
    params = parameters(device)
    curvatures = [ow.tensor(one.astype(np.float32), device=device) for one in CURVATURES]

    def hvp(vectors):
        return [(c + 3.0 * (w * w).detach()) * v for c, w, v in zip(curvatures, params, vectors, strict=True)]

    optimizer = ow.optim.NewtonCG(params, hvp, **options)
    closure = make_closure(params, device)

    def zeroed():
        optimizer.zero_grad()
        return closure()

    return params, optimizer, zeroed


def test_newton_cg_with_exact_products_and_many_iterations_is_newtons_method(device):
    params, optimizer, closure = newton(device, max_iter=60, tolerance=1e-6)
    values = [one.astype(np.float32).astype(np.float64) for one in STARTS]
    for _ in range(3):
        optimizer.step(closure)
        steps = zip(values, gradients(values), CURVATURES, strict=True)
        values = [w - g / (c + 3 * w * w) for w, g, c in steps]
    # CG stops at a residual of 1e-6 of the gradient over all tensors.
    for got, want in zip(params, values, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=2e-5)


def test_newton_cg_converges_and_counts_what_it_waits_for(device):
    params, optimizer, closure = newton(device)
    reads, read = [], device.read
    device.read = lambda view: reads.append(view.nbytes) or read(view)
    try:
        losses = [optimizer.step(closure).item() for _ in range(12)]
    finally:
        del device.read
    (entry,) = optimizer.state.values()
    assert entry["n_iter"] == 12
    own = len(reads) - 12  # besides the losses read here
    assert own == entry["func_evals"] + entry["hvp_evals"] + entry["n_iter"]
    assert max(reads) <= 4 * 67
    assert losses[-1] <= 1e-10 * losses[0]
    assert all(np.abs(one.numpy()).max() < 1e-4 for one in params)


def test_newton_cg_goes_down_the_gradient_where_the_curvature_is_negative(device):
    w = ow.Parameter([0.25], device=device)

    def closure():
        optimizer.zero_grad()
        square = w * w
        loss = (square * square - square).sum()  # w⁴ - w²
        loss.backward()
        return loss

    optimizer = ow.optim.NewtonCG([w], lambda v: [(12.0 * (w * w).detach() - 2.0) * v[0]])
    optimizer.step(closure)
    assert w.item() == pytest.approx(0.25 - (4 * 0.25**3 - 2 * 0.25), rel=1e-6)
    for _ in range(10):
        optimizer.step(closure)
    assert w.item() == pytest.approx(0.5**0.5, rel=1e-5)


def test_newton_cg_shortens_steps_and_stays_where_none_helps(device):
    w = ow.Parameter([2.0], device=device)

    def closure():
        w.grad = [1.0]  # uphill: the loss is -w
        return -w.item()

    optimizer = ow.optim.NewtonCG([w], lambda v: [v[0]], max_eval=3)
    optimizer.step(closure)
    assert w.item() == 2.0
    (entry,) = optimizer.state.values()
    assert entry["func_evals"] == 4


def test_newton_cg_damps_and_saves(device):
    w = ow.Parameter([3.0], device=device)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    optimizer = ow.optim.NewtonCG([w], lambda v: [2.0 * v[0]], damping=1.0)
    optimizer.step(closure)
    assert w.item() == pytest.approx(1.0, rel=1e-6)
    saved = optimizer.state_dict()
    other = ow.optim.NewtonCG([ow.Parameter([1.0], device=device)], lambda v: [2.0 * v[0]])
    other.load_state_dict(saved)
    assert other.state_dict() == saved
    assert saved["param_groups"][0]["damping"] == 1.0


# What they reach.


def sam_on(params):
    return ow.optim.SAM(ow.optim.SGD(params, lr=0.1, momentum=0.9), rho=0.05)


def adaptive_sam_on(params):
    return ow.optim.SAM(ow.optim.SGD(params, lr=0.1, momentum=0.9), rho=0.5, adaptive=True)


def lookahead_on(params):
    return ow.optim.Lookahead(ow.optim.SGD(params, lr=1e-3, momentum=0.9))


def lookahead_adam_on(params):
    return ow.optim.Lookahead(ow.optim.Adam(params, lr=0.05))


def reptile_on(params):
    return ow.optim.Reptile(ow.optim.SGD(params, lr=1e-3, momentum=0.9), epsilon=0.5)


def lbfgs_on(params):
    return ow.optim.LBFGS(params, line_search_fn="strong_wolfe")


@pytest.mark.parametrize(
    ("make", "problem", "steps", "factor"),
    [
        (sam_on, "digits", 100, 50),
        (adaptive_sam_on, "digits", 100, 100),
        (lookahead_on, "quadratic", 1000, 1e8),
        (lookahead_adam_on, "rosenbrock", 2000, 2e6),
        (reptile_on, "quadratic", 300, 2e7),
        (lbfgs_on, "rosenbrock", 4, 1e10),
        (lbfgs_on, "digits", 10, 1e7),
    ],
)
def test_lowers_its_problem_by_the_stated_factor(make, problem, steps, factor):
    device = ow.device("cpu")
    params, loss_of = PROBLEMS[problem](device)
    optimizer = make(params)

    def closure():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    before = loss_of().item()
    step = (lambda: optimizer.step(closure)) if make is lbfgs_on else ow.compile(
        lambda: optimizer.step(closure), device=device
    )  # fmt: skip
    for _ in range(steps):
        step()
    assert loss_of().item() <= before / factor


# Together with what else changes steps, and lost devices.

RECOVERY = """
import optirs_web as ow

MAKES = {
    "Lookahead": lambda p: ow.optim.Lookahead(ow.optim.Adam(p, lr=0.1), k=3),
    "SAM": lambda p: ow.optim.SAM(ow.optim.SGD(p, lr=0.001, momentum=0.9)),
    "Reptile": lambda p: ow.optim.Reptile(ow.optim.SGD(p, lr=0.001)),
    "FedProx": lambda p: ow.optim.FedProx(p, lr=0.001, mu=0.5),
    "LBFGS": lambda p: ow.optim.LBFGS(p, max_iter=2),
}

def run(make, is_lost):
    w = ow.Parameter([4.0, -2.0], device="cpu")
    optimizer = make([w])
    def closure():
        optimizer.zero_grad()
        loss = (w * w * w * w).sum()
        loss.backward()
        return loss
    for number in range(6):
        if number == 4 and is_lost:
            ow.snapshot("cpu")
            ow.close_device(ow.device("cpu"))
            ow.recover()
        optimizer.step(closure)
    return w.tolist()

for name, make in MAKES.items():
    print(name, run(make, True) == run(make, False))
"""


def test_a_lost_device_is_recovered_from():
    assert run_python(RECOVERY) == [f"{name} True" for name in ("Lookahead", "SAM", "Reptile", "FedProx", "LBFGS")]


def test_lookahead_goes_with_a_scaler_of_the_loss_and_with_a_schedule(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.Lookahead(ow.optim.SGD([w], lr=0.5), k=2)
    scaler = ow.optim.GradScaler(device=device)
    schedule = ow.optim.lr_scheduler.StepLR(optimizer, 2)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert w.item() == 0.5  # from 1 by two steps to 0, and half-way back
    schedule.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    with pytest.raises(UnsupportedError, match="several gradients in a step"):
        scaler.step(ow.optim.SAM(ow.optim.SGD([w])))


def test_copies_of_parameters_stay_exact_in_low_precision(device):
    w = ow.Parameter([1.001], device=device)
    optimizer = ow.optim.FedProx([w], lr=1.0, mu=1.0, momentum=0.5, state_dtype="bfloat16")
    optimizer.step(grads=[[0.0]])
    assert optimizer.state[w]["global_param"].item() == w.item()
    with pytest.raises(UnsupportedError, match="MetaSGD keeps its state as float32"):
        ow.optim.MetaSGD([w], state_dtype="bfloat16")


# In a browser, where there may be no NumPy.

PROGRAM = """
import optirs_web as ow

STARTS = [[0.5, -1.5, 2.0], [0.25] * 300]


async def results(name):
    device = await ow.device_async(name)
    found = {}

    def problem(key, make, shown):
        params = [ow.Parameter(one, device=device) for one in STARTS]
        optimizer = make(params)

        def closure():
            optimizer.zero_grad()
            loss = sum((1.5 * (w * w) + 0.25 * (w * w) * (w * w)).sum() for w in params)
            loss.backward()
            return loss

        async def show():
            values = [await one.tolist_async() for one in params]
            state = (await optimizer.state_dict_async())["state"]
            found[key] = [*values, sorted({name for entry in state.values() for name in entry}), shown(state)]

        return optimizer, closure, show

    def hvp_for(params):
        return lambda vectors: [(3.0 + 3.0 * (w * w).detach()) * v for w, v in zip(params, vectors)]

    def nothing(state):
        return 0

    makes = {
        "Lookahead": (lambda p: ow.optim.Lookahead(ow.optim.Adam(p, lr=0.01), k=3), nothing),
        "SAM": (lambda p: ow.optim.SAM(ow.optim.SGD(p, lr=0.01), rho=0.5, adaptive=True), nothing),
        "Reptile": (lambda p: ow.optim.Reptile(ow.optim.SGD(p, lr=0.01)), nothing),
        "LBFGS": (
            lambda p: ow.optim.LBFGS(p, line_search_fn="strong_wolfe", max_iter=4),
            lambda state: [state[0]["n_iter"], state[0]["func_evals"], len(state[0]["old_dirs"])],
        ),
        "NewtonCG": (lambda p: ow.optim.NewtonCG(p, hvp_for(p)), lambda state: state[0]["hvp_evals"]),
    }
    for key, (make, shown) in makes.items():
        optimizer, closure, show = problem(key, make, shown)
        for number in range(4 if key != "LBFGS" else 2):
            if hasattr(optimizer, "step_async") and number:
                await optimizer.step_async(closure)
            else:
                optimizer.step(closure)
        await show()
    return found
"""


def test_a_browser_computes_the_same(browser_python):
    names = {}
    exec(PROGRAM, names)
    with ThreadPoolExecutor() as thread:  # the browser's event loop runs in this one
        native = thread.submit(asyncio.run, names["results"]("cpu")).result()
    source = PROGRAM + "\nimport json\njson.dumps(await results('webgpu'))"
    in_page = json.loads(browser_python.run(source))
    assert set(in_page) == set(native)
    for key, (*values, state_names, shown) in native.items():
        assert in_page[key][-2:] == [state_names, shown]
        for got, want in zip(in_page[key][:-2], values, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)
