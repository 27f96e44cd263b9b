"""float16 on a device with f16: its kernels use f16, and give the same bits as packed 16-bit words elsewhere."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from requirements import missing

import optirs_web as ow
from optirs_web import nn, ops
from optirs_web.runtime import native_halves
from optirs_web.runtime.backend import AllocationFailed
from optirs_web.runtime.buffer import View
from optirs_web.runtime.kernels import Kernel, cooperative
from optirs_web.runtime.map_kernels import elementwise
from optirs_web.runtime.native_halves import converts_float16
from optirs_web.runtime.packed_kernels import PackedKernel, packed
from optirs_web.runtime.products import SMALL, grid_of_products
from optirs_web.wgsl import link, package_loader, parse, print_wgsl
from optirs_web.wgsl.lint_workgroup import workgroup_bytes

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
NUMBERS = EVERY[~np.isnan(EVERY)]


@pytest.fixture
def gpu(open_device):
    """A device with f16, as llvmpipe has."""
    device = open_device("vulkan")
    if not converts_float16(device):
        missing("vulkan", f"{device} has no f16 that is our float16")
    return device


def kernels_of(device, call):
    """The kernels over 16 bits that a call enqueues."""
    result = []

    def observe(kernel, _):
        if isinstance(kernel, PackedKernel):
            result.append(kernel)

    device.observers.append(observe)
    try:
        call()
    finally:
        device.observers.remove(observe)
    return result


CALLS = {
    "gelu": lambda h: h.gelu(),
    "add_strided": lambda h: h.T + h[:, :1],
    "matmul": lambda h: h @ h,
    "batched matmul": lambda h: h.reshape(2, 3, 6) @ h.reshape(2, 6, 3),
    "linear": lambda h: nn.functional.linear(h, h, h[0]),
    "conv2d": lambda h: ops.conv2d(h.reshape(1, 1, 6, 6), h[:2, :4].reshape(2, 1, 2, 2)),
    "attention": lambda h: ops.scaled_dot_product_attention(h, h, h),
    "softmax": lambda h: h.softmax(),
    "sum": lambda h: h.sum(axis=0),
    "gather": lambda h: h[[0, 3, 1]],
    "concat": lambda h: ops.concat([h, h]),
    "layer_norm": lambda h: ops.layer_norm(h, 6),
    "to and fro": lambda h: h.float().half(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_kernels_over_float16_are_of_f16(gpu, call):
    h = ow.randn((6, 6), device=gpu, seed=0).half()
    kernels = kernels_of(gpu, lambda: call(h))
    assert kernels
    for kernel in kernels:
        text = kernel.wgsl()
        assert "float16" not in kernel.name
        assert "_f16" in kernel.name
        assert text.startswith("enable f16;\n")
        assert "array<f16>" in text
        assert "atomic" not in text
        assert "0xffffu" not in text
        assert [binding.type for binding in kernel.bindings].count("array<f16>") == kernel.kinds.count("f16")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_are_those_of_halves_of_words(gpu, monkeypatch, call):
    h = ow.randn((6, 6), device=gpu, seed=1).half()
    native = call(h).numpy()
    monkeypatch.setitem(native_halves._known, gpu, False)
    assert all("_float16" in kernel.name for kernel in kernels_of(gpu, lambda: call(h)))
    np.testing.assert_array_equal(native.view(np.uint16), call(h).numpy().view(np.uint16))


def test_bfloat16_and_devices_without_f16_go_by_words(gpu):
    for device, dtype in ((gpu, "bfloat16"), (ow.device("cpu"), "float16"), (ow.device("cpu"), "bfloat16")):
        h = ow.ones((3, 3), device=device, dtype=dtype)
        assert [kernel.name for kernel in kernels_of(device, lambda h=h: h @ h)] == [f"matmul_{dtype}"]


# Bit for bit.


def bits(device, kernel, kinds, operands, size, parameters, groups=1):
    """Return the 16-bit words that a kernel writes over a buffer of ones."""
    views = [View.whole(device.allocate(4 * -(-len(one) // 4))) for one in (*operands, bytes(2 * size + size % 2 * 2))]
    for view, one in zip(views, (*operands, b"\xff" * (2 * size + size % 2 * 2)), strict=True):
        device.write(view, memoryview(one.ljust(view.nbytes, b"\xff")))
    device.dispatch(packed(kernel, kinds), views, groups, parameters)
    return np.frombuffer(device.read(views[-1]), np.uint16)[:size]


@pytest.mark.parametrize("size", [1, 2, 7, 2051, NUMBERS.size])
@pytest.mark.parametrize(("file", "function"), [("identity", "identity_f32"), ("tanh", "tanh_"), ("square", "square")])
def test_maps_give_the_same_bits(gpu, size, file, function):
    kernel = elementwise(file, function, ("tensor",), 0)
    values = np.resize(NUMBERS[:: max(1, NUMBERS.size // size)], size).tobytes()
    groups = -(-size // kernel.elements_per_workgroup)
    native, words = (bits(gpu, kernel, (kind, kind), [values], size, (size,), groups) for kind in ("f16", "float16"))
    np.testing.assert_array_equal(native, words)


def test_strided_maps_give_the_same_bits(gpu):
    kernel = elementwise("add", "add", ("tensor", "tensor"), 2)
    x = NUMBERS[1000:1100].tobytes()
    parameters = (21, 3, 7, 5, 0, 1, 13, 0, 2)  # size, axes, starts, strides
    native, words = (bits(gpu, kernel, (kind,) * 3, [x, x], 21, parameters) for kind in ("f16", "float16"))
    np.testing.assert_array_equal(native, words)


@pytest.mark.parametrize("quads", [False, True], ids=["tiles", "quads"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 5, 7, 3), (1, 33, 65, 31), (3, 17, 9, 20)])
def test_products_give_the_same_bits(gpu, shape, quads):
    products, rows, inner, columns = shape
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(size).astype(np.float16) for size in ((products, rows, inner), (products, inner, columns))
    )
    a[:, 0, 0] = 6e-8
    batch = (0, products, 0, rows * inner, 0, inner * columns)
    parameters = (rows, columns, inner, inner, 1, columns, 1, 0, 0, *batch)
    kernel = cooperative("matmul", QUADS=True) if quads else cooperative("matmul")
    grid = grid_of_products(rows, columns, products, None if quads else SMALL)
    size = products * rows * columns
    native, words = (
        bits(gpu, kernel, (kind,) * 3, [a.tobytes(), b.tobytes()], size, parameters, grid)
        for kind in ("f16", "float16")
    )
    np.testing.assert_array_equal(native, words)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(native.view(np.float16).reshape(wide.shape), wide, rtol=2**-10, atol=1e-5)


@pytest.mark.parametrize("quads", [False, True], ids=["tiles", "quads"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_sums_of_a_product_are_float32(gpu, monkeypatch, batch, quads):
    monkeypatch.setattr(gpu, "capabilities", replace(gpu.capabilities, quads=quads))
    ones = ow.ones((*batch, 1, 4099), device=gpu).half()
    small = ow.tensor(np.full((*batch, 4099, 1), 2.0**-12), device=gpu, dtype="float16")
    # A sum in f16 stops growing at 0.5.
    np.testing.assert_array_equal((ones @ small).numpy().ravel(), np.float16(4099 * 2.0**-12))


def test_every_float16_is_moved_as_it_is(gpu):
    h = ow.tensor(NUMBERS, device=gpu, dtype="float16")
    backwards = h[np.arange(h.size)[::-1].astype(np.int32)].numpy()
    np.testing.assert_array_equal(backwards.view(np.uint16), NUMBERS[::-1].view(np.uint16))
    whole = ops.concat([h[:3], h[3:]]).numpy()
    np.testing.assert_array_equal(whole.view(np.uint16), NUMBERS.view(np.uint16))


def test_what_is_beyond_float16_is_infinite_and_nan_stays_nan(gpu):
    x = ow.tensor([65519.9, 65520.0, -1e6, 3e38, np.inf, np.nan, 3e-8, 2e-8, -0.0], device=gpu)
    expected = [65504.0, np.inf, -np.inf, np.inf, np.inf, np.nan, 2.0**-24, 0.0, -0.0]
    np.testing.assert_array_equal(x.half().numpy(), np.array(expected, np.float16))
    assert np.signbit(x.half().numpy()[-1])


def test_there_may_be_no_elements(gpu):
    empty = ow.zeros((0, 3), device=gpu, dtype="float16")
    assert (empty + empty).numpy().shape == (0, 3)
    assert (empty @ ow.ones((3, 2), device=gpu).half()).numpy().shape == (0, 2)
    assert (empty.T @ empty).tolist() == [[0.0] * 3] * 3


def test_one_kernel_takes_both_types_of_16_bits(gpu):
    values = np.linspace(-3, 3, 7, dtype=np.float32)
    h = ow.tensor(values, device=gpu, dtype="float16")
    (kernel,) = kernels_of(gpu, lambda: h.bfloat16())
    assert kernel.name == "identity_f32_f16_bfloat16"
    expected = ow.tensor(h.numpy().astype(np.float32), device="cpu", dtype="bfloat16").numpy()
    np.testing.assert_array_equal(h.bfloat16().numpy(), expected)


def test_tiles_of_products_are_float32_whatever_they_are_of():
    wide, halves, native = (
        workgroup_bytes(one.module)
        for one in (cooperative("matmul"), *(packed(cooperative("matmul"), (kind,) * 3) for kind in ("float16", "f16")))
    )
    assert (wide, halves, native) == (2304, 2304, 2304)


# In programs, and for those who look.


def test_profiles_and_explanations_name_f16(gpu):
    w = ow.Parameter(np.eye(4), device=gpu)
    step = ow.compile(ow.autocast("float16")(lambda x: (x @ w).relu().float()), device=gpu)
    x = np.ones((2, 4), np.float32)
    with ow.profile(gpu) as profile:
        step(x)
    names = {"identity_f32_f16", "matmul_f16", "relu_f16"}
    assert {kernel.name for kernel in profile.kernels} - {"copy"} == names
    explained = ow.explain(step)
    assert set(explained.kernels) == names
    assert "matmul_f16" in str(explained)


def test_a_device_is_asked_once_even_in_a_recording(gpu):
    native_halves._known.pop(gpu)
    before = gpu.stats.copy()
    step = ow.compile(lambda x: (x.half() @ x.half()).float(), device=gpu)
    assert step(np.eye(3, dtype=np.float32)).tolist() == np.eye(3).tolist()
    assert native_halves._known[gpu] is True
    assert (gpu.stats - before).bytes_down == 9 * 4  # the answer is no value that anybody asked for


def test_in_a_page_a_device_is_asked_outside_of_a_recording(gpu, monkeypatch):
    monkeypatch.delitem(native_halves._known, gpu)
    monkeypatch.setattr(native_halves, "sys", SimpleNamespace(platform="emscripten"))  # no page here has an f16
    calls = []

    def step(x):
        calls.append(1)
        return (x.half() @ x.half()).float()

    compiled = ow.compile(step, device=gpu)
    assert compiled(np.eye(3, dtype=np.float32)).tolist() == np.eye(3).tolist()
    assert len(calls) == 2
    assert "matmul_f16" in [launch.kernel.name for launch in compiled.program.launches]


def test_without_an_answer_words_are_used(gpu, monkeypatch):
    h = ow.ones((3, 3), device=gpu, dtype="float16")
    monkeypatch.delitem(native_halves._known, gpu)
    with monkeypatch.context() as page:
        page.setattr(gpu.backend, "can_wait", False)
        assert [kernel.name for kernel in kernels_of(gpu, lambda: h @ h)] == ["matmul_float16"]
    assert gpu not in native_halves._known

    def refuse(nbytes):
        raise AllocationFailed

    with monkeypatch.context() as full:
        full.setattr(gpu.backend, "allocate", refuse)
        assert not converts_float16(gpu)


# Whether a device's conversions are ours.


class Text(Kernel):
    """A kernel of a text."""

    name = "changed"

    def __init__(self, text):
        self.text = text

    @property
    def module(self):
        return link(parse(self.text, "<changed>"))


CHANGES = {
    "as ours": ("f32(f16(x))", 0),
    "towards zero": ("bitcast<f32>(bitcast<u32>(f32(f16(x))) - select(0u, 0x2000u, abs(f32(f16(x))) > abs(x)))", 1),
    "halves up": ("from_float16(to_float16(bitcast<f32>(bitcast<u32>(x) + 1u)))", 1),
    "no smallest numbers": ("select(f32(f16(x)), 0.0, abs(x) < 6.1035156e-5)", 1),
    "no infinity": ("clamp(f32(f16(x)), -65504.0, 65504.0)", 1),
    "no NaN": ("select(f32(f16(x)), 0.0, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u)", 1),
}


@pytest.mark.parametrize(("conversion", "differs"), CHANGES.values(), ids=CHANGES)
def test_a_device_that_converts_otherwise_is_found_out(gpu, conversion, differs):
    text = print_wgsl(link(package_loader()(("kernels", "float16_conversions")), package_loader()))
    assert text.count("f32(f16(x))") == 1
    counted = View.whole(gpu.allocate_zeroed(4))
    gpu.dispatch(Text(text.replace("f32(f16(x))", conversion)), [counted], 256)
    assert (np.frombuffer(gpu.read(counted), np.uint32)[0] > 0) == differs


def test_kernels_are_of_f16_where_a_device_has_it(numerics):
    values = np.array([[1.0, 1.0 + 2.0**-10, 3.0]] * 3, np.float32)
    product, are_of_f16, has_f16 = numerics("in_float16", values)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(product, (values @ values).astype(np.float16).astype(np.float32))
    assert are_of_f16 == has_f16
