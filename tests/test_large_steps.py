"""Large compiled steps need less memory and give the same numbers as their operations."""

import gc
from dataclasses import replace

import gpt
import numpy as np
import pytest
from conftest import BROWSER
from hypothesis import given, settings, strategies as st
from test_fusion import MAKERS, arrays, names

import optirs_web as ow
from optirs_web.runtime import fusion, saving
from optirs_web.runtime.launches import Launch


@pytest.fixture
def device(device, monkeypatch):
    """Each device, with the kernels that GPUs are given."""
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, quads=False))
    return device


@pytest.fixture(autouse=True)
def _every_step_is_large(request, monkeypatch):
    if "example" not in request.node.name:
        monkeypatch.setattr(fusion, "_LARGE", 0)
        monkeypatch.setattr(saving, "_SMALL", 0)


def gradients(x, w):
    """A product with two gradients that wait for nothing but the same, and their sums."""
    product = x @ w
    of_x, of_w = product @ w.T, x.T @ product
    return [of_x.sum(axis=0), of_w.sum(axis=0)]


def slices(x):
    x = x.detach()
    x.requires_grad = True
    first, second, third = (x.reshape(6, 3, 4)[:, index] for index in range(3))
    ((first.T * 2.0).sum() + (second * second).sum() + (third.T.reshape(2, 12) * 3.0).sum()).backward()
    return x.grad


def slices_in_other_orders(x):
    """The gradient of one slice is contiguous, those of the others are strided."""
    x = x.detach()
    x.requires_grad = True
    first, second, third = (x.reshape(4, 5, 3, 6)[:, :, index] for index in range(3))
    both = (second.transpose(1, 2) * 2.0).square().sum() + (third.transpose(0, 2) * 3.0).square().sum()
    ((first * first).sum() + both).backward()
    return x.grad


# A function, the shapes of its arguments, and what a replay of it runs.
STEPS = {
    "sums of one tensor": (lambda a: [a.sum(axis=0), a.sum(axis=1)], [(6, 5)], ["sum", "sum"]),
    "sums of three kinds": (
        lambda a, b: [a.sum(), (b * b).sum(axis=1), b.sum(axis=0) * 2.0], [(6, 5), (7, 4)],
        ["sum", "multiply+sum", "sum+multiply"],
    ),
    "gradients": (gradients, [(9, 5), (5, 4)], ["matmul", "matmul", "matmul", "sum", "sum"]),
    "workgroups of two sizes": (
        lambda a, b: [a @ a, (b + 1.0).exp(), b.sum()], [(40, 40), (100, 33)], ["matmul", "add+exp", "sum"]
    ),
    "what waits": (lambda a: (a @ a).sum(axis=0) @ a, [(6, 6)], ["matmul", "sum", "matmul"]),
    "what waits for one of two": (
        lambda a, b: [(a @ a).sum(axis=0), b @ b], [(6, 6), (5, 5)], ["matmul", "sum", "matmul"]
    ),
    "many sums": (lambda *tensors: [tensor.sum(axis=0) for tensor in tensors], [(6, 5)] * 5, ["sum"] * 5),
    "attention and a sum": (
        lambda a: [ow.nn.functional.scaled_dot_product_attention(a, a, a), a.sum()], [(2, 5, 4)], ["attention", "sum"]
    ),
    "over what it reads": (lambda a: ((a @ a).relu() @ a).exp(), [(6, 6)], ["matmul", "relu", "matmul", "exp"]),
    "gradients of slices": (slices, [(6, 12)], None),
    "gradients of slices in other orders": (slices_in_other_orders, [(20, 18)], None),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_large_step_gives_the_same(device, name):
    function, shapes, expected = STEPS[name]
    inputs = [ow.tensor(array, device=device) for array in arrays(*shapes)]
    step = ow.compile(function, device=device)
    for _ in range(2):  # a replay finds what the one before left
        results = step(*inputs)
    eager = function(*inputs)
    for got, want in zip(
        *([result] if isinstance(result, ow.Tensor) else result for result in (results, eager)), strict=True
    ):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    if expected is not None:
        assert names(step) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Shampoo", "GaLore", "Muon"])
def test_a_large_step_of_an_optimizer_with_tables_of_structs_gives_the_same(device, name):
    def trained(compiled):
        weights = [ow.Parameter(array * 0.1, device=device) for array in arrays((8, 8), (8, 4))]
        x = ow.tensor(arrays((6, 8))[0], device=device)
        optimizer = getattr(ow.optim, name)(weights, lr=0.01)

        def train_step():
            optimizer.zero_grad()
            ((x @ weights[0]).tanh() @ weights[1]).square().mean().backward()
            optimizer.step()

        step = ow.compile(train_step, device=device) if compiled else train_step
        for _ in range(3):
            step()
        return [weight.numpy() for weight in weights]

    for got, want in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("function", "shape"), [(slices, (6, 12)), (slices_in_other_orders, (20, 18))])
