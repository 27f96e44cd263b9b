"""L-BFGS against torch's in float64: the same decisions, and values as close as a line search in float32 allows."""

import asyncio
import copy
import pickle

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import CheckpointError, UnsupportedError
from optirs_web.interop.torch import to_torch

CURVATURES = np.geomspace(1, 1000, 64)
STARTS = {"rosenbrock": [np.array([-1.2]), np.array([1.0])], "quadratic": [np.ones((4, 16))]}
WOLFE = {"line_search_fn": "strong_wolfe", "history_size": 10}


def loss_of(problem, params, constant):
    """The loss by the operations that torch's tensors and ours have in common."""
    if problem == "rosenbrock":
        x, y = params
        valley = y - x * x
        return ((1.0 - x) * (1.0 - x) + 100.0 * (valley * valley)).sum()
    (w,) = params
    return (constant(CURVATURES.reshape(4, 16)) * w * w).sum() * 0.5


def closure_of(problem, optimizer, params, constant):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(problem, params, constant)
        loss.backward()
        return loss

    return closure


def ours(problem, device, starts=None, **options):
    params = [ow.Parameter(np.asarray(values, np.float32), device=device) for values in starts or STARTS[problem]]
    optimizer = ow.optim.LBFGS(params, **options)
    curvatures = ow.tensor(CURVATURES.reshape(4, 16).astype(np.float32), device=device)
    return params, optimizer, closure_of(problem, optimizer, params, lambda _: curvatures)


def theirs(torch, problem, starts=None, **options):
    params = [torch.nn.Parameter(torch.tensor(values, dtype=torch.float64)) for values in starts or STARTS[problem]]
    optimizer = torch.optim.LBFGS(params, **options)
    return params, optimizer, closure_of(problem, optimizer, params, torch.tensor)


def distance(mine, torchs):
    return max(np.abs(a.numpy() - b.detach().numpy()).max() for a, b in zip(mine, torchs, strict=True))


def counts(optimizer):
    (entry,) = optimizer.state.values()
    return entry["n_iter"], entry["func_evals"]


# The method amplifies rounding: on the quadratic, of condition 1,000, by a fixed step, the error grows from 8e-6 after
# 25 iterations to 6e-4 after 50 (vulkan; 1e-5 on cpu, which sums in float64). A line search divides by differences of
# losses, which float32 knows to 6e-8 of the loss, so that its step lengths are off by more the closer the losses are:
# the iterates by 4e-4 within Rosenbrock's valley, by 6e-4 on the quadratic. At the minimum the two agree again.
@pytest.mark.parametrize(
    ("problem", "options", "steps", "tolerance"),
    [
        ("rosenbrock", {"lr": 0.002, "history_size": 10}, 4, 2e-6),
        ("rosenbrock", {**WOLFE, "max_iter": 5}, 8, 1e-3),
        ("rosenbrock", {**WOLFE}, 2, 2e-5),
        ("quadratic", {"max_iter": 5, "history_size": 10}, 5, 2e-5),
        ("quadratic", {"max_iter": 10, "history_size": 10}, 6, 2e-3),
        ("quadratic", {"max_iter": 7, "history_size": 3, "lr": 0.9, "max_eval": 6}, 6, 3e-5),
        ("quadratic", {**WOLFE, "max_iter": 5}, 8, 3e-5),
        ("quadratic", {**WOLFE, "max_iter": 20, "lr": 0.5}, 3, 2e-3),
    ],
)
def test_decides_as_torch_does_and_stays_close(device, torch, problem, options, steps, tolerance):
    mine, optimizer, closure = ours(problem, device, **options)
    torchs, torch_optimizer, torch_closure = theirs(torch, problem, **options)
    for _ in range(steps):
        loss = optimizer.step(closure).item()
        torch_loss = torch_optimizer.step(torch_closure).item()
        assert counts(optimizer) == counts(torch_optimizer)
        assert distance(mine, torchs) <= tolerance
        assert loss == pytest.approx(torch_loss, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "steps", "reached"), [("rosenbrock", 3, 1e-11), ("quadratic", 8, 1e-6)])
