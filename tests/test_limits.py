"""Operations over more memory than a kernel can bind at once: divided into launches that the limit allows."""

from dataclasses import replace

import numerics as numerical_cases
import numpy as np
import pytest
from operation_cases import CASES
from test_operation_derivatives import Call, Found, compare_with_numpy

import optirs_web as ow
from optirs_web.errors import DeviceLimitError
from optirs_web.runtime.launches import Launch

# Bytes that the table is computed with: less than most of its inputs have. What is not cut any further has more: the
# windows over a plane, and one product of an attention.
LIMIT = 128
LARGER = {"matmul": 384, "conv": 2048, "unfold": 512, "fold": 512, "scaled_dot_product_attention": 2048}
AT_ONCE = {"matmul", "sum", "softmax", "log_softmax", "layer_norm", "take", "gather", "scatter_add", "embedding", "max",
           "cross_entropy", "add"}  # fmt: skip


def limited(device, monkeypatch, nbytes):
    """The device, which shows kernels so many bytes of a buffer."""
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, max_binding_bytes=nbytes))
    return device


@pytest.fixture
def vulkan(open_device):
    return open_device("vulkan")


def _limit_of(case):
    return next((nbytes for name, nbytes in LARGER.items() if case.name.startswith(name)), LIMIT)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[] if case.name in AT_ONCE else [pytest.mark.slow]) for case in CASES],
)
def test_values_and_derivatives_of_what_is_cut_equal_those_in_float64(case, vulkan, monkeypatch):
    calls = [Call(case, number) for number in range(len(case.variants))]
    device = limited(vulkan, monkeypatch, _limit_of(case))
    results = numerical_cases.operation(case.name, [call.arguments() for call in calls], device=device)
    for call, result in zip(calls, results, strict=True):
        compare_with_numpy(None, call, Found(call, result))


def _normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


