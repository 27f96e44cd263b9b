"""Tensors of 16 bits, and mixed precision: which types operations choose, what they save, and that models train."""

import copy
import pickle

import numpy as np
import operation_cases
import pytest
from gpt import GPT
from operation_values import is_real, make_sources

import optirs_web as ow
from optirs_web import nn, ops
from optirs_web.errors import ShaderError, UnsupportedError
from optirs_web.interop import safetensors
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.packed_kernels import packed

HALVES = ["float16", "bfloat16"]
SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
SPECIAL = [0.0, -0.0, 1.0, -2.5, 65504.0, 65519.9, 65520.0, 1e6, -3e38, 3e38, 6e-8, 1e-9, np.inf, -np.inf, np.nan]


def rounded(values, dtype):
    """To the nearest, ties to even, as float32."""
    values = np.asarray(values, np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32)
    up = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), up.view(np.float32), values)


# Tensors.


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [1, 2, 7, 2051])
def test_values_are_rounded_to_the_nearest(device, dtype, size):
    values = np.resize([*SPECIAL, *np.random.default_rng(0).standard_normal(64)], size).astype(np.float32)
    x = ow.tensor(values, device=device, dtype=dtype)
    assert (x.dtype.name, x.strided.view.nbytes) == (dtype, 2 * (size + size % 2))
    np.testing.assert_array_equal(x.float().numpy(), rounded(values, dtype))
    np.testing.assert_array_equal(x.numpy(), rounded(values, dtype))
    assert x.numpy().dtype == ("float16" if dtype == "float16" else "float32")


def test_types_have_torchs_names(device):
    x = ow.tensor([[1.0, 2.5, 3.0]], device=device)
    assert x.half().dtype == "float16"
    assert x.bfloat16().dtype == x.to("bfloat16").dtype == x.half().astype("bfloat16").dtype == "bfloat16"
    assert repr(x.half()) == f"<Tensor (1, 3) float16 on {device.name}>"
    assert x.bfloat16()[:, 1:].tolist() == [[2.5, 3.0]]
    assert x.half().int().tolist() == [[1, 2, 3]]
    assert ow.zeros((3,), device=device, dtype="float16").numpy().tolist() == [0.0] * 3
    assert ow.Parameter(x.half()).dtype == "float32"


@pytest.mark.parametrize("dtype", HALVES)
def test_tensors_of_16_bits_are_copied_and_kept(device, dtype):
    x = ow.tensor([1.5, -2.0, 0.25], device=device, dtype=dtype)
    for tensor in (
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        ow.tensor(x),
        ow.tensor(x, device="cpu"),
        ow.nn.Buffer(x),
    ):
        assert tensor.dtype == dtype
        assert tensor.tolist() == [1.5, -2.0, 0.25]


@pytest.mark.parametrize(("dtype", "word"), [("float16", "F16"), ("bfloat16", "BF16")])
def test_files_hold_16_bits(device, dtype, word):
    content = safetensors.dump_state_dict({"x": ow.tensor([1.5, -2.0, 0.25], device=device, dtype=dtype)})
    entry = safetensors.load(content)[0]["x"]
    assert (entry.dtype, entry.content.nbytes) == (word, 6)
    assert ow.tensor(safetensors.load_state_dict(content)["x"], dtype=dtype, device=device).tolist() == [
        1.5,
        -2.0,
        0.25,
    ]


# One row of the table for each kind of kernel.
CASES = {one.name: one for one in operation_cases.CASES}
ROWS = [
    "add", "gelu", "matmul", "sum", "softmax", "max", "where", "getitem", "concat", "gather", "conv2d", "layer_norm",
    "scaled_dot_product_attention", "cross_entropy",
]  # fmt: skip