def test_gradients_of_slices_are_put_side_by_side(open_device, function, shape):
    step = ow.compile(function, device=open_device("cpu"))
    step(*arrays(shape))
    assert not {"place", "add+add"} & {*names(step)}
    assert sum("before" in name for name in names(step)) == 1


def test_what_is_cheap_is_computed_again_where_memory_is_scarce(open_device):
    def deep(x, w):
        """Activations that are cheap are needed at the end once more; products are not."""
        made = []
        for _ in range(12):
            product = x @ w
            made.append((product, product.exp()))
            x = made[-1][1] @ w
        for product, activated in reversed(made):
            x = (x @ activated) * product
        return x

    inputs = [array / 100 for array in arrays((128, 128), (128, 128))]
    step = ow.compile(deep, device=open_device("cpu"))
    np.testing.assert_array_equal(
        step(*inputs).numpy(), deep(*(ow.tensor(input_, device="cpu") for input_ in inputs)).numpy()
    )
    kept = ow.compile(deep, device="cpu", fuse=False)
    kept(*inputs)
    assert sum("exp" in name for name in names(step)) > 12
    assert step.program.nbytes < 0.7 * kept.program.nbytes


def test_rows_of_an_embedding_are_taken_again_where_memory_is_scarce(open_device):
    def deep(codes, table, positions, w):
        """The rows are needed first and last."""
        made, rows = [], ow.nn.functional.embedding(codes, table) + positions
        x = rows
        for _ in range(12):
            made.append(x @ w)
            x = made[-1]
        for product in reversed(made):
            x = (x @ w) * product
        return x * rows

    codes = np.arange(128, dtype=np.int32) % 7
    inputs = [codes, *(array / 10 for array in arrays((7, 128), (128, 128), (128, 128)))]
    step = ow.compile(deep, device=open_device("cpu"))
    np.testing.assert_array_equal(
        step(*inputs).numpy(), deep(*(ow.tensor(input_, device="cpu") for input_ in inputs)).numpy()
    )
    assert sum("gather" in name for name in names(step)) == 2
    assert step.program.nbytes <= (12 + 2) * 4 * 128 * 128 + 1024


ROWS, WIDTH = 256, 64


def mlp_parameters(depth):
    """Return norm's weight and bias, first and second of each block x + gelu(norm(x) @ first) @ second."""
    rng = np.random.default_rng(3)
    shapes = [(WIDTH,), (WIDTH,), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * depth
    return [rng.standard_normal(shape, np.float32) * (0.1 if len(shape) > 1 else 1.0) for shape in shapes]


def gradients_of_mlp(x, params):
    """Return the gradients of the mean square of the last block's result, in float64; GELU by its tanh formula."""
    x, params = x.astype(np.float64), [param.astype(np.float64) for param in params]
    kept = []
    for weight, bias, first, second in zip(*(params[at::4] for at in range(4)), strict=True):
        scale = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        rows = (x - x.mean(axis=1, keepdims=True)) * scale
        hidden = (rows * weight + bias) @ first
        slope = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * hidden**2)
        tanh = np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3))
        gelu = 0.5 * hidden * (1 + tanh)
        kept.append((scale, rows, gelu, 0.5 * (1 + tanh) + 0.5 * hidden * (1 - tanh**2) * slope))
        x = x + gelu @ second
    grad, result = 2 * x / x.size, []
    for at, (scale, rows, gelu, of_gelu) in reversed([*enumerate(kept)]):
        weight, bias, first, second = params[4 * at :][:4]
        of_hidden = grad @ second.T * of_gelu
        of_norm = of_hidden @ first.T
        of_rows = of_norm * weight
        result[:0] = [
            (of_norm * rows).sum(axis=0), of_norm.sum(axis=0), (rows * weight + bias).T @ of_hidden, gelu.T @ grad
        ]  # fmt: skip
        along = rows * (of_rows * rows).mean(axis=1, keepdims=True)
        grad = grad + scale * (of_rows - of_rows.mean(axis=1, keepdims=True) - along)
    return result


