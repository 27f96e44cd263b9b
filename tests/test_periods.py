"""Optimizers that do something every so many steps count these right where divisions are inexact.

WGSL allows a quotient to be off by 2.5 ulp. NVIDIA's Vulkan driver makes use of it: on an H100, where these rules
compared a quotient with its floor, refreshes were missed.
"""

import numpy as np
import pytest

from optirs_web.runtime.kernels import load_map_module
from optirs_web.runtime.option_kernels import host_functions


class Inexact(float):
    """A number whose quotients are off by two units of float32's last place, in one direction."""

    towards = np.float32(0)

    def __truediv__(self, other):
        quotient = np.float32(float(self) / float(other))
        for _ in range(2):
            quotient = np.nextafter(quotient, self.towards)
        return float(quotient)


class Above(Inexact):
    towards = np.float32(np.inf)


REFRESHES = {  # the option, and whether a step is one of those that the rule takes another way
    "galore": ("update_proj_gap", lambda step, period: step % period == 0),
    "kfac": ("update_freq", lambda step, period: step % period == 0),
    "shampoo": ("update_freq", lambda step, period: step % period == 0),
    "soap": ("precondition_frequency", lambda step, period: step > 0 and step % period == 0),
}


def advanced(rule, step, **options):
    """Return the scalars that the rule's `advance` makes of the number of steps before."""
    advance = host_functions(load_map_module("optimizers", rule, ("advance",)), "advance")["advance"]
    hyper, scalars = advance.__globals__["Hyper"], advance.__globals__["Scalars"]
    options = {name: -0.1 if name.startswith("log_") else 0.5 for name in hyper._fields} | options
    return advance(scalars(**dict.fromkeys(scalars._fields, 0.0) | {"step": step}), hyper(**options))


@pytest.mark.parametrize("kind", [Inexact, Above])
@pytest.mark.parametrize("period", [1, 3, 7, 10, 30, 49])
@pytest.mark.parametrize("rule", REFRESHES)
def test_a_refresh_is_due_every_so_many_steps(rule, period, kind):
    option, is_due = REFRESHES[rule]
    due = [advanced(rule, kind(step), **{option: float(period)}) for step in range(200)]
    assert [scalars.refresh for scalars in due] == [float(is_due(step, period)) for step in range(200)]


@pytest.mark.parametrize("kind", [Inexact, Above])
@pytest.mark.parametrize("period", [1, 3, 7, 10, 30, 49])
def test_apollo_counts_its_projections(period, kind):
    draws = [advanced("apollo", kind(step), update_proj_gap=float(period)).draw for step in range(200)]
    assert draws == [step // period for step in range(200)]
