"""Rules of optimizers where divisions are what WGSL allows: off by 2.5 ulp, and anything for divisors above 2^126.

NVIDIA's Vulkan driver makes use of both: on an H100, where rules that do something every so many steps compared a
quotient with its floor, refreshes were missed; on an H200, where K-FAC without `kl_clip` divided the largest number by
itself, the quotient was 0, and so was every step.
"""

import math

import numpy as np
import pytest

from optirs_web.optim.options import LARGEST_FLOAT32
from optirs_web.runtime.option_kernels import host_functions
from optirs_web.wgsl import load_map_module


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


class Flushed(float):
    """A number whose quotients are its products with reciprocals, which are 0 where they are not normal numbers."""

    def __truediv__(self, other):
        return float(self) / float(other) if abs(other) <= 2.0**126 else 0.0


REFRESHES = {  # the option, and whether a step is one of those that the rule takes another way
    "galore": ("update_proj_gap", lambda step, period: step % period == 0),
    "kfac": ("update_freq", lambda step, period: step % period == 0),
    "shampoo": ("update_freq", lambda step, period: step % period == 0),
    "soap": ("precondition_frequency", lambda step, period: step > 0 and step % period == 0),
}


def on_host(rule, name):
    """Return a function of a rule, printed as Python, and the types of the structures in its module."""
    function = host_functions(load_map_module("optimizers", rule, (name,)), name)[name]
    return function, function.__globals__


def advanced(rule, step, **options):
    """Return the scalars that the rule's `advance` makes of the number of steps before."""
    advance, module = on_host(rule, "advance")
    hyper, scalars = module["Hyper"], module["Scalars"]
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


@pytest.mark.parametrize(
    ("kl_clip", "change", "clipping"),
    [(LARGEST_FLOAT32, 0.0, 1.0), (0.25, 0.0, 1.0), (0.25, -0.25, 1.0), (0.25, -1.0, 0.5), (0.25, math.nan, 1.0)],
)
def test_kfac_clips_what_changes_more_than_its_bound(kl_clip, change, clipping):
    settle, module = on_host("kfac", "settle")
    hyper, scalars = module["Hyper"], module["Scalars"]
    options = dict.fromkeys(hyper._fields, 0.5) | {"kl_clip": Flushed(kl_clip)}
    before = scalars(**dict.fromkeys(scalars._fields, 1.0))
    assert settle(before, module["Measured"](Flushed(change)), hyper(**options)).clipping == clipping
