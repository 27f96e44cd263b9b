"""FedProx: the global model of a round."""

import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError


def test_fedprox_takes_the_global_model_at_the_beginning_of_a_round(device):
    w = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0)
    w.assign([4.0])  # still before the first step
    optimizer.step(grads=[[0.0]])
    assert w.item() == 4.0
    w.assign([2.0])
    optimizer.step(grads=[[0.0]])
    assert w.item() == 3.0  # half-way back to 4
    optimizer.begin_round()
    optimizer.step(grads=[[0.0]])
    assert w.item() == 3.0


def test_fedprox_goes_on_from_its_state_dict_with_the_global_model(device):
    w = ow.Parameter([4.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0, momentum=0.5)
    optimizer.step(grads=[[2.0]])
    other_w = ow.Parameter([w.item()], device=device)
    other = ow.optim.FedProx([other_w])
    other.load_state_dict(optimizer.state_dict())
    for optimizer_ in (optimizer, other):
        optimizer_.step(grads=[[1.0]])
    assert other_w.item() == w.item()
    assert other.state[other_w]["global_param"].item() == 4.0


def test_fedprox_is_recorded(device):
    w = ow.Parameter([4.0], device=device)
    optimizer = ow.optim.FedProx([w], lr=0.5, mu=1.0)
    w.grad = [2.0]
    compiled = ow.compile(lambda: optimizer.step(), device=device)
    compiled()
    compiled()
    assert w.item() == 3.0 - 0.5 * (2.0 + (3.0 - 4.0))
    with pytest.raises(UnsupportedError, match="outside the compiled step"):
        ow.compile(lambda: optimizer.begin_round(), device=device)()


def test_copies_of_parameters_stay_exact_in_low_precision(device):
    w = ow.Parameter([1.001], device=device)
    optimizer = ow.optim.FedProx([w], lr=1.0, mu=1.0, momentum=0.5, state_dtype="bfloat16")
    optimizer.step(grads=[[0.0]])
    assert optimizer.state[w]["global_param"].item() == w.item()
    with pytest.raises(UnsupportedError, match="MetaSGD keeps its state as float32"):
        ow.optim.MetaSGD([w], state_dtype="bfloat16")
