"""Optimizers and schedules against what torch and optax computed, as it is recorded, where neither is installed.

`test_follows_its_source` and its like compare all that is computed with the libraries themselves.
"""

import numpy as np
import pytest
import test_sparse_optimizers
from conftest import DEVICES
from optimizer_cases import SPARSE_CASES
from optimizer_problems import make_problem
from records import COMPUTED, DRIVEN, OPTIMIZERS, SCHEDULE_STEPS, assert_recorded, computed, in_record
from schedule_cases import EDGES, OPTAX_NAMES, TORCH
from wrapper_problems import CURVATURES, STARTS

RATE = 1e-6  # of the largest of a schedule
natively = pytest.mark.parametrize("numerics", DEVICES, indirect=True)


def of(cases):
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def listed(state, count):
    return [state.get(str(index), {}) for index in range(count)]


@natively
@of(OPTIMIZERS)
def test_an_optimizer_does_what_its_source_did(case, numerics):
    params, grads = make_problem(case.shapes, case.steps)
    ours, state = numerics("steps", case.name, params, grads)
    states = listed(state, len(params))
    assert_recorded(f"optimizer {case.name}", ours, states, case.tolerance, case.state_tolerance)


@natively
@of(SPARSE_CASES)
def test_a_sparse_optimizer_does_what_torchs_did(case, numerics):
    params, grads = test_sparse_optimizers.make_problem(case.shapes)
    ours, state = numerics("sparse_steps", case.name, params, grads)
    states = listed(state, len(params))
    assert_recorded(f"sparse {case.name}", ours, states, case.tolerance, case.state_tolerance)


@natively
@of(DRIVEN)
def test_a_driven_optimizer_does_what_its_source_did(case, numerics):
    given = [[one.astype(np.float32) for one in arrays] for arrays in (STARTS, CURVATURES)]
    ours, _ = numerics("driven_steps", case.name, *given)
    assert_recorded(f"driven {case.name}", ours, [], case.tolerance)


@natively
@of([*TORCH, *EDGES])
def test_a_scheduler_gives_the_rates_that_torchs_gave(case, numerics):
    got = numerics("schedule", case.name, case.optimizer, SCHEDULE_STEPS)
    assert got["on_device"] == case.on_device
    assert_recorded(f"scheduler {case.name}", got["host"], [], RATE)


@natively
@pytest.mark.parametrize("name", OPTAX_NAMES)
def test_a_schedule_gives_the_rates_that_optaxs_gave(name, numerics):
    got = numerics("schedule", name, "SGD", SCHEDULE_STEPS)
    assert_recorded(f"schedule {name}", got["host"][:1], [], RATE)


@pytest.mark.parametrize("key", COMPUTED)
@pytest.mark.filterwarnings("ignore")  # of torch, on schedulers that step before their optimizer
def test_the_record_is_what_the_libraries_compute(key, torch, optax):
    now, recorded = computed(key), in_record(key)
    assert now.keys() == recorded.keys()
    for name, want in recorded.items():
        np.testing.assert_allclose(now[name], want, rtol=2e-7, atol=1e-7 * want[0])


def test_a_case_that_differs_from_its_record_fails():
    key = next(iter(COMPUTED))
    record = in_record(key)
    params = [record[f"{key}/{index}"][1:] for index in range(sum(name.count("/") == 1 for name in record))]
    with pytest.raises(AssertionError):
        assert_recorded(key, [1.001 * one for one in params], [], 1e-5)
