"""Each lint refuses the trap that it is for, says what to write instead, and lets the right way pass."""

import pytest

from optirs_web.errors import ShaderError
from optirs_web.wgsl import link, parse
from optirs_web.wgsl.builtins import BUILTINS
from optirs_web.wgsl.lints import INACCURATE, is_map_module, lint


def linted(text, **arguments):
    lint(link(parse(text, "t.wgsl"), **arguments))


def refused(text, words, place=None):
    with pytest.raises(ShaderError, match=r"^t\.wgsl:") as caught:
        linted(text)
    assert words in str(caught.value)
    if place is not None:
        assert f"{caught.value.line}:{caught.value.column}" == place


def test_every_shader_and_kernel_passes(shaders, kernels):
    for name, text in {**shaders, **kernels}.items():
        lint(link(parse(text, name)))


# Inaccurate built-ins.


@pytest.mark.parametrize("name", sorted(INACCURATE))
def test_inaccurate_built_ins_are_refused(name):
    arguments = ", ".join(["x"] * len(BUILTINS[name][0].parameters))
    refused(f"fn f(x: f32) -> f32 {{ return {name}({arguments}); }}", f"'{name}' is not accurate", "1:30")


def test_the_replacements_exist(shaders):
    math = link(parse(shaders["lib/math.wgsl"], "math"))
    declared = {declaration.name for declaration in math.declarations}
    for better in INACCURATE.values():
        assert not better or better in declared


def test_accurate_built_ins_and_constants_pass():
    linted("const LN2 = log(2.0); fn f(x: f32) -> f32 { return sqrt(x) * LN2 + exp(1.0) + floor(abs(x)); }")


def test_a_local_function_of_another_name_is_no_built_in():
    linted("fn exp_(x: f32) -> f32 { return x; } fn f(x: f32) -> f32 { return exp_(x); }")


# NaN.


@pytest.mark.parametrize(
    "test",
    [
        "x != x",
        "x == x",
        "!(x == x)",
        "s.x != s.x",
        "x * 2.0 != x * 2.0",
        "abs(x) == abs(x)",
        "-x != -x",
        "b && x != x",
    ],
)
def test_nan_tests_by_comparison_are_refused(test):
    before = "struct S { x: f32 } fn f(x: f32, s: S, b: bool) -> bool"
    refused(f"{before} {{ return {test}; }}", "is_nan")


@pytest.mark.parametrize("test", ["x != y", "x == -x", "abs(x) == x", "x * 2.0 != x * 3.0", "x == 1.0", "1 == 1"])
def test_other_comparisons_pass(test):
    linted(f"fn f(x: f32, y: f32) -> bool {{ return {test}; }}")


def test_enabling_subgroups_by_hand_is_refused():
    refused("enable subgroups; fn f(x: u32) -> u32 { return x; }", "leave `enable subgroups;` out")


# Workgroup memory.

KERNEL = """
var<workgroup> w: array<f32, 64>;
var<workgroup> c: atomic<u32>;
var<workgroup> s: u32;
fn store(i: u32) { w[i] = 0.0; }
fn load(i: u32) -> f32 { return w[i]; }
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
BODY
}
"""


@pytest.mark.parametrize(
    "body",
    [
        "_ = w[i];",
        "w[i] += 1.0;",
        "w[i] = w[i + 1];",
        "w[s] = 1.0;",
        "atomicAdd(&c, 1u);",
        "let x = atomicLoad(&c);",
        "if i > 3u { w[i] = 1.0; } else { _ = w[i]; }",
        "for (var k = 0u; k < s; k++) { s = 1u; }",
        "while s > 0u { s = 0u; }",
        "loop { if w[i] > 0.0 { break; } w[i] = 1.0; }",
        "switch s { default: { s = 1u; } }",
        "let x = load(i); store(i);",
        "let x = workgroupUniformLoad(&s);",
        "let y = i + s; s = y;",
        "store(s);",
    ],
)
def test_workgroup_memory_read_before_it_is_stored_is_refused(body):
    refused(KERNEL.replace("BODY", body), "is read before it is stored", None)


