"""Meta-SGD: its two kinds of steps, recorded and saved."""

import pytest
from wrapper_problems import make_problem, parameters

import optirs_web as ow
from optirs_web.errors import ShapeError

SUPPORT, QUERY = 0.5, -0.25


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_recorded_episode_is_an_eager_one(device, is_exact):
    actual = []
    for is_recorded in (False, True):
        params = parameters(device)
        problem = make_problem(params, device)
        hvp = problem.products(SUPPORT) if is_exact else None
        optimizer = ow.optim.MetaSGD(params, lr=0.02, meta_lr=1e-5, hvp=hvp)
        support, query = (problem.zeroed(optimizer, one) for one in (SUPPORT, QUERY))

        def episode(optimizer=optimizer, support=support, query=query):
            optimizer.step(support)
            optimizer.zero_grad()
            return optimizer.meta_step(query)

        run = ow.compile(episode, device=device) if is_recorded else episode
        for _ in range(5):
            run()
        actual.append([(param.tolist(), optimizer.state[param]["alpha"].tolist()) for param in params])
    assert actual[0] == actual[1]


def test_metasgd_adapts_with_the_rates_it_learned(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.MetaSGD([w], lr=0.5, meta_lr=0.25)
    with pytest.raises(RuntimeError, match=r"call step\(\) on the support loss first"):
        optimizer.meta_step(grads=[[1.0, 1.0]])
    optimizer.step(grads=[[1.0, 1.0]])
    optimizer.meta_step(grads=[[2.0, 0.0]])
    assert w.tolist() == [0.5, 1.0]
    other_w = ow.Parameter(w.tolist(), device=device)
    other = ow.optim.MetaSGD([other_w])
    other.load_state_dict(optimizer.state_dict())
    for one in (optimizer, other):
        one.step(grads=[[1.0, 1.0]])
    assert w.tolist() == other_w.tolist() == [-0.5, 0.5]


def test_metasgd_refuses_hessian_products_of_another_shape(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.MetaSGD([w], hvp=lambda _: [[1.0]])
    optimizer.step(grads=[[1.0, 1.0]])
    with pytest.raises(ShapeError, match=r"hvp gave the shape \(1,\)"):
        optimizer.meta_step(grads=[[1.0, 1.0]])
