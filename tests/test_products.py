"""Both families of kernels for products: each gives the same, and a device is given the one that suits it."""

from dataclasses import replace

import numpy as np
import pytest
from operation_cases import CASES
from test_operation_derivatives import Call, Found, compare_with_numpy

import optirs_web as ow
from optirs_web.errors import ShaderError
from optirs_web.ops import scaled_dot_product_attention
from optirs_web.runtime import products as product_kernels
from optirs_web.runtime.backend import AdapterInfo
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.products import (
    SMALL,
    TILE_CLASSES,
    TILES,
    Staging,
    Tile,
    TileClass,
    ask_for_quads,
    by_quads,
    inner_parts,
    note_quads,
    product_launches,
    stagings_of,
    tile_class,
    tile_of,
)

BY_PRODUCTS = {"matmul", "scaled_dot_product_attention", "conv1d", "conv2d", "conv_transpose2d"}
OF_PRODUCTS = [case for case in CASES if BY_PRODUCTS & set(case.operations)]


@pytest.fixture
def tiled(open_device, monkeypatch):
    """`tiled(compute)`: what it gives on vulkan with the kernels that GPUs are given."""
    device = open_device("vulkan")

    def call(compute):
        with monkeypatch.context() as patch:
            patch.setattr(device, "capabilities", replace(device.capabilities, quads=False))
            return compute()

    return call


@pytest.mark.parametrize("kernels", ["operation_by_tiles", "operation_by_vectors", "operation_as_on_gpus"])
@pytest.mark.parametrize("case", OF_PRODUCTS, ids=[case.name for case in OF_PRODUCTS])
def test_the_kernels_of_other_adapters_equal_numpy_in_float64(case, kernels, numerics):
    calls = [Call(case, number) for number in range(len(case.variants))]
    results = numerics(kernels, case.name, [call.arguments() for call in calls])
    for call, result in zip(calls, results, strict=True):
        compare_with_numpy(None, call, Found(call, result))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 65])
