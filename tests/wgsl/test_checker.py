"""The types that the checker infers, and the positions and messages with which it refuses wrong programs."""

import numpy as np
import pytest

from optirs_web.errors import ShaderError
from optirs_web.wgsl import check, parse
from optirs_web.wgsl.syntax import Call, Function, Literal, LocalDeclaration, TypeName
from optirs_web.wgsl.tree import walk
from optirs_web.wgsl.types import Scalar


def checked(text):
    module = parse(text, "t.wgsl")
    check(module)
    return module


def value_of(text, before=""):
    """The checked expression `text`, as the value of a variable."""
    function = checked(f"{before} fn f(x: f32, i: i32, u: u32, b: bool) {{ var v = {text}; }}").declarations[-1]
    return function.body.statements[0]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("1", "i32"), ("1.0", "f32"), ("1u", "u32"), ("true", "bool"), ("1 + 1.5", "f32"), ("x * 2", "f32"),
        ("2 * u", "u32"), ("i << 1", "i32"), ("1 << u", "i32"), ("x < 1", "bool"), ("vec3(1, 2, x)", "vec3<f32>"),
        ("vec2(1, 2)", "vec2<i32>"), ("vec2(1, 2).x", "i32"), ("vec4f(x).zyx", "vec3<f32>"),
        ("vec3(x) * x", "vec3<f32>"),
        ("vec3(x) < vec3(1)", "vec3<bool>"), ("select(1, 2, b)", "i32"), ("select(1, 2u, b)", "u32"),
        ("select(1.0, x, b)", "f32"), ("array(1, 2.5)", "array<f32, 2>"), ("array<u32, 2>(1, 2)", "array<u32, 2>"),
        ("bitcast<u32>(x)", "u32"), ("bitcast<vec2<f32>>(vec2(u))", "vec2<f32>"), ("u32(x) + 1", "u32"),
        ("dot(vec2(x), vec2(1, 2))", "f32"), ("length(vec3(x))", "f32"), ("max(i, 3)", "i32"), ("sqrt(4)", "f32"),
        ("countOneBits(7)", "i32"), ("all(vec2(b))", "bool"), ("unpack2x16float(u)", "vec2<f32>"), ("S(1, 2)", "S"),
        ("S(1, 2).n", "u32"), ("A(x)", "vec2<f32>"), ("mix(vec2(x), vec2(x), 0.5)", "vec2<f32>"), ("SIZE * u", "u32"),
        ("LUT[i]", "f32"), ("!b && x > 1", "bool"), ("-5 % 3", "i32"), ("ldexp(x, i)", "f32"),
        ("clamp(x, 0, 1)", "f32"),
    ],
)  # fmt: skip
def test_expressions_have_the_type_that_wgsl_gives_them(text, type_):
    before = "struct S { x: f32, n: u32 } alias A = vec2<f32>; const SIZE = 4; const LUT = array(1.0, 2.0);"
    assert str(value_of(text, before).type) == type_


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1 + 0.2", float(np.float32(0.1 + 0.2))),  # once rounded: the sum in f32 is another number
        ("1 - 0.999", float(np.float32(1 - 0.999))),
        ("K * K", float(np.float32(0.1 * 0.1))),
        ("sqrt(2.0)", float(np.float32(2**0.5))),
        ("-2147483648", -(2**31)),
        ("7 / -2", -3),
        ("-7 % 3", -1),
        ("1 << 30", 2**30),
        ("0xff ^ 0x0f", 0xF0),
        ("max(3, 4) + abs(-2)", 6),
        ("1 < 2", True),
        ("5000000000 / 5000000", 1000),
        ("round(2.5)", 2.0),
        ("LUT[1] * 4", 8.0),
    ],
)
def test_abstract_expressions_become_one_literal_rounded_once(text, value):
    actual = value_of(text, "const K = 0.1; const LUT = array(1.0, 2.0);").value
    assert isinstance(actual, Literal)
    assert actual.value == value
    assert type(actual.value) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4294967295u + 1u == 0u", True),
        ("0u - 1u == 0xffffffffu", True),
        ("0x9E3779B9u * 3u == 0xdaa66d2bu", True),
        ("-(-2147483647i - 1i) < 0", True),
        ("i32(2.9) == 2 && i32(-2.9) == -2", True),
        ("u32(-1i) == 4294967295u", True),
        ("i32(3e9f) == 2147483647", True),
        ("0.1f + 0.2f == 0.3f", float(np.float32(0.1) + np.float32(0.2)) == float(np.float32(0.3))),
        ("16777216f + 1f == 16777216f", True),
        ("bitcast<u32>(1.0) == 0x3f800000u", True),
        ("bitcast<i32>(0x80000000u) < 0", True),
        ("-7i >> 1u == -4", True),
        ("countLeadingZeros(1u) == 31u && firstLeadingBit(-1i) == -1i", True),
        ("reverseBits(1u) == 0x80000000u && extractBits(-4i, 1u, 2u) == -2i", True),
        ("all(vec3(1, 2, 3) * 2 == vec3(2, 4, 6))", True),
        ("dot(vec2(3, 4), vec2(3, 4)) == 25 && length(vec2(3.0, 4.0)) == 5.0", True),
        ("vec4(1, 2, 3, 4).wy[1] == 2", True),
        ("S(1.5, 2).n == 2u && S().x == 0.0", True),
        ("clamp(-1, 0, 5) == 0 && select(1, 2, true) == 2", True),
    ],
)
def test_const_expressions_have_the_value_that_wgsl_gives_them(text, value):
    assertion = text if value else f"!({text})"
    checked(f"struct S {{ x: f32, n: u32 }} const_assert {assertion};")