def test_reaches_the_minimum(device, problem, steps, reached):
    _, optimizer, closure = ours(problem, device, **WOLFE)
    for _ in range(steps):
        optimizer.step(closure)
    assert closure().item() <= reached


def test_a_pair_of_negative_curvature_is_left_out_as_in_torch(device, torch):
    def make(params, optimizer):
        def closure():
            optimizer.zero_grad()
            (w,) = params
            square = w * w
            loss = (square * square - 8.0 * square).sum()  # concave between -1.15 and 1.15
            loss.backward()
            return loss

        return closure

    start = [0.2, -0.3, 0.1]
    mine, torchs = [ow.Parameter(start, device=device)], [torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))]
    optimizer = ow.optim.LBFGS(mine, lr=0.05, max_iter=6)
    torch_optimizer = torch.optim.LBFGS(torchs, lr=0.05, max_iter=6)
    optimizer.step(make(mine, optimizer))
    torch_optimizer.step(make(torchs, torch_optimizer))
    assert len(torch_optimizer.state[torchs[0]]["ro"]) < 5
    assert len(optimizer.state[mine[0]]["ro"]) == len(torch_optimizer.state[torchs[0]]["ro"])
    assert distance(mine, torchs) <= 1e-5


def test_continues_a_torch_run_and_torch_continues_ours(device, torch):
    options = {"max_iter": 4, "history_size": 3}
    torchs, torch_optimizer, torch_closure = theirs(torch, "quadratic", **options)
    torch_optimizer.step(torch_closure)

    mine, optimizer, closure = ours("quadratic", device, [tensor.detach().numpy() for tensor in torchs], **options)
    optimizer.load_state_dict(torch_optimizer.state_dict())
    optimizer.step(closure)

    again, torch_again, closure_again = theirs(torch, "quadratic", [tensor.numpy() for tensor in mine], **options)
    torch_again.load_state_dict(to_torch(optimizer.state_dict()))
    torch_again.step(closure_again)

    for _ in range(2):
        torch_optimizer.step(torch_closure)
    assert counts(torch_again) == counts(torch_optimizer)
    np.testing.assert_allclose(again[0].detach(), torchs[0].detach(), atol=1e-5)
    assert set(optimizer.state_dict()["state"][0]) == set(torch_optimizer.state_dict()["state"][0]) - {"al"}


def test_a_checkpoint_goes_on_bit_for_bit(device):
    options = {**WOLFE, "max_iter": 4}
    mine, optimizer, closure = ours("quadratic", device, **options)
    optimizer.step(closure)
    content = ow.dump_checkpoint({"w": mine[0]}, optimizer)
    optimizer.step(closure)
    other, other_optimizer, other_closure = ours("quadratic", device, **options)
    ow.load_checkpoint(content, {"w": other[0]}, other_optimizer)
    other_optimizer.step(other_closure)
    assert other[0].tolist() == mine[0].tolist()
    assert counts(other_optimizer) == counts(optimizer)


def test_a_copy_goes_on_by_itself(device):
    mine, optimizer, closure = ours("quadratic", device, max_iter=3)
    optimizer.step(closure)
    copied = copy.deepcopy(optimizer)
    (param,) = copied.param_groups[0]["params"]
    curvatures = ow.tensor(CURVATURES.reshape(4, 16).astype(np.float32), device=device)
    copied.step(closure_of("quadratic", copied, [param], lambda _: curvatures))
    assert param.tolist() != mine[0].tolist()
    optimizer.step(closure)
    assert param.tolist() == mine[0].tolist()


def test_an_optimizer_whose_rate_follows_a_schedule_can_be_pickled(device):
    _, optimizer, closure = ours("quadratic", device, max_iter=3)
    scheduler = ow.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step(closure)
    scheduler.step()
    (group,) = pickle.loads(pickle.dumps(optimizer)).param_groups
    assert group["lr"] == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("options", [{"max_iter": 6}, {**WOLFE, "max_iter": 6}])
