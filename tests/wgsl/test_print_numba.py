"""Printed Python for Numba computes what WGSL says, in the types that WGSL says."""

import numpy as np
import pytest
from map_functions import DTYPES, checked, compiled, flat, nested, parameter_types, result_types
from printed_cases import ARITHMETIC, CONTROL_FLOW, F32
from requirements import missing

from optirs_web.wgsl.print_python import compile_python, print_python, python_name

# Control flow has become choices before anything is printed, whatever the dialect: see test_print_python.
STRUCTS = ("members of nested structs", "calls that return structs", "booleans by branches", "one operand for booleans")
CASES = {**ARITHMETIC, **{name: CONTROL_FLOW[name] for name in STRUCTS}}

try:
    import numba
except ImportError as error:
    numba = error


@pytest.fixture(scope="module")
def printed():
    """The functions of a text and their namespace; a skip or a failure where there is no Numba."""

    def print_for_numba(text):
        if isinstance(numba, ImportError):
            missing("numba", str(numba))
        declared, _ = compiled(text)
        return declared[-1], compile_python(print_python(checked(text), "numba"), "test")

    return print_for_numba


def returned(type_):
    """The scalars of a Numba type, in order."""
    if isinstance(type_, numba.types.BaseTuple):
        return [leaf for one in type_ for leaf in returned(one)]
    return [type_]


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_those_written_by_hand(name, printed):
    text, rows = CASES[name]
    function, namespace = printed(text)
    given, expected = parameter_types(function), [DTYPES[one] for one in result_types(function)]
    call = numba.njit(error_model="numpy")(namespace[python_name(function.name)].py_func)
    for arguments, wanted in rows:
        leaves = iter([DTYPES[type_](value) for type_, value in zip(given, arguments, strict=True)])
        with np.errstate(all="ignore"):
            result = call(*(nested(one.type, leaves, namespace) for one in function.parameters))
        for got, one, dtype in zip(flat(function.return_type, result), wanted, expected, strict=True):
            if dtype == F32:
                np.testing.assert_allclose(F32(got), F32(one), rtol=2e-7, equal_nan=True)
            else:
                assert got == one
    (signature,) = call.nopython_signatures
    assert [numba.np.numpy_support.as_dtype(one) for one in returned(signature.return_type)] == expected