@pytest.mark.parametrize("name", [row for row in ROWS if row in CASES])
@pytest.mark.parametrize("walk", ["in order", "sliced"])
def test_an_operation_gives_what_it_gives_in_float32_rounded(device, name, walk):
    case = CASES[name]
    variants = [variant for variant in case.variants if variant.walk == walk]
    if not variants:
        assert "sliced" not in case.walks
        return
    sources = [rounded(source, "bfloat16") if is_real(source) else source for source in make_sources(case, variants[0])]
    wide, slopes = result_and_slopes(case, variants[0], sources, device, "float32")
    short, short_slopes = result_and_slopes(case, variants[0], sources, device, "bfloat16")
    assert short.dtype == "bfloat16"
    half = 0.5 * SPACING["bfloat16"]
    before_bias = half * np.abs(wide.numpy()).max() if name == "conv2d" else 1e-6  # rounded before it is added, too
    np.testing.assert_allclose(short.numpy(), wide.numpy(), rtol=half, atol=before_bias)
    for slope, expected in zip(short_slopes, slopes, strict=True):
        assert slope.dtype == "bfloat16"
        largest = np.abs(expected.numpy()).max(initial=1.0)
        np.testing.assert_allclose(slope.numpy(), expected.numpy(), atol=2 * SPACING["bfloat16"] * largest)


def result_and_slopes(case, variant, sources, device, dtype):
    leaves = [ow.tensor(source, device=device, dtype=dtype if is_real(source) else None) for source in sources]
    real = [leaf for leaf, source in zip(leaves, sources, strict=True) if is_real(source)]
    for tensor in real:
        tensor.requires_grad = True
    result = case.ours(*variant.walked(leaves))
    result.float().sum().backward()
    return result, [param.grad for param in real]


def test_a_kernel_that_does_not_read_element_by_element_says_so():
    with pytest.raises(ShaderError, match="element by element"):
        packed(cooperative("unscale"), ("bfloat16", "", "", "", "")).wgsl()


# Which types are chosen.

TYPES = [
    (lambda x, h: x @ x, "half"),
    (lambda x, h: nn.functional.linear(x, x, x[0]), "half"),
    (lambda x, h: ops.conv2d(x.reshape(1, 1, 4, 4), x.reshape(4, 1, 2, 2)), "half"),
    (lambda x, h: ops.scaled_dot_product_attention(x, x, h), "half"),
    (lambda x, h: h.relu() * h + 1.0, "half"),
    (lambda x, h: h.reshape(2, 8)[1:], "half"),
    (lambda x, h: ops.concat([h, h]), "half"),
    (lambda x, h: ops.batch_norm(h, None, None, x[0], x[0], training=True), "half"),
    (lambda x, h: x.relu(), "float32"),
    (lambda x, h: h + x, "float32"),
    (lambda x, h: ops.concat([h, x]), "float32"),
    (lambda x, h: h.softmax(), "float32"),
    (lambda x, h: ops.layer_norm(h, 4, x[0], x[0]), "float32"),
    (lambda x, h: h.sum(), "float32"),
    (lambda x, h: h.mean(0), "float32"),
    (lambda x, h: h.exp(), "float32"),
    (lambda x, h: (h * h) ** 0.5, "float32"),
    (lambda x, h: ow.cross_entropy(h, [0, 1, 2, 3]), "float32"),
    (lambda x, h: ops.mse_loss(h, x), "float32"),
    (lambda x, h: h > 0.0, "bool"),
]


@pytest.mark.parametrize("dtype", HALVES)
def test_operations_choose_their_types_by_torchs_lists(dtype):
    x = ow.randn((4, 4), device="cpu", seed=0)
    for call, expected in TYPES:
        with ow.autocast(dtype):
            actual = call(x, x.to(dtype)).dtype
        assert actual == (dtype if expected == "half" else expected)


def test_outside_of_autocast_16_bits_stay_16_bits(device):
    h = ow.randn((3, 3), device=device, seed=0).half()
    for array in (h @ h, h.softmax(), h.sum(), h.exp(), h.max(), ops.where(h > 0.0, h, 0.0)):
        assert array.dtype == "float16"
    assert (h @ h.float()).dtype == (h + h.bfloat16()).dtype == "float32"


def test_contexts_nest_and_decorate():
    x = ow.ones((2, 2), device="cpu")
    with ow.autocast("float16"):
        assert (x @ x).dtype == "float16"
        with ow.autocast("bfloat16"):
            assert (x @ x).dtype == "bfloat16"
        with ow.autocast("float16", enabled=False):
            assert (x @ x).dtype == "float32"
        assert (x @ x).dtype == "float16"
    assert (x @ x).dtype == "float32"
    assert ow.autocast("bfloat16")(lambda: x @ x)().dtype == "bfloat16"
    with pytest.raises(ZeroDivisionError), ow.autocast():
        1 / 0  # noqa: B018
    assert (x @ x).dtype == "float32"


