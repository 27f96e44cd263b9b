"""The programs that the parser reads, and the positions and messages with which it refuses others."""

import pytest

from optirs_web.errors import ShaderError
from optirs_web.wgsl import parse
from optirs_web.wgsl.syntax import Assign, Binary, Call, For, Function, Import, Literal, Loop, Name, Unary


def expression(text):
    """The expression as nested tuples: (operator, operands...), names and numbers as they are."""

    def shape(node):
        match node:
            case Literal():
                return node.value
            case Name():
                return node.name
            case Unary():
                return (node.operator, shape(node.operand))
            case Binary():
                return (node.operator, shape(node.left), shape(node.right))
            case Call():
                return (node.callee.name, *map(shape, node.arguments))
        return type(node).__name__

    module = parse(f"const x = {text};", "t.wgsl")
    return shape(module.declarations[0].value)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3", ("+", 1, ("*", 2, 3))),
        ("1 - 2 - 3", ("-", ("-", 1, 2), 3)),
        ("(1 - 2) / -3", ("/", ("-", 1, 2), ("-", 3))),
        ("a < b + 1", ("<", "a", ("+", "b", 1))),
        ("a < 1 && b >= 2 && c", ("&&", ("&&", ("<", "a", 1), (">=", "b", 2)), "c")),
        ("a == b || !c", ("||", ("==", "a", "b"), ("!", "c"))),
        ("a & b & ~c", ("&", ("&", "a", "b"), ("~", "c"))),
        ("(a & b) == c", ("==", ("&", "a", "b"), "c")),
        ("a << 2u == b >> 1u", ("==", ("<<", "a", 2), (">>", "b", 1))),
        ("a - -b", ("-", "a", ("-", "b"))),
        ("f(a, g(b),)", ("f", "a", ("g", "b"))),
        ("array<vec2<f32>, 1 + 1>()", ("array",)),
        ("array<array<f32, 2>, 3>()", ("array",)),
        ("bitcast<u32>(a) >> 2u", (">>", ("bitcast", "a"), 2)),
    ],
)
def test_operators_bind_as_in_wgsl(text, tree):
    assert expression(text) == tree


@pytest.mark.parametrize(
    ("text", "value", "suffix"),
    [
        ("0", 0, ""), ("4294967295u", 4294967295, "u"), ("0xFFi", 255, "i"), ("0X1f", 31, ""), ("1f", 1.0, "f"),
        ("1.5", 1.5, ""), (".5e-3", 0.5e-3, ""), ("1.e2f", 100.0, "f"), ("0.1f", 0.10000000149011612, "f"),
        ("0x1.8p3", 12.0, ""), ("0x1p-2f", 0.25, "f"), ("0x.8", 0.5, ""), ("0x1.f", 1.9375, ""), ("2h", 2.0, "h"),
        ("true", True, ""),
    ],
)  # fmt: skip
def test_literals_have_their_exact_value(text, value, suffix):
    literal = parse(f"const x = {text};", "t.wgsl").declarations[0].value
    assert (literal.value, type(literal.value), literal.suffix) == (value, type(value), suffix)


def test_nodes_know_their_place():
    module = parse("// one\nfn f() {\n  /* two /* three */ */ x += 1;\r\n\ty++;\n}", "shaders/t.wgsl")
    first, second = module.declarations[0].body.statements
    assert str(first.position) == "shaders/t.wgsl:3:25"
    assert str(second.position) == "shaders/t.wgsl:4:2"


def test_increments_are_assignments():
    body = parse("fn f() { i++; j -= 2u; _ = k; l = m; }", "t.wgsl").declarations[0].body.statements
    assert [(one.operator, one.target and one.target.name) for one in body] == [
        ("+", "i"),
        ("-", "j"),
        ("", None),
        ("", "l"),
    ]
    assert all(isinstance(one, Assign) for one in body)


def test_imports_name_a_file_and_what_to_take():
    text = "import package::lib::math::{precise_exp, log1p,};\nimport package::lib::random::bits;"
    assert [
        (declaration.path, declaration.names)
        for declaration in parse(text, "t.wgsl").declarations
        if isinstance(declaration, Import)
    ] == [
        (("lib", "math"), ["precise_exp", "log1p"]),
        (("lib", "random"), ["bits"]),
    ]


def test_a_loop_keeps_its_continuing_block_and_break_if():
    function = parse(
        "fn f() { loop { continuing { i++; break if i > 3; } } for (;;) { break; } }", "t.wgsl"
    ).declarations[0]
    assert isinstance(function, Function)
    loop, for_ = function.body.statements
    assert isinstance(loop, Loop)
    assert len(loop.continuing.statements) == 1
    assert loop.break_if.operator == ">"
    assert isinstance(for_, For)
    assert (for_.initial, for_.condition, for_.update) == (None, None, None)