def test_nothing_abstract_is_left_where_the_shader_runs(shaders, kernels):
    for name, text in {**shaders, **kernels}.items():
        if "import " in text or "override" in text:
            continue
        module = parse(text, name)
        check(module)
        for declaration in module.declarations:
            if isinstance(declaration, Function):
                statements = [s for s in declaration.body.statements if getattr(s, "keyword", "") != "const"]
                in_types = {id(n) for t in walk(statements) if isinstance(t, TypeName) for n in walk(t.arguments)}
                for node in walk(statements):
                    if id(node) in in_types:
                        continue
                    type_ = getattr(node, "type", None)
                    assert not (isinstance(type_, Scalar) and type_.name.startswith("abstract")), node


def test_calls_know_what_they_call():
    text = "struct S { x: f32 } fn g(x: f32) -> f32 { return x; } fn f() { _ = g(S(abs(f32(1))).x); }"
    kinds = {node.callee.name: node.kind for node in walk(checked(text).declarations) if isinstance(node, Call)}
    assert kinds == {"g": "function", "S": "construct", "abs": "builtin", "f32": "construct"}


def test_module_scope_has_no_order_and_inner_scopes_hide_outer_ones():
    module = checked(
        """
        fn f(n: i32) -> f32 { let length = 2.0; { let n = 1u; let m = n; } return g(length) + B; }
        fn g(x: T) -> T { return x * A; }
        const A = B + 1;
        const B = 2;
        alias T = f32;
        """
    )
    inner = [node for node in walk(module.declarations) if isinstance(node, LocalDeclaration) and node.name == "m"]
    assert str(inner[0].type) == "u32"


def test_a_module_can_be_checked_twice(kernels):
    module = parse(kernels["matmul"], "t.wgsl")
    check(module)
    before = repr(module)
    check(module)
    assert repr(module) == before


