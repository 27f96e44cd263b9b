"""Optimizers around others and driven by the host, together: what they reach, survive, and do in a browser."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from processes import run_python
from test_optimizer_convergence import PROBLEMS

import optirs_web as ow


def test_wrappers_refuse_what_is_no_optimizer_of_their_kind():
    w = ow.Parameter([1.0], device="cpu")
    for make in (ow.optim.Lookahead, ow.optim.SAM, ow.optim.Reptile):
        with pytest.raises(TypeError, match="around an optimizer"):
            make([w])
        with pytest.raises(TypeError, match="around an optimizer that has a rule"):
            make(ow.optim.LBFGS([w]))
    with pytest.raises(ValueError, match="Invalid rho value: -1"):
        ow.optim.SAM(ow.optim.SGD([w]), rho=-1)


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