F = "fn f() { "
REFUSED = [
    # Not WGSL.
    ("fn f() {", "1:8", "never closed"),
    ("fn f() { x = ; }", "1:14", "expected an expression, found ';'"),
    ("fn f() { x + 1; }", "1:12", "expected an assignment or a call"),
    ("fn f() { let x; }", "1:15", "needs a value"),
    ("fn f() { var x; }", "1:15", "needs a type or a value"),
    ("const x = 01;", "1:11", "do not begin with 0"),
    ("const x = 1z;", "1:11", "is not a number"),
    ("const x = 4294967296u;", "1:11", "out of range of u32"),
    ("const x = 1e39f;", "1:11", "out of range of f32"),
    ("const x = 99999999999999999999;", "1:11", "out of range of abstract-int"),
    ("const x = a & b == c;", "1:17", "parentheses"),
    ("const x = a && b || c;", "1:18", "parentheses"),
    ("const x = a < b < c;", "1:17", "parentheses"),
    ("const x = a << b + c;", "1:18", "parentheses"),
    ("const x = a + b << c;", "1:17", "parentheses"),
    ("const x = f(a < b, c > (d));", "1:15", "template list"),
    ("const x = a < b >> 2u;", "1:13", "template list"),
    ("const x = 1 /* /* */", "1:13", "never ends"),
    ("const x = 'a';", "1:11", "begins no WGSL token"),
    ("const größe = 1;", "1:9", "ASCII"),
    ("const fn = 1;", "1:7", "reserved word"),
    ("const target = 1;", "1:7", "reserved word"),
    ("const f32 = 1;", "1:7", "is a type"),
    ("const __x = 1;", "1:7", "two underscores"),
    ("struct S {}", "1:8", "no members"),
    ("fn f() { switch x { case 1: {} } }", "1:10", "exactly one default"),
    ("fn f() { switch x { case 1 {} default {} default {} } }", "1:10", "exactly one default"),
    ("fn f() { break if x; }", "1:10", "continuing"),
    ("fn f() { loop { continuing {} x++; } }", "1:31", "last thing in a loop"),
    ("x = 1;", "1:1", "expected a declaration"),
    ("let x = 1;", "1:1", "write const at module scope"),
    ("@compute @compute fn f() {}", "1:10", "twice"),
    # Not in the subset.
    ("fn f(s: sampler) {}", "1:9", "storage buffers"),
    ("fn f(m: mat4x4<f32>) {}", "1:9", "matrices"),
    ("fn f(p: ptr<function, f32>) {}", "1:9", "pointers"),
    (F + "*p = 1; }", "1:10", "pointers"),
    ("var<private> t: texture_2d<f32>;", "1:17", "storage buffers"),
    ("@group(0) @binding(0) var s: sampler;", "1:27", "address space"),
    (F + "let x = dpdx(1.0); }", "1:18", "compute shaders"),
    (F + "let x = frexp(1.0); }", "1:18", "built-in struct"),
    (F + "discard; }", "1:10", "discard"),
    ("@vertex fn f() {}", "1:1", "compute"),
    ("@fragment fn f() {}", "1:1", "compute"),
    ("struct S { @align(16) x: f32 }", "1:12", "padding"),
    ("@id(1) override x: u32;", "1:1", "by name"),
    ("diagnostic(off, derivative_uniformity);", "1:1", "leave it out"),
    ("requires packed_4x8_integer_dot_product;", "1:1", "leave it out"),
    ("enable dual_source_blending;", "1:8", "there are f16, subgroups, chromium_experimental_subgroup_matrix"),
    ("const x = 1; enable f16;", "1:14", "move it up"),
    ("var x: f32;", "1:5", "address space"),
    ("var<storage, write> x: array<f32>;", "1:5", "read or read_write"),
    ("var<workgroup> x: f32 = 1.0;", "1:23", "no initial value"),
    ("import super::math::exp;", "1:8", "package::"),
    ("import package::math;", "1:1", "names a file and what to take"),
    ("import package::lib::math::exp as e;", "1:32", "leave 'as' out"),
    ("fn f(x: i64) {}", "1:9", "two u32"),
    (F + "var<function> x = 1; }", "1:13", "no address space"),
    (F + "x = y++; }", "1:15", "expected ';'"),
    (F + "x = --y; }", "1:14", "statement of its own"),
]


@pytest.mark.parametrize(("text", "place", "words"), REFUSED)
def test_what_is_not_in_the_subset_is_refused_with_place_and_advice(text, place, words):
    with pytest.raises(ShaderError) as caught:
        parse(text, "t.wgsl")
    assert str(caught.value).startswith(f"t.wgsl:{place}: "), caught.value
    assert words in str(caught.value)
    assert f"{caught.value.line}:{caught.value.column}" == place


def test_nesting_is_limited_by_an_error():
    parse(f"const x = {'(' * 79}1{')' * 79};", "t.wgsl")
    with pytest.raises(ShaderError, match="nested more than 80 deep"):
        parse(f"const x = {'(' * 200}1{')' * 200};", "t.wgsl")


def test_every_shader_of_the_package_parses(shaders):
    for name, text in shaders.items():
        assert parse(text, name).declarations
