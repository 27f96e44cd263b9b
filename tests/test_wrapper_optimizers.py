"""Optimizers around others and driven by the host, together: what they reach, survive, and do in a browser."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import run_python
from test_optimizer_convergence import PROBLEMS

import optirs_web as ow
from optirs_web.errors import CheckpointError, OutOfDeviceMemoryError, ShapeError, UnsupportedError


def test_wrappers_refuse_what_is_no_optimizer_of_their_kind():
    w = ow.Parameter([1.0], device="cpu")
    for make in (ow.optim.Lookahead, ow.optim.SAM, ow.optim.Reptile):
        with pytest.raises(TypeError, match="wraps an optimizer"):
            make([w])
        with pytest.raises(TypeError, match="wraps an optimizer with a rule"):
            make(ow.optim.LBFGS([w]))
        with pytest.raises(TypeError, match=r"not a list$"):  # and not what is in it
            make([w])
    with pytest.raises(ValueError, match="Invalid rho value: -1"):
        ow.optim.SAM(ow.optim.SGD([w]), rho=-1)


def sgd_on(device, values=([1.0, -2.0],)):
    return ow.optim.SGD([ow.Parameter(value, device=device) for value in values], lr=0.25)


OUTER = {
    "Lookahead": lambda one: ow.optim.Lookahead(one, k=3),
    "SAM": ow.optim.SAM,
    "Reptile": lambda one: ow.optim.Reptile(one, inner_steps=2),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", OUTER)
def test_hooks_of_the_inner_optimizer_see_its_part_of_a_state_dict_made_and_loaded(kind, is_async):
    inner = ow.optim.Adam([ow.Parameter([1.0], device="cpu")], lr=0.25)
    outer, calls = OUTER[kind](inner), []
    outer.step(lambda: inner.param_groups[0]["params"][0].sum().backward())
    usual = outer.state_dict()
    for name, optimizer in (("outer", outer), ("inner", inner)):

        def note(*arguments, name=name, optimizer=optimizer):
            assert arguments[0] is optimizer
            calls.append((name, *[(made["optimizer"], sorted(made["state"][0])) for made in arguments[1:]]))

        optimizer.register_state_dict_pre_hook(note)
        optimizer.register_state_dict_post_hook(note)
        optimizer.register_load_state_dict_pre_hook(note)
        optimizer.register_load_state_dict_post_hook(note)
    made = asyncio.run(outer.state_dict_async()) if is_async else outer.state_dict()
    whole, part = ("outer", (kind, sorted(usual["state"][0]))), ("inner", ("Adam", ["exp_avg", "exp_avg_sq", "step"]))
    assert calls == [("outer",), ("inner",), part, whole]
    assert repr(made) == repr(usual)
    calls.clear()
    outer.load_state_dict(made)
    assert calls == [whole, part, ("inner",), ("outer",)]


def test_a_hook_of_the_inner_optimizer_may_change_its_part_of_a_state_dict():
    outer = OUTER["Lookahead"](ow.optim.Adam([ow.Parameter([1.0], device="cpu")]))
    outer.step(grads=[[1.0]])
    inner = outer.optimizer
    inner.register_state_dict_post_hook(lambda _, made: {**made, "state": {}, "moved": made["state"]})
    inner.register_load_state_dict_pre_hook(lambda _, loaded: {**loaded, "state": loaded["moved"]})
    made = outer.state_dict()
    assert (sorted(made["state"][0]), sorted(made["moved"][0])) == (
        ["slow_param", "slow_step"],
        ["exp_avg", "exp_avg_sq", "step"],
    )
    before = inner.state[inner.param_groups[0]["params"][0]]["exp_avg"].tolist()
    outer.step(grads=[[2.0]])
    outer.load_state_dict(made)
    assert inner.state[inner.param_groups[0]["params"][0]]["exp_avg"].tolist() == before


def test_a_group_that_had_no_memory_is_taken_up_later(device):
    params = [ow.Parameter(np.ones(size, np.float32), device=device) for size in (3000, 2000)]
    grads = [np.ones(param.size, np.float32) for param in params]
    optimizer = ow.optim.Lookahead(ow.optim.Adam(params[:1], lr=0.01))
    optimizer.step(grads=grads[:1])
    for room in range(0, 200_000, 1000):
        ow.empty_cache()
        device.set_memory_limit(device.memory_stats().live_bytes + room)
        try:
            optimizer.add_param_group({"params": params[1:]})
        except OutOfDeviceMemoryError:
            if len(optimizer.param_groups) == 2:  # the inner optimizer had memory, this one had not
                break
        finally:
            device.set_memory_limit(None)
        if len(optimizer.param_groups) == 2:
            break
    for _ in range(6):
        optimizer.step(grads=grads)
    assert sorted(optimizer.state_dict()["state"][1]) == sorted(optimizer.state_dict()["state"][0])


@pytest.mark.parametrize(
    ("outer", "inner", "message"),
    [
        ("Lookahead", "Lookahead", "has lookahead_alpha, lookahead_k, slow_param, slow_step too"),
        ("Lookahead", "Ranger", "has slow_param, slow_step too"),
        ("SAM", "SAM", "SAM within needs one"),
        ("SAM", "Reptile", "Reptile within needs one"),
        ("Reptile", "SAM", "SAM within needs one"),
        ("Reptile", "Reptile", "Reptile within needs one"),
    ],
)
def test_what_cannot_be_around_each_other_is_refused(outer, inner, message):
    optimizer = (
        ow.optim.Ranger([ow.Parameter([1.0], device="cpu")]) if inner == "Ranger" else OUTER[inner](sgd_on("cpu"))
    )
    before = dict(optimizer.param_groups[0])
    with pytest.raises(UnsupportedError, match=message):
        OUTER[outer](optimizer)
    if inner == "SAM":
        with pytest.raises(UnsupportedError, match=message):
            OUTER[outer](ow.optim.Lookahead(optimizer))
        del optimizer.param_groups[0]["lookahead_k"], optimizer.param_groups[0]["lookahead_alpha"]
    assert optimizer.param_groups == [before]


@pytest.mark.parametrize(("outer", "inner"), [("Lookahead", "SAM"), ("Lookahead", "Reptile"), ("SAM", "Lookahead")])
def test_others_are_around_each_other(device, outer, inner):
    optimizer = OUTER[outer](OUTER[inner](sgd_on(device)))
    (w,) = optimizer.param_groups[0]["params"]
    for _ in range(3):
        optimizer.zero_grad()
        optimizer.step(lambda: (w * w).sum().backward())
    optimizer.zero_grad()
    saved = optimizer.state_dict()
    twin = OUTER[outer](OUTER[inner](sgd_on(device, [w.tolist()])))
    twin.load_state_dict(saved)
    (w2,) = twin.param_groups[0]["params"]
    optimizer.step(lambda: (w * w).sum().backward())
    twin.step(lambda: (w2 * w2).sum().backward())
    assert w2.tolist() == w.tolist() != [1.0, -2.0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OUTER)
def test_a_group_added_to_the_inner_one_takes_part(device, name, compiled):
    """As one that was there from the beginning does, in a recorded step too."""
    actual = []
    for is_late in (False, True):
        inner = sgd_on(device, [[1.0, -2.0]])
        optimizer = OUTER[name](inner)
        late = {"params": [ow.Parameter([3.0], device=device)], "lr": 0.125}
        if not is_late:
            optimizer.add_param_group(late)

        def step(optimizer=optimizer):
            optimizer.zero_grad()
            params = [param for group in optimizer.param_groups for param in group["params"]]
            optimizer.step(lambda: sum((param * param).sum() for param in params).backward())

        run = ow.compile(step, device=device) if compiled else step
        if is_late:
            if compiled:  # what was recorded without the group is recorded anew
                start = [group.numpy() for group in inner.param_groups[0]["params"]]
                before = optimizer.state_dict()
                run()
                optimizer.load_state_dict(before)
                for group, value in zip(inner.param_groups[0]["params"], start, strict=True):
                    group.assign(value)
            inner.add_param_group(late)
        for _ in range(4):
            run()
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        params = [param for group in optimizer.param_groups for param in group["params"]]
        assert set(optimizer.state) == set(params)
        actual.append((saved, [param.tolist() for param in params]))
    np.testing.assert_equal(actual[1], actual[0])
    assert actual[0][1][1] != [3.0]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["SAM", "Reptile"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_closure_that_fails_leaves_the_parameters_where_they_were(device, name, error, compiled):
    """And the next step is as if there had been none before."""
    actual = []
    for fails_at in ((2, 3) if name == "Reptile" else (2,)) + (None,):
        optimizer = OUTER[name](sgd_on(device))
        (w,) = optimizer.param_groups[0]["params"]
        calls = []

        def closure(calls=calls, w=w, fails_at=fails_at):
            calls.append(1)
            if len(calls) == fails_at:
                raise error
            (w * w).sum().backward()

        def step(optimizer=optimizer, closure=closure):
            optimizer.step([closure, closure] if name == "Reptile" else closure)

        run = ow.compile(step, device=device) if compiled else step
        if fails_at:
            with pytest.raises(error):
                run()
        assert w.tolist() == [1.0, -2.0]
        run()
        run()
        actual.append(w.tolist())
    assert actual[0] == actual[-1] == actual[len(actual) // 2] != [1.0, -2.0]


@pytest.mark.parametrize("wrong", [ValueError, KeyboardInterrupt, ShapeError])
def test_a_hessian_product_that_fails_leaves_everything_where_it_was(device, wrong):
    """So that the step can be taken again."""
    actual = []
    for fails in (True, False):
        w = ow.Parameter([1.0, -2.0], device=device)
        is_failing = [fails]

        def products(vectors, w=w, is_failing=is_failing):
            w.grad = [9.0, 9.0]
            if not is_failing.pop():
                return [2.0 * vector for vector in vectors]
            if wrong is ShapeError:
                return [[1.0]]
            raise wrong

        optimizer = ow.optim.MetaSGD([w], lr=0.25, meta_lr=0.125, hvp=products)
        optimizer.step(grads=[[2.0, -4.0]])
        w.grad = [1.0, 3.0]
        if fails:
            with pytest.raises(wrong):
                optimizer.meta_step()
            is_failing.append(False)
        assert (w.tolist(), w.grad.tolist()) == ([0.5, -1.0], [1.0, 3.0])
        optimizer.meta_step()
        actual.append((w.tolist(), optimizer.state[w]["alpha"].tolist()))
    assert actual[0] == actual[1]


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("Lookahead", "lookahead_k", np.zeros(2), "does not fit"),
        ("Lookahead", "lookahead_k", 2.5, "Invalid k value: 2.5"),
        ("Lookahead", "lookahead_k", "3", "Invalid k value: 3"),
        ("SAM", "sam_adaptive", np.zeros(2), "does not fit"),
        ("SAM", "sam_adaptive", "False", "Invalid adaptive value: 'False'"),
        ("Reptile", "reptile_inner_steps", 1.5, "Invalid inner_steps value: 1.5"),
        ("Lookahead", "maximize", "False", "Invalid maximize value: 'False'"),
    ],
)
def test_an_option_that_does_not_fit_is_not_loaded(device, name, option, value, message):
    optimizer = OUTER[name](sgd_on(device))
    (w,) = optimizer.param_groups[0]["params"]
    optimizer.step(lambda: (w * w).sum().backward())
    before = optimizer.state_dict()
    groups = [{**before["param_groups"][0], "lr": 0.5, option: value}]
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict({**before, "param_groups": groups})
    np.testing.assert_equal(optimizer.state_dict(), before)


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


@pytest.mark.slow
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
