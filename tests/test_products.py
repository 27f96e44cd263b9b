"""Both families of kernels for products: each gives the same, and a device is given the one that suits it."""

from dataclasses import replace

import numpy as np
import pytest
from operation_cases import CASES
from test_operation_derivatives import Call, Found, compare_with_numpy

import optirs_web as ow
from optirs_web.errors import ShaderError
from optirs_web.ops import scaled_dot_product_attention
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.products import ask_for_quads, note_quads, product_launches

OF_PRODUCTS = [case for case in CASES if {"matmul", "scaled_dot_product_attention"} & set(case.operations)]


@pytest.fixture
def tiled(open_device, monkeypatch):
    """`tiled(compute)`: what it gives on vulkan with the kernels that GPUs are given."""
    device = open_device("vulkan")

    def call(compute):
        with monkeypatch.context() as patch:
            patch.setattr(device, "capabilities", replace(device.capabilities, quads=False))
            return compute()

    return call


@pytest.mark.parametrize("case", OF_PRODUCTS, ids=[case.name for case in OF_PRODUCTS])
def test_the_kernels_for_gpus_equal_numpy_in_float64(case, numerics):
    calls = [Call(case, number) for number in range(len(case.variants))]
    results = numerics("operation_by_tiles", case.name, [call.arguments() for call in calls])
    for call, result in zip(calls, results, strict=True):
        compare_with_numpy(None, call, Found(call, result))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 65])
@pytest.mark.parametrize("columns", [1, 10, 16, 63, 65])
@pytest.mark.parametrize("inner", [1, 3, 4, 9])
def test_edges_of_tiles_neither_miss_nor_leak_elements(open_device, rows, columns, inner):
    device = open_device("vulkan")
    generator = np.random.default_rng(rows * columns + inner)
    a = generator.normal(size=(rows, inner)).astype(np.float32)
    b = generator.normal(size=(inner, columns)).astype(np.float32)
    a[rows // 2] = np.inf  # stays in its row
    b[0, columns // 2] = np.nan  # stays in its column
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    result = ow.tensor(a, device=device) @ ow.tensor(b, device=device)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)


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
    [by_quads] = product_launches("matmul", capabilities, 100, 100)
    [by_tiles] = product_launches("matmul", replace(capabilities, quads=False), 100, 100)
    assert (by_quads.kernel, by_quads.grid) == (cooperative("matmul", QUADS=True), (13, 1))  # 49 tiles, 4 at once
    assert (by_tiles.kernel, by_tiles.grid) == (cooperative("matmul"), (4, 4))


def test_where_lanes_are_numbered_otherwise_products_are_by_tiles(open_device, monkeypatch):
    backend = open_device("vulkan").backend
    monkeypatch.setattr(backend, "capabilities", backend.capabilities)
    note_quads(backend, ask_for_quads(backend), memoryview(bytes([16, 0, 0, 0])))
    assert not backend.capabilities.quads
    note_quads(backend, ask_for_quads(backend), memoryview(bytes(4)))
    assert backend.capabilities.quads


def test_where_the_compiler_refuses_quads_the_device_opens_and_multiplies_by_tiles(open_device, monkeypatch):
    backend = open_device("vulkan").backend
    freed = []

    def refuse(*_):
        raise ShaderError("refused", file="quad_lanes", line=1, column=1)

    monkeypatch.setattr(backend, "bind", refuse)
    monkeypatch.setattr(backend, "free", freed.append)
    assert ask_for_quads(backend) is None
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
    x, y = (ow.Parameter(one, device=device) for one in (a, b))
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
