"""Printed C computes what WGSL says: OpenCL C on its first device, CUDA C++ by an emulation of it on the CPU."""

import struct
from pathlib import Path

import c_targets
import numpy as np
import pytest
from c_targets import Job
from map_functions import DTYPES, checked, entry_point, parameter_types, result_leaves, typed, words
from printed_cases import CASES

from optirs_web.errors import UnsupportedError
from optirs_web.ops.row_kernels import SOFTMAX, SUM
from optirs_web.runtime.form_kernels import form_kernel
from optirs_web.runtime.kernels import cooperative
from optirs_web.wgsl import parse, print_wgsl
from optirs_web.wgsl.print_c import Argument, interface_of, print_c
from optirs_web.wgsl.references import module_references
from optirs_web.wgsl.syntax import Function

needs = pytest.mark.needs
KERNELS = Path(__file__).parent / "c_kernels"
DIALECTS = [pytest.param("opencl", marks=needs("opencl")), pytest.param("cuda", marks=needs("g++"))]
RUN = {"opencl": c_targets.on_opencl, "cuda": c_targets.on_emulated_cuda}
F32, U32, I32 = np.float32, np.uint32, np.int32


def kernel(name):
    return (KERNELS / f"{name}.wgsl").read_text()


def torture():
    """Return the job of torture.wgsl; structs have WGSL's layout, with a vec3 in sixteen bytes."""
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
    (actual,) = RUN[dialect]([torture()])
    assert np.count_nonzero(actual["results"]) > 2000
    for name, expected in found_by_wgpu.items():
        assert np.array_equal(actual[name].view(U32), expected.view(U32)), name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_indices_are_brought_within_bounds_and_memory_begins_at_zero(dialect):
    results = np.full(64, -1, I32)
    (actual,) = RUN[dialect]([Job.of(kernel("bounds"), {"values": np.array([5, 6, 7], I32), "results": results})])
    expected = np.full((8, 8), -1, I32)
    expected[:7, :6] = [0, 21, 22, 78, 14, 7]
    expected[7, 7] = 99
    assert np.array_equal(actual["results"].reshape(8, 8), expected)


# Hand-written values of map functions, all of them in one kernel.


def all_cases():
    """Return one text of all cases, with numbers in their names, and the name of the function of each."""
    texts, names = [], []
    for number, (text, _) in enumerate(CASES.values()):
        module = parse(text, "case.wgsl")
        declared = {declaration.name for declaration in module.declarations}
        references = [reference for declaration in module.declarations for reference in module_references(declaration)]
        for one in (*module.declarations, *(reference for reference in references if reference.name in declared)):
            one.name = f"{one.name}_{number}"
        names.append([declaration.name for declaration in module.declarations if isinstance(declaration, Function)][-1])
        texts.append(print_wgsl(module))
    return "\n".join(texts), names


def column(type_, values):
    return np.array(values, DTYPES[type_])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hand_written_values(dialect):
    text, names = all_cases()
    by_name = {
        declaration.name: declaration for declaration in checked(text).declarations if isinstance(declaration, Function)
    }
    functions = [by_name[name] for name in names]
    count = max(len(rows) for _, rows in CASES.values())
    columns, expected, labels = [], [], []
    for function, (case, (_, rows)) in zip(functions, CASES.items(), strict=True):
        rows = [*rows, *[rows[-1]] * (count - len(rows))]
        columns += [column(type_, [row[0][n] for row in rows]) for n, type_ in enumerate(parameter_types(function))]
        actual = result_leaves([function])
        expected += [column(leaf.name, [row[1][n] for row in rows]) for n, leaf in enumerate(actual)]
        labels += [case] * len(actual)
    arrays = {"inputs": words(columns), "outputs": np.zeros(len(expected) * count, U32)}
    (actual,) = RUN[dialect]([Job.of(text + entry_point(functions), arrays)])
    results = typed(actual["outputs"], result_leaves(functions), count)
    for case, got, wanted in zip(labels, results, expected, strict=True):
        assert np.array_equal(got, wanted, equal_nan=got.dtype == F32), case


