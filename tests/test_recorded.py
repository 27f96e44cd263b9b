"""Cases that are compared with torch and optax, compared with what was recorded of those: without the libraries.

The tests that compare every element with the libraries themselves stand beside the other tests of each subject.
"""

import numpy as np
import pytest
from conftest import DEVICES
from optimizer_problems import make_problem, relative_error
from recorded import DENSE, DRIVEN, SCALED, SCHEDULE_STEPS, SCHEDULES, SPARSE, compute, recorded, samples
from scaled_problem import INIT_SCALE, LR, RULE, make_problem as make_scaled_problem
from schedule_cases import OPTAX_NAMES
from sparse_problems import make_problem as make_sparse_problem
from wrapper_problems import CURVATURES, STARTS

natively = pytest.mark.parametrize("numerics", DEVICES, indirect=True)


def assert_as_recorded(case, params, states, state_tolerance):
    """Parameters and slots of state within the case's tolerances of the largest recorded element."""
    want = recorded(case.name)
    for index, param in enumerate(params):
        assert relative_error(samples(param), want.pop(f"{index}")) <= case.tolerance
    for index, slots in states.items():
        for slot, value in slots.items():
            if f"{index}.{slot}" in want:
                assert relative_error(samples(value), want.pop(f"{index}.{slot}")) <= state_tolerance
    if case.source == "torch":
        assert not want, f"torch has state besides ours: {', '.join(want)}"


@natively
@pytest.mark.parametrize("case", DENSE.values(), ids=DENSE)
def test_an_optimizer_follows_its_source(case, numerics):
    params, states = numerics("steps", case.name, *make_problem(case.shapes, case.steps))
    assert_as_recorded(case, params, states, case.state_tolerance)


@natively
@pytest.mark.parametrize("case", SPARSE.values(), ids=SPARSE)
def test_a_step_of_some_rows_follows_torchs(case, numerics):
    params, states = numerics("sparse_steps", case.name, *make_sparse_problem(case.shapes))
    assert_as_recorded(case, params, states, case.state_tolerance)


@natively
@pytest.mark.parametrize("case", DRIVEN.values(), ids=DRIVEN)
def test_an_optimizer_that_asks_for_gradients_follows_torchs(case, numerics):
    starts, curvatures = ([array.astype(np.float32) for array in arrays] for arrays in (STARTS, CURVATURES))
    params, states = numerics("driven_steps", case.name, starts, curvatures)
    assert_as_recorded(case, params, {index: {"state": state} for index, state in enumerate(states)}, 1e-5)


@natively
@pytest.mark.parametrize("name", SCALED)
def test_steps_under_a_scaler_are_torchs(name, numerics):
    scaler = {"init_scale": INIT_SCALE, **RULE}
    params, scales, _ = numerics("scaled_steps", SCALED[name], {"lr": LR}, *make_scaled_problem(), scaler)
    want = list(recorded(name).values())
    assert scales == want.pop().tolist()
    for got, value in zip(params, want, strict=True):
        assert relative_error(samples(got), value) <= 5e-6


@natively
@pytest.mark.parametrize("name", [*SCHEDULES, *OPTAX_NAMES])
def test_a_schedule_is_its_sources(name, numerics):
    case = SCHEDULES.get(name)
    got = numerics("schedule", name, case.optimizer if case else "SGD", SCHEDULE_STEPS)
    assert case is None or got["on_device"] == case.on_device
    want = recorded(name)
    rows = zip(got["host"], got["device"], strict=True)
    for number, (host, device) in enumerate(rows if case else list(rows)[:1]):
        np.testing.assert_allclose(samples(host), want[f"{number}"], rtol=1e-6, atol=1e-18)
        np.testing.assert_allclose(device, host, rtol=2e-6, atol=1e-37)


def test_the_record_is_what_the_libraries_compute(torch, optax):
    computed = compute()
    names = {key.partition(": ")[0] for key in computed}
    stored = {f"{name}: {key}": array for name in names for key, array in recorded(name).items()}
    assert stored.keys() == computed.keys(), "run make references"
    for key, array in computed.items():
        assert relative_error(stored[key], array) <= 1e-6, f"{key}: run make references"
