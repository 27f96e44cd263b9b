"""An operation from a user's own WGSL is checked where it is made, runs everywhere, and has its gradients."""

import copy
import pickle

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.errors import ShaderError, UnsupportedError

SWISH = """
import package::lib::math::precise_exp;

fn logistic(x: f32) -> f32 {
    return 1.0 / (1.0 + precise_exp(-x));
}

fn swish(x: f32, beta: f32) -> f32 {
    return x * logistic(beta * x);
}

fn swish_grad_x(g: f32, x: f32, beta: f32) -> f32 {
    let s = logistic(beta * x);
    return g * (s + beta * x * s * (1.0 - s));
}

fn swish_grad_beta(g: f32, x: f32, output: f32) -> f32 {
    return g * (output * x - output * output);
}
"""


def composed(x, beta):
    """Compute the custom operation by the library's operations."""
    return x * (x * beta).sigmoid()


def slope(g, x, beta):
    s = (x * beta).sigmoid()
    return g * (s + x * beta * s * (1.0 - s))


@pytest.fixture
def x(device):
    return ow.tensor([[-2.0, 0.0, 0.5], [3.0, -1.0, 0.25]], device=device, requires_grad=True)


@pytest.fixture
def beta(device):
    return ow.tensor([[1.0], [2.0]], device=device, requires_grad=True)


def test_values_and_broadcast_gradients_are_those_of_the_formula(x, beta):
    swish = ow.custom_op(SWISH, "swish")
    ours, formula = swish(x, beta), composed(x, beta)
    np.testing.assert_allclose(ours.numpy(), formula.numpy(), rtol=1e-6)
    for mine, expected in zip(ow.gradients(ours.sum(), [x, beta]), ow.gradients(formula.sum(), [x, beta]), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected.numpy(), rtol=1e-5)


def test_operands_are_given_by_name_as_numbers_arrays_and_walks(x):
    swish = ow.custom_op(SWISH, "swish")
    np.testing.assert_array_equal(swish(x.T, beta=2.0).numpy(), swish(x, 2.0).numpy().T)
    np.testing.assert_array_equal(swish(x, np.float32([2.0])).numpy(), swish(beta=2, x=x).numpy())
    assert swish(x[:0], 1.0).shape == (0, 3)


def test_a_gradient_of_operations_has_second_derivatives(x):
    swish = ow.custom_op(SWISH, "swish", gradient={"x": slope})
    of_each = []
    for function in (swish, composed):
        (first,) = ow.gradients(function(x, 1.5).sum(), [x], create_graph=True)
        of_each.append(ow.gradients(first.sum(), [x])[0].numpy())
    np.testing.assert_allclose(*of_each, rtol=1e-5, atol=1e-6)


def test_a_gradient_in_wgsl_is_linear_in_g_and_refuses_the_other_second_derivatives(x):
    swish = ow.custom_op(SWISH, "swish")
    cotangent = ow.ones(x.shape, device=x.device)
    cotangent.requires_grad = True
    (first,) = ow.gradients(swish(x, 1.0), [x], cotangent, create_graph=True)
    np.testing.assert_array_equal(ow.gradients(first.sum(), [cotangent], retain_graph=True)[0].numpy(), first.numpy())
    with pytest.raises(UnsupportedError, match="'swish_grad_x' of a custom operation has no derivative by 'x'"):
        ow.gradients(first.sum(), [x])


def test_a_gradient_that_is_missing_is_refused_and_one_that_is_none_is_zero(x):
    text = "fn step_up(x: f32, height: f32) -> f32 { return select(0.0, height, x > 0.0); }"
    with pytest.raises(UnsupportedError, match="step_up has no gradient by 'x': write fn step_up_grad_x"):
        ow.custom_op(text)(x, 1.0).sum().backward()
    height = ow.ones((), device=x.device)
    height.requires_grad = True
    step_up = ow.custom_op(text, gradient={"x": None, "height": lambda g, x, height: ow.where(x > 0.0, g, 0.0)})
    step_up(x, height).sum().backward()
    assert x.grad is None
    assert height.grad.item() == 3.0


def test_integers_bools_and_the_index(device):
    text = "fn is_due(every: i32, index: u32) -> bool { return (i32(index) % every) == 0; }"
    due = ow.custom_op(text)(ow.tensor([1, 2, 2, 2, 3], device=device))
    assert due.dtype == "bool"
    assert due.tolist() == [True, False, True, False, False]


def test_it_is_recorded_and_fused_like_any_other(x):
    swish = ow.custom_op(SWISH, "swish")
    step = ow.compile(lambda x: (swish(x * 2.0, 1.0) + 1.0).sum())
    values = x.detach()
    expected = (composed(values * 2.0, 1.0) + 1.0).sum().item()
    assert [step(values).item() for _ in range(3)] == pytest.approx([expected] * 3, rel=1e-6)


def test_it_is_copied_and_pickled(x):
    swish = ow.custom_op(SWISH, "swish", gradient={"x": slope})
    for twin in (pickle.loads(pickle.dumps(swish)), copy.deepcopy(swish)):
        np.testing.assert_array_equal(twin(x, 1.0).numpy(), swish(x, 1.0).numpy())


def test_it_comes_from_a_file(tmp_path, x):
    file = tmp_path / "swish.wgsl"
    file.write_text(SWISH, encoding="utf-8")
    assert repr(ow.custom_op(file, "swish")) == "<custom operation swish(x, beta)>"
    file.write_text("fn f(x: f32) -> f32 {\n    return x +;\n}", encoding="utf-8")
    with pytest.raises(ShaderError, match=r"swish\.wgsl:2:15: "):
        ow.custom_op(file)


