"""A user's own rule in WGSL is an optimizer like the others."""

import copy
import pickle

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShaderError

MOMENTUM = """
// Heavy-ball momentum, Nesterov's if asked for.
override nesterov: bool = false;

struct Hyper { lr: f32, beta1: f32, one_minus_beta1: f32 }
struct State { average: f32 }
struct Updated { param: f32, state: State }

fn update(param: f32, grad: f32, state: State, h: Hyper) -> Updated {
    let average = h.beta1 * state.average + h.one_minus_beta1 * grad;
    var step = average;
    if nesterov {
        step = h.beta1 * average + h.one_minus_beta1 * grad;
    }
    return Updated(param - h.lr * step, State(average));
}
"""


@pytest.fixture(scope="module")
def momentum():
    return ow.optim.from_wgsl(MOMENTUM, name="HeavyBall", lr=0.1, betas=(0.9,), nesterov=False)


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_rule_of_ones_own_does_what_it_says(momentum, device, nesterov):
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(size).astype(np.float32) for size in (3, 300)]
    params = [ow.Parameter(value, device=device) for value in values]
    optimizer = momentum([{"params": params[:1], "lr": 0.5}, {"params": params[1:]}], nesterov=nesterov)
    want, average = [value.astype(np.float64) for value in values], [0.0, 0.0]
    for _ in range(10):
        grads = [rng.standard_normal(value.shape).astype(np.float32) for value in values]
        optimizer.step(grads=grads)
        for index, (lr, grad) in enumerate(zip((0.5, 0.1), grads, strict=True)):
            average[index] = 0.9 * average[index] + 0.1 * grad.astype(np.float64)
            step = 0.9 * average[index] + 0.1 * grad if nesterov else average[index]
            want[index] = want[index] - lr * step
    for param, value in zip(params, want, strict=True):
        np.testing.assert_allclose(param.numpy(), value, atol=2e-6)
    assert repr(optimizer).startswith("HeavyBall (")
    assert optimizer.state_dict()["state"][0]["step"] == 10


def test_it_is_saved_loaded_and_copied(momentum, device):
    w, other = ow.Parameter([1.0, 2.0], device=device), ow.Parameter([0.0, 0.0], device=device)
    first, second = momentum([w]), momentum([other])
    first.step(grads=[[1.0, -1.0]])
    content = ow.dump_checkpoint({"w": w}, first)
    ow.load_checkpoint(content, {"w": other}, second)
    copied, third = copy.deepcopy((w, first))
    for param, optimizer in ((w, first), (other, second), (copied, third)):
        optimizer.step(grads=[[2.0, 2.0]])
        assert param.tolist() == w.tolist()
    assert type(third) is momentum


def test_it_is_pickled_with_its_text(momentum, device):
    w = ow.Parameter([1.0, 2.0], device=device)
    first = momentum([w], lr=0.5)
    first.step(grads=[[1.0, -1.0]])
    again, second = pickle.loads(pickle.dumps((w, first)))
    assert type(second).__name__ == "HeavyBall"
    for param, optimizer in ((w, first), (again, second)):
        optimizer.step(grads=[[2.0, 2.0]])
        assert param.tolist() == w.tolist()


def test_state_may_have_the_names_of_lanes(device):
    rule = ow.optim.from_wgsl(MOMENTUM.replace("average", "x"), lr=0.5, betas=(0.5,), nesterov=False)
    w = ow.Parameter([1.0, 2.0], device=device)
    rule([w]).step(grads=[[2.0, 4.0]])
    assert w.tolist() == [0.5, 1.0]


def test_it_is_read_from_a_file(tmp_path):
    path = tmp_path / "heavy_ball.wgsl"
    path.write_text(MOMENTUM)
    for source in (path, str(path)):
        assert ow.optim.from_wgsl(source, lr=0.1, betas=(0.9,), nesterov=False).__name__ == "heavy_ball"
    with pytest.raises(FileNotFoundError):
        ow.optim.from_wgsl(tmp_path / "none.wgsl", lr=0.1)


RULE = "struct Hyper {{ lr: f32 }} struct Updated {{ param: f32 }} fn update({}) -> Updated {{ return Updated({}); }}"


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (MOMENTUM, {"lr": 0.1}, TypeError, "'beta1' of the rule has no option"),
        (MOMENTUM, {"lr": 0.1, "betas": (0.9,)}, TypeError, "'nesterov' of the rule"),
        (RULE.format("param: f32, gradient: f32, h: Hyper", "param"), {"lr": 1.0}, ShaderError, "parameter 'gradient'"),
        (RULE.format("param: f32", "param + nothing"), {"lr": 1.0}, ShaderError, "nothing"),
        (MOMENTUM.replace("average", "at"), {"lr": 0.1, "betas": (0.9,)}, ShaderError, "cannot have a member 'at'"),
        *(
            (MOMENTUM.replace("average", name), {"lr": 0.1, "betas": (0.9,)}, ShaderError, f"have a member '{name}'")
            for name in ("master", "kahan_comp", "accumulated", "average_largest")  # what state dicts have besides
        ),
        *(
            (RULE.replace("lr", name).format("param: f32", "param"), {"lr": 1.0}, TypeError, f"Hyper called '{name}'")
            for name in ("maximize", "params", "skip_nonfinite", "name", "betas")
        ),
        (RULE.format("param: f32", "param"), {"lr": 1.0, "rounding": 1.0}, TypeError, "called 'rounding'"),
        *(
            (MOMENTUM, {"lr": 0.1, "nesterov": False, "betas": betas}, TypeError, "betas must be a tuple of numbers")
            for betas in ((), 0.9, ("a",))
        ),
        (
            MOMENTUM.replace("beta1", "beta2"),
            {"lr": 0.1, "nesterov": False, "betas": (0.9,)},
            TypeError,
            "'beta2' of the rule is not among the betas",
        ),
        ("struct Hyper { lr: f32 }", {"lr": 1.0}, ShaderError, "a rule declares 'Updated'"),
        ("struct Hyper { lr: f32 ", {"lr": 1.0}, ShaderError, "line 1|:1:"),
        (RULE.format("param: f32, h: Hyper", "exp(param)"), {"lr": 1.0}, ShaderError, "exp"),
    ],
)
def test_what_is_wrong_in_a_rule_is_said_at_once(source, options, error, message):
    with pytest.raises(error, match=message):
        ow.optim.from_wgsl(source, **options)


def test_options_are_checked_as_those_of_the_library(momentum):
    w = ow.Parameter([1.0], device="cpu")
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        momentum([w], lr=-1.0)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 0: 1"):
        momentum([w], betas=(1.0,))
    with pytest.raises(ValueError, match=r"betas must be 1 number, not \(\)"):
        momentum([w], betas=())
    with pytest.raises(ValueError, match=r"betas must be a tuple of numbers, .*not 0.9"):
        momentum([w], betas=0.9)
    with pytest.raises(TypeError, match="Invalid learning rate: fast; lr must be a number, not a str"):
        momentum([w], lr="fast")
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        momentum([w], speed=1.0)
    with pytest.raises(TypeError, match="did you mean 'nesterov'"):
        momentum([w], nestrov=True)
