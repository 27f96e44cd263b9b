"""Optimizers around others, with two kinds of steps, or driven by the host, against float64 on each device."""

import numpy as np
import pytest
from optimizer_cases import DRIVEN_CASES
from optimizer_problems import relative_error
from optimizer_references import driven
from requirements import by_source
from wrapper_problems import CURVATURES, STARTS, in_float64


@pytest.fixture(scope="module")
def reference(requires):
    """`reference(case)`: computed once for all devices."""
    known = {}

    def find(case):
        if case.name not in known:
            if case.source == "torch":
                requires("torch")
            run = getattr(driven, case.run.__name__)
            known[case.name] = run(*in_float64(), case.steps, **case.options)
        return known[case.name]

    return find


@pytest.mark.parametrize("case", by_source(DRIVEN_CASES))
def test_follows_its_source(case, numerics, reference, note_error):
    want, want_state = reference(case)
    inputs = [[array.astype(np.float32) for array in arrays] for arrays in (STARTS, CURVATURES)]
    ours, state = numerics("driven_steps", case.name, *inputs)
    largest = max(np.abs(values).max() for values in want)
    error = max(
        float(np.abs(np.asarray(got) - expected).max() / largest) for got, expected in zip(ours, want, strict=True)
    )
    assert error <= case.tolerance
    for got, expected in zip(state, want_state, strict=True):
        assert relative_error(got, expected) <= 1e-5
    note_error(case, error)


def test_the_reference_of_metasgd_goes_down_the_query_loss():
    lr, small, support, query = 0.05, 1e-6, 0.5, -0.25
    values, curvatures = in_float64()
    alphas = [np.full_like(value, lr) for value in values]

    def query_loss():
        inner = driven.gradients(values, curvatures, support)
        moved = [w - a * g - query for w, a, g in zip(values, alphas, inner, strict=True)]
        return sum((c * distance**2 / 2 + distance**4 / 4).sum() for c, distance in zip(curvatures, moved, strict=True))

    options = {"support": support, "query": query, "is_exact": True, "lr": lr, "meta_lr": 1.0}
    after, rates = driven.metasgd(values, curvatures, 1, **options)
    for which, moved in ((values, after), (alphas, rates)):
        old = which[1][3]
        losses = []
        for sign in (1, -1):
            which[1][3] = old + sign * small
            losses.append(query_loss())
        which[1][3] = old
        assert old - moved[1][3] == pytest.approx((losses[0] - losses[1]) / (2 * small), rel=1e-5)
