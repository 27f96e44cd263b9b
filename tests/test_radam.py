"""RAdam's rectification against the paper's formula in float64 (Liu et al. 2020, arXiv:1908.03265, algorithm 2)."""

import numpy as np
import pytest

import optirs_web as ow

STEPS = np.arange(1, 1001)
BETA1 = 0.9


def sma_length(beta2):
    """The paper's rho_inf, and its rho_t of each step."""
    rho_inf = 2 / (1 - beta2) - 1
    return rho_inf, rho_inf - 2 * STEPS * beta2**STEPS / (1 - beta2**STEPS)


def rectification(beta2):
    """The paper's r_t where rho_t > 5 (torch's bound), and 1 where the step goes without the denominator."""
    rho_inf, rho = sma_length(beta2)
    is_rectified = rho > 5
    rho = np.where(is_rectified, rho, 5.0)
    r = np.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
    return np.where(is_rectified, r, 1.0)


def steps_at(device, beta2):
    """Return what RAdam subtracts at each of the steps at lr 1 if all gradients are 1: both corrected averages are 1.

    A parameter for each step, and all in one go: their states are loaded.
    """
    params = [ow.Parameter([0.0], device=device) for _ in STEPS]
    optimizer = ow.optim.RAdam(params, lr=1.0, betas=(BETA1, beta2), eps=0.0)
    state_dict = optimizer.state_dict()
    for number, done in enumerate(STEPS - 1):
        averages = {"exp_avg": [1 - BETA1**done], "exp_avg_sq": [1 - beta2**done]}
        state_dict["state"][number] = {"step": done, **averages}
    optimizer.load_state_dict(state_dict)
    optimizer.step(grads=[[1.0]] * len(params))
    return -np.array([param.item() for param in params])


@pytest.mark.slow
@pytest.mark.parametrize("beta2", [0.9, 0.99, 0.999, 0.9999])
def test_steps_1_to_1000_are_rectified_as_in_the_paper_from_where_the_length_exceeds_5(beta2, device):
    got = steps_at(device, beta2)
    assert np.abs(got / rectification(beta2) - 1).max() <= 1e-6
    first = int(np.argmax(sma_length(beta2)[1] > 5))
    assert got[first - 1] == pytest.approx(1)
    assert got[first] < 0.3  # the variance of the denominator is still large
