"""Every operation of the table on every device: values, gradients and second derivatives.

Against float64 NumPy and its central differences, against torch in float64, and by `gradcheck` and `gradgradcheck`.
"""

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import numerics as numerics_of_table
import numpy as np
import pytest
from operation_cases import CASES, HELPERS, WITHOUT_DERIVATIVES
from operation_values import Differences, evaluate, is_real, make_sources, random_like, torch_derivatives

import optirs_web as ow
from optirs_web import ops
from optirs_web.autograd import record

FEW = 40  # elements of a row's first inputs, up to which NumPy's gradient is taken by each of them too
SECOND = 4  # times the tolerance of first derivatives

COMPARED = [(case, library) for case in CASES for library in ("numpy", "torch") if library == "numpy" or case.torch]
DIFFERENTIABLE = [case for case in CASES if not case.why_not]


class Call:
    """A variant of a row: what goes to the device."""

    def __init__(self, case, number):
        self.case, self.number = case, number
        self.variant = case.variants[number]
        self.sources = make_sources(case, self.variant)
        real = [source for source in self.sources if is_real(source)]
        exact = [source.astype(np.float64) if is_real(source) else source for source in self.sources]
        self.value = evaluate(case, self.variant, exact)
        (self.weights,) = random_like([self.value], seed=1)
        self.tangents = random_like(real, seed=2)

    def arguments(self):
        return [self.number, self.sources, self.weights, self.tangents]


class Found:
    """The device's results of a call, as float64 arrays."""

    def __init__(self, call, result):
        value, gradients, seconds = result
        self.value = _array(value)
        self.gradients = [_array(grad) for grad in gradients]
        shapes = [tangent.shape for tangent in call.tangents]
        self.by_sources = [np.zeros(shape) for shape in shapes]
        self.by_weights = np.zeros(call.weights.shape)
        for row in seconds:
            *of_sources, of_weights = row
            for total, part in zip([*self.by_sources, self.by_weights], [*of_sources, of_weights], strict=True):
                if part:
                    total += _array(part)


def _array(pair):
    shape, values = pair
    return np.asarray(values, np.float64).reshape(shape)


_found = {}


@pytest.fixture
def found(request, numerics):
    """`found(case)`: the calls of a row and what the device says of them, computed once for all libraries."""

    def compute(case):
        key = request.node.callspec.params["numerics"], case.name
        if key not in _found:
            calls = [Call(case, number) for number in range(len(case.variants))]
            results = numerics("operation", case.name, [call.arguments() for call in calls])
            _found[key] = [(call, Found(call, result)) for call, result in zip(calls, results, strict=True)]
        return _found[key]

    return compute


def assert_close(got, want, tolerance, what, of_each=False):
    """Within a tolerance relative to the largest value, or to each."""
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    if want.size:
        largest = np.abs(want).max()
        bound = tolerance * (np.abs(want) if of_each else max(largest, 1e-3))
        error = np.abs(got - want) - bound
        worst = np.unravel_index(error.argmax(), error.shape)
        assert (error <= 0).all(), f"{what}: at {worst} {got[worst]!r}, not {want[worst]!r} (tolerance {tolerance})"


@pytest.mark.parametrize(
    ("case", "library"),
    [
        pytest.param(
            case, library, id=f"{case.name}-{library}", marks=pytest.mark.needs("torch") if library == "torch" else ()
        )
        for case, library in COMPARED
    ],
)
def test_values_and_derivatives_equal_those_in_float64(case, library, found, requires):
    torch = requires("torch") if library == "torch" else None
    for call, ours in found(case):
        compare = _with_torch if torch else compare_with_numpy
        compare(torch, call, ours)


def compare_with_numpy(_, call, ours):
    case, what = call.case, f"{call.case.name} of {call.variant}"
    assert_close(ours.value, call.value, case.tolerance, f"value of {what}", case.of_each)
    if case.why_not:
        return
    reference = Differences(case, call.variant, call.sources, call.weights.astype(np.float64))
    if call.number == 0 and sum(grad.size for grad in ours.gradients) <= FEW:
        for got, want in zip(ours.gradients, reference.gradients(), strict=True):
            assert_close(got, want, case.slopes, f"gradient of {what}")
    assert_close(ours.by_weights, reference.along(call.tangents), SECOND * case.slopes, f"derivative along, of {what}")
    direction = random_like(call.tangents, seed=3)
    want = (reference.weights * reference.along(direction)).sum()
    _assert_product(ours.gradients, direction, want, case.slopes, f"gradient of {what}")
    want = reference.twice_along(call.tangents, direction)
    _assert_product(ours.by_sources, direction, want, SECOND * case.slopes, f"second derivative of {what}")


