"""Printed jax.numpy, compiled by XLA, computes what printed NumPy computes."""

import numpy as np
import pytest
from map_functions import DTYPES, checked, compiled, evaluate_in_jax, parameter_types
from printed_cases import CASES, F32

from optirs_web.wgsl.jax_dialect import JAX
from optirs_web.wgsl.print_python import compile_python, print_python


def _leaves(types, rows):
    columns = zip(*(arguments for arguments, _ in rows), strict=True)
    return [np.array(column, DTYPES[type_]) for type_, column in zip(types, columns, strict=True)]


@pytest.fixture(scope="module")
def results(xla):
    """By the name of the case what XLA gives: all of them are compiled as one."""
    namespaces, functions, leaves = [], [], []
    for text, rows in CASES.values():
        declared, _ = compiled(text)
        functions.append(declared[-1])
        namespaces.append(compile_python(print_python(checked(text), JAX), "test"))
        leaves.append(_leaves(parameter_types(declared[-1]), rows))
    return dict(zip(CASES, evaluate_in_jax(namespaces, functions, leaves), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_those_written_by_hand(name, results):
    _, rows = CASES[name]
    for number, got in enumerate(results[name]):
        result = np.array([row[1][number] for row in rows], got.dtype)
        same = np.broadcast_to(got, result.shape)
        if got.dtype == F32:
            np.testing.assert_allclose(same, result, rtol=2e-7, equal_nan=True)
        else:
            np.testing.assert_array_equal(same, result)
