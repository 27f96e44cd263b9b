"""Gradients so small that their squares underflow float32: every optimizer's parameters stay finite."""

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.cli.optimizers import all_optimizers

LINEAR = {"FTRL": {"beta": 0.0}, "DoG": {"eps": 0.0}, "LDoG": {"eps": 0.0}, "Prodigy": {"d0": 1.5e-38}}
"""Options with which nothing but squares of gradients is divided by: d0 times eps is 0 in float32."""

SEQUENCES = {
    "zeros": (0.0, 0.0),
    "squares of 0": (1e-30, 1e-30, 0.0, 1e-31),
    "subnormal squares": (3e-23, 2e-22, 0.0),
    "subnormal": (1e-42, 1e-42),
    "small, then ordinary": (1e-30, 1.0, 1e-30),
}
OTHER_STEPS = {"DiagonalNewton", "KFAC", "LBFGS", "Lookahead", "NewtonCG", "Reptile", "SAM", "SparseAdam"}
"""These are not stepped by gradients alone."""


@pytest.mark.parametrize("gradients", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("options", [{}, LINEAR], ids=["defaults", "no constant in the root"])
def test_parameters_stay_numbers(device, gradients, options):
    diverged = []
    for name in LINEAR if options else sorted(set(all_optimizers()) - OTHER_STEPS):
        params = [ow.Parameter(np.full((2, 3), start, np.float32), device=device) for start in (0.0, 1.0, 1e-30)]
        optimizer = getattr(ow.optim, name)(params, **options.get(name, {}))
        for size in gradients:
            optimizer.step(grads=[np.array([[size, -size, size], [0, size, size]], np.float32)] * 3)
        if not all(np.isfinite(param.numpy()).all() for param in params):
            diverged.append(name)
    assert diverged == []


def test_ftrl_without_beta_stays_until_a_square_is_more_than_0(device):
    w = ow.Parameter([1.0, 1.0], device=device)
    optimizer = ow.optim.FTRL([w], lr=0.5, beta=0.0)
    optimizer.step(grads=[[1e-30, 2.0]])
    assert w.tolist() == [1.0, 1.0 - 0.5]
    optimizer.step(grads=[[2.0, 0.0]])
    assert w.tolist() == [1.0 - 0.5, 1.0 - 0.5]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("FTRL", {"lr": 1e-40}, "Invalid learning rate: 1e-40; beta / lr is a number of float32"),
        ("FTRL", {"lr": 1e-37, "beta": 1e3}, "Invalid learning rate: 1e-37"),
        ("Prodigy", {"d0": 1e-42}, "Invalid d0 value: 1e-42"),
        ("Prodigy", {"eps": 1e-50}, "Invalid epsilon value: 1e-50"),
        ("DoG", {"reps_rel": 1e-42}, "Invalid reps_rel value: 1e-42"),
    ],
)
def test_options_that_are_0_on_some_device_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(ow.optim, name)([ow.Parameter([1.0], device="cpu")], **options)