# 64 rows of 64 are 16 KiB, and the limit is a quarter of that: so many launches of products, and of what puts them
# together.
@pytest.mark.parametrize(
    ("left", "right", "dispatches"),
    [
        pytest.param(np.s_[:], np.s_[:, :8], 4, id="by rows"),
        pytest.param(np.s_[:8], np.s_[:], 4 + 3, id="by the inner axis: sums"),
        pytest.param(np.s_[:], np.s_[:], 4 * (4 + 3), id="by both"),
        pytest.param(np.s_[:8, :8], np.s_[:8, :8], 1, id="not at all"),
    ],
)
def test_a_product_takes_as_many_launches_as_its_operands_need(left, right, dispatches, vulkan, monkeypatch):
    values = _normal(64, 64)
    a, b = values[left], values[right]
    x, y = (ow.tensor(np.ascontiguousarray(array), device=vulkan) for array in (a, b))
    limited(vulkan, monkeypatch, 4096)
    before = vulkan.stats.copy()
    product = x @ y
    assert (vulkan.stats - before).dispatches == dispatches
    np.testing.assert_allclose(product.numpy(), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_a_transposed_weight_is_cut_by_columns_and_not_copied(vulkan, monkeypatch):
    x, weight = ow.tensor(_normal(8, 64), device=vulkan), ow.tensor(_normal(64, 64), device=vulkan)
    want = x.numpy().astype(np.float64) @ weight.numpy().T
    limited(vulkan, monkeypatch, 4096)
    before = vulkan.stats.copy()
    product = x @ weight.T
    assert (vulkan.stats - before).dispatches == 4 + 4  # products, and each put in its place
    np.testing.assert_allclose(product.numpy(), want, rtol=1e-5, atol=1e-5)


def test_random_numbers_are_those_of_one_launch(vulkan, monkeypatch):
    def drawn():
        ow.manual_seed(3)
        x = ow.ones((40, 50), device=vulkan)
        draws = [ow.rand((2000,), device=vulkan), ow.randn((40, 50), device=vulkan), ow.ops.dropout(x, 0.5)]
        return [tensor.numpy() for tensor in (*draws, ow.ops.bernoulli(x * 0.5), ow.arange(2000, device=vulkan))]

    whole = drawn()
    limited(vulkan, monkeypatch, 1024)
    for array, other in zip(drawn(), whole, strict=True):
        np.testing.assert_array_equal(array, other)


def test_what_draws_by_index_copies_a_transposed_operand_first(vulkan, monkeypatch):
    x = ow.tensor(_normal(50, 200), device=vulkan)
    ow.manual_seed(4)
    want = ow.ops.dropout(x.T, 0.5).numpy()
    limited(vulkan, monkeypatch, 8192)
    ow.manual_seed(4)
    before = vulkan.stats.copy()
    got = ow.ops.dropout(x.T, 0.5)
    assert (vulkan.stats - before).dispatches < 100  # not one for each of the 200 rows
    np.testing.assert_array_equal(got.numpy(), want)


IN_WGSL = pytest.mark.parametrize("numerics", ["vulkan", "webgpu"], indirect=True)  # the processor shows kernels all


@IN_WGSL
def test_a_product_and_its_gradients_in_parts_natively_and_in_a_page(numerics):
    a, b = _normal(90, 70), _normal(70, 50)
    launches, product, *gradients = numerics("product_in_parts", a, b, 4096)
    exact = a.astype(np.float64) @ b
    assert launches > 6  # 25 kB, 14 kB and 18 kB
    np.testing.assert_allclose(product.reshape(exact.shape), exact, rtol=1e-5, atol=1e-4)
    for got, want in zip(gradients, (2 * exact @ b.T, 2 * a.T @ exact), strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-3)


@IN_WGSL
def test_an_embedding_and_its_gradient_in_parts_natively_and_in_a_page(numerics):
    table, index = _normal(200, 24), np.random.default_rng(2).integers(0, 200, 300).astype(np.int32)
    rows, gradient = numerics("embedding_in_parts", table, index, 4096)
    np.testing.assert_array_equal(rows.reshape(300, 24), table[index])
    want = np.zeros(table.shape)
    np.add.at(want, index, 2.0 * table[index].astype(np.float64))
    np.testing.assert_allclose(gradient.reshape(want.shape), want, rtol=1e-5)


def _losses(device, fuse=True):
    """Return the losses of a small language model, trained by a compiled step."""
    rng = np.random.default_rng(0)
    table, weight = (
        ow.Parameter(rng.standard_normal(shape).astype(np.float32) * 0.3, device=device)
        for shape in ((3000, 16), (3000, 16))
    )
    scale, shift = ow.Parameter(np.ones(16), device=device), ow.Parameter(np.zeros(16), device=device)
    optimizer = ow.optim.AdamW([table, weight, scale, shift], lr=0.01)

    def train_step(words, targets):
        optimizer.zero_grad()
        hidden = ow.ops.layer_norm(ow.ops.embedding(table, words), 16, scale, shift)
        scores = hidden.gelu() @ weight.T
        loss = ow.cross_entropy(scores, targets) + 0.01 * (scores.softmax() * scores).sum(axis=1).mean()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train_step, device=device, fuse=fuse)
    words, targets = (rng.integers(0, 3000, 64).astype(np.int32) for _ in range(2))
    return [step(words, targets).item() for _ in range(6)], step


def _launches(step):
    return [launch for launch in step.program.launches if isinstance(launch, Launch)]


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [True, False])
def test_what_is_cut_is_recorded_and_replayed(fuse, vulkan, monkeypatch):
    want, _ = _losses("cpu")
    _, whole = _losses(vulkan, fuse)
    got, step = _losses(limited(vulkan, monkeypatch, 65536), fuse)
    assert got == pytest.approx(want, rel=1e-5)
    assert got[-1] < 0.9 * got[0]
    assert step.program.dispatches > whole.program.dispatches
    bound = [view.nbytes for launch in _launches(step) for view in launch.views]
    assert max(bound) <= 65536  # not even what was fused binds more


