"""Printed C computes what WGSL says: OpenCL C on its first device, CUDA C++ by an emulation of it on the CPU."""

import struct
import textwrap
from pathlib import Path

import c_targets
import numpy as np
import pytest
from c_targets import Job
from map_functions import DTYPES, checked, entry_point, parameter_types, result_leaves, typed, words
from printed_cases import CASES

from optirs_web.errors import UnsupportedError
from optirs_web.wgsl import parse, print_wgsl
from optirs_web.wgsl.print_c import Argument, interface_of, print_c
from optirs_web.wgsl.references import module_references
from optirs_web.wgsl.syntax import Function

KERNELS = Path(__file__).parent / "c_kernels"
DIALECTS = ["opencl", "cuda"]
RUN = {"opencl": c_targets.on_opencl, "cuda": c_targets.on_emulated_cuda}
F32, U32, I32 = np.float32, np.uint32, np.int32


def kernel(name):
    return (KERNELS / f"{name}.wgsl").read_text()


def torture():
    """The job of torture.wgsl; structs lie as WGSL lays them out, a vec3 in sixteen bytes."""
    cells = np.zeros((2, 16), F32)
    cells[:, 0:4] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    cells.view(U32)[:, 4:7] = [[10, 11, 12], [20, 21, 22]]
    cells.view(U32)[:, 8:11] = [[13, 14, 15], [23, 24, 25]]
    cells[:, 12:14] = [[0.5, 0.25], [1.5, 2.5]]
    arrays = {
        "cells": cells,
        "points": np.arange(12, dtype=F32),
        "single": np.array([1, 2, 3, 4], F32),
        "totals": np.array([0, 2**32 - 1, 0, 100, 200, 300], U32),
        "results": np.zeros(32 * 128, U32),
    }
    return Job.of(kernel("torture"), arrays, struct.pack("<f12x4f2Ii4x", 2, 0.5, 1.5, -2.5, 0.25, 7, 8, -9))


@pytest.fixture(scope="module")
def found_by_wgpu(gpu):
    return c_targets.on_wgpu(gpu, [torture()])[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_that_a_kernel_may_do_gives_the_bits_that_wgpu_gives(dialect, found_by_wgpu):
    (found,) = RUN[dialect]([torture()])
    assert np.count_nonzero(found["results"]) > 2000
    for name, expected in found_by_wgpu.items():
        assert np.array_equal(found[name].view(U32), expected.view(U32)), name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_indices_are_brought_within_bounds_and_memory_begins_at_zero(dialect):
    results = np.full(64, -1, I32)
    (found,) = RUN[dialect]([Job.of(kernel("bounds"), {"values": np.array([5, 6, 7], I32), "results": results})])
    expected = np.full((8, 8), -1, I32)
    expected[:7, :6] = [0, 21, 22, 78, 14, 7]
    expected[7, 7] = 99
    assert np.array_equal(found["results"].reshape(8, 8), expected)


# Hand-written values of map functions, all of them in one kernel.


def all_cases():
    """One text of every case, whose names are told apart by numbers, and the name of the function of each."""
    texts, names = [], []
    for number, (text, _) in enumerate(CASES.values()):
        module = parse(text, "case.wgsl")
        declared = {one.name for one in module.declarations}
        references = [one for declaration in module.declarations for one in module_references(declaration)]
        for one in (*module.declarations, *(one for one in references if one.name in declared)):
            one.name = f"{one.name}_{number}"
        names.append([one.name for one in module.declarations if isinstance(one, Function)][-1])
        texts.append(print_wgsl(module))
    return "\n".join(texts), names


def column(type_, values):
    return np.array(values, DTYPES[type_])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hand_written_values(dialect):
    text, names = all_cases()
    by_name = {one.name: one for one in checked(text).declarations if isinstance(one, Function)}
    functions = [by_name[name] for name in names]
    count = max(len(rows) for _, rows in CASES.values())
    columns, expected, labels = [], [], []
    for function, (case, (_, rows)) in zip(functions, CASES.items(), strict=True):
        rows = [*rows, *[rows[-1]] * (count - len(rows))]
        columns += [column(type_, [row[0][n] for row in rows]) for n, type_ in enumerate(parameter_types(function))]
        found = result_leaves([function])
        expected += [column(leaf.name, [row[1][n] for row in rows]) for n, leaf in enumerate(found)]
        labels += [case] * len(found)
    arrays = {"inputs": words(columns), "outputs": np.zeros(len(expected) * count, U32)}
    (found,) = RUN[dialect]([Job.of(text + entry_point(functions), arrays)])
    results = typed(found["outputs"], result_leaves(functions), count)
    for case, got, wanted in zip(labels, results, expected, strict=True):
        assert np.array_equal(got, wanted, equal_nan=got.dtype == F32), case
