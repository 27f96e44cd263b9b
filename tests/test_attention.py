"""Scaled dot-product attention: what it stores, what it skips, its edges and tiles, and bad calls."""

from dataclasses import replace

import numpy as np
import pytest

import optirs_web as ow
from optirs_web.errors import ShapeError, UnsupportedError
from optirs_web.ops import getitem, scaled_dot_product_attention
from optirs_web.runtime.attention_tiles import TILES, AttentionTile, attention_kernel, attention_tile
from optirs_web.runtime.products import TILE_CLASSES
from optirs_web.wgsl.lint_workgroup import workgroup_bytes


def random(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def parameters(device, *shapes):
    return [ow.Parameter(random(shape, seed), device=device) for seed, shape in enumerate(shapes)]


def reference(query, key, value, scale=None):
    query, key, value = (array.astype(np.float64) for array in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) * (scale or query.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def assert_close(got, want, tolerance=2e-6):
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


@pytest.fixture
def device(device, monkeypatch):
    """Each device, with the kernels that GPUs are given."""
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False))
    return device


def test_the_scores_are_never_stored(device, limited):
    n = 1024
    query, key, value = parameters(device, *[(n, 8)] * 3)
    device.synchronize()
    limited(n * n)  # bytes: a quarter of what the scores would take
    scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
    assert np.isfinite(key.grad.numpy()).all()


def test_heads_are_read_where_they_lie(device):
    (packed,) = parameters(device, (2, 33, 3, 4, 8))
    heads = [getitem(packed, (slice(None), slice(None), number)).permute(0, 2, 1, 3) for number in range(3)]
    before = device.stats.copy()
    result = scaled_dot_product_attention(*heads)
    forward = device.stats - before
    assert (forward.dispatches, forward.copies) == (1, 0)
    assert_close(result.numpy(), reference(*packed.numpy().transpose(2, 0, 3, 1, 4)))


def test_the_gradients_take_a_dispatch_each_and_one_for_all(device):
    query, key, value = parameters(device, *[(2, 40, 8)] * 3)
    result = scaled_dot_product_attention(query, key, value)
    weights = ow.ones(result.shape, device=device)
    before = device.stats.copy()
    result.backward(weights)
    assert (device.stats - before).dispatches == 4


@pytest.mark.parametrize(("queries", "keys"), [(33, 64), (65, 128), (40, 300), (64, 33)])
def test_later_keys_are_hidden_where_there_are_more_keys_or_fewer(device, queries, keys):
    query, key, value = parameters(device, (2, queries, 8), (2, keys, 8), (2, keys, 4))
    result = scaled_dot_product_attention(query, key, value, is_causal=True)
    result.sum().backward()
    for row in range(queries):
        met = [tensor.numpy()[:, : row + 1] for tensor in (key, value)]
        assert_close(result.numpy()[:, row], reference(query.numpy()[:, row : row + 1], *met)[:, 0])
    for later in (key, value):
        assert (later.grad.numpy()[:, queries:] == 0).all()


def test_tiles_of_later_keys_are_not_even_read(device):
    key, value = random((96, 8)), random((96, 8), 1)
    key[64:] = value[64:] = np.nan
    query, key, value = (ow.Parameter(values, device=device) for values in (random((96, 8), 2), key, value))
    result = scaled_dot_product_attention(query, key, value, is_causal=True)
    result.backward(np.concatenate([np.ones((64, 8)), np.zeros((32, 8))]).astype(np.float32))
    assert np.isfinite(result.numpy()[:64]).all()
    assert np.isnan(result.numpy()[64:]).all()
    assert np.isfinite(query.grad.numpy()[:64]).all()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_no_key_gets_zeros_and_gives_no_gradient(device, kind):
    query, key, value = parameters(device, (3, 4), (5, 4), (5, 2))
    visible = np.ones((3, 5), bool)
    visible[1] = False
    mask = visible if kind == "bool" else np.where(visible, 0, -np.inf).astype(np.float32)
    result = scaled_dot_product_attention(query, key, value, ow.tensor(mask, device=device))
    result.backward(np.ones((3, 2), np.float32))
    assert result.numpy()[1].tolist() == [0.0] * 2
    assert query.grad.numpy()[1].tolist() == [0.0] * 4
    assert np.isfinite(key.grad.numpy()).all()
    assert_close(result.numpy()[[0, 2]], reference(query.numpy(), key.numpy(), value.numpy())[[0, 2]])


def test_scores_whose_exponentials_overflow_are_no_trouble(device):
    query, key, value = random((40, 8)) * 100, random((70, 8), 1) * 100, random((70, 8), 2)
    result = scaled_dot_product_attention(*(ow.tensor(values, device=device) for values in (query, key, value)))
    assert_close(result.numpy(), reference(query, key, value), 1e-4)  # the scores have 5 digits before the point


