"""Functions that differentiate functions, tapes in tapes, hooks, and gradients of gradients; and what checks them."""

import math

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import GradcheckError, ShapeError, UnsupportedError

X = np.array([[0.5, -1.25, 2.0], [1.5, 0.75, -0.5]], np.float32)
V = np.array([[1.0, -0.5, 0.25], [2.0, 1.5, -1.0]], np.float32)


def composed(x):
    """exp(x)² x over (1 + x²), summed: with derivatives of every order."""
    return (x.exp() * x.exp() * x / (1.0 + x * x)).sum()


def with_torch(torch, function, order):
    """The gradient of the function, of the gradient's sum, and so on, in float64."""
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    value, result = function(x), []
    for _ in range(order):
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        result.append(slope.detach().numpy())
        value = slope.sum()
    return result


def assert_equal(got, want, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=tolerance * np.abs(want).max())


def test_derivatives_up_to_the_third_of_a_composed_function(device, torch):
    wants = with_torch(torch, composed, 3)
    first = ow.grad(composed)
    second = ow.grad(lambda x: first(x).sum())
    third = ow.grad(lambda x: second(x).sum())
    x = ow.tensor(X, device=device)
    for function, want, tolerance in zip((first, second, third), wants, (2e-6, 5e-6, 2e-5), strict=True):
        assert_equal(function(x), want, tolerance)


def test_a_gradient_can_be_differentiated_through_backward_too(device):
    x = ow.tensor([2.0, 3.0], device=device, requires_grad=True)
    (x * x * x).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    (first * first).sum().backward()
    assert first.tolist() == [12.0, 27.0]
    assert x.grad.tolist() == [2 * 12.0 * 12.0, 2 * 27.0 * 18.0]


def test_value_and_grad_of_several_arguments(device):
    x, y = ow.tensor([1.0, 2.0], device=device), ow.tensor([3.0, 4.0], device=device)
    value, (of_y, of_x) = ow.value_and_grad(lambda x, y: (x * x * y).sum(), argnums=(1, 0))(x, y)
    assert value.item() == 19.0
    assert (of_y.tolist(), of_x.tolist()) == ([1.0, 4.0], [6.0, 16.0])
    assert not x.requires_grad


def test_grad_of_what_does_not_depend_on_an_argument_is_zero(device):
    x, y = ow.ones((2,), device=device), ow.ones((3,), device=device)
    assert ow.grad(lambda x, y: x.sum(), argnums=1)(x, y).tolist() == [0.0, 0.0, 0.0]
    assert ow.grad(lambda x: ow.ones((), device=device))(x).tolist() == [0.0, 0.0]


def test_grad_inside_a_loss_goes_on_to_parameters(device):
    """As the penalty on a gradient's norm (Gulrajani et al. 2017)."""
    w, x = ow.Parameter([2.0, -1.0], device=device), ow.tensor([1.5, 0.5], device=device)
    slope = ow.grad(lambda x: (w * x * x).sum())(x)
    (slope * slope).sum().backward()
    assert w.grad.tolist() == [2 * 4 * 1.5**2 * 2.0, 2 * 4 * 0.5**2 * -1.0]
    assert x.grad is None


def test_vjp_and_jvp_are_products_with_the_jacobian_from_both_sides(device):
    def function(x):
        return x.T @ x.exp()

    x = ow.tensor(X, device=device)
    jacobian = ow.jacobian(function)(x).numpy().reshape(9, 6)
    cotangent = np.arange(9, dtype=np.float32).reshape(3, 3) - 4
    value, pull = ow.vjp(function, x)
    assert_equal(value, X.T @ np.exp(X))
    for _ in range(2):  # as often as one likes
        assert_equal(pull(cotangent)[0].reshape(6), cotangent.reshape(9) @ jacobian)
    value, along = ow.jvp(function, [x], [V])
    assert_equal(value, X.T @ np.exp(X))
    assert_equal(along.reshape(9), jacobian @ V.reshape(6))


