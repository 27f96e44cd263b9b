"""Products by subgroup matrices: when devices are given them, and what they compute where functions take their place.

No adapter here has the extension, and no GPU has run it. Dawn's compiler checks the text (`make verify-shaders`).
"""

from dataclasses import replace

import numpy as np
import pytest
from matrix_emulation import multiplying_by_matrices
from processes import run_python

import optirs_web as ow
from optirs_web.runtime.backend import MatrixShape
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.products import product_launches, tile_of
from optirs_web.runtime.subgroup_matrices import MATRIX_TILES, by_matrices, matrix_shapes
from optirs_web.runtime.tuner.candidates import TUNABLE

F32, F16 = MatrixShape("f32", 8, 8, 8), MatrixShape("f16", 16, 16, 16)
LARGE, MIDDLE, SMALL = MATRIX_TILES

APPLE = [("f32", "f32", 8, 8, 8), ("f16", "f16", 8, 8, 8)]
NVIDIA = [("f16", "f16", 16, 16, 16), ("f16", "f32", 16, 8, 8), ("f16", "f32", 16, 16, 16), ("i8", "i32", 16, 16, 32)]
INTEL = [("f16", "f32", 8, 16, 16), ("f16", "f16", 8, 16, 16)]
"""Configurations as Dawn lists them: elements of factors, elements of sums, M, N, K."""


@pytest.fixture
def vulkan(open_device):
    return open_device("vulkan")


# The choice of kernels.


@pytest.mark.parametrize(
    ("configs", "features", "expected"),
    [
        (APPLE, ["shader-f16"], [F32]),
        (NVIDIA, ["shader-f16"], [F16, MatrixShape("f16", 16, 8, 8)]),
        (NVIDIA, [], []),
        (INTEL, ["shader-f16"], [MatrixShape("f16", 8, 16, 16)]),
        ([], ["shader-f16"], []),
    ],
)
def test_sums_are_of_float32_and_factors_of_what_the_device_has(configs, features, expected):
    assert list(matrix_shapes(configs, features, 32)) == expected


@pytest.mark.parametrize("largest", [0, 48, 256])
def test_subgroups_that_do_not_divide_a_workgroup_have_no_matrices(largest):
    assert matrix_shapes(APPLE, [], largest) == ()