def test_waits_once_for_each_evaluation_and_each_iteration(device, options):
    _, optimizer, closure = ours("quadratic", device, **options)
    optimizer.step(closure)
    iterations, evaluations = counts(optimizer)
    before, reads = device.stats.copy(), []
    read = device.read
    device.read = lambda view: reads.append(view.nbytes) or read(view)
    try:
        optimizer.step(closure)
    finally:
        del device.read
    iterations, evaluations = (
        now - then for now, then in zip(counts(optimizer), (iterations, evaluations), strict=True)
    )
    assert len(reads) == iterations + evaluations
    assert max(reads) <= 4 * 67
    assert (device.stats - before).bytes_down == sum(reads)


def test_the_awaited_step_is_the_same(device):
    mine, optimizer, closure = ours("rosenbrock", device, **WOLFE)
    other, other_optimizer, other_closure = ours("rosenbrock", device, **WOLFE)
    called = []
    other_optimizer.register_step_post_hook(lambda *_: called.append("after"))
    loss = optimizer.step(closure).item()
    assert asyncio.run(other_optimizer.step_async(other_closure)).item() == loss
    assert [tensor.tolist() for tensor in other] == [tensor.tolist() for tensor in mine]
    assert called == ["after"]


def test_a_hook_of_an_awaited_step_returns_the_arguments_or_none(device):
    _, optimizer, closure = ours("quadratic", device)
    optimizer.register_step_pre_hook(lambda *_: "other arguments")
    with pytest.raises(TypeError, match=r"must return None or \(args, kwargs\)"):
        asyncio.run(optimizer.step_async(closure))


def test_a_closure_may_be_compiled_and_may_return_a_number(device):
    mine, optimizer, closure = ours("quadratic", device, **WOLFE)
    other, other_optimizer, other_closure = ours("quadratic", device, **WOLFE)
    optimizer.step(closure)
    compiled = ow.compile(other_closure, device=device)
    other_optimizer.step(lambda: compiled().item())
    assert other[0].tolist() == mine[0].tolist()


def test_parameters_without_a_gradient_stay(device):
    w, idle = ow.Parameter([3.0], device=device), ow.Parameter([5.0], device=device)
    optimizer = ow.optim.LBFGS([w, idle], **WOLFE)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(w.item()) < 1e-6
    assert idle.item() == 5.0


def test_a_gradient_that_is_not_finite_shows_in_check_finite(device):
    w = ow.Parameter([3.0], device=device)
    optimizer = ow.optim.LBFGS([w], **WOLFE)

    def closure():
        w.grad = [float("nan")]
        return 1.0

    optimizer.check_finite()
    optimizer.step(closure)
    with pytest.raises(ow.errors.NonFiniteError):
        optimizer.check_finite()


def test_what_it_cannot_do_is_refused_with_a_way_out(device):
    mine, optimizer, closure = ours("quadratic", device)
    with pytest.raises(TypeError, match=r"call step\(closure\)"):
        optimizer.step()
    with pytest.raises(UnsupportedError, match="compile what its closure does"):
        ow.compile(lambda: optimizer.step(closure), device=device)()
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        optimizer.add_param_group({"params": [ow.Parameter([1.0], device=device)]})
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        ow.optim.LBFGS([{"params": mine}, {"params": [ow.Parameter([1.0], device=device)]}])
    with pytest.raises(ValueError, match="only 'strong_wolfe' is supported"):
        ow.optim.LBFGS(mine, line_search_fn="armijo")
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        ow.optim.LBFGS(mine, lr=-1)


def test_a_state_that_does_not_fit_changes_nothing(device):
    _, optimizer, closure = ours("quadratic", device, max_iter=3)
    optimizer.step(closure)
    before = counts(optimizer)
    saved = optimizer.state_dict()
    _, other, _ = ours("rosenbrock", device, lr=0.3)
    with pytest.raises(CheckpointError):
        other.load_state_dict(saved)
    assert other.state == {}
    for name in ("d", "old_dirs", "ro", "func_evals"):
        damaged = {**saved, "state": {0: {key: value for key, value in saved["state"][0].items() if key != name}}}
        with pytest.raises(CheckpointError, match="not a state of LBFGS"):
            optimizer.load_state_dict(damaged)
    for name in ("old_dirs", "old_stps"):
        with pytest.raises(CheckpointError, match="not a state of LBFGS"):
            optimizer.load_state_dict({**saved, "state": {0: {**saved["state"][0], name: 1.0}}})
    assert counts(optimizer) == before
