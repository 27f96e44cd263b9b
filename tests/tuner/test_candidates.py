"""The candidates of kernels: all compute the same, and a device gets none that it cannot run."""

from dataclasses import replace

import numpy as np
import pytest
from tuner_problems import TILE, random

import optirs_web as ow
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.launches import Launch
from optirs_web.runtime.products import SMALL
from optirs_web.runtime.tuner.candidates import TUNABLE, tunable_of
from optirs_web.runtime.tuner.choices import Choices
from optirs_web.runtime.tuner.shipped import SHIPPED, shipped_for
from optirs_web.tuner.report import TuningReport, Work

GUARANTEED = (256, 16384)  # WebGPU's limits: invocations of a workgroup, bytes that they share
BY_QUADS = (0, 0, 0, 0, 0)
BY_MATRICES = [candidate for candidate in TUNABLE["matmul"].candidates if candidate[0] and not candidate[2]]
"""Candidates of launches by subgroup matrices, which devices use only on request; see `test_subgroup_matrices`."""
CANDIDATES = [
    (name, choice) for name, tunable in TUNABLE.items() for choice in tunable.candidates if choice not in BY_MATRICES
]
SMALLEST = (16, 16, 4, 4, 4)


def products(device):
    a, b = ow.tensor(random(70, 37), device=device), ow.tensor(random(37, 45), device=device)
    square = ow.tensor(random(3, 37, 37), device=device)
    return [a @ b, b.T @ a.T, square @ b]


def sums(device):
    x = ow.tensor(random(3, 300, 5), device=device)
    wide = ow.tensor(random(40, 300), device=device)  # on llvmpipe each invocation takes a column
    return [x.sum(), x.sum(axis=1), x.sum(axis=2), wide.sum(axis=0)]


def maps(device):
    x = ow.tensor(random(70, 45), device=device)
    return [x * x, x.T.exp(), x + x.sum(axis=0)]


def updates(device):
    w = ow.Parameter(random(70, 45), device=device)
    b = ow.Parameter(random(3), device=device)
    optimizer = ow.optim.AdamW([w, b], lr=0.1)
    optimizer.step(grads=[w.detach() * 0.5, b.detach() * 0.5])
    return [w.detach(), b.detach(), optimizer.state[w]["exp_avg"]]


COMPUTE = {"matmul": products, "sum": sums, "map": maps, "update": updates}


def force(device, name, choice):
    """Give each launch that is tuned as `name` this candidate; a list of those that got it."""
    ran = []

    def tuned(launch):
        if tunable_of(launch.kernel) is not TUNABLE[name]:
            return launch
        made = TUNABLE[name].tuned(launch, choice, device.capabilities)
        if made is not launch:
            ran.append(made)
        return made

    device.backend.tuned = tuned
    return ran


@pytest.mark.parametrize(("name", "choice"), CANDIDATES)
def test_every_candidate_computes_what_the_default_computes(vulkan, name, choice):
    by_tiles = name == "matmul" and choice != BY_QUADS
    if by_tiles:  # other tiles give the same bits
        force(vulkan, name, TUNABLE[name].candidates[0])
    expected = [tensor.numpy() for tensor in COMPUTE[name](vulkan)]
    ran = force(vulkan, name, choice)
    results = [tensor.numpy() for tensor in COMPUTE[name](vulkan)]
    assert bool(ran) == (choice != (BY_QUADS if name == "matmul" else TUNABLE[name].candidates[0]))  # the default
    for result, other in zip(results, expected, strict=True):
        if name == "sum":
            np.testing.assert_allclose(result, other, rtol=1e-6, atol=1e-5)
        else:
            np.testing.assert_array_equal(result, other)


@pytest.mark.parametrize(
    ("name", "choice"), [("matmul", TILE), ("matmul", SMALLEST), ("sum", (256,)), ("map", (64, 16))]
)
def test_kernels_that_are_fused_are_tuned_too(vulkan, name, choice):
    a, b = ow.tensor(random(300, 37), device=vulkan), ow.tensor(random(37, 290), device=vulkan)
    chain = {
        "matmul": lambda: (a @ b + 1.0).relu(),
        "sum": lambda: (a * a).sum(axis=1) * 2.0,
        "map": lambda: (a * 2.0 + 1.0).tanh(),
    }[name]
    expected = ow.compile(chain, device=vulkan)().numpy()
    ran = force(vulkan, name, choice)
    step = ow.compile(chain, device=vulkan)
    np.testing.assert_allclose(step().numpy(), expected, rtol=1e-5, atol=1e-5)
    assert [launch.kernel.name for launch in ran] == [{"matmul": "matmul+add+relu"}.get(name, ran[0].kernel.name)]
    assert "+" in ran[0].kernel.name