def test_bad_types_are_refused():
    with pytest.raises(UnsupportedError, match="'bfloat16' or 'float16', not in 'int32'"):
        ow.autocast("int32")
    with pytest.raises(UnsupportedError, match=r"use one of .*bfloat16"):
        ow.autocast("float8")


def test_gradcheck_refuses_16_bits():
    x = ow.ones((2, 2), device="cpu", requires_grad=True)
    with pytest.raises(UnsupportedError, match=r"not <Tensor .* float16"):
        ow.gradcheck(lambda x: x * x, x.detach().half())
    with pytest.raises(UnsupportedError, match="without autocast"):
        ow.gradcheck(ow.autocast()(lambda x: x @ x), x)


# Parameters.


def dispatches(device, call):
    before = device.stats.dispatches
    call()
    return device.stats.dispatches - before


def test_a_parameter_is_rounded_once_and_its_gradient_is_float32(device):
    w, x = ow.Parameter(np.eye(5) / 3, device=device), ow.ones((3, 5), device=device).bfloat16()
    with ow.autocast("bfloat16"):
        assert dispatches(device, lambda: x @ w) == 2
        assert dispatches(device, lambda: x @ w) == 1
        w.assign(np.eye(5) / 7)
        assert dispatches(device, lambda: x @ w) == 2
    with ow.autocast("bfloat16"):
        for _ in range(2):  # a history that was used up is made again
            (x @ w).sum().backward()
    assert w.grad.dtype == "float32"
    assert w.grad.tolist() == [[6.0] * 5] * 5
    with ow.autocast("bfloat16", cache_enabled=False):
        assert [dispatches(device, lambda: x @ w) for _ in range(2)] == [2, 2]


def test_a_replay_that_changes_a_parameter_has_it_rounded_again(device):
    w, x = ow.Parameter([[4.0]], device=device), ow.ones((1, 1), device=device)
    optimizer = ow.optim.SGD([w], lr=1.0)

    def step():
        optimizer.zero_grad()
        (x @ w).sum().backward()
        optimizer.step()

    compiled = ow.compile(step, device=device)
    actual = []
    with ow.autocast("bfloat16"):
        for _ in range(3):
            actual.append((x @ w).item())
            compiled()
    assert actual == [4.0, 3.0, 2.0]


def test_what_is_rounded_without_history_does_not_stand_for_a_parameter_with_one():
    w = ow.Parameter(np.eye(2), device="cpu")
    with ow.autocast("bfloat16"):
        with ow.no_grad():
            w @ w
        (w @ ow.ones((2, 2), device="cpu")).sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0]] * 2


def test_checkpointed_functions_compute_again_in_the_same_types(device):
    w = ow.Parameter(np.linspace(-1, 1, 36).reshape(6, 6), device=device)
    x = ow.tensor(np.linspace(-1, 2, 18, dtype=np.float32).reshape(3, 6), device=device)
    grads = []
    for wrap in (lambda function, x: function(x), ow.checkpoint):
        w.grad = None
        with ow.autocast("bfloat16", cache_enabled=wrap is ow.checkpoint):
            y = wrap(lambda x: (x @ w).relu() @ w, x @ w)
        y.float().sum().backward()
        grads.append(w.grad.numpy())
    np.testing.assert_array_equal(*grads)


# Training.


def test_activations_take_half_the_memory(device):
    x = ow.randn((128, 256), device=device, seed=0)
    layers = [ow.Parameter(ow.randn((256, 256), device=device, seed=index) * 0.1) for index in range(4)]

    def kept(**how):
        y = x
        with ow.autocast(**how):
            for layer in layers:
                y = (y @ layer).gelu()
        before = device.memory_stats().asked_bytes
        del y
        return before - device.memory_stats().asked_bytes

    whole = kept(enabled=False)
    assert whole == 8 * 128 * 256 * 4
    of_casts = 2 * (4 * 256 * 256 + 128 * 256)  # of the parameters, and of x
    assert kept(dtype="bfloat16") == kept(dtype="float16") == whole // 2 + of_casts


def perceptron(device):
    rng = np.random.default_rng(0)
    shapes = [(16, 32), (32,), (32, 3)]
    values = [rng.standard_normal(shape) * 0.3 for shape in shapes]
    x = rng.standard_normal((64, 16)).astype(np.float32)
    return values, x, (x[:, 0] > 0).astype(np.int32)