def test_jvp_along_several_arguments_and_of_a_function_that_is_constant(device):
    x, y = ow.tensor([1.0, 2.0], device=device), ow.tensor([3.0, 5.0], device=device)
    assert ow.jvp(lambda x, y: x * y, [x, y], [[1.0, 0.0], [0.0, 1.0]])[1].tolist() == [3.0, 2.0]
    assert ow.jvp(lambda x: y, [x], [[1.0, 1.0]])[1].tolist() == [0.0, 0.0]


def test_hessian_vector_products_equal_the_hessian_times_a_vector(device, torch):
    want = torch.autograd.functional.hvp(
        composed, torch.tensor(X, dtype=torch.float64), torch.tensor(V, dtype=torch.float64)
    )
    value, (product,) = ow.hessian_vector_product(composed, [ow.tensor(X, device=device)], [V])
    assert value.item() == pytest.approx(want[0].item(), rel=2e-6)
    assert_equal(product, want[1].numpy(), 5e-6)


def test_hessian_vector_products_mix_the_arguments(device):
    x, y = ow.tensor([2.0], device=device), ow.tensor([5.0], device=device)
    _, (of_x, of_y) = ow.hessian_vector_product(lambda x, y: (x * x * y).sum(), [x, y], [[1.0], [10.0]])
    assert (of_x.tolist(), of_y.tolist()) == ([2 * 5.0 + 2 * 2.0 * 10], [2 * 2.0])
    _, (of_x,) = ow.hessian_vector_product(lambda x: (3.0 * x).sum(), [x], [[1.0]])
    assert of_x.tolist() == [0.0]


def test_a_jacobian_has_the_axes_of_the_value_and_of_the_argument(device):
    x = ow.tensor(X, device=device)
    weights = ow.tensor([[1.0], [2.0], [3.0]], device=device)
    got = ow.jacobian(lambda x, w: (x @ w).reshape(2), argnums=0)(x, weights)
    want = np.zeros((2, 2, 3), np.float32)
    want[0, 0] = want[1, 1] = [1, 2, 3]
    np.testing.assert_array_equal(got.numpy(), want)
    assert ow.jacobian(lambda x: x.sum())(x).shape == (2, 3)
    assert ow.jacobian(lambda x: x.reshape(0))(ow.zeros((0,), device=device)).shape == (0, 0)


def test_a_single_tensor_counts_as_a_list_of_one(device):
    x = ow.tensor([1.0, 2.0], device=device)
    assert ow.jvp(lambda x: (x * x).sum(), x, [1.0, 10.0])[1].item() == 42
    assert ow.hessian_vector_product(lambda x: (x * x * x).sum(), x, [1.0, 1.0])[1][0].tolist() == [6, 12]
    with ow.GradientTape() as tape:
        tape.watch(x)
        y = (x * x).sum()
    (slope,) = tape.gradient(y, x)
    assert slope.tolist() == [2, 4]


def test_the_gradient_of_a_tensor_is_not_taken_for_that_of_a_function():
    x = ow.tensor([1.0], device="cpu", requires_grad=True)
    with pytest.raises(TypeError, match=r"optirs_web\.gradients\(target, sources\)"):
        ow.grad((x * x).sum(), x)


def test_the_jacobian_of_a_gradient_is_the_hessian(device):
    hessian = ow.jacobian(ow.grad(lambda x: (x * x * x).sum()))(ow.tensor([1.0, 2.0], device=device))
    assert hessian.tolist() == [[6.0, 0.0], [0.0, 12.0]]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: ow.grad(lambda y: y * y)(x), ShapeError, "one element"),
        (lambda x: ow.grad(lambda y: 3.0)(x), UnsupportedError, "returns a tensor, not float"),
        (lambda x: ow.jvp(lambda y: y, [x], [[1.0]]), ShapeError, r"tangent of shape \(1,\)"),
        (lambda x: ow.jvp(lambda y: y, [x], []), ShapeError, "1 primals and 0 tangents"),
        (lambda x: ow.hessian_vector_product(lambda y: y.sum(), [x], []), ShapeError, "1 primals and 0 vectors"),
        (lambda x: ow.vjp(lambda y: y, x)[1]([1.0]), ShapeError, r"the gradient has the shape \(1,\)"),
    ],
)
def test_bad_calls_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(ow.ones((2,), device="cpu"))


# Tapes.