def test_products_of_an_optimizer_are_tuned_too(vulkan):
    def muon():
        w = ow.Parameter(random(40, 50), device=vulkan)
        ow.optim.Muon([w], lr=0.1).step(grads=[w.detach() * 0.5])
        return w.numpy()

    force(vulkan, "matmul", SMALL)
    expected = muon()
    ran = force(vulkan, "matmul", TILE)
    np.testing.assert_array_equal(muon(), expected)
    assert {launch.kernel.name for launch in ran} == {"batched_matmul"}


@pytest.mark.parametrize("name", TUNABLE)
def test_the_first_candidate_needs_no_more_than_every_device_has(name):
    tunable = TUNABLE[name]
    needed = tunable.needs(tunable.candidates[0])
    assert all(amount <= most for amount, most in zip(needed, GUARANTEED, strict=True))


def product_of(device, rows, inner, columns):
    """The launch of a product."""
    sizes = 4 * rows * inner, 4 * inner * columns, 4 * rows * columns
    views = tuple(ow.zeros((size // 4,), device=device).view for size in sizes)
    parameters = (rows, columns, inner, inner, 1, columns, 1, 0, 0, 0, 1, 0, 0, 0, 0)
    return Launch(cooperative("matmul"), views, (-(-columns // 32), -(-rows // 32), 1), parameters)


def test_what_a_device_does_not_allow_is_no_candidate(vulkan):
    launch, tunable = product_of(vulkan, 64, 64, 64), TUNABLE["matmul"]

    def allowed(**limits):
        capabilities = replace(vulkan.capabilities, **limits)
        return [candidate for candidate in tunable.candidates if tunable.allows(launch, candidate, capabilities)]

    others = [candidate for candidate in tunable.candidates if candidate not in BY_MATRICES]
    assert allowed() == others  # llvmpipe: 1024 invocations, 32 KiB
    assert allowed(quads=False) == [other for other in others if other != BY_QUADS]
    assert allowed(max_invocations=64) == [SMALL, SMALLEST, (32, 32, 4, 4, 16), BY_QUADS]
    assert allowed(max_workgroup_bytes=3072) == [SMALL, SMALLEST, BY_QUADS]
    assert allowed(max_workgroups=3) == [other for other in others if other not in (SMALLEST, BY_QUADS)]  # of 16 rows
    assert allowed(max_invocations=0) == []
    small = replace(vulkan.capabilities, max_invocations=64)
    assert tunable.tuned(launch, TILE, small) is launch


def test_shapes_of_a_class_share_a_choice(vulkan):
    def shape_class(*shape):
        return TUNABLE["matmul"].shape_class(product_of(vulkan, *shape))

    assert shape_class(64, 64, 10) == shape_class(33, 50, 16) == "64x64x16 nn"
    assert shape_class(65, 64, 10) != shape_class(64, 64, 10)


def test_what_is_shipped_can_be_chosen_and_is_used_when_asked_for(vulkan):
    for kernels in SHIPPED.values():
        for name, choices in kernels.items():
            assert set(choices.values()) <= set(TUNABLE[name].candidates[1:])
    Choices(vulkan.backend).attach()
    assert vulkan.backend.tuned.shipped == {}
    vulkan.backend.tuned = None
    ow.tuning(True)
    assert vulkan.backend.tuned.shipped == shipped_for(vulkan.info)
    assert shipped_for(replace(vulkan.info, description="SwiftShader Device (Subzero)"))


def test_a_report_names_quads_and_no_tile_of_zeros():
    quads, tile = BY_QUADS, (64, 64, 4, 4, 16)
    work = Work("matmul", "vulkan", "64x64x64 nn", TUNABLE["matmul"].numbers, quads, tile, {quads: 2e-3, tile: 1e-3})
    assert "quads 2.00 ms, 64x64x4x4x16 1.00 ms" in str(TuningReport([work]))