@pytest.mark.parametrize("columns", [1, 10, 12, 16, 63, 65])
@pytest.mark.parametrize("inner", [1, 3, 4, 9, 12])
@pytest.mark.parametrize("least_by_vectors", [0, 1 << 22])
def test_edges_of_tiles_neither_miss_nor_leak_elements(
    open_device, monkeypatch, rows, columns, inner, least_by_vectors
):
    monkeypatch.setattr(product_kernels, "LEAST_BY_VECTORS", least_by_vectors)
    device = open_device("vulkan")
    generator = np.random.default_rng(rows * columns + inner)
    a = generator.normal(size=(rows, inner)).astype(np.float32)
    b = generator.normal(size=(inner, columns)).astype(np.float32)
    a[rows // 2] = np.inf  # stays in its row
    b[0, columns // 2] = np.nan  # stays in its column
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    left = ow.tensor(a, device=device)
    for right in (ow.tensor(b, device=device), ow.tensor(b.T.copy(), device=device).T):
        np.testing.assert_allclose((left @ right).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_a_product_is_read_and_written_at_16_bits_and_with_what_follows_it(open_device, tiled):
    device = open_device("vulkan")
    a, b, bias = (ow.randn(shape, device=device, seed=2) for shape in [(33, 20), (20, 70), (70,)])
    for dtype in ("float32", "float16", "bfloat16"):
        left, right = a.astype(dtype), b.astype(dtype)

        def compute(left=left, right=right):
            step = ow.compile(lambda: ((left @ right).float() + bias).relu(), device=device)
            return step().numpy()

        np.testing.assert_allclose(compute(), tiled(compute), rtol=2e-2 if dtype != "float32" else 1e-5, atol=1e-5)


def test_products_of_an_optimizer_are_the_same_by_both(open_device, tiled):
    def muon():
        w = ow.Parameter(np.random.default_rng(0).normal(size=(40, 50)), device=open_device("vulkan"))
        ow.optim.Muon([w], lr=0.1).step(grads=[w.detach() * 0.5])
        return w.numpy()

    np.testing.assert_allclose(muon(), tiled(muon), rtol=1e-5, atol=1e-6)


def test_software_adapters_multiply_by_quads_and_others_by_tiles(open_device):
    assert open_device("vulkan").capabilities.quads  # llvmpipe
    assert not open_device("cpu").capabilities.quads
    capabilities = open_device("vulkan").capabilities
    layout = (100, 100, 10, 10, 1, 100, 1)
    [quads] = product_launches("matmul", capabilities, layout)
    [by_tiles] = product_launches("matmul", replace(capabilities, quads=False), layout)
    assert (quads.kernel, quads.grid) == (by_quads("matmul", Staging.BY_ELEMENTS), (13, 1))  # 49 tiles, 4 at once
    assert (by_tiles.kernel, by_tiles.grid) == (cooperative("matmul"), (4, 4))


def test_where_lanes_are_numbered_otherwise_products_are_by_tiles(open_device, monkeypatch):
    backend = open_device("vulkan").backend
    monkeypatch.setattr(backend, "capabilities", backend.capabilities)
    note_quads(backend, ask_for_quads(backend), memoryview(bytes([16, 0, 0, 0])))
    assert not backend.capabilities.quads
    note_quads(backend, ask_for_quads(backend), memoryview(bytes(4)))
    assert backend.capabilities.quads


@pytest.mark.parametrize(
    ("file", "is_refused"), [("quad_lanes", True), ("shaders/kernels/quad_lanes.wgsl", False), ("adamw", False)]
)
def test_only_where_the_compiler_refuses_quads_the_device_opens_and_multiplies_by_tiles(
    file, is_refused, open_device, monkeypatch
):
    backend = open_device("vulkan").backend
    freed = []

    def refuse(*_):
        raise ShaderError("refused", file=file, line=1, column=1)

    monkeypatch.setattr(backend, "bind", refuse)
    monkeypatch.setattr(backend, "free", freed.append)
    if is_refused:
        assert ask_for_quads(backend) is None
    else:
        with pytest.raises(ShaderError, match="refused"):
            ask_for_quads(backend)
    assert len(freed) == 1


@pytest.mark.parametrize("change", [{"features": frozenset()}, {}])
def test_gpus_are_not_asked(open_device, monkeypatch, change):
    backend = open_device("vulkan").backend
    monkeypatch.setattr(backend, "capabilities", replace(backend.capabilities, **change))
    monkeypatch.setattr(backend, "info", replace(backend.info, software=bool(change)))
    assert ask_for_quads(backend) is None


@pytest.mark.parametrize("quads", [True, False])
def test_a_batch_takes_as_many_launches_as_the_grid_needs(open_device, monkeypatch, quads):
    device = open_device("vulkan")
    a = np.random.default_rng(1).normal(size=(5, 40, 40)).astype(np.float32)
    expected = a.astype(np.float64) @ a
    for most, launches in [(4, 2 if quads else 3), (2, 5)]:
        capabilities = replace(device.capabilities, quads=quads, max_workgroups=most)
        monkeypatch.setattr(device, "capabilities", capabilities)
        x = ow.tensor(a, device=device)
        before = device.stats.copy()
        result = x @ x
        assert (device.stats - before).dispatches == launches
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quads", [True, False])
@pytest.mark.parametrize(("rows", "columns", "batch"), [(70, 3, ()), (3, 70, ()), (70, 3, (2,))])
def test_a_side_with_more_tiles_than_a_grid_has_workgroups_is_cut(
    open_device, monkeypatch, rows, columns, batch, quads
):
    device = open_device("vulkan")
    generator = np.random.default_rng(2)
    a, b = (generator.normal(size=(*batch, *shape)).astype(np.float32) for shape in [(rows, 5), (5, columns)])
    capabilities = replace(device.capabilities, quads=quads, max_workgroups=2)
    x, y = (ow.Parameter(values, device=device) for values in (a, b))
    with monkeypatch.context() as patch:
        patch.setattr(device, "capabilities", capabilities)
        result = x @ y
    np.testing.assert_allclose(result.numpy(), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_a_layer_takes_more_rows_than_a_grid_of_tiles_has(device):
    rows = 32 * 65_535 + 33  # a picture of 2,048 by 1,024 pixels has as many
    x = ow.tensor(np.arange(rows, dtype=np.float32)[:, None], device=device)
    weight = ow.Parameter([[2.0, -1.0]], device=device)
    result = x @ weight
    np.testing.assert_array_equal(result[-3:].numpy(), [[2.0 * row, -row] for row in range(rows - 3, rows)])
    result[-1].sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [[rows - 1, rows - 1]])


@pytest.mark.parametrize("quads", [True, False])
@pytest.mark.parametrize("inner", [262_144, 600_001])
def test_a_product_adds_up_more_than_a_loop_of_a_software_adapter_may(open_device, monkeypatch, inner, quads):
    device = open_device("vulkan")
    if not quads:
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False))
    values = np.random.default_rng(4).integers(-4, 5, size=(2, inner)).astype(np.float32)
    x = ow.tensor(values, device=device)
    expected = (values.astype(np.float64) @ values.T).astype(np.float32)
    np.testing.assert_array_equal((x @ x.T).numpy(), expected)
    y = ow.tensor(values.T.copy(), device=device)
    np.testing.assert_array_equal((y.T @ y).numpy(), expected)


# The tiles of GPUs, each of them also where it would not be chosen.

OF_GPUS = [tile for tile in TILES if tile != SMALL]
PLAIN, ACROSS, ELEMENTS = Staging.BY_DEPTH, Staging.ACROSS, Staging.BY_ELEMENTS
STAGINGS = [(a, b) for a in Staging for b in Staging]


def each_tile_and_staging():
    """All stagings of the tiles that a table chooses, and the plain product and that by elements of the others."""
    chosen = {tile for tile_class in TILE_CLASSES.values() for tile in tile_class.tiles}
    for tile in OF_GPUS:
        for a, b in STAGINGS if tile in chosen else [(PLAIN, ACROSS), (ELEMENTS, ELEMENTS)]:
            yield pytest.param(tile, a, b, id=f"{tile}, {a.name} {b.name}")


@pytest.fixture
def with_tile(monkeypatch):
    """`with_tile(device, tile)` has a device multiply by that tile, whatever the shape; it returns the kernels it runs.

    Long inner axes are cut in products of fewer workgroups than `workgroups`.
    """

    def force(device, tile, workgroups=0):
        kernels = []
        monkeypatch.setitem(TILE_CLASSES, "forced", TileClass((tile,), workgroups, workgroups))
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False, tiles="forced"))
        monkeypatch.setattr(device, "observers", [lambda kernel, _: kernels.append(kernel)])
        return kernels

    return force