IDENTITY = "fn f(x: f32) -> f32 { return x; } "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fn f(x: f32) -> f32 { return y; }", "custom_op:1:30: there is no 'y' here"),
        ("fn f(x: f32) -> f32 { return exp(x); }", "'exp' is not accurate"),
        ("fn f(x: vec2<f32>) -> f32 { return x.x; }", "scalars"),
        ("fn f(x: bool) -> f32 { return 1.0; }", "'x' is bool"),
        ("const a = 1;\n", "declares no function"),
        ("var<private> q: f32;\n" + IDENTITY, "1:1: .*no variables"),
        ("fn main(x: f32) -> f32 { return x; }", "'main' is used in the generated code"),
        ("fn f(result: f32) -> f32 { return result; }", "'result' is used in the generated code"),
        ("fn f(size: f32) -> f32 { return size; }", "'size' is used in the generated code"),
        ("fn v_x(x: f32) -> f32 { return x; }", "'v_x' is used in the generated code"),
        ("fn a_x(x: f32) -> f32 { return x; }", "'a_x' is used in the generated code"),
        ("fn a_step0(a: f32) -> f32 { return a; }", "'a_step0' is used in the generated code"),
        (IDENTITY + "fn f_grad_x(x: f32) -> f32 { return x; }", "1:35: 'f_grad_x' takes g: f32"),
        (IDENTITY + "fn f_grad_x(g: f32, z: f32) -> f32 { return g; }", "'z: f32' is not a parameter of f"),
        ("fn f(g: f32) -> f32 { return g; } fn f_grad_g(g: f32) -> f32 { return g; }", "rename these parameters"),
    ],
)
def test_wgsl_that_is_wrong_is_refused_with_its_place(text, message):
    with pytest.raises(ShaderError, match=message):
        ow.custom_op(text)


def test_calls_that_are_wrong_are_refused(device):
    swish = ow.custom_op(SWISH, "swish")
    ones_ = ow.ones((2,), device=device)
    for call in (lambda: swish(ones_), lambda: swish(ones_, 1.0, 2.0), lambda: swish(ones_, gamma=1.0)):
        with pytest.raises(TypeError, match=r"swish takes the operands \(x, beta\)"):
            call()
    with pytest.raises(TypeError, match="needs an operand that is a tensor"):
        swish(1.0, 2.0)
    with pytest.raises(UnsupportedError, match="needs a tensor of f32"):
        swish(ow.arange(3, device=device), 1.0)
    with pytest.raises(ShaderError, match="did you mean 'swish'"):
        ow.custom_op(SWISH, "swash")
    with pytest.raises(TypeError, match="'q' is not an f32 parameter of swish"):
        ow.custom_op(SWISH, "swish", gradient={"q": None})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fn one(x: f32) -> f32 { return 1.0; }", [1.0, 1.0]),
        ("fn five(x: f32) -> u32 { return 5u; }", [5, 5]),
        ("fn always(x: f32) -> bool { return true; }", [True, True]),
        ("alias Flag = bool; fn above(x: f32) -> Flag { return x > 2.0; }", [False, True]),
        ("alias Real = f32; fn same(x: Real) -> Real { return x; }", [2.0, 3.0]),
        ("fn f(f: f32) -> f32 { return f + 1.0; }", [3.0, 4.0]),
    ],
)
def test_a_function_may_return_a_constant_or_an_alias_and_have_a_parameter_of_its_name(device, text, expected):
    operation = ow.custom_op(text)
    x = ow.tensor([1.0, 2.0], device=device)
    compiled = ow.compile(lambda x: operation(x + 1.0), device=device)
    assert operation(x + 1.0).tolist() == compiled(x).tolist() == expected


def test_a_function_of_ones_own_with_the_name_of_one_of_the_library_is_called(device, x):
    text = "fn f(x: f32) -> f32 { return precise_exp(x); } fn precise_exp(x: f32) -> f32 { return x + 10.0; }"
    operation = ow.custom_op(text, "f")
    np.testing.assert_array_equal(operation(x).numpy(), x.numpy() + 10)


def test_bits_are_kept_while_the_float_that_has_them_is_not_needed_any_more(device):
    bits = ow.custom_op("fn bits(p: f32) -> u32 { return bitcast<u32>(p); }")
    exp_of_bits = ow.custom_op(
        "import package::lib::math::precise_exp;"
        "fn g(p: u32, q: f32) -> f32 { let e = precise_exp(bitcast<f32>(p)); return e + q; }"
    )
    x = ow.tensor([1.0, 2.0, -3.0], device=device)

    def both(x):
        doubled = bits(x * 2.0)
        return doubled, exp_of_bits(doubled, x)

    for got, expected in zip(ow.compile(both, device=device)(x), both(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_a_condition_on_numbers_alone_is_a_number_for_others(device):
    twice = ow.custom_op("fn twice(m: u32) -> u32 { return m + m; }")
    x = ow.tensor([1.0, -2.0, 3.0], device=device)
    condition = x > 0

    def run(x, condition):
        one = ops.full(x.shape, 1.0, device=x.device) > 0.5
        return twice(one).astype("float32") * x, ops.where(condition, condition, one), one.astype("int32")

    for got, expected in zip(ow.compile(run, device=device)(x, condition), run(x, condition), strict=True):
        assert got.tolist() == expected.tolist()