def test_three_tapes_in_one_another_give_the_third_derivative(device):
    x = ow.tensor([2.0, 3.0], device=device)
    with ow.GradientTape() as outer:
        outer.watch(x)
        with ow.GradientTape() as middle:
            middle.watch(x)
            with ow.GradientTape() as inner:
                inner.watch(x)
                y = (x * x * x * x).sum()
            (first,) = inner.gradient(y, [x])
        (second,) = middle.gradient(first, [x], [1.0, 1.0])
    (third,) = outer.gradient(second, [x], [1.0, 1.0])
    assert first.tolist() == [4 * 8.0, 4 * 27.0]
    assert second.tolist() == [12 * 4.0, 12 * 9.0]
    assert third.tolist() == [24 * 2.0, 24 * 3.0]
    assert not x.requires_grad


def test_a_persistent_tape_differentiates_its_own_gradients(device):
    x = ow.tensor([3.0], device=device)
    with ow.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = (x * x * x).sum()
        (first,) = tape.gradient(y, [x])
    assert tape.gradient(first, [x])[0].tolist() == [18.0]
    assert tape.gradient(y, [x])[0].tolist() == [27.0]


def test_what_a_tape_does_not_record_is_constant(device):
    x = ow.tensor([3.0], device=device)
    with ow.GradientTape() as tape:
        tape.watch(x)
        with tape.stop_recording():
            factor = x * 2.0
        y = (x * factor).sum()
    assert not factor.requires_grad
    assert tape.gradient(y, [x])[0].tolist() == [6.0]


def test_a_tape_watches_until_it_is_closed(device):
    x, w = ow.tensor([3.0], device=device), ow.Parameter([2.0], device=device)
    with ow.GradientTape() as tape:
        early = (x * w).sum()
        tape.watch(x)
        late = (x * w).sum()
    after = (x * w).sum()
    assert tape.gradient(late, [x, w])[0].tolist() == [2.0]
    assert ow.gradients(early, [x, w])[0] is None
    assert ow.gradients(after, [x, w])[0] is None


# Hooks, and the gradients that go in.


def test_a_hook_sees_the_whole_gradient_once_and_may_replace_it(device):
    x = ow.tensor([1.0, 2.0], device=device, requires_grad=True)
    y, seen = x * 3.0, []
    y.register_hook(lambda g: seen.append(g.tolist()))
    remove = y.register_hook(lambda g: g * 10.0)
    (y * y + y).sum().backward(retain_graph=True)
    assert seen == [[7.0, 13.0]]
    assert x.grad.tolist() == [210.0, 390.0]
    remove()
    remove()  # is no error
    x.grad = None
    (y + y).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_hook_is_part_of_the_second_derivative(device):
    x = ow.tensor([1.0, 2.0], device=device, requires_grad=True)
    x.register_hook(lambda g: g * g)
    (first,) = ow.gradients((x * x).sum(), [x], create_graph=True)
    assert first.tolist() == [4.0, 16.0]
    x._hooks.clear()
    assert ow.gradients(first, [x], [1.0, 1.0])[0].tolist() == [8.0, 16.0]


def test_a_hook_must_keep_the_shape(device):
    x = ow.tensor([1.0, 2.0], device=device, requires_grad=True)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ShapeError, match="the gradient has the shape"):
        (x * 2.0).sum().backward()


def test_gradients_of_gradients_by_what_went_in(device):
    """The derivative by the gradient that went in is the product with the Jacobian from the right."""
    x = ow.tensor([1.0, 2.0], device=device, requires_grad=True)
    g = ow.tensor([1.0, 1.0], device=device, requires_grad=True)
    (slope,) = ow.gradients(x * x, [x], g, create_graph=True)
    assert ow.gradients(slope, [g], [3.0, 5.0])[0].tolist() == [6.0, 20.0]


def test_gradients_leave_no_history_unless_told(device):
    x = ow.tensor([1.0, 2.0], device=device, requires_grad=True)
    y = (x * x).sum()
    assert not ow.gradients(y, [x], retain_graph=True)[0].requires_grad
    assert ow.gradients(y, [x], create_graph=True)[0].requires_grad
    assert x.grad is None
    with pytest.raises(UnsupportedError, match="history of this tensor was freed"):
        ow.gradients(y, [x]) and ow.gradients(y, [x])