@pytest.mark.parametrize(
    ("shapes", "layout", "is_float16", "limit", "expected"),
    [
        ([F32], (100, 100), False, 32768, (MIDDLE, F32)),
        ([F32], (100, 100), True, 32768, (MIDDLE, F32)),
        ([F16], (100, 100), True, 32768, (LARGE, F16)),
        ([F16], (100, 100), False, 32768, None),  # float32 would lose digits
        ([F16, F32], (100, 100), True, 32768, (LARGE, F16)),
        ([F32], (100, 100), False, 16384, (SMALL, F32)),
        ([F32], (20, 100), False, 32768, (SMALL, F32)),
        ([F32], (16, 100), False, 32768, None),  # half of the tile would be empty
        ([F32], (100, 32), False, 32768, None),
        ([F32], (100, 100), False, 8192, None),
        ([MatrixShape("f16", 64, 64, 16)], (100, 100), True, 32768, None),
    ],
)
def test_a_product_is_by_matrices_where_it_fills_a_tile_of_them(vulkan, shapes, layout, is_float16, limit, expected):
    capabilities = replace(
        vulkan.capabilities, matrices=tuple(shapes), largest_subgroup=32, max_workgroup_bytes=limit, quads=False
    )
    rows, columns = layout
    layout = (rows, columns, 8, 8, 1, columns, 1)
    [launch] = product_launches("matmul", capabilities, layout, starts=((0,), (0,)), is_float16=is_float16)
    if expected is None:
        assert launch.kernel is cooperative("matmul")
    else:
        tile, shape = expected
        assert launch.kernel is by_matrices("matmul", tile, shape, 32)
        assert tile_of(launch.kernel) == tile
        assert launch.grid == (-(-columns // tile.columns), -(-rows // tile.rows))
        assert tile.nbytes(shape.element) <= limit


@pytest.mark.parametrize("shape", [F32, F16])
def test_a_tile_takes_the_memory_that_its_variables_take(shape):
    from optirs_web.wgsl.syntax import GlobalVariable
    from optirs_web.wgsl.types import size_of

    for tile in MATRIX_TILES:
        module = by_matrices("matmul", tile, shape, 32).module
        variables = [
            declaration
            for declaration in module.declarations
            if isinstance(declaration, GlobalVariable) and declaration.space == "workgroup"
        ]
        assert sum(size_of(variable.type) for variable in variables) == tile.nbytes(shape.element)


@pytest.mark.parametrize("said", ["", "0", "1"])
def test_only_who_asks_is_given_them(said):
    lines = run_python(
        """
        from optirs_web.runtime.subgroup_matrices import asked_for_matrices
        print(asked_for_matrices())
        """,
        OPTIRS_SUBGROUP_MATRICES=said,
    )
    assert lines == [str(said == "1")]


def test_what_is_neither_yes_nor_no_is_an_error(monkeypatch):
    from optirs_web.runtime.subgroup_matrices import asked_for_matrices

    monkeypatch.setenv("OPTIRS_SUBGROUP_MATRICES", "yes")
    with pytest.raises(ValueError, match="OPTIRS_SUBGROUP_MATRICES must be 0 or 1, not 'yes'"):
        asked_for_matrices()


@pytest.mark.needs("dawn")
def test_a_device_without_them_opens_and_multiplies_as_before():
    from dawn_device import with_software_driver

    lines = run_python(
        """
        import optirs_web as ow
        device = ow.device("vulkan", through="dawn")
        x = ow.ones((40, 40), device=device)
        print(device.capabilities.matrices, (x @ x).sum().item())
        """,
        OPTIRS_SUBGROUP_MATRICES="1",
        **with_software_driver(),
    )
    assert lines[-1] == "() 64000.0"


def test_a_tuner_has_candidates_of_both_families_where_a_launch_is_by_matrices():
    from optirs_web.runtime.launches import Launch

    tunable, device = TUNABLE["matmul"], ow.device("cpu")
    capabilities = replace(
        device.capabilities,
        matrices=(F32,),
        largest_subgroup=32,
        max_invocations=256,
        max_workgroup_bytes=32768,
        max_workgroups=65535,
    )
    views = tuple(ow.zeros((10_000,), device=device).view for _ in range(3))
    parameters = (100, 100, 100, 100, 1, 100, 1, 0, 0, 0, 1, 0, 0, 0, 0)
    launch = Launch(by_matrices("matmul", MIDDLE, F32, 32), views, (2, 2, 1), parameters)
    middle, small = (64, 64, 0, 0, 16), (32, 64, 0, 0, 16)
    assert tunable.default(launch) == middle
    allowed = [candidate for candidate in tunable.candidates if tunable.allows(launch, candidate, capabilities)]
    assert [tile for tile in allowed if not tile[2]] == [middle, small]  # 64x64, 32 deep, is too much memory
    made = tunable.tuned(launch, small, capabilities)
    assert (made.kernel, made.grid) == (by_matrices("matmul", SMALL, F32, 32), (2, 4, 1))
    made = tunable.tuned(launch, (64, 64, 4, 4, 16), capabilities)
    assert tile_of(made.kernel) == (64, 64, 4, 4, 16)
    assert made.kernel.constants["IN_REGISTERS"]
    plain = replace(launch, kernel=cooperative("matmul"))
    assert all(candidate[2] for candidate in tunable.candidates if tunable.allows(plain, candidate, capabilities))


# The results, by functions in place of the extension's.

CASES = [
    pytest.param(F32, SMALL, 32, 32, id="f32"),
    pytest.param(F32, SMALL, 128, 128, id="f32, a subgroup of 128"),
    pytest.param(F32, SMALL, 64, 64, id="f32, subgroups of 64"),
    pytest.param(F32, SMALL, 64, 16, id="f32, more subgroups than blocks"),
    pytest.param(F32, MIDDLE, 32, 32, id="f32, 64x64"),
    pytest.param(F16, LARGE, 32, 32, id="f16"),
    pytest.param(MatrixShape("f16", 8, 16, 16), LARGE, 32, 32, id="f16, 8x16x16"),
    pytest.param(MatrixShape("f16", 16, 8, 8), SMALL, 32, 32, id="f16, 16x8x8"),
]


@pytest.mark.parametrize(("shape", "tile", "largest", "subgroup"), CASES)
def test_products_equal_numpy_in_float64(vulkan, monkeypatch, shape, tile, largest, subgroup):
    """The product has edges in all three directions; an infinity stays in its row, and a NaN in its column."""
    dtype = {"f32": "float32", "f16": "float16"}[shape.element]
    limit = tile.nbytes(shape.element)
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_workgroup_bytes=limit))
    generator = np.random.default_rng(5)
    a = generator.normal(size=(2, 1, 70, 43)).astype(np.float16).astype(np.float32)
    b = generator.normal(size=(3, 43, 67)).astype(np.float16).astype(np.float32)
    a[..., 35, :] = np.inf
    b[..., 0, 33] = np.nan
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    left, right = ow.tensor(a, device=vulkan).astype(dtype), ow.tensor(b, device=vulkan).astype(dtype)
    transposed = [
        ow.tensor(array.swapaxes(-1, -2).copy(), device=vulkan).astype(dtype).transpose(-1, -2) for array in (a, b)
    ]
    with multiplying_by_matrices(vulkan, [shape], largest, subgroup) as ran:
        results = [(left @ right).float().numpy(), (transposed[0] @ transposed[1]).float().numpy()]
    tolerance = 1e-5 if dtype == "float32" else 2**-10
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=1e-5)
    assert {tile_of(kernel.base if dtype == "float16" else kernel) for kernel in ran} == {tile}