def _assert_product(derivatives, direction, want, tolerance, what):
    """The derivative along a direction, relative to what it is a sum of."""
    terms = [a * b for a, b in zip(derivatives, direction, strict=True)]
    got, size = sum(term.sum() for term in terms), sum(np.abs(term).sum() for term in terms)
    assert abs(got - want) <= tolerance * max(size, 1e-2), f"{what}, along a direction: {got}, not {want}"


def _with_torch(torch, call, ours):
    case, what = call.case, f"{call.case.name} of {call.variant}, beside torch,"
    theirs = torch_derivatives(torch, case, call.variant, call.sources, call.weights, call.tangents)
    value, gradients, by_sources, by_weights = theirs
    assert_close(ours.value, value.detach().numpy(), case.tolerance, f"value of {what}", case.of_each)
    if case.why_not:
        return
    for got, want in zip(ours.gradients, gradients, strict=True):
        assert_close(got, want.detach().numpy(force=True), case.slopes, f"gradient of {what}")
    for got, want in zip(ours.by_sources, by_sources, strict=True):
        assert_close(got, want.numpy(force=True), SECOND * case.slopes, f"second derivative of {what}")
    if by_weights is not None:
        assert_close(
            ours.by_weights, by_weights.numpy(force=True), SECOND * case.slopes, f"derivative along, of {what}"
        )


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=[case.name for case in DIFFERENTIABLE])
def test_gradients_and_their_gradients_pass_gradcheck(case, numerics):
    assert str(numerics("gradient_checks", case.name, make_sources(case, case.variants[0]))) == ""


# That nothing is left out.


def _public_operations():
    """Return the names that `ops` exports, and those of functions that return tensors in its modules and below them."""
    result = set(ops.__all__)
    names = [info.name for info in pkgutil.iter_modules(ops.__path__, f"{ops.__name__}.")]
    for name in ("optirs_web.launch", "optirs_web.limits", *names):
        module = importlib.import_module(name)
        functions = {name: getattr(module, name) for name in module.__all__}
        result |= {
            name
            for name, function in functions.items()
            if inspect.isfunction(function) and inspect.signature(function).return_annotation == "Tensor"
        }
    return result


def test_every_operation_has_its_derivatives_tested_on_every_target(request):
    tested = {name for case in DIFFERENTIABLE for name in case.operations}
    without = {name for case in CASES if case.why_not for name in case.operations}
    missing = _public_operations() - tested - without - set(WITHOUT_DERIVATIVES) - set(HELPERS)
    assert not missing, f"add rows to tests/operation_cases for {sorted(missing)}"
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    assert {*conftest.DEVICES, *conftest.BROWSER} == {"cpu", "vulkan", "webgpu"}  # where `numerics` runs


def test_the_tables_of_exceptions_name_what_is_there_and_has_no_row():
    excepted = set(WITHOUT_DERIVATIVES) | set(HELPERS)
    assert excepted <= _public_operations() | set(ops.__all__)
    assert not excepted & {name for case in CASES for name in case.operations}
    assert not {name for case in DIFFERENTIABLE for name in case.operations} & {
        name for case in CASES if case.why_not for name in case.operations
    }


def test_each_row_calls_the_operations_that_it_names(open_device):
    device = open_device("cpu")
    for case in CASES:
        called = set()
        sources = [ow.tensor(source, device=device) for source in make_sources(case, case.variants[0])]
        sys.setprofile(lambda frame, event, _, seen=called: seen.add(frame.f_code) if event == "call" else None)
        try:
            case.ours(*case.variants[0].walked(sources))
        finally:
            sys.setprofile(None)
        for name in case.operations:
            assert getattr(ops, name).__code__ in called, f"the row '{case.name}' does not call {name}"


def test_a_wrong_gradient_and_a_lost_second_derivative_are_found():
    """The comparisons detect an exp with the gradient 1.0001 exp, and one whose gradient has no history."""
    exact = next(case for case in CASES if case.name == "exp")

    def with_rule(rule):
        return exact._replace(ours=lambda x: record(ops.exp(x.detach()), (x, rule)))

    for case, what in [
        (with_rule(lambda g, y: g * y * 1.0001), "gradient of exp"),
        (with_rule(lambda g, y: (g * y).detach()), "derivative along"),
        (exact._replace(ours=lambda x: ops.exp(x) * 1.00001), "value of exp"),
    ]:
        call = Call(case, 0)
        arguments = call.arguments()[1:]
        result = numerics_of_table._read([numerics_of_table._derivatives(case, 0, *arguments, ow.device("cpu"))])
        with pytest.raises(AssertionError, match=what):
            compare_with_numpy(None, call, Found(call, *result))