def test_weights_by_numpy_are_those_of_the_result_in_the_gradients_too():
    query, key = 5 * random((8, 64, 32)), 5 * random((8, 64, 32), 1)  # scores up to 100
    value, g = random((8, 64, 32), 2), random((8, 64, 32), 3)
    leaves = [ow.Parameter(values, device="cpu") for values in (query, key, value)]
    scaled_dot_product_attention(*leaves).backward(g)
    seen, added = np.ones((64, 64), bool), np.zeros((64, 64), np.float32)
    *_, want = reference_with_gradients(query, key, value, g, seen, added)
    assert_close(leaves[2].grad.numpy(), want, 5e-6)


def test_nan_stays_in_the_rows_of_its_query(device):
    query = random((35, 4))
    query[3, 0] = np.nan
    key, value = random((40, 4), 1), random((40, 4), 2)
    result = scaled_dot_product_attention(*(ow.tensor(values, device=device) for values in (query, key, value))).numpy()
    assert np.isnan(result[3]).all()
    assert np.isfinite(np.delete(result, 3, 0)).all()


def test_many_columns_take_several_dispatches(device):
    query, key, value = parameters(device, (33, 130), (34, 130), (34, 200))
    result = scaled_dot_product_attention(query, key, value)
    assert_close(result.numpy(), reference(query.numpy(), key.numpy(), value.numpy()), 4e-6)
    result.backward(np.ones(result.shape, np.float32))
    weights = reference(query.numpy(), key.numpy(), np.eye(34))
    assert_close(value.grad.numpy(), np.repeat(weights.sum(0)[:, None], 200, 1), 4e-6)


def test_more_products_than_a_grid_has_rows(device, monkeypatch):
    query, key, value = parameters(device, *[(2, 5, 7, 3)] * 3)
    want = scaled_dot_product_attention(query, key, value)
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_workgroups=4))
    got = scaled_dot_product_attention(query, key, value)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_compiled_step_gives_what_an_eager_one_gives(device):
    query, key, value = parameters(device, *[(2, 3, 20, 8)] * 3)

    def gradients():
        for param in (query, key, value):
            param.grad = None
        scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
        return [param.grad for param in (query, key, value)]

    eager = [grad.numpy() for grad in gradients()]
    step = ow.compile(gradients, device=device)
    for _ in range(2):
        for got, want in zip(step(), eager, strict=True):
            assert_close(got.numpy(), want)


def test_dropped_weights_are_zero_and_the_others_grow(device):
    query, key = parameters(device, (50, 8), (60, 8))
    ow.manual_seed(3)
    weights = scaled_dot_product_attention(query, key, ow.tensor(np.eye(60, dtype=np.float32), device=device)).numpy()
    dropped = scaled_dot_product_attention(
        query, key, ow.tensor(np.eye(60, dtype=np.float32), device=device), dropout_p=0.25
    ).numpy()
    is_dropped = dropped == 0
    assert is_dropped.mean() == pytest.approx(0.25, abs=0.03)
    assert_close(dropped[~is_dropped], weights[~is_dropped] / 0.75)


@pytest.mark.parametrize("shapes", [((0, 4), (3, 4), (3, 2)), ((3, 4), (0, 4), (0, 2)), ((2, 0, 4),) * 3])
def test_where_there_is_nothing_to_attend_to(device, shapes):
    query, key, value = parameters(device, *shapes)
    result = scaled_dot_product_attention(query, key, value)
    assert result.shape == (*shapes[0][:-1], shapes[2][-1])
    assert not result.numpy().any()
    result.sum().backward()
    assert not query.grad.numpy().any()


# Attention by the kernels of GPUs.


def reference_with_gradients(query, key, value, g, seen, added):
    """Return the result in float64, and the gradients of query, key and value. Hidden pairs have no weight."""
    query, key, value, g = (array.astype(np.float64) for array in (query, key, value, g))
    scale = query.shape[-1] ** -0.5
    scores = np.where(seen, query @ key.swapaxes(-1, -2) * scale + added, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30))
    totals = weights.sum(-1, keepdims=True)
    weights /= np.where(totals == 0, 1, totals)
    slopes = g @ value.swapaxes(-1, -2)
    slopes = weights * (slopes - (slopes * weights).sum(-1, keepdims=True)) * scale
    return weights @ value, slopes @ key, slopes.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ g


def on_gpus(open_device, monkeypatch, tiles):
    """Give vulkan the kernels of a class of GPUs; return the device and a list of the kernels that it runs."""
    device = open_device("vulkan")
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False, tiles=tiles))
    kernels = []
    monkeypatch.setattr(device, "observers", [*device.observers, lambda kernel, _: kernels.append(kernel)])
    return device, kernels