def stored(values, device, axis, is_odd):
    """A tensor of these values that is contiguous along an axis (-1 or -2), in rows of an odd length if `is_odd`."""
    matrix = np.moveaxis(values, axis, -1)
    padded = np.pad(matrix, [(0, 0)] * (matrix.ndim - 1) + [(0, int(is_odd))], constant_values=np.nan)
    tensor = ow.tensor(padded, device=device)[..., : matrix.shape[-1]]
    return tensor if axis == -1 else tensor.transpose(-1, -2)


@pytest.mark.parametrize(("tile", "a_staging", "b_staging"), list(each_tile_and_staging()))
def test_each_tile_multiplies_operands_of_each_layout(open_device, with_tile, tile, a_staging, b_staging):
    device = open_device("vulkan")
    kernels = with_tile(device, tile)
    rows, inner, columns = (133, 19, 67) if a_staging == b_staging == ELEMENTS else (132, 20, 68)
    generator = np.random.default_rng(7)
    a = generator.normal(size=(2, 1, rows, inner)).astype(np.float32)
    b = generator.normal(size=(3, inner, columns)).astype(np.float32)
    a[..., rows // 2, :] = np.inf
    b[..., 0, columns // 2] = np.nan
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    left = stored(a, device, -2 if a_staging == ACROSS else -1, a_staging == ELEMENTS)
    right = stored(b, device, -2 if b_staging == PLAIN else -1, b_staging == ELEMENTS)
    np.testing.assert_allclose((left @ right).numpy(), expected, rtol=1e-5, atol=1e-5)
    [kernel] = {kernel for kernel in kernels if kernel.name == "matmul"}
    constants = kernel.constants
    assert (tile_of(kernel), constants["A_STAGING"], constants["B_STAGING"]) == (tile, a_staging, b_staging)


@pytest.mark.parametrize("tile", OF_GPUS, ids=str)
def test_each_tile_has_the_same_sums_as_the_smallest_and_takes_what_follows_them(open_device, with_tile, tile):
    device = open_device("vulkan")
    a, b, bias = (ow.randn(shape, device=device, seed=2) for shape in [(36, 20), (20, 72), (72,)])
    with_tile(device, SMALL)
    plain = (a @ b).numpy()
    kernels = with_tile(device, tile)
    np.testing.assert_array_equal((a @ b).numpy(), plain)
    fused = ow.compile(lambda: (a @ b + bias).relu(), device=device)().numpy()
    np.testing.assert_allclose(fused, np.maximum(plain + bias.numpy(), 0.0), rtol=1e-6, atol=1e-6)
    assert {kernel.name for kernel in kernels} >= {"matmul"}


def test_elements_of_16_bits_are_read_one_by_one(open_device, with_tile):
    device = open_device("vulkan")
    kernels = with_tile(device, Tile(32, 32, 4, 4, 16))
    a, b = (ow.randn(shape, device=device, seed=2) for shape in [(36, 20), (20, 72)])
    for dtype in ("float16", "bfloat16"):
        result = a.astype(dtype) @ b.astype(dtype)
        expected = a.astype(dtype).float().numpy() @ b.astype(dtype).float().numpy()
        np.testing.assert_allclose(result.float().numpy(), expected, rtol=2e-2, atol=1e-5)
    constants = [kernel.base.constants for kernel in kernels if kernel.name.startswith("matmul")]
    assert [(constant["A_STAGING"], constant["B_STAGING"]) for constant in constants] == [(ELEMENTS, ELEMENTS)] * 2


def test_an_optimizer_multiplies_by_vectors_where_its_matrices_allow_it(open_device, with_tile):
    device = open_device("vulkan")

    def muon():
        w = ow.Parameter(np.random.default_rng(0).normal(size=(40, 52)), device=device)
        ow.optim.Muon([w], lr=0.1).step(grads=[w.detach() * 0.5])
        return w.numpy()

    expected = muon()
    kernels = with_tile(device, Tile(32, 32, 4, 4, 16))
    np.testing.assert_allclose(muon(), expected, rtol=1e-5, atol=1e-6)
    read = {kernel.constants["A_STAGING"] for kernel in kernels if kernel.name == "batched_matmul"}
    assert PLAIN in read


@pytest.mark.parametrize(
    ("layout", "starts", "expected"),
    [
        ((64, 32, 16, 16, 1, 32, 1), ((0,), (0,)), (PLAIN, ACROSS)),
        ((64, 32, 16, 1, 64, 1, 16), ((0,), (0,)), (ACROSS, PLAIN)),
        ((64, 10, 16, 16, 1, 10, 1), ((0,), (0,)), (PLAIN, ELEMENTS)),
        ((64, 32, 10, 10, 1, 32, 1), ((0,), (0,)), (ELEMENTS, ACROSS)),
        ((64, 32, 16, 17, 1, 36, 1), ((0,), (0,)), (ELEMENTS, ACROSS)),
        ((64, 32, 16, 16, 1, 32, 1), ((4, 8), (0, 2)), (PLAIN, ELEMENTS)),
        ((1, 32, 16, 7, 1, 32, 1), ((0,), (0,)), (PLAIN, ACROSS)),  # one row, whose stride does not matter
        ((64, 32, 16, 32, 2, 0, 0), ((0,), (0,)), (ELEMENTS, ELEMENTS)),
        ((64, 32, 16, 16, 1, 32, 1), None, (ELEMENTS, ELEMENTS)),
    ],
)
def test_vectors_are_read_where_all_of_them_are_aligned(layout, starts, expected):
    assert stagings_of(layout, starts) == expected


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_invocations_of_a_tile_stage_whole_vectors_in_equal_numbers(tile):
    for size in (tile.rows, tile.columns):
        assert size * tile.depth % (4 * tile.invocations) == 0
        assert size % 4 == 0
    assert all(number % 4 == 0 for number in tile)


def test_the_tiles_of_each_class_run_within_the_limits_of_every_device(open_device):
    guaranteed = replace(open_device("cpu").capabilities, max_invocations=256, max_workgroup_bytes=16384)
    assert all(tile.fits(guaranteed) for tile_class in TILE_CLASSES.values() for tile in tile_class.tiles)


@pytest.mark.parametrize(
    ("tiles", "shape", "expected"),
    [
        ("discrete", (1024, 1024), (128, 64)),
        ("discrete", (1024, 512), (64, 64)),  # 64 workgroups of 128x64
        ("discrete", (784, 512), (32, 32)),  # 104 workgroups of 64x64
        ("discrete", (256, 256), (32, 32)),
        ("discrete", (100_000, 10), (32, 32)),  # of 64 columns most would be empty
        ("d3d12", (2048, 2048), (128, 128)),
        ("apple", (512, 512), (128, 64)),
        ("intel", (1024, 1024), (64, 64)),
        ("integrated", (256, 256), (64, 64)),
        ("software", (1024, 1024), (32, 32)),
    ],
)
def test_a_tile_is_chosen_by_the_class_of_adapter_and_the_shape(open_device, tiles, shape, expected):
    capabilities = replace(open_device("vulkan").capabilities, quads=False, tiles=tiles)
    rows, columns = shape
    layout = (rows, columns, 64, 64, 1, columns, 1)
    [launch] = product_launches("matmul", capabilities, layout, starts=((0,), (0,)))
    tile = tile_of(launch.kernel)
    assert tile[:2] == expected
    assert launch.grid == (-(-columns // tile.columns), -(-rows // tile.rows))
    if tiles != "software":
        few = replace(capabilities, max_invocations=64)
        [launch] = product_launches("matmul", few, layout, starts=((0,), (0,)))
        assert tile_of(launch.kernel)[:2] == (32, 32)


# Long inner axes, whose parts several workgroups of a GPU multiply.


@pytest.mark.parametrize(
    ("tiles", "rows", "columns", "inner", "products", "expected"),
    [
        ("discrete", 64, 576, 16_384, 1, 2048),  # 36 of the smallest tile, 256 required
        ("discrete", 10, 256, 60_000, 1, 1888),  # 32 parts, of multiples of 16
        ("discrete", 10, 256, 600, 1, 304),  # no shorter than 256
        ("discrete", 10, 256, 511, 1, 511),
        ("discrete", 64, 576, 16_384, 2, 16_384),  # the other product has as many
        ("discrete", 256, 256, 16_384, 1, 16_384),
        ("apple", 64, 288, 16_384, 1, 2048),
        ("integrated", 64, 64, 16_384, 1, 1024),
        ("integrated", 128, 128, 16_384, 1, 16_384),
        ("software", 1, 1, 16_384, 1, 16_384),
    ],
)
def test_a_long_inner_axis_is_cut_where_a_product_has_few_tiles(
    open_device, tiles, rows, columns, inner, products, expected
):
    capabilities = replace(open_device("vulkan").capabilities, quads=False, tiles=tiles)
    assert inner_parts(capabilities, rows, columns, inner, products) == expected
    assert inner_parts(replace(capabilities, replaced=frozenset({"matmul"})), rows, columns, inner, products) == inner
    assert inner_parts(replace(capabilities, quads=True), rows, columns, inner, products) == inner
    if (
        expected < inner
    ):  # with the parts it has as many workgroups as occupy the class, or parts are as short as allowed
        layout = (rows, columns, expected, expected, 1, columns, 1)
        [launch] = product_launches("matmul", capabilities, layout, products * (inner // expected), ((0,), (0,)))
        assert launch.grid[0] * launch.grid[1] >= TILE_CLASSES[tiles].occupied or expected < 512


CUT = Tile(32, 32, 4, 4, 16)


@pytest.mark.parametrize("inner", [1024, 1037])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_parts_of_the_inner_axis_add_up_to_the_product(open_device, with_tile, batch, inner):
    device = open_device("vulkan")
    generator = np.random.default_rng(8)
    a = generator.normal(size=(*batch, 37, inner)).astype(np.float32)
    b = generator.normal(size=(*batch[1:], inner, 20)).astype(np.float32)
    kernels = with_tile(device, CUT, 32)
    left, right = ow.tensor(a, device=device), ow.tensor(b, device=device)
    result = (left @ right).numpy()
    expected = a.astype(np.float64) @ b
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.sqrt(inner))
    assert [kernel.name for kernel in kernels].count("sum") == (batch != (2, 3))  # a batch of two axes has none left
    np.testing.assert_array_equal((left @ right).numpy(), result)
    transposed = ow.tensor(np.swapaxes(b, -1, -2).copy(), device=device).transpose(-1, -2)
    np.testing.assert_allclose((left @ transposed).numpy(), expected, rtol=1e-5, atol=1e-5 * np.sqrt(inner))


def test_what_follows_a_product_in_parts_is_computed_with_the_sums_of_its_parts(open_device, with_tile):
    device = open_device("vulkan")
    with_tile(device, CUT, 16)
    x, w, bias, added = (ow.randn(shape, device=device, seed=n) for n, shape in
                         enumerate([(30, 2048), (2048, 40), (40,), (30, 40)]))  # fmt: skip
    step = ow.compile(lambda: (x @ w + bias).relu() + added, device=device)
    expected = np.maximum(x.numpy().astype(np.float64) @ w.numpy() + bias.numpy(), 0) + added.numpy()
    np.testing.assert_allclose(step().numpy(), expected, rtol=1e-5, atol=5e-4)
    assert [launch.kernel.name for launch in step.program.launches] == ["matmul", "sum+add+relu+add"]
    np.testing.assert_array_equal(step().numpy(), step().numpy())


def test_gradients_of_weights_and_elements_of_16_bits_are_by_parts_too(open_device, with_tile):
    device = open_device("vulkan")
    x, g = (np.random.default_rng(9).normal(size=shape).astype(np.float32) for shape in [(1500, 6), (1500, 5)])
    weight = ow.Parameter(np.zeros((6, 5)), device=device)
    kernels = with_tile(device, CUT, 8)
    (ow.tensor(x, device=device) @ weight).backward(ow.tensor(g, device=device))
    np.testing.assert_allclose(weight.grad.numpy(), x.T.astype(np.float64) @ g, rtol=1e-5, atol=4e-4)
    assert kernels[-1].name.startswith("sum")
    for dtype, tolerance in [("float16", 1e-3), ("bfloat16", 1e-2)]:
        kernels.clear()
        left, right = (ow.tensor(values, device=device).astype(dtype) for values in (x, g))
        expected = left.float().numpy().T.astype(np.float64) @ right.float().numpy()
        result = left.transpose(0, 1) @ right
        np.testing.assert_allclose(result.float().numpy(), expected, rtol=tolerance, atol=40 * tolerance)
        assert any(kernel.name.startswith("sum") for kernel in kernels)


@pytest.mark.parametrize(
    ("name", "kind", "adapter", "description", "expected"),
    [
        ("vulkan", "discrete", "10de:2330", "NVIDIA H100", "discrete"),
        ("cuda", "discrete", "", "NVIDIA RTX A2000", "discrete"),
        ("vulkan", "integrated", "1002:15bf", "AMD Radeon 780M", "integrated"),
        ("vulkan", "discrete", "8086:56a0", "Arc A770", "intel"),
        ("metal", "integrated", "", "Apple M2", "apple"),
        ("dx12", "discrete", "10de:2d18", "NVIDIA GeForce RTX 5050", "d3d12"),
        ("dx12", "integrated", "8086:46a6", "Iris Xe", "integrated"),
        ("webgpu", "", "", "nvidia ampere", "discrete"),
        ("webgpu", "", "", "apple metal-3", "apple"),
        ("webgpu", "", "", "intel gen-12lp", "integrated"),
        ("webgpu", "", "", "qualcomm adreno-7xx", "integrated"),
        ("vulkan", "software", "10005:0000", "llvmpipe", "software"),
        ("opencl", "software", "", "PoCL on an AMD EPYC", "software"),
    ],
)
def test_an_adapter_has_a_class(name, kind, adapter, description, expected):
    info = AdapterInfo(name, 0, description, kind == "software", kind=kind, adapter=adapter)
    assert tile_class(info) == expected
    if description == "nvidia ampere":
        assert tile_class(info, is_d3d12=True) == "d3d12"


# Attention on software adapters: two products and a softmax.


@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_attention_by_products_equals_attention_by_tiles(open_device, tiled, mask):
    device = open_device("vulkan")
    generator = np.random.default_rng(3)
    query, key, value = (
        ow.Parameter(generator.normal(size=shape), device=device) for shape in [(2, 33, 8), (2, 40, 8), (2, 40, 5)]
    )
    seen = generator.random((33, 40)) < 0.5
    seen[7] = False
    masks = {"bool": seen, "float": np.where(seen, 0.25, -np.inf).astype(np.float32)}
    options = {"attn_mask": ow.tensor(masks[mask], device=device)} if mask in masks else {"is_causal": mask == "causal"}

    def compute():
        for parameter in (query, key, value):
            parameter.grad = None
        result = scaled_dot_product_attention(query, key, value, **options)
        result.square().sum().backward()
        return [result.numpy(), query.grad.numpy(), key.grad.numpy(), value.grad.numpy()]

    for got, expected in zip(compute(), tiled(compute), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)


def test_scores_of_more_than_16_mib_are_not_stored(open_device):
    device = open_device("vulkan")
    for rows, dispatches in [(256, None), (2048, 1)]:
        query = ow.randn((2, rows, 4), device=device, seed=0)
        before = device.stats.copy()
        scaled_dot_product_attention(query, query, query)
        count = (device.stats - before).dispatches
        assert count == dispatches or (dispatches is None and count > 1)
