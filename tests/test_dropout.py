"""Dropout and the random numbers behind it: how many, the same ones backward, and new ones at each replay."""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web import ops
from optirs_web.ops.random_state import drawn_again, draws_so_far

COUNT = 40_000


def dropped(device, p, **options):
    return ops.dropout(ow.ones((COUNT,), device=device), p, **options).numpy()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_rate_of_what_is_dropped(device, p):
    ow.manual_seed(1)
    values = dropped(device, p)
    deviation = np.sqrt(p * (1 - p) / COUNT)
    assert abs((values == 0).mean() - p) < 4 * deviation
    assert values.max() == pytest.approx(1 / (1 - p), rel=1e-6)


def test_neighbours_are_dropped_independently(device):
    ow.manual_seed(2)
    is_dropped = dropped(device, 0.5).reshape(200, -1) == 0
    for array, other in [(is_dropped[:, :-1], is_dropped[:, 1:]), (is_dropped[:-1], is_dropped[1:])]:
        correlation = np.corrcoef(array.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 4 / np.sqrt(array.size)


def test_the_gradient_drops_the_same_elements(device):
    x = ow.Parameter(np.ones((30, 50), np.float32), device=device)
    y = ops.dropout(x.T, 0.3)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy().T)


def test_calls_differ_and_a_seed_brings_them_back(device):
    ow.manual_seed(3)
    first, second = dropped(device, 0.5), dropped(device, 0.5)
    ow.manual_seed(3)
    assert 0.45 < (first != second).mean() < 0.55
    np.testing.assert_array_equal(dropped(device, 0.5), first)


def test_devices_drop_the_same_elements(open_device):
    ow.manual_seed(4)
    on_cpu = dropped("cpu", 0.5)
    ow.manual_seed(4)
    np.testing.assert_array_equal(dropped(open_device("vulkan"), 0.5), on_cpu)


def test_outside_of_training_and_with_nothing_to_drop_the_tensor_stays(device):
    x = ow.ones((4,), device=device)
    assert ops.dropout(x, 0.5, training=False) is x
    assert ops.dropout(x, 0.0) is x


def test_all_can_be_dropped_whatever_it_was(device):
    x = ow.Parameter([1.0, np.inf, np.nan], device=device)
    y = ops.dropout(x, 1.0)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="probability from 0 to 1"):
        ops.dropout(ow.ones((2,), device="cpu"), p)


def test_ones_with_a_probability(device):
    ow.manual_seed(5)
    p = ow.tensor(np.repeat([0.0, 0.3, 1.0, np.nan], 10_000).astype(np.float32), device=device)
    zeros, some, ones, nan = ops.bernoulli(p).numpy().reshape(4, -1)
    assert not zeros.any()
    assert set(some) == {0.0, 1.0}
    assert some.mean() == pytest.approx(0.3, abs=0.02)
    assert ones.all()
    assert np.isnan(nan).all()


# Compiled steps.


@pytest.fixture
def step(device):
    """A compiled step that draws numbers of every kind: its results, and whether the gradient fits."""
    w = ow.Parameter(np.ones((40, 50), np.float32), device=device)

    def draw():
        w.grad = None
        kept = ops.dropout(w, 0.5)
        normal, uniform, again = (function((1000,), device=device) for function in (ow.randn, ow.rand, ow.rand))
        ones = ops.bernoulli(ow.full((1000,), 0.5, device=device))
        kept.sum().backward()
        return kept, normal, uniform, again, ones, w.grad

    compiled = ow.compile(draw, device=device)
    return lambda: [tensor.numpy() for tensor in compiled()]


def test_each_replay_draws_new_numbers(step):
    first, second, third = step(), step(), step()
    for one, other in [(first, second), (second, third), (first, third)]:
        assert all((a != b).mean() > 0.4 for a, b in zip(one, other, strict=True))


def test_the_draws_of_a_replay_differ_from_each_other_and_from_eager_ones(step, device):
    ow.manual_seed(6)
    _, normal, uniform, again, ones, _ = step()
    assert (uniform != again).all()
    assert abs(normal.mean()) < 0.15
    assert normal.std() == pytest.approx(1.0, abs=0.1)
    assert ones.mean() == pytest.approx(0.5, abs=0.07)
    ow.manual_seed(6)
    for _ in range(6):
        assert (ow.rand((1000,), device=device).numpy() != uniform).all()


def test_the_backward_pass_of_a_replay_sees_the_numbers_of_its_forward_pass(step):
    for _ in range(3):
        kept, *_, grad = step()
        np.testing.assert_array_equal(grad, kept)


def test_a_seed_begins_the_replays_anew(step):
    ow.manual_seed(7)
    first = [step() for _ in range(3)]
    ow.manual_seed(7)
    for _ in range(3):
        for got, want in zip(step(), first.pop(0), strict=True):
            np.testing.assert_array_equal(got, want)


def test_replays_need_nothing_from_the_host(step, device):
    step()
    before = device.stats.copy()
    step()
    assert (device.stats - before).bytes_up == 0


def test_a_kept_state_is_gone_on_from(step, device):
    ow.manual_seed(8)
    ow.rand((2,), device=device)
    step()
    state = ops.get_rng_state()
    first = [*step(), ow.rand((5,), device=device).numpy()]
    ops.set_rng_state(state)
    for got, want in zip([*step(), ow.rand((5,), device=device).numpy()], first, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="must be from get_rng_state"):
        ops.set_rng_state({"seed": 1})


def test_a_step_with_a_seed_of_its_own_draws_the_same_at_each_replay(device):
    step = ow.compile(lambda: ow.rand((5,), device=device, seed=9), device=device)
    assert step().tolist() == step().tolist() == ow.rand((5,), device=device, seed=9).tolist()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_is_computed_again_draws_again(device, is_compiled):
    x = ow.ones((100,), device=device)

    def twice():
        position = draws_so_far(device)
        first, between = ops.dropout(x), ops.dropout(x)
        with drawn_again(device, position):
            second = ops.dropout(x)
        return first, between, second, ops.dropout(x)

    first, between, second, after = (
        tensor.numpy() for tensor in (ow.compile(twice, device) if is_compiled else twice)()
    )
    np.testing.assert_array_equal(first, second)
    assert (first != between).any()
    assert (after != between).any()
    assert (after != first).any()
