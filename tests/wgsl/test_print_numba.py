"""Printed Python for Numba computes what WGSL says, in the types that WGSL says."""

import numpy as np
import pytest
from map_functions import DTYPES, checked, compiled, flat, nested, parameter_types, result_types
from printed_cases import ARITHMETIC, CONTROL_FLOW, F32

from optirs_web.wgsl.numba_dialect import NUMBA
from optirs_web.wgsl.print_python import compile_python, print_python, python_name

# Control flow has become choices before anything is printed, whatever the dialect: see test_print_python.
STRUCTS = ("members of nested structs", "calls that return structs", "booleans by branches", "one operand for booleans")
CASES = {**ARITHMETIC, **{name: CONTROL_FLOW[name] for name in STRUCTS}}


def returned(type_):
    """The scalars of a Numba type, in order."""
    if hasattr(type_, "types"):  # of a tuple
        return [leaf for one in type_ for leaf in returned(one)]
    return [type_]


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_those_written_by_hand(name, numba):
    text, rows = CASES[name]
    declared, _ = compiled(text)
    function, namespace = declared[-1], compile_python(print_python(checked(text), NUMBA), "test")
    inputs, expected = parameter_types(function), [DTYPES[type_] for type_ in result_types(function)]
    call = numba.njit(error_model="numpy")(namespace[python_name(function.name)].py_func)
    for arguments, wanted in rows:
        leaves = iter([DTYPES[type_](value) for type_, value in zip(inputs, arguments, strict=True)])
        with np.errstate(all="ignore"):
            result = call(*(nested(param.type, leaves, namespace) for param in function.parameters))
        for got, one, dtype in zip(flat(function.return_type, result), wanted, expected, strict=True):
            if dtype == F32:
                np.testing.assert_allclose(F32(got), F32(one), rtol=2e-7, equal_nan=True)
            else:
                assert got == one
    (signature,) = call.nopython_signatures
    assert [numba.np.numpy_support.as_dtype(one) for one in returned(signature.return_type)] == expected


def test_quotients_by_reciprocals_are_exact(numba):
    """Compared with integer division for dividends at and next to multiples of divisors of 1 to 32 bits."""
    functions = []
    for sign in "/%":
        text = f"fn f(a: u32, b: u32) -> u32 {{ return a {sign} b; }}"
        namespace = compile_python(print_python(checked(text), NUMBA), "test")
        functions.append(numba.vectorize(namespace[python_name("f")].py_func))
    random = np.random.default_rng(0)
    for bits in range(1, 33):
        b = random.integers(1, 1 << bits, 100_000, dtype=np.uint64)
        a = random.integers(0, (1 << 32) // b + 1) * b + random.integers(0, 3, b.size, dtype=np.uint64)
        a = np.clip(a, 1, 1 << 32) - 1
        for function, expected in zip(functions, (a // b, a % b), strict=True):
            assert np.array_equal(function(a.astype(np.uint32), b.astype(np.uint32)), expected)