# Half-precision and subgroups, which PoCL has not.


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(c_targets.on_emulated_cuda, marks=needs("g++")),
        pytest.param(c_targets.on_opencl_with_subgroups, marks=needs("opencl-subgroups")),
    ],
)
def test_halves_and_subgroups(run):
    # x, then v at 8 bytes and y behind it
    halves = np.array([[0.5, 0, 0, 0, 1.5, -2, 3, 0.1], [-7, 0, 0, 0, 0.25, 4, -1, 9]], np.float16)
    arrays = {"halves": halves, "stored": np.zeros(64, np.float16), "results": np.zeros(64 * 24, U32)}
    (actual,) = run([Job.of(kernel("halves"), arrays)])
    lane = np.arange(64)
    x, v, y = halves[lane % 2, 0], halves[lane % 2, 4:7], halves[lane % 2, 7]
    total = x * np.float16(1 / 3) + v[:, 2]
    total = total + (np.maximum(y, np.float16(0.25)) - lane.astype(np.float16))
    w = v * total[:, None] + np.array([1, 2, 1 / 3], np.float16)
    products = w * v
    dot = (products[:, 0] + products[:, 1]) + products[:, 2]
    assert np.array_equal(actual["stored"].view(np.uint16), total.view(np.uint16))
    results = actual["results"].reshape(64, 24)
    assert np.array_equal(results[:, 0].view(F32), total.astype(F32))
    assert np.array_equal(results[:, 1].view(F32), w[:, 0].astype(F32) + dot.astype(F32))
    assert np.array_equal(results[:, 2], (total > -3) + (y * np.float16(100)).astype(I32).astype(U32))
    size = int(results[0, 3])
    assert size in ((32,) if run is c_targets.on_emulated_cuda else (16, 32, 64))
    assert np.array_equal(results[:, 3], size + lane % size)
    for warp in (slice(first, first + size) for first in range(0, 64, size)):
        of_lanes, rows, x = lane[warp], results[warp], (lane[warp] * 7 + 1).astype(U32)
        each = np.arange(size)
        assert np.array_equal(rows[:, 4], np.full(size, x.sum()))
        assert np.array_equal(rows[:, 5], np.cumsum(x) - x + each + 1)
        assert np.array_equal(rows[:, 6], np.full(size, (x ^ 5).max() + x.min()))
        assert np.array_equal(rows[:, 7], x[each ^ 3] + x[(each + 1) % size])
        assert np.array_equal(rows[:, 8], np.full(size, x[9] + x[0]))
        assert np.array_equal(
            rows[:, 9], np.full(size, sum(1 << n for n in range(min(size, 32)) if of_lanes[n] % 5 == 0))
        )
        assert np.array_equal(rows[:, 10], np.full(size, all(of_lanes < 40) + 2 * any(of_lanes == 63)))
        assert np.array_equal(rows[:, 11], x[each ^ 1] + 3 * x[each ^ 2] + 5 * x[each ^ 3] + 7 * x[each // 4 * 4 + 2])
        bits = np.bitwise_and.reduce(x | 8) + np.bitwise_or.reduce(x) + np.bitwise_xor.reduce(x)
        assert np.array_equal(rows[:, 12], np.full(size, bits))
        assert np.array_equal(
            rows[:, 13].view(F32), np.full(size, of_lanes.sum() + 1 + (of_lanes % 32 == 4).any(), F32)
        )


# Kernels of the library.


def test_cooperative_kernels_compute_in_cuda_what_numpy_does(kernels):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((37, 21)).astype(F32), rng.standard_normal((21, 45)).astype(F32)
    rows = rng.standard_normal((5, 300)).astype(F32)
    gradients = rng.standard_normal(512).astype(F32)
    gradients[300] = np.inf
    # rows, columns, inner; strides of a and b; starts; the first product; the batch, and its strides
    product = struct.pack("<15I", 37, 45, 21, 21, 1, 45, 1, 0, 0, 0, 1, 0, 0, 0, 0)
    of_two_tensors = {
        "grads": gradients,
        "blocks": np.array([[0, 256], [1, 256]], U32),
        "tensors": np.array([[0, 1, 0, 1, 256], [0, 1, 1, 1, 256]], U32),
        "scaler": np.array([F32(8).view(U32), 0, 0], U32),
        "found_inf": np.zeros(1, U32),
    }
    histogram = Job.of(kernels["histogram"], {"values": rows[0], "totals": np.zeros(34, U32)}, groups=(5, 1, 1))
    multiplied, softened, summed, unscaled, counted = c_targets.on_emulated_cuda(
        [
            Job(cooperative("matmul").module, {"a": a, "b": b, "c": np.zeros((37, 45), F32)}, product, (2, 2, 1)),
            Job(
                form_kernel(SOFTMAX).module,
                {"x_values": rows, "result_values": np.zeros_like(rows)},
                struct.pack("<4I", *rows.shape, 1, 1),
                (5, 1, 1),
            ),
            Job(
                form_kernel(SUM).module,
                {"x_values": rows, "result_values": np.zeros(5, F32)},
                struct.pack("<4I", *rows.shape, 1, 1),
                (5, 1, 1),
            ),
            Job(cooperative("unscale").module, of_two_tensors),
            histogram,
        ]
    )
    assert np.allclose(multiplied["c"], a.astype(float) @ b, atol=1e-5)
    powers = np.exp(rows.astype(float))
    assert np.allclose(softened["result_values"], powers / powers.sum(1, keepdims=True), atol=1e-7)
    assert np.allclose(summed["result_values"], rows.astype(float).sum(1), atol=1e-4)
    assert np.array_equal(unscaled["grads"], gradients / 8)
    assert unscaled["found_inf"][0] == 1
    assert unscaled["scaler"].tolist() == [F32(8).view(U32), F32(1).view(U32), 0]
    exponents = rows[0].view(U32) >> 23 & 0xFF
    bins = np.where(exponents == 127, 1, 2 + exponents % 30)
    assert counted["totals"][0] == np.abs(rows[0]).max().view(U32)
    assert counted["totals"][1] == 1
    assert np.array_equal(counted["totals"][2:], np.bincount(bins, minlength=32))


# What the text looks like, and what it is refused for.

SMALL = """
struct Parameters { size: u32, scale: f32 }
const SHIFT: i32 = -3;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<f32>>;
@group(0) @binding(2) var<uniform> parameters: Parameters;
var<workgroup> last: i32;
fn scaled(local: f32) -> vec2<f32> { return vec2<f32>(local, -1.0) * parameters.scale; }
@compute @workgroup_size(8 * 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x == 5u { last = SHIFT + 1; }
    if id.x >= parameters.size { return; }
    let int = scaled(x[id.x]);
    y[id.x] = int.yx;
}
"""

SMALL_IN_OPENCL = """\
// job.wgsl in OpenCL C 1.2, printed by optirs_web.
#pragma OPENCL FP_CONTRACT OFF
typedef float f32;
typedef int i32;
typedef uint u32;
typedef float2 vec2f;
typedef struct {
    u32 size;
    f32 scale;
} Parameters;
typedef union { struct { u32 x, y, z; }; u32 at[3]; } vec3u;

__constant i32 SHIFT = -3;

static i32 _add_i32(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
static vec2f _multiply_vec2f_f32(vec2f a, f32 b) { return a * b; }
static vec2f _yx_vec2f(vec2f a) { return (vec2f)(a.y, a.x); }

static vec2f scaled_(f32 local_, const Parameters parameters) {
    return _multiply_vec2f_f32((vec2f)(local_, -1.0f), parameters.scale);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void main_(
    __global const f32 *restrict x,
    __global vec2f *restrict y,
    const u32 x_length,
    const u32 y_length,
    const Parameters parameters
) {
    const vec3u id = {{(u32)get_global_id(0), (u32)get_global_id(1), (u32)get_global_id(2)}};
    __local i32 last[1];
    const u32 _index = (u32)get_local_id(0);
    for (u32 _word = _index; _word < sizeof(last) / 4u; _word += 64u) ((__local u32 *)last)[_word] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id.x == 5u) {
        *last = _add_i32(SHIFT, 1);
    }
    if (id.x >= parameters.size) {
        return;
    }
    const vec2f int_ = scaled_(x[min(id.x, x_length - 1u)], parameters);
    y[min(id.x, y_length - 1u)] = _yx_vec2f(int_);
}
"""


def module_of(text):
    return Job.of(text, {}).module


def test_the_text_is_readable_and_the_same_each_time():
    assert print_c(module_of(SMALL), "opencl") == SMALL_IN_OPENCL
    module = module_of(SMALL)
    assert print_c(module, "cuda") == print_c(module, "cuda")


def test_the_interface_is_known_without_the_text():
    actual = interface_of(module_of(SMALL))
    assert actual.workgroup_size == (64, 1, 1)
    assert actual.arguments == (
        Argument("x", "buffer"),
        Argument("y", "buffer", writes=True),
        Argument("x", "length", stride=4),
        Argument("y", "length", stride=8),
        Argument("parameters", "uniform", size=8),
    )
    assert actual.arguments[3].elements(44) == 5
    totals = next(
        argument
        for argument in interface_of(torture().module).arguments
        if (argument.name, argument.kind) == ("totals", "length")
    )
    assert (totals.start, totals.stride, totals.elements(24)) == (12, 4, 3)


def test_a_sum_that_is_shifted_keeps_its_parentheses():
    module = module_of(
        """
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1) fn main() { x[0] = ((x[1] - 1u) >> 1u) + ((x[2] + 1u) << x[3]); }
        """
    )
    text = print_c(module, "opencl", robust=False)
    assert "x[0] = ((x[1] - 1u) >> 1u) + ((x[2] + 1u) << (x[3] & 31u));" in text  # without them Clang warns


def test_known_indices_may_be_left_as_they_are():
    assert "min(" not in print_c(module_of(SMALL), "opencl", robust=False)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_that_mean_something_in_c_are_changed(dialect):
    text = """
    struct float3 { double: f32, double_: f32 }
    struct step_ { int: i32 }
    const NAN: u32 = 7u;
    fn exp2f(f32_: f32) -> f32 { let min = min(f32_, 2.0); let _x = min; let x_ = _x; return x_ + min; }
    fn fmin_(kernel: f32, warpSize: u32) -> float3 { return float3(exp2f(kernel), f32(warpSize)); }
    @group(0) @binding(0) var<storage, read_write> global: array<f32>;
    var<workgroup> half: u32;
    @compute @workgroup_size(1) fn main(@builtin(local_invocation_index) threadIdx: u32) {
        let x = fmin_(1.5, threadIdx + NAN + half);
        let global_length = step_(4).int;
        { let x = x.double_ + x.double; global[0] = x * f32(global_length); }
    }
    """
    (actual,) = RUN[dialect]([Job.of(text, {"global": np.zeros(1, F32)})])
    assert actual["global"][0] == (7 + 3) * 4


CHOICE = """
@group(0) @binding(0) var<uniform> size: u32;
var<workgroup> last: u32;
@compute @workgroup_size(8) fn main() { if size > 5u { last = size; workgroupBarrier(); } }
"""


def test_a_barrier_at_the_end_of_a_choice_stands_behind_it():
    lines = [line.strip() for line in print_c(module_of(CHOICE)).splitlines()]
    assert lines[-5:] == ["if (size > 5u) {", "*last = size;", "}", "barrier(CLK_LOCAL_MEM_FENCE);", "}"]


COMPONENTS = """
struct Both { pair: vec2<f32>, quad: vec4<i32> }
const POWERS: vec4<f32> = vec4<f32>(1.0, 10.0, 100.0, 1000.0);
@group(0) @binding(0) var<storage, read_write> both: Both;
@group(0) @binding(1) var<storage, read> at: array<u32>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
var<private> own: vec2<u32>;
var<workgroup> shared_: array<vec4<f32>, 2>;
@compute @workgroup_size(1) fn main() {
    let i = at[1];
    var local: vec4<f32>;
    local[i + 2u] = 1.0;
    own[i] += 7u;
    shared_[i][i + 1u] = 5.0;
    both.pair[i] = f32(own[i]);
    both.quad[i + 1u] -= 3;
    both.quad.w = i32(own.x);
    x[i][i] = POWERS[i] + shared_[i][2] + shared_[i].x + (x[0] * 2.0 + local)[i + 2u] + vec2<f32>(0.0, 0.5)[i];
    x[0].y += f32(both.quad[at[0]]);
}
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_components_by_number(dialect):
    arrays = {
        "both": np.array([1, 2, 0, 0, 0, 0, 0, 0], F32),
        "at": np.array([2, 1], U32),
        "x": np.arange(8, dtype=F32).reshape(2, 4),
    }
    (actual,) = RUN[dialect]([Job.of(COMPONENTS, arrays)])
    assert actual["both"][:4].tolist() == [1, 7, 0, 0]
    assert actual["both"][4:].view(I32).tolist() == [0, 0, -3, 0]
    assert actual["x"].tolist() == [[0, 1 - 3, 2, 3], [4, 10 + 5 + 0 + (3 * 2 + 1) + 0.5, 6, 7]]


EFFECTS = """
@group(0) @binding(0) var<storage, read_write> total: atomic<u32>;
var<private> seen: u32;
fn next() -> u32 { seen += 1u; return atomicAdd(&total, seen); }
fn both(a: u32, b: u32) -> u32 { return a * 100u + b; }
@compute @workgroup_size(1) fn main() { STATEMENT }
"""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_calls_that_change_what_others_read_are_made_in_order(dialect):
    text = print_c(module_of(EFFECTS.replace("STATEMENT", "let x = both(next(), next()) + next();")), dialect)
    lines = [line.strip() for line in text.splitlines() if line.startswith("    const u32 next")]
    assert lines == [f"const u32 {name} = next_(total, seen);" for name in ("next", "next_2", "next_3")]
    assert "both_(next, next_2) + next_3;" in text
    alone = print_c(module_of(EFFECTS.replace("STATEMENT", "let x = both(next(), 1u);")), dialect)
    assert "const u32 x = both_(next_(total, seen), 1u);" in alone


@pytest.mark.parametrize(
    "statement",
    ["let x = seen + next();", "while next() + next() < 9u {}", "if seen == 2u || next() < next() {}"],
)
def test_an_order_that_c_does_not_keep_is_refused(statement):
    with pytest.raises(UnsupportedError, match=r"job.wgsl:6:\d+: 'next' changes .* give the call a `let` of its own"):
        print_c(module_of(EFFECTS.replace("STATEMENT", statement)))