def test_bias_activation_and_gradients_are_those_of_tiles(vulkan, monkeypatch):
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_workgroup_bytes=16384))
    x, w, bias = (ow.Parameter(ow.randn(shape, device=vulkan, seed=3)) for shape in [(40, 36), (36, 70), (70,)])
    a, b, c = (
        ow.randn(shape, device=vulkan, seed=4) for shape in [(184, 20), (20, 180), (180,)]
    )  # as many as are fused

    def step():
        for param in (x, w, bias):
            param.grad = None
        loss = (x @ w + bias).relu().square().mean()
        loss.backward()
        return loss

    def results():
        values = [ow.compile(lambda: (a @ b + c).relu(), device=vulkan)(), step()]
        return [tensor.numpy() for tensor in (*values, x.grad, w.grad, bias.grad)]

    expected = results()
    with multiplying_by_matrices(vulkan, [F32], 32, 32) as ran:
        actual = results()
    for array, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6)
    assert {kernel.name for kernel in ran} >= {"matmul", "matmul+add+relu"}


def test_products_of_an_optimizer_are_those_of_tiles(vulkan, monkeypatch):
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, max_workgroup_bytes=16384))

    def muon():
        w = ow.Parameter(np.random.default_rng(0).normal(size=(40, 50)), device=vulkan)
        ow.optim.Muon([w], lr=0.1).step(grads=[w.detach() * 0.5])
        return w.numpy()

    expected = muon()
    with multiplying_by_matrices(vulkan, [F32], 32, 32) as ran:
        np.testing.assert_allclose(muon(), expected, rtol=1e-5, atol=1e-6)
    assert {kernel.name for kernel in ran} == {"batched_matmul"}