GPU_CASES = {
    # class, products, queries, keys, depth, columns, mask; tile, reads by vectors
    "few rows": ("discrete", (3,), 40, 70, 8, 12, "causal", AttentionTile(32, 4), True),
    "integrated": ("integrated", (4, 4), 65, 40, 36, 40, "bool", AttentionTile(64, 4), True),
    "many rows": ("discrete", (64,), 70, 97, 12, 16, "causal", AttentionTile(64, 8), True),
    "odd columns": ("discrete", (64,), 65, 33, 5, 7, "float", AttentionTile(64, 8), False),
    "64 columns": ("discrete", (32, 2), 66, 40, 40, 64, None, AttentionTile(64, 8), True),
    "more columns": ("discrete", (64,), 65, 33, 68, 140, "causal", AttentionTile(64, 4), True),
}


@pytest.mark.parametrize("case", GPU_CASES.values(), ids=GPU_CASES)
def test_each_tile_equals_a_reference_in_float64(open_device, monkeypatch, case):
    tiles, products, queries, keys, depth, columns, kind, tile, by_vectors = case
    device, kernels = on_gpus(open_device, monkeypatch, tiles)
    shapes = (queries, depth), (keys, depth), (keys, columns), (queries, columns)
    operands = [random((*products, *shape), seed) for seed, shape in enumerate(shapes)]
    seen, added = np.ones((queries, keys), bool), np.zeros((queries, keys), np.float32)
    if kind == "causal":
        seen = np.tri(queries, keys, dtype=bool)
    elif kind is not None:
        seen = random((queries, keys), 5) < 0.5
        seen[queries // 2] = False
        added = random((queries, keys), 6) if kind == "float" else added
    mask = {"bool": seen, "float": np.where(seen, added, -np.inf).astype(np.float32)}.get(kind)
    leaves = [ow.Parameter(operand, device=device) for operand in operands[:3]]
    result = scaled_dot_product_attention(
        *leaves, None if mask is None else ow.tensor(mask, device=device), is_causal=kind == "causal"
    )
    result.backward(operands[3])
    for got, want in zip(
        [result, *(leaf.grad for leaf in leaves)], reference_with_gradients(*operands, seen, added), strict=True
    ):
        assert_close(got.numpy(), want)
    used = [kernel.constants for kernel in kernels if kernel.name in ("attention", "attention_grad")]
    assert {(entry["OWN_TILE"], entry["OWN_ROWS"], entry["BY_VECTORS"]) for entry in used} == {(*tile, by_vectors)}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_read_and_written_by_the_kernel_itself(open_device, monkeypatch, dtype):
    device, kernels = on_gpus(open_device, monkeypatch, "discrete")
    operands = [ow.randn((2, 40, 8), device=device, seed=seed).astype(dtype) for seed in range(4)]
    rounded = [operand.numpy().astype(np.float32) for operand in operands]
    leaves = [operand.detach() for operand in operands[:3]]
    for leaf in leaves:
        leaf.requires_grad = True
    kernels.clear()
    result = scaled_dot_product_attention(*leaves)
    assert len(kernels) == 1
    gradients = ow.gradients(result, leaves, operands[3])
    assert len(kernels) == 5
    assert {array.dtype.name for array in (result, *gradients)} == {dtype}
    everything, nothing = np.ones((40, 40), bool), np.zeros((40, 40))
    for got, want in zip([result, *gradients], reference_with_gradients(*rounded, everything, nothing), strict=True):
        assert_close(got.numpy(), want, 2**-8 if dtype == "bfloat16" else 2**-10)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_a_tile_needs_no_more_than_every_adapter_of_webgpu_has(tile):
    module = attention_kernel("attention", "discrete", tile, 4, by_vectors=True).module
    assert workgroup_bytes(module) == tile.nbytes <= 16384
    assert tile.invocations <= 256


def test_software_adapters_and_few_rows_are_given_the_small_tile():
    assert attention_tile("software", 1024, 1024, 1) == TILES[0]
    for tiles in TILE_CLASSES:
        assert attention_tile(tiles, 32, 1024, 1) == TILES[0]
        assert attention_tile(tiles, 64, 1, 1) == TILES[0]


FITTING = (2, 4), (3, 4), (3, 2)


@pytest.mark.parametrize(
    ("shapes", "mask", "is_causal", "error", "message"),
    [
        (((4,), (3, 4), (3, 2)), None, False, ShapeError, "two axes or more"),
        (((2, 5), (3, 4), (3, 2)), None, False, ShapeError, "attention needs"),
        (((2, 4), (3, 4), (4, 2)), None, False, ShapeError, "attention needs"),
        (((2, 2, 4), (3, 3, 4), (3, 2)), None, False, ShapeError, "broadcast"),
        (FITTING, [[True, False]], False, ShapeError, "broadcast"),
        (FITTING, [True] * 3, True, UnsupportedError, "not both"),
        (FITTING, [1, 0, 1], False, UnsupportedError, "bool or float32"),
    ],
)
def test_bad_calls_say_what_is_wrong(shapes, mask, is_causal, error, message):
    inputs = None if mask is None else ow.tensor(mask, device="cpu")
    with pytest.raises(error, match=message):
        scaled_dot_product_attention(*parameters("cpu", *shapes), inputs, is_causal=is_causal)
