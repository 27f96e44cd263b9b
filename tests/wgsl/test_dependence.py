"""The inputs that reach each output, and the state slots that a rule needs."""

import pytest
from map_functions import checked

from optirs_web.wgsl.dependence import dependencies, live_slots

STRUCTS = """
struct Hyper { lr: f32, beta: f32 }
struct State { a: f32, b: f32, c: f32 }
struct Updated { param: f32, state: State }
"""


def reaches(text, function="f"):
    return {leaf: set(sources) for leaf, sources in dependencies(checked(text), function).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fn f(x: f32, y: f32) -> f32 { return x; }", {"": {"x"}}),
        ("fn f(x: f32, y: f32) -> f32 { return 1.0; }", {"": set()}),
        ("fn f(x: f32, y: f32) -> f32 { let z = y; return x * (z + 1.0); }", {"": {"x", "y"}}),
        ("fn f(x: f32, y: f32) -> f32 { if (y > 0.0) { return 1.0; } return 2.0; }", {"": {"y"}}),
        ("fn f(x: f32, y: f32) -> f32 { if (y > 0.0) { return x; } return x; }", {"": {"x"}}),
        ("const ON = false; fn f(x: f32, y: f32) -> f32 { if (ON) { return y; } return x; }", {"": {"x"}}),
        ("const ON = false; fn f(x: f32, y: f32) -> f32 { return select(x, y, ON); }", {"": {"x"}}),
        ("fn f(x: f32, y: f32) -> f32 { var z = y; z = x; return z; }", {"": {"x"}}),
        (
            "fn f(x: f32, y: f32) -> f32 { var z = 0.0; for (var i = 0; i < 2; i++) { z = z + x; } return z; }",
            {"": {"x"}},
        ),
        (
            "struct P { a: f32, b: f32 } struct Q { p: P, c: f32 }"
            "fn f(q: Q, x: f32) -> Q { var r = q; r.p.a = x; r.c += q.p.b; return r; }",
            {"p.a": {"x"}, "p.b": {"q.p.b"}, "c": {"q.c", "q.p.b"}},
        ),
    ],
)
def test_a_result_depends_on_what_it_is_computed_from(text, expected):
    assert reaches(text) == expected


def test_calls_are_followed_member_by_member():
    text = """
    struct P { a: f32, b: f32 }
    fn swap(p: P) -> P { return P(p.b, p.a); }
    fn first(p: P, unused: f32) -> f32 { return p.a; }
    fn f(x: f32, y: f32, z: f32) -> P { return P(first(swap(P(x, y)), z), swap(swap(P(x, y))).b * z); }
    """
    assert reaches(text) == {"a": {"y"}, "b": {"y", "z"}}


def rule(update, constants=""):
    return checked(
        f"{constants}{STRUCTS}fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {{ {update} }}"
    )


@pytest.mark.parametrize(
    ("update", "live"),
    [
        ("return Updated(param - h.lr * grad, state);", ()),
        ("return Updated(param - h.lr * grad, State(grad, state.b + grad, state.c));", ()),
        ("return Updated(param - state.b, State(grad, grad, grad));", ("b",)),
        ("return Updated(param - state.b, State(grad, state.c, state.c + grad));", ("b", "c")),
        ("return Updated(param - state.a, State(state.b, state.c, state.a));", ("a", "b", "c")),
        ("let c = max(state.c, state.a); return Updated(param - state.a, State(grad, state.b, c));", ("a",)),
        ("var s = state; s.a += grad; return Updated(param - s.a, s);", ("a",)),
    ],
)
def test_a_slot_is_live_if_it_reaches_the_parameter_at_some_step(update, live):
    assert live_slots(rule(update)) == live


AMSGRAD = """
    let a = h.beta * state.a + grad;
    let b = state.b + grad * grad;
    var c = state.c;
    var denominator = b;
    if (AMSGRAD) { c = max(c, b); denominator = c; }
    return Updated(param - h.lr * a / sqrt(denominator), State(a, b, c));
"""


@pytest.mark.parametrize(("flag", "live"), [("false", ("a", "b")), ("true", ("a", "b", "c"))])
def test_a_flag_that_is_off_leaves_its_slot_dead(flag, live):
    assert live_slots(rule(AMSGRAD, f"const AMSGRAD = {flag};")) == live


def test_what_a_measure_reads_is_live():
    module = checked(
        STRUCTS + "fn measure(param: f32, grad: f32, state: State) -> f32 { return state.c * grad; }"
        "fn update(param: f32, grad: f32, state: State, measured: f32) -> Updated {"
        "  return Updated(param - measured, State(grad, state.b, state.b)); }"
        "fn init(param: f32, grad: f32) -> State { return State(param, param, param); }"
    )
    assert live_slots(module) == ("b", "c")


def test_a_rule_without_state_needs_no_slot():
    assert live_slots(checked("fn update(param: f32, grad: f32) -> f32 { return param - grad; }")) == ()