def trained_mlp(device, depth):
    """The gradients of a compiled step, and the bytes that the step needed."""
    F = ow.nn.functional
    params = [ow.Parameter(param, device=device) for param in mlp_parameters(depth)]
    optimizer = ow.optim.SGD(params, lr=0.0)

    def train_step(x):
        optimizer.zero_grad()
        for weight, bias, first, second in zip(*(params[at::4] for at in range(4)), strict=True):
            x = x + F.gelu(F.layer_norm(x, WIDTH, weight, bias) @ first, "tanh") @ second
        (x * x).mean().backward()
        optimizer.step()

    x = np.random.default_rng(4).standard_normal((ROWS, WIDTH), np.float32)
    train_step(ow.tensor(x, device=device))  # the gradients have memory of their own from now on
    step = ow.compile(train_step, device=device)
    gc.collect()
    before = device.memory_stats().live_bytes
    step(x)
    needed = device.memory_stats().live_bytes - before
    return x, [param.grad.numpy() for param in params], needed


def test_normalized_rows_and_what_gelu_returns_are_not_kept(device):
    """A block keeps its input, the mean and scale of each row and what GELU is given; gradients as in float64."""
    x, actual, more = trained_mlp(device, 8)
    for got, want in zip(actual, gradients_of_mlp(x, mlp_parameters(8)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-6 * np.abs(want).max())
    _, _, fewer = trained_mlp(device, 4)
    assert more - fewer == pytest.approx(4 * 4 * ROWS * (WIDTH + 2 + 4 * WIDTH), rel=1e-3)


def test_a_result_lies_over_what_is_read_for_the_last_time(open_device):
    step = ow.compile(lambda a: ((a @ a).relu() @ a).exp() @ a, device=open_device("cpu"))
    step(*arrays((64, 64)))
    relu = step.program.launches[1]
    assert isinstance(relu, Launch)
    assert len(relu.views) == 1
    assert step.program.nbytes == 2 * 64 * 64 * 4 + step.program.nbytes % (64 * 64 * 4)


@pytest.mark.parametrize("numerics", BROWSER, indirect=True)
def test_a_page_runs_a_large_step(numerics):
    x, w = arrays((20, 20), (20, 20))
    results, dispatches = numerics("large_step", x, w)
    sums = np.full(1024, 2048.0), np.full(2048, 1024.0)
    for got, want in zip(results, [x @ w, np.exp(x + 1.0), *sums], strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5)
    assert dispatches == 4


def test_the_profiler_knows_what_each_launch_of_a_large_step_costs(open_device):
    device = open_device("cpu")
    step = ow.compile(lambda a, b: [a @ b, b @ a, (b.T @ a).sum()], device=device)
    inputs = [ow.tensor(array, device=device) for array in arrays((24, 24), (24, 24))]
    step(*inputs)
    with ow.profile(device) as p:
        step(*inputs)
    products = [kernel for kernel in p.kernels if kernel.name == "matmul"]
    assert len(products) == 3
    for product in products:
        assert (product.bytes_read, product.bytes_written) == (2 * 4 * 24**2, 4 * 24**2)
        assert product.operations == 2 * 24**3


SLICING = [
    lambda a, other: a[:, :1] * 0.5 + other[:1],
    lambda array, other: (array.reshape(6, 3, 2)[:, 1] @ other.reshape(3, 2, 6)[0]) * 0.1,
    lambda array, other: (
        sum_of(array.reshape(6, 3, 2)[:, at].T.reshape(3, 4).sum(axis=0) for at in range(3)).sum() + other
    ),
]


def sum_of(some):
    first, *rest = some
    for tensor in rest:
        first = first + tensor
    return first


@pytest.mark.slow
@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(MAKERS + SLICING) - 1), st.integers(0, 20), st.integers(0, 20)),
        min_size=1,
        max_size=12,
    ),
    kept=st.sets(st.integers(0, 13), max_size=2),
)
def test_any_large_step_and_its_gradients_are_the_same(steps, kept):
    def run(*given_):
        values = [tensor.detach() for tensor in given_]
        for tensor in values:
            tensor.requires_grad = True
        for maker, tensor, other in steps:
            values.append((MAKERS + SLICING)[maker](values[tensor % len(values)], values[other % len(values)]).relu())
        slopes = ow.gradients((values[-1] * values[-1]).mean(), values[:2])
        return [
            values[-1],
            *(slope for slope in slopes if slope is not None),
            *(values[at % len(values)] for at in kept),
        ]

    inputs = [ow.tensor(array / 2, device="cpu") for array in arrays((6, 6), (6, 6))]
    for got, want in zip(ow.compile(run, device="cpu")(*inputs), run(*inputs), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def book():
    alphabet = gpt.Alphabet(ow.datasets.load_book())
    return alphabet, alphabet.codes(ow.datasets.load_book())


@pytest.mark.slow
def test_the_step_of_the_example_is_fewer_dispatches_and_half_the_memory(device, book):
    """`ow.explain` of the training step of examples/gpt.py, and the gradients of a step that is not fused."""
    alphabet, codes = book
    actual = []
    for fuse in (True, False):
        ow.manual_seed(0)
        model = gpt.GPT(len(alphabet.characters), device=device)
        step = ow.compile(gpt.train_step(model, ow.optim.AdamW(model.parameters()))._step, fuse=fuse)
        batch = next(gpt.batches(model, codes))
        step(*batch)
        actual.append({name: param.grad.numpy() for name, param in model.named_parameters()})
        if fuse:
            explained = ow.explain(step)
            device.synchronize()
            before = device.stats.copy()
            step(*batch)
            device.flush()
            spent = device.stats - before
    most = 0.9 if "matmul" in device.capabilities.replaced else 0.8  # nothing is fused with products of cuBLAS
    assert explained.replayed.dispatches == spent.dispatches <= most * explained.called.dispatches
    assert explained.called.memory >= 2 * explained.replayed.memory
    assert (spent.submits, spent.replays, spent.bytes_down) == (1, 1, 0)
    for name, expected in actual[1].items():
        np.testing.assert_allclose(actual[0][name], expected, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_normalization_that_is_computed_again_has_the_same_bits(device, monkeypatch, has_weight, has_bias):
    """Otherwise no element equals the maximum that was found of the first, and its gradient is NaN."""
    monkeypatch.setattr(fusion, "_LARGE", 0)
    monkeypatch.setattr(saving, "_SMALL", 0)
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 33), (33,), (33,)))
    affine = [ow.Parameter(weight, device=device) if has_weight else None]
    affine.append(ow.Parameter(bias, device=device) if has_bias else None)
    x = ow.Parameter(x, device=device)

    def train_step():
        h = ow.ops.layer_norm(x, 33, *affine)
        h = h - h.max(-1, keepdims=True) * 0.1
        return ow.gradients((h * h).mean(), [x])

    step = ow.compile(train_step, device=device)
    for _ in range(2):
        (got,) = step()
    assert any("subtract+multiply" in launch.kernel.name for launch in step.program.launches)
    (want,) = train_step()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-7)


def test_a_normalization_whose_statistics_nothing_reads_is_computed_again(device, monkeypatch):
    monkeypatch.setattr(fusion, "_LARGE", 0)
    monkeypatch.setattr(saving, "_SMALL", 0)
    rng = np.random.default_rng(0)
    x, weight = (ow.tensor(rng.standard_normal(shape).astype(np.float32), device=device) for shape in ((64, 8), (8, 8)))

    def inference():
        first = h = ow.ops.layer_norm(x, 8)
        for _ in range(12):
            h = (h @ weight * 0.3).gelu()
        return (h + first).sum()

    assert ow.compile(inference, device=device)().item() == pytest.approx(inference().item(), rel=1e-4, abs=1e-4)