def train(device, how, steps=12):
    """The losses of the perceptron."""
    values, x, labels = perceptron(device)
    w1, b1, w2 = parameters = [ow.Parameter(value, device=device) for value in values]
    optimizer = ow.optim.SGD(parameters, lr=0.5)
    scaler = ow.optim.GradScaler(device, enabled=how.get("dtype") == "float16")

    def step(x, labels):
        optimizer.zero_grad()
        with ow.autocast(**how):
            loss = ow.cross_entropy((x @ w1 + b1).gelu() @ w2, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    compiled = ow.compile(step, device=device)
    return [compiled(x, labels).item() for _ in range(steps)]


def test_a_perceptron_trains_as_in_float32(device):
    whole = train(device, {"enabled": False})
    assert whole[-1] < 0.5 * whole[0]
    for dtype in HALVES:
        np.testing.assert_allclose(train(device, {"dtype": dtype}), whole, rtol=SPACING[dtype])


def test_a_perceptron_trains_as_in_torch(device, torch):
    values, x, labels = perceptron(device)
    w1, b1, w2 = parameters = [torch.tensor(value, dtype=torch.float32, requires_grad=True) for value in values]
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = torch.nn.functional.gelu(torch.tensor(x) @ w1 + b1)
            loss = torch.nn.functional.cross_entropy(hidden @ w2, torch.tensor(labels).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Sums in another order may round a bfloat16 the other way.
    np.testing.assert_allclose(train(device, {"dtype": "bfloat16"}), losses, rtol=1e-4)


def test_a_gpt_block_trains_as_in_float32(device):
    losses = {}
    for dtype in ("float32", *HALVES):
        ow.manual_seed(0)
        model = GPT(16, block=8, width=16, layers=1, heads=2, device=device)
        optimizer = ow.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = ow.optim.GradScaler(device, enabled=dtype == "float16")

        def step(codes, following, dtype=dtype, model=model, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            with ow.autocast("bfloat16" if dtype == "float32" else dtype, enabled=dtype != "float32"):
                loss = ow.cross_entropy(model(codes).reshape(-1, 16), following.reshape(-1))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        compiled = ow.compile(step, device=device)
        codes = np.random.default_rng(0).integers(0, 16, (4, 9), dtype=np.int32)
        losses[dtype] = [compiled(codes[:, :-1], codes[:, 1:]).item() for _ in range(20)]
    assert losses["float32"][-1] < 0.5 * losses["float32"][0]
    for dtype in HALVES:
        np.testing.assert_allclose(losses[dtype], losses["float32"], rtol=4 * SPACING[dtype])


def test_a_gradient_beyond_float16_skips_the_step(device):
    w = ow.Parameter([[1.0, 2.0]], device=device)
    optimizer, scaler = ow.optim.SGD([w], lr=0.5), ow.optim.GradScaler(device, init_scale=2.0**17)

    def step():
        optimizer.zero_grad()
        with ow.autocast("float16"):
            loss = (w @ ow.ones((2, 1), device=device)).sum()
        scaler.scale(loss).backward()  # 2**17 is infinite in float16
        scaler.step(optimizer)
        scaler.update()

    step()
    step()
    assert w.tolist() == [[1.0, 2.0]]
    assert scaler.get_scale() == 2.0**15
    step()
    assert w.tolist() == [[0.5, 1.5]]


def test_a_compiled_step_is_recorded_for_each_precision(device):
    w = ow.Parameter([[1.0 + 2.0**-10]], device=device)
    step = ow.compile(lambda x: (x @ w).float(), device=device)
    x = np.ones((1, 1), np.float32)
    assert step(x).item() == 1.0 + 2.0**-10
    with ow.autocast("bfloat16"):
        assert step(x).item() == 1.0
        w.assign([[2.0]])  # a recorded cast is made again by each replay
        assert step(x).item() == 2.0
    assert step(ow.tensor([[3.0]], device=device).half()).item() == 6.0


def test_autocast_in_a_page(numerics):
    first, second, grad = numerics("in_bfloat16", np.array([[1.0, 1.0 + 2.0**-9, 3.0]], np.float32))
    np.testing.assert_array_equal(first, [[5.0]])
    np.testing.assert_array_equal(second, [[1.0, 1.0, 3.0]])
    np.testing.assert_array_equal(grad, [[1.0, 1.0, 3.0]])