# gradcheck.


def _checked(device, values=X):
    return ow.tensor(values, device=device, requires_grad=True)


def test_gradcheck_passes_what_is_right_and_leaves_the_inputs_alone(device):
    x, y = _checked(device), _checked(device, V)
    assert ow.gradcheck(lambda x, y: [x * y, (x + y).exp()], (x, y))
    assert ow.gradgradcheck(lambda x, y: [x * y, (x + y).exp()], (x, y))
    assert x.grad is None
    np.testing.assert_array_equal(x.numpy(), X)


def test_gradcheck_names_input_and_element_with_both_values(device):
    wrong = np.ones_like(X)
    wrong[1, 2] = 1.01

    def scaled(a, x):
        """Return 2 x plus a, with a gradient that claims a slope of 2.02 for one element."""
        y = x * 2.0
        y.register_hook(lambda g: g * ow.tensor(wrong, device=device))
        return a.detach() + y

    a, x = ow.tensor(X, device=device), _checked(device)
    with pytest.raises(GradcheckError, match=r"input 1 at element \(1, 2\): backward gives .*central differences give"):
        ow.gradcheck(scaled, (a, x))
    assert not ow.gradcheck(scaled, (a, x), raise_exception=False)
    assert ow.gradcheck(scaled, (a, x), rtol=0.05)


def test_gradcheck_finds_one_wrong_element_of_thousands_by_halves(device):
    wrong = np.ones((70, 50), np.float32)
    wrong[33, 7] = 1.5

    def doubled(x):
        y = x * 2.0
        y.register_hook(lambda g: g * ow.tensor(wrong, device=device))
        return y

    x = _checked(device, np.random.default_rng(0).random((70, 50), np.float32))
    with pytest.raises(GradcheckError, match=r"input 0 at element \(33, 7\)"):
        ow.gradcheck(doubled, x, fast_mode=True)


def test_gradcheck_sees_history_that_was_lost(device):
    x = _checked(device)
    with pytest.raises(GradcheckError, match="backward gives"):
        ow.gradcheck(lambda x: x * x.detach(), x)
    with pytest.raises(GradcheckError, match="backward gives 0,"):
        ow.gradcheck(lambda x: (x * x).detach(), x)

    def without_second_derivative(x):
        y = x.detach() * x.detach()
        return ow.autograd.record(y, (x, lambda g, _: g.detach() * x.detach() * 2.0))

    assert ow.gradcheck(without_second_derivative, x)
    with pytest.raises(GradcheckError, match="backward gives 0,"):
        ow.gradgradcheck(without_second_derivative, x)


def test_gradcheck_refuses_what_it_cannot_judge(device):
    x = _checked(device)
    calls = iter(range(100))
    with pytest.raises(GradcheckError, match="two calls with the same inputs gave different values"):
        ow.gradcheck(lambda x: x * float(next(calls)), x)
    assert ow.gradcheck(lambda x: x * (2.0 + 1e-6 * next(calls)), x, nondet_tol=1.0)
    with pytest.raises(UnsupportedError, match="requires a gradient"):
        ow.gradcheck(lambda x: x, ow.tensor(X, device=device))
    with pytest.raises(UnsupportedError, match="float32 tensors"):
        ow.gradcheck(lambda x: 3, x)


def test_gradcheck_of_nan_fails(device):
    with pytest.raises(GradcheckError, match="nan"):
        ow.gradcheck(lambda x: x * math.nan, _checked(device))


def test_gradcheck_takes_walks_empty_tensors_and_those_without_axes(device):
    for x in (_checked(device).T, _checked(device, np.zeros((0, 3), np.float32)), _checked(device, np.float32(1.5))):
        assert ow.gradcheck(lambda x: x * x, x)
        assert ow.gradgradcheck(lambda x: x * x, x)


def test_gradcheck_judges_values_far_from_one_by_their_rounding(device):
    x = _checked(device, 1000 * X)
    assert ow.gradcheck(lambda x: x * x, x)
    with pytest.raises(GradcheckError):
        ow.gradcheck(lambda x: x * x.detach(), x)