@pytest.mark.parametrize(
    "body",
    [
        "w[i] = 1.0; workgroupBarrier(); let x = w[63u - i];",
        "store(i); workgroupBarrier(); let x = load(i);",
        "if i == 0u { atomicStore(&c, 0u); } workgroupBarrier(); atomicAdd(&c, 1u);",
        "for (var k = i; k < 64u; k += 8u) { w[k] = 0.0; } workgroupBarrier(); w[i] += 1.0;",
        "for (var k = 0u; k < 3u; k++) { w[i] = 0.0; workgroupBarrier(); _ = w[0]; workgroupBarrier(); }",
        "if i > 3u { w[i] = 1.0; } else { store(i); } workgroupBarrier(); _ = w[i];",
        "s = 1u; workgroupBarrier(); let x = workgroupUniformLoad(&s);",
        "let w = 1.0; let x = w;",
    ],
)
def test_workgroup_memory_stored_first_passes(body):
    linted(KERNEL.replace("BODY", body))


# Map functions.


def test_a_map_module_has_no_entry_point_and_no_variable(kernels):
    assert is_map_module(parse(kernels["map"], "t.wgsl"))
    assert not is_map_module(parse(kernels["matmul"], "t.wgsl"))
    assert not is_map_module(parse("var<private> x: f32; fn f() {}", "t.wgsl"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fn f(x: vec2<f32>) -> f32 { return x.y; }", "not with vec2<f32>"),
        ("fn f(x: f32) -> vec2<f32> { return vec2(x); }", "not with vec2<f32>"),
        ("fn f(x: f32) -> f32 { let v = vec2(x, x); return v.x; }", "not with vec2<f32>"),
        ("fn f(x: f32) -> f32 { return dot(vec2(x), vec2(x)); }", "not with vec2<f32>"),
        ("fn f(u: u32) -> f32 { return unpack2x16float(u).x; }", "not with vec2<f32>"),
        ("fn f(i: u32) -> f32 { var a = array(1.0, 2.0); return a[i]; }", "not with array<f32, 2>"),
        ("struct S { x: array<f32, 2> } fn f(s: S) -> f32 { return s.x[0]; }", "not with array<f32, 2>"),
        ("enable f16; fn f(x: f16) -> f16 { return x; }", "compute in f32"),
        ("fn f(x: f32) { _ = x; }", "returns nothing"),
        ("fn f(x: f32) -> f32 { workgroupBarrier(); return x; }", "cannot meet other invocations"),
        ("fn f(x: f32) -> f32 { return subgroupAdd(x); }", "cannot meet other invocations"),
        ("fn f(n: u32) -> u32 { for (var i = 0u; i < n; i++) { } return n; }", "'n' is not constant"),
        ("fn f(n: u32) -> u32 { for (var i = n; i < 9u; i++) { } return n; }", "'n' is not constant"),
        ("fn f(n: u32) -> u32 { for (var i = 0u; i < 9u; i += n) { } return n; }", "'n' is not constant"),
        ("fn f(n: u32) -> u32 { let m = 3u; for (var i = 0u; i < m; i++) { } return n; }", "'m' is not constant"),
        ("fn f(n: u32) -> u32 { for (var i = 0u; i < 9u; i++) { i = n; } return n; }", "cannot change it"),
        ("fn g() -> u32 { return 1u; } fn f() -> u32 { for (var i = 0u; i < g(); i++) { } return 1; }", "not constant"),
        ("fn f(n: u32) -> u32 { var i = 0; for (; i < 3; i++) { } return n; }", "counts between constants"),
        ("fn f(n: u32) -> u32 { var i = 0; while i < 3 { i++; } return n; }", "counts between constants"),
        ("fn f(n: u32) -> u32 { loop { break; } return n; }", "counts between constants"),
    ],
)
def test_what_array_targets_cannot_do_is_refused_in_map_functions(text, words):
    refused(text, words)


def test_what_array_targets_can_do_passes():
    linted(
        """
        struct S { x: f32, n: u32 }
        override N: u32 = 4;
        fn f(s: S, b: bool) -> S {
            const LAST = 2;
            var sum = 0.0;
            for (var i = N; i <= 2 * N + 1; i += 2) {
                for (var k = 5; k > LAST; k--) {
                    if sum > 3.0 { break; }
                    sum += f32(i) * s.x;
                }
                if b { continue; }
                switch s.n { case 1: { return S(sum, 1); } default: {} }
            }
            return S(sum, s.n);
        }
        """
    )
