"""Branches become selects, loops are unrolled, every name is assigned once; what cannot be is refused."""

import pytest
from map_functions import checked

from optirs_web.errors import ShaderError
from optirs_web.wgsl.print_python import print_python
from optirs_web.wgsl.straight import leaf_names
from optirs_web.wgsl.straighten import UNROLL_LIMIT, straighten


def lines(text):
    """The body of the function `f`, as it is printed for NumPy; `select` for the helper that it is there."""
    printed = print_python(checked(text))
    body = printed[printed.index("def f(") :].split("\n\n")[0].splitlines()[1:]
    return [line.strip().replace("_select", "select") for line in body]


CASES = {
    "an early return becomes a select": (
        "fn f(x: f32, y: f32) -> f32 { if (x < y) { return x; } return y; }",
        ["return select(y, x, x < y)"],
    ),
    "later returns stand within earlier ones": (
        "fn f(x: f32, y: f32) -> f32 { if (x < y) { return x; } if (x > y) { return x * y; } return y; }",
        ["return select(select(y, x * y, x > y), x, x < y)"],
    ),
    "a variable changed in one branch is merged": (
        "fn f(x: f32) -> f32 { var y = x * x; if (x < y) { y = y + x; } return y * y; }",
        ["y = x * x", "y_2 = select(y, y + x, x < y)", "return y_2 * y_2"],
    ),
    "a variable set alike in both is not": (
        "fn f(x: f32) -> f32 { var y = 0.0; if (x < y) { y = x; } else { y = x; } return y; }",
        ["return x"],
    ),
    "a negated condition swaps the sides": (
        "fn f(x: f32, b: bool) -> f32 { var y = x; if (!b) { y = -x; } return y; }",
        ["return select(-x, x, b)"],
    ),
    "booleans need no select": (
        "fn f(a: bool, b: bool) -> bool { if (a) { return b; } return false; }",
        ["return a & b"],
    ),
    "the same expression is computed once": (
        "fn g(x: f32) -> f32 { return x; }"
        "fn f(x: f32) -> f32 { var y = g(x + 1.0); if (y > 2.0) { y = g(x + 1.0) * 2.0; } return y; }",
        ["y = g(x + _f_1_0)", "return select(y, y * _f_2_0, y > _f_2_0)"],
    ),
    "what is not used is dropped": (
        "fn f(x: f32) -> f32 { let y = x * 2.0; var z = y; z += 1.0; return x; }",
        ["return x"],
    ),
    "a constant condition leaves one branch": (
        "const ON = false; fn f(x: f32, y: f32) -> f32 { if (ON) { return y; } return x; }",
        ["return x"],
    ),
    "a loop is unrolled and its counter folded": (
        "fn f(x: i32) -> i32 { var y = 0; for (var i = 1; i < 4; i++) { y += x * (i * i); } return y; }",
        ["return _i_0 + x * _i_1 + x * _i_4 + x * _i_9"],
    ),
    "members of a struct go their own ways": (
        "struct P { a: f32, b: f32 } fn f(p: P, x: f32) -> P { var q = p; if (x > 0.0) { q.a = x; } return q; }",
        ["return P(select(p.a, x, x > _f_0_0), p.b)"],
    ),
    "a struct that is passed on stays whole": (
        "struct P { a: f32, b: f32 } fn g(p: P) -> P { return p; }"
        "fn f(p: P) -> P { var q = P(p.a, p.b); return g(q); }",
        ["return g(p)"],
    ),
    "the result of a call keeps its name": (
        "struct P { a: f32, b: f32 } fn g(p: P) -> P { return p; }"
        "fn f(p: P) -> f32 { let moved = g(p); return moved.a * moved.b; }",
        ["moved = g(p)", "return moved.a * moved.b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_straight_line_form(name):
    text, expected = CASES[name]
    assert lines(text) == expected


def test_every_name_is_assigned_once_and_before_its_use():
    text = """struct P { a: f32, b: f32 }
    fn f(p: P, n: i32) -> P {
        var q = p;
        for (var i = 0; i < 5; i++) {
            if (i == n) { continue; }
            q.a = q.a * q.b + q.a; q.b = q.b * q.b - q.a * q.b;
            if (q.a * q.b > 100.0) { break; }
        }
        return q;
    }"""
    straight = straighten(checked(text))["f"]
    known = {"p", "n"}
    for name, expression in straight.assignments:
        assert {root.partition(".")[0] for root in names(expression)} <= known
        assert name not in known
        known.add(name)
    assert {root.partition(".")[0] for root in names(straight.result)} <= known
    assert [path for path, _ in leaf_names(straight.result.type)] == ["a", "b"]


def names(node):
    if hasattr(node, "name") and hasattr(node, "type"):
        yield node.name
    for part in ("operand", "left", "right"):
        if hasattr(node, part):
            yield from names(getattr(node, part))
    for argument in getattr(node, "arguments", []):
        yield from names(argument)


LOOP = "fn f(x: i32) -> i32 {{ var y = x; {} return y; }}"
REFUSED = {
    "a loop whose bounds are data": (
        LOOP.format("for (var i = 0; i < x; i++) { y += i; }"), "1:52: .*constant bounds.*break",
    ),
    "a loop that only data ends": (
        LOOP.format("loop { if (y > 9) { break; } y += 1; }"), f"1:34: .*{UNROLL_LIMIT} iterations",
    ),
    "loops that come to too much": (
        LOOP.format("for (var i = 0; i < 99; i++) { for (var j = 0; j < 99; j++) { y += j; } }"),
        f"1:65: .*{UNROLL_LIMIT} iterations",
    ),
    "vectors": ("fn f(x: f32) -> f32 { let y = vec2<f32>(x, x); return y.x; }", "1:31: .*not vec2<f32>"),
    "vectors as parameters": ("fn f(x: vec2<f32>) -> f32 { return x.x; }", "1:6: .*not vec2<f32>"),
    "arrays": ("fn f(x: u32) -> f32 { var y: array<f32, 4>; return y[x]; }", "1:23: .*not array<f32, 4>"),
    "memory": (
        "var<private> m: f32; fn f(x: f32) -> f32 { return x + m; }", "1:55: .*'m'",
    ),
    "functions that return nothing": ("fn f(x: f32) { }", "1:1: .*return a value"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_arrays_cannot_do_is_refused_with_its_place(name):
    text, message = REFUSED[name]
    with pytest.raises(ShaderError, match=rf"test.wgsl:{message}"):
        straighten(checked(text))


def test_only_what_is_asked_for_is_straightened():
    module = checked(
        "fn vector(x: f32) -> vec2<f32> { return vec2<f32>(x, x); }"
        "fn helper(x: f32) -> f32 { return x * x; } fn f(x: f32) -> f32 { return helper(x); }"
    )
    assert list(straighten(module, ["f"])) == ["helper", "f"]
