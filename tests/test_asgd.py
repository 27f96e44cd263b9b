"""The average of ASGD, and its assignment to the parameters on request."""

import pytest

import optirs_web as ow
from optirs_web.errors import UnsupportedError


def test_use_average_sets_the_parameters_that_have_taken_a_step(device):
    stepped, untouched = (ow.Parameter([1.0, -1.0], device=device) for _ in range(2))
    optimizer = ow.optim.ASGD([stepped, untouched], lr=0.25, lambd=0.0, t0=0)
    for grad in (1.0, 2.0, -1.0):
        optimizer.step(grads=[[grad, grad], None])
    average = optimizer.state_dict()["state"][0]["ax"].tolist()
    assert average == [0.375, -1.625]  # half way from the second iterate to the third
    assert stepped.tolist() == [0.5, -1.5]
    optimizer.use_average()
    assert stepped.tolist() == average
    assert untouched.tolist() == [1.0, -1.0]


def test_use_average_in_a_compiled_step_is_refused(device):
    param = ow.Parameter([1.0], device=device)
    optimizer = ow.optim.ASGD([param])
    optimizer.step(grads=[[1.0]])
    with pytest.raises(UnsupportedError, match="outside a compiled step"):
        ow.compile(optimizer.use_average, device=device)()