def test_what_fits_takes_the_launches_that_it_took(vulkan, monkeypatch):
    """A limit that nothing exceeds changes nothing: the same launches over the same views."""
    _, whole = _losses(vulkan)
    _, step = _losses(limited(vulkan, monkeypatch, 1 << 20))
    assert [launch.kernel.name for launch in _launches(step)] == [launch.kernel.name for launch in _launches(whole)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_elements_of_16_bits_are_cut_too(dtype, vulkan, monkeypatch):
    values = _normal(90, 70)
    x = ow.tensor(values, device=vulkan, dtype=dtype)
    rounded = x.float().numpy().astype(np.float64)
    limited(vulkan, monkeypatch, 2048)
    np.testing.assert_allclose((x @ x.T).float().numpy(), rounded @ rounded.T, rtol=2e-2, atol=2e-1)
    np.testing.assert_allclose((x + x).float().numpy(), 2 * rounded, rtol=1e-2)
    np.testing.assert_allclose(x.sum(axis=0).float().numpy(), rounded.sum(0), rtol=1e-2, atol=1e-2)
    assert x.astype("float32").numpy().shape == (90, 70)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_an_odd_number_of_16_bits_are_right_or_say_the_limit(dtype, vulkan, monkeypatch):
    x = ow.tensor(_normal(130, 71), device=vulkan, dtype=dtype)
    rounded = x.float().numpy().astype(np.float64)
    limited(vulkan, monkeypatch, 8192)
    np.testing.assert_allclose((x @ x.T).float().numpy(), rounded @ rounded.T, rtol=2e-2, atol=2e-1)
    np.testing.assert_allclose(ow.ops.concat([x, x], 1).float().numpy(), np.concatenate([rounded, rounded], 1))
    limited(vulkan, monkeypatch, 1024)  # less than the rows that make up whole words where a binding may begin
    with pytest.raises(DeviceLimitError):
        ow.ops.concat([x, x], 1)
    np.testing.assert_allclose((x @ x.T).float().numpy(), rounded @ rounded.T, rtol=2e-2, atol=2e-1)
    np.testing.assert_allclose((x.T + x.T).float().numpy(), 2 * rounded.T, rtol=1e-2)
    with pytest.raises(DeviceLimitError):
        x.reshape(13, 710)[:, 1:] @ x.reshape(13, 710)[:, 1:].T


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_product_of_16_bits_cut_by_its_inner_axis_is_summed_in_float32_and_rounded_once(dtype, vulkan, monkeypatch):
    x, y = (ow.tensor(values, device=vulkan, dtype=dtype) for values in (_normal(17, 64), _normal(64, 33)))
    want = (x.float() @ y.float()).numpy()
    limited(vulkan, monkeypatch, 1024)
    np.testing.assert_allclose((x @ y).float().numpy(), want, rtol=2**-7, atol=1e-2)


def test_the_last_rows_of_16_bits_may_end_within_a_word(vulkan, monkeypatch):
    x = ow.tensor(_normal(131, 71), device=vulkan, dtype="float16")
    want = np.concatenate([x.numpy()] * 2, 1)
    limited(vulkan, monkeypatch, 36_608)  # 128 rows of 142 elements, and 3
    np.testing.assert_array_equal(ow.ops.concat([x, x], 1).numpy(), want)


def test_a_part_without_elements_is_put_into_zeros(vulkan, monkeypatch):
    x = ow.tensor(np.zeros((33, 64, 2, 0), np.float32), device=vulkan, requires_grad=True)
    y = ow.tensor(_normal(8, 64), device=vulkan, requires_grad=True)
    limited(vulkan, monkeypatch, 256)
    np.testing.assert_array_equal(ow.ops.pad(x, [(1, 1), (0, 0), (0, 0), (1, 1)]).numpy(), np.zeros((35, 64, 2, 2)))
    y[:, 64:].sum().backward()
    np.testing.assert_array_equal(y.grad.numpy(), np.zeros((8, 64)))


def test_what_cannot_be_cut_says_the_limit_and_what_to_do(vulkan, monkeypatch):
    q = ow.tensor(_normal(1, 64, 16), device=vulkan)
    limited(vulkan, monkeypatch, 2048)
    monkeypatch.setattr(vulkan, "capabilities", replace(vulkan.capabilities, quads=False))  # by tiles, as on a GPU
    with pytest.raises(DeviceLimitError, match=r"needs 4,096 bytes .* at most 2,048.*placement") as caught:
        ow.ops.scaled_dot_product_attention(q, q, q)
    error = caught.value
    assert (error.kernel, error.asked, error.limit, error.device) == ("attention", 4096, 2048, "vulkan")


# Real sizes, over the 128 MiB that lavapipe shows a kernel.

_LARGE = (128 << 20) // 4 + (4 << 20)  # elements


@pytest.mark.parametrize("pool", ["avg_pool2d", "max_pool2d"])
def test_a_window_with_more_taps_than_a_loop_may_have_iterations_says_the_limit(pool, vulkan):
    """llvmpipe would leave the loop after 65,535 without an error."""
    images = np.random.default_rng(5).integers(0, 4, (1, 1, 256, 256)).astype(np.float32)
    images[..., -1, -1] = 9
    combined = np.mean if pool == "avg_pool2d" else np.max
    x = ow.tensor(images, device=vulkan)
    assert getattr(ow.ops, pool)(x, (254, 256), 1)[..., 2, 0].item() == pytest.approx(
        combined(images[..., 2:, :]), rel=1e-6
    )
    with pytest.raises(DeviceLimitError, match="needs 66,048 iterations"):
        getattr(ow.ops, pool)(x, 256)
    with ow.placement("auto"), pytest.warns(UserWarning, match="iterations"):
        assert getattr(ow.ops, pool)(x, 256).item() == pytest.approx(combined(images), rel=1e-6)


@pytest.mark.slow
def test_a_product_of_144_mib_equals_that_in_float64(device):
    rows, inner, columns = _LARGE // 1024, 1024, 4
    a, b = _normal(rows, inner), _normal(inner, columns)
    x, y = (ow.tensor(values, device=device, requires_grad=True) for values in (a, b))
    product = x @ y
    product.sum().backward()
    np.testing.assert_allclose(product.numpy(), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(y.grad.numpy(), np.repeat(a.sum(0, dtype=np.float64)[:, None], columns, 1), atol=2e-2)
    np.testing.assert_allclose(
        x.grad.numpy()[::997], np.tile(b.sum(1, dtype=np.float64), (-(-rows // 997), 1)), atol=1e-5
    )


@pytest.mark.slow
def test_an_embedding_of_a_table_of_144_mib_and_its_gradient_equal_those_in_float64(device):
    rows = _LARGE // 64
    values = _normal(rows, 64)
    index = np.random.default_rng(1).integers(0, rows, 500).astype(np.int32)
    index[:3] = 0, rows - 1, rows - 1
    table = ow.Parameter(values, device=device)
    actual = ow.ops.embedding(table, index)
    (actual * actual).sum().backward()
    np.testing.assert_array_equal(actual.numpy(), values[index])
    want = np.zeros((rows, 64))
    np.add.at(want, index, 2.0 * values[index].astype(np.float64))
    np.testing.assert_allclose(table.grad.numpy(), want, rtol=1e-6)


@pytest.mark.slow
def test_rows_and_sums_of_144_mib_equal_those_in_float64(device):
    values = _normal(_LARGE // 4096, 4096)
    x = ow.tensor(values, device=device)
    exact = values.astype(np.float64)
    power = np.exp(exact)
    np.testing.assert_allclose(x.softmax().numpy(), power / power.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(x.sum(axis=0).numpy(), exact.sum(0), atol=1e-3)
    np.testing.assert_allclose(x.sum().item(), exact.sum(), atol=0.1)
    assert x.reshape(-1).argmax().item() == exact.argmax()