F = "fn f(x: f32, i: i32, u: u32, b: bool) { "
W = "var<workgroup> w: array<f32, 4>; var<workgroup> c: atomic<u32>; "
B = "@group(0) @binding(0) var<storage, read> r: array<f32>; "
WRONG = [
    # Names and scopes.
    (F + "let y = z; }", "1:49", "there is no 'z'"),
    (F + "let count = 1; let y = cuont; }", "1:64", "did you mean 'count'"),
    (F + "let y = y; }", "1:49", "there is no 'y'"),
    (F + "{ let y = 1; } let z = y; }", "1:64", "there is no 'y'"),
    (F + "let y = 1; let y = 2; }", "1:52", "declared twice"),
    (F + "let x = 1; }", "1:41", "declared twice"),
    (F + "for (var k = 0; k < 3; k++) {} let y = k; }", "1:80", "there is no 'k'"),
    ("fn f() {} const f = 1;", "1:11", "the first is at t.wgsl:1:1"),
    ("fn exp(x: f32) {}", "1:1", "built-in function"),
    ("const a = b; const b = a;", "1:24", "in terms of itself"),
    ("alias A = B; alias B = A;", "1:24", "in terms of itself"),
    ("struct S { s: S }", "1:15", "in terms of itself"),
    ("fn f() { g(); } fn g() { f(); }", "1:1", "no recursion: f calls g calls f"),
    ("fn f() -> u32 { return f(); }", "1:1", "no recursion"),
    ("fn f() { let y = f; }", "1:18", "is a function; call it"),
    ("struct S { x: f32 } fn f() { let y = S; }", "1:38", "is a type"),
    ("fn f(x: Float) {}", "1:9", "there is no type 'Float'"),
    ("const k = 1; fn f(x: k) {}", "1:22", "not a type"),
    ("import package::lib::math::log1p; fn f() {}", "1:1", "link it"),
    # Types of expressions.
    (F + "let y = x + i; }", "1:51", "write f32(...)"),
    (F + "let y = u + i; }", "1:51", "does not apply to u32 and i32"),
    (F + "let y = u + 1.5; }", "1:51", "does not apply"),
    (F + "let y = u - -1; }", "1:53", "u32"),
    (F + "let y = -u; }", "1:49", "convert to i32"),
    (F + "let y = !i; }", "1:49", "does not apply to i32"),
    (F + "let y = b ^ b; }", "1:51", "does not apply to bool"),
    (F + "let y = x % b; }", "1:51", "does not apply"),
    (F + "let y = x && b; }", "1:51", "does not apply"),
    (F + "let y = u << i; }", "1:51", "does not apply"),
    (F + "let y = vec2(x) + vec3(x); }", "1:57", "does not apply to vec2<f32> and vec3<f32>"),
    (F + "let y = vec3(x, u, 1); }", "1:49", "one type"),
    (F + "let y = vec3<f32>(x, x); }", "1:49", "1 or 3 components, not 2"),
    (F + "let y = vec3<f32>(u); }", "1:59", "must be f32"),
    (F + "let y = vec2(x).z; }", "1:57", "no components 'z'"),
    (F + "let y = vec2(x).xg; }", "1:57", "no components 'xg'"),
    (F + "let y = x.y; }", "1:51", "no member 'y'"),
    (F + "let y = x[0]; }", "1:50", "no elements"),
    (F + "let y = vec2(x)[x]; }", "1:57", "i32 or u32"),
    (F + "let y = vec2(x)[2]; }", "1:57", "not within the 2 elements"),
    (F + "let y = array<f32, 2>(x); }", "1:49", "takes 2 values or none"),
    ("struct S { abc: f32 } fn f(s: S) { let y = s.abd; }", "1:46", "did you mean 'abc'"),
    ("struct S { a: f32, b: u32 } fn f() { let y = S(1); }", "1:46", "takes 2 values or none, not 1"),
    ("struct S { a: f32, b: u32 } fn f() { let y = S(1, 1.5); }", "1:51", "member 'b' must be u32"),
    (F + "let y = max(x); }", "1:49", "takes 2 arguments, not 1"),
    (F + "let y = max(x, i); }", "1:49", "does not take (f32, i32)"),
    (F + "let y = sqrt(i); }", "1:49", "does not take (i32)"),
    (F + "let y = select(x, x, i); }", "1:49", "does not take"),
    (F + "let y = sign(u); }", "1:49", "does not take (u32)"),
    (F + "let y = bitcast<vec2<u32>>(x); }", "1:49", "one size and shape"),
    (F + "let y = nosuch(x); }", "1:49", "there is no 'nosuch'"),
    (F + "let y = x(1); }", "1:49", "is a variable"),
    (F + "let y: u32 = 1.5; }", "1:54", "'y' must be u32"),
    (F + "let y: i32 = 3000000000; }", "1:54", "out of range of i32"),
    (F + "let y = 3000000000; }", "1:49", "out of range of i32"),
    (F + "let y = 1e39; }", "1:49", "out of range of f32"),
    (F + "let y: u32 = i; }", "1:54", "write u32(...)"),
    ("fn f() { let y = 1h; }", "1:18", "enable f16;"),
    ("fn f(x: f16) {}", "1:9", "enable f16;"),
    ("fn f(x: vec2h) {}", "1:9", "enable f16;"),
    # Constants.
    ("const a = 1 / 0;", "1:13", "division by zero"),
    ("const a = 1.0 / 0.0;", "1:15", "division by zero"),
    ("const a = 1u % 0u;", "1:14", "zero"),
    ("const a = 3e38f * 10f;", "1:17", "out of range of f32"),
    ("const a = 9223372036854775807 + 1;", "1:31", "out of range of abstract-int"),
    ("const a = 1u << 32;", "1:14", "32 bits"),
    ("const a = 3u << 31;", "1:14", "out of range of u32"),
    ("const a = sqrt(-1.0);", "1:11", "no finite value"),
    ("const a = log(0.0);", "1:11", "no finite value"),
    ("const a = clamp(1, 3, 2);", "1:11", "lower bound"),
    ("const a = u32(-1);", "1:11", "out of range of u32"),
    (F + "let y = i / 0; }", "1:51", "division by zero"),
    (F + "let y = u << 32u; }", "1:51", "32 bits or more"),
    (F + "const y = x; }", "1:51", "const-expression"),
    ("override n: u32; const a = n;", "1:28", "const-expression"),
    ("override v: vec2<f32>;", "1:1", "scalar"),
    ("const_assert 1 > 2;", "1:1", "does not hold"),
    ("const_assert 1;", "1:14", "must be bool"),
    ("var<private> a: array<f32, 0>;", "1:28", "cannot have 0 elements"),
    ("fn f(n: u32) { var a: array<f32, n>; }", "1:34", "const-expression"),
    ("var<private> a: array<f32, 1.5>;", "1:28", "must be an integer"),
    # Statements.
    (F + "if i { } }", "1:44", "must be bool"),
    (F + "x = 1; }", "1:41", "'x' is a parameter"),
    (F + "let y = 1; y = 2; }", "1:52", "'y' is a let"),
    (F + "let y = vec2(x); y.x = 2; }", "1:60", "'y' is a let"),
    (F + "var y = vec2(x); y.xy = vec2(x); }", "1:60", "one component"),
    (F + "var y = x; y = i; }", "1:56", "must be f32"),
    (F + "var y = x; y += vec2(x); }", "1:52", "gives vec2<f32>"),
    (F + "var y = b; y++; }", "1:52", "does not apply"),
    (F + "max(x, x); }", "1:41", "must be used"),
    (F + "f32(x); }", "1:41", "must be used"),
    (F + "break; }", "1:41", "loop or a switch"),
    (F + "continue; }", "1:41", "body of a loop"),
    (F + "switch u { default: { continue; } } }", "1:63", "body of a loop"),
    (F + "loop { continuing { break; } } }", "1:61", "loop or a switch"),
    (F + "loop { if b { break; } continuing { return; } } }", "1:77", "cannot return"),
    (F + "loop { } }", "1:41", "never ends"),
    (F + "for (;;) { } }", "1:41", "never ends"),
    (F + "loop { let y = i; if b { continue; } if b { break; } continuing { _ = y; } } }", "1:111", "no 'y'"),
    (F + "switch x { default: {} } }", "1:48", "i32 or u32"),
    (F + "switch u { case 1, 1: {} default: {} } }", "1:60", "given twice"),
    (F + "switch u { case 1i: {} default: {} } }", "1:57", "must be u32"),
    (F + "return; let y = 1; }", "1:49", "never reached"),
    (F + "return x; }", "1:41", "returns nothing"),
    ("fn f() -> u32 { return; }", "1:17", "must return u32"),
    ("fn f() -> u32 { return 1.5; }", "1:24", "must be u32"),
    ("fn f() -> u32 { }", "1:1", "every way"),
    ("fn f(b: bool) -> u32 { if b { return 1; } }", "1:1", "every way"),
    ("fn f(u: u32) -> u32 { switch u { case 1: { break; } default: { return 1; } } }", "1:1", "every way"),
    ("fn f(b: bool) -> u32 { loop { if b { return 1; } } }", "1:1", "every way"),
    ("fn g() {} fn f() { let y = g(); }", "1:28", "returns nothing"),
    ("fn g(x: f32) {} fn f() { g(1, 2); }", "1:26", "takes 1 arguments, not 2"),
    ("fn g(x: f32) {} fn f(i: i32) { g(i); }", "1:34", "argument 1 of 'g'"),
    # Memory.
    ("@group(0) var<storage> r: array<f32>;", "1:11", "needs @group"),
    ("var<uniform> r: f32;", "1:1", "needs @group"),
    ("@group(0) @binding(0) var<private> r: f32;", "1:1", "does not belong"),
    ("@group(0) @binding(-1) var<uniform> r: f32;", "1:11", "out of range"),
    ("var<workgroup> r: array<f32>;", "1:19", "no size"),
    ("var<private> r: atomic<u32>;", "1:17", "no atomics"),
    ("@group(0) @binding(0) var<storage> r: array<bool>;", "1:39", "bool has no layout"),
    ("@group(0) @binding(0) var<storage> r: atomic<u32>;", "1:39", "read_write"),
    ("@group(0) @binding(0) var<uniform> r: array<f32, 4>;", "1:39", "16 bytes apart"),
    ("struct I { x: f32 } struct S { a: f32, i: I } @group(0) @binding(0) var<uniform> r: S;", "1:85", "not at 4"),
    ("struct I { x: f32 } struct S { i: I, a: f32 } @group(0) @binding(0) var<uniform> r: S;", "1:85", "pad"),
    ("struct S { a: array<f32>, b: f32 }", "1:12", "last member"),
    ("var<workgroup> a: atomic<f32>;", "1:19", "i32 or u32"),
    ("var<private> a: vec3<vec2<f32>>;", "1:22", "scalars"),
    ("fn f(a: array<f32>) {}", "1:6", "cannot be passed"),
    ("fn f() { var a: atomic<u32>; }", "1:17", "cannot be"),
    (B + "fn f() { r[0] = 1.0; }", "1:67", "only be read"),
    (B + "fn f() { let y = r; }", "1:74", "as a whole"),
    (B + "fn f() { let y = arrayLength(r); }", "1:86", "as a whole"),
    (B + "fn f() { let y = &r; }", "1:74", "argument of a built-in"),
    (W + "fn f() { let y = c; }", "1:82", "atomicLoad"),
    (W + "fn f() { c = 1u; }", "1:74", "atomicStore"),
    (W + "fn f() { atomicAdd(c, 1u); }", "1:84", "atomicLoad"),
    (W + "fn f() { atomicAdd(&w, 1u); }", "1:74", "does not take"),
    (W + "fn f() { let y = arrayLength(&w); }", "1:82", "does not take"),
    (W + "fn f() { let y = 1u; atomicAdd(&y, 1u); }", "1:96", "in memory"),
    (W + "fn f() { atomicLoad(&c); }", "1:74", "must be used"),
    # Entry points.
    ("@compute fn f() {}", "1:10", "@workgroup_size"),
    ("@workgroup_size(1) fn f() {}", "1:20", "@compute"),
    ("@compute @workgroup_size(0) fn f() {}", "1:26", "at least 1"),
    ("@compute @workgroup_size(1) fn f() -> u32 { return 1; }", "1:39", "returns nothing"),
    ("@compute @workgroup_size(1) fn f(x: u32) {}", "1:34", "needs @builtin"),
    ("@compute @workgroup_size(1) fn f(@builtin(position) x: u32) {}", "1:34", "global_invocation_id"),
    ("@compute @workgroup_size(1) fn f(@builtin(workgroup_id) x: u32) {}", "1:60", "vec3<u32>"),
    ("fn f(@builtin(workgroup_id) x: vec3u) {}", "1:6", "does not belong"),
    ("@compute @workgroup_size(1) fn f() {} fn g() { f(); }", "1:48", "entry point"),
    (
        "@group(0) @binding(0) var<uniform> a: f32; @group(0) @binding(0) var<uniform> b: f32;"
        "@compute @workgroup_size(1) fn f() { _ = a; _ = b; }",
        "1:66",
        "share one @group and @binding",
    ),
    (W + "fn f(x: f32) -> f32 { return subgroupBroadcast(x, u32(x)); }", "1:115", "const-expression"),
]


@pytest.mark.parametrize(("text", "place", "words"), WRONG)
def test_wrong_programs_are_refused_with_place_and_advice(text, place, words):
    module = parse(text, "t.wgsl")
    with pytest.raises(ShaderError) as caught:
        check(module)
    assert f"{caught.value.line}:{caught.value.column}" == place, caught.value
    assert words in str(caught.value)


def test_two_entry_points_may_use_one_binding():
    checked(
        "@group(0) @binding(0) var<uniform> a: f32; @group(0) @binding(0) var<uniform> b: u32;"
        "@compute @workgroup_size(1) fn f() { _ = a; } @compute @workgroup_size(1) fn g() { _ = b; }"
    )
