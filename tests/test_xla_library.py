"""`xla` leaves what NumPy leaves: by the library calls that replace kernels, launch by launch, and by forms."""

import numpy as np
import pytest
from numerics import schedule, sparse_run, sparse_sums
from sparse_problems import entries

import optirs_web as ow
from optirs_web import ops
from optirs_web.lower.windows import WindowAxis, axis_parameters
from optirs_web.native_backends.cpu.numpy import library as numpy_library
from optirs_web.ops.row_kernels import named_row_kernels
from optirs_web.ops.window_kernels import named_window_kernels
from optirs_web.runtime.form_kernels import form_kernel


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaf(device, *shape, seed=0):
    return ow.Parameter(random(*shape, seed=seed), device=device)


def differentiate(*results):
    """Values and the gradients of everything that they are made of."""
    for number, result in enumerate(results):
        result.backward(ow.tensor(random(*result.shape, seed=number + 9), device=result.device), retain_graph=True)
        result.read()


def products(device):
    a, b = leaf(device, 3, 37, 5), leaf(device, 5, 41, seed=1)
    differentiate(a @ b, a.transpose(1, 2)[:, 1:] @ leaf(device, 1, 37, 3), leaf(device, 9) @ leaf(device, 9))


def indexing(device):
    x, places = leaf(device, 4, 6, 5), np.array([[0, 5, -1], [2, 2, 8]], np.int32)
    named = np.random.default_rng(0).integers(0, 6, (4, 3, 5)).astype(np.int32)
    differentiate(
        ops.embedding(leaf(device, 9, 3), np.abs(places)), ops.take(x, [3, 0, -1], 1), ops.gather(x, named, 1)
    )
    differentiate(x[1:, ::2, 3], ops.concat([x, x[:2]], 0), ops.concat([x, x[:, :, 1:]], 2))


def heads(device):
    packed = leaf(device, 2, 33, 3, 4, 8)
    q, k, v = (ops.getitem(packed, (slice(None), slice(None), number)).permute(0, 2, 1, 3) for number in range(3))
    seen = np.random.default_rng(0).random((4, 33, 33)) < 0.7
    added = np.where(seen, random(4, 33, 33), -np.inf).astype(np.float32)
    differentiate(
        ops.scaled_dot_product_attention(q, k, v, is_causal=True),
        ops.scaled_dot_product_attention(q, k, v, ow.tensor(added, device=device)),
    )
    ops.scaled_dot_product_attention(q, k, v, ow.tensor(seen, device=device)).read()


def scaled_losses(device):
    params = [leaf(device, 3), leaf(device, 300, seed=1), leaf(device, 2, seed=2)]
    optimizer, scaler = ow.optim.SGD(params, lr=0.1), ow.optim.GradScaler(device, init_scale=4.0, growth_interval=2)
    for bad in (0, np.inf, 0, 0, np.nan):
        for number, param in enumerate(params[:2]):
            param.grad = ow.tensor(random(*param.shape, seed=number) + bad, device=device)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    checked = ow.optim.SGD(params, lr=0.1, skip_nonfinite=True)
    for bad in (0, np.nan):
        checked.step(grads=[random(3) + bad, None, random(2)])
    params[0].read()


def rows(device):
    rng = np.random.default_rng(0)
    sparse_sums(*entries(rng, 3000, (100, 4)), (100, 4), device)
    grads = [[entries(rng, 70, (40, 5))] for _ in range(2)]
    sparse_run("SparseAdam", {"lr": 0.1, "skip_nonfinite": True}, [random(40, 5)], grads, device)
    table = leaf(device, 40, 5)
    table.grad = ow.SparseRows(*entries(rng, 9, (40, 5)), (40, 5), device=device)
    scaler = ow.optim.GradScaler(device)
    scaler.unscale_(ow.optim.SparseAdam([table]))
    device.synchronize()


def step(device, name, *shape, **options):
    """Two steps of an optimizer."""
    param = leaf(device, *shape)
    optimizer = getattr(ow.optim, name)([param], **options)
    for seed in range(2):
        optimizer.step(grads=[random(*shape, seed=seed)])
    param.read()


def roots(device):
    step(device, "Muon", 4, 6, lr=0.1, ns_steps=1)
    step(device, "Shampoo", 5, 5, lr=0.1)


def eigenvectors(device):
    step(device, "SOAP", 5, 5, lr=0.1, precondition_frequency=1)


def projected(device):
    step(device, "APOLLO", 8, 5, lr=0.1, rank=2)
    step(device, "APOLLO", 8, 5, lr=0.1, rank=2, scale_type="tensor")


def curvature(device):
    weight, inputs, outputs = leaf(device, 3, 4), random(9, 4), random(9, 3)
    optimizer = ow.optim.KFAC([weight], lr=0.1, statistics=lambda: [(inputs, outputs)])
    optimizer.step(grads=[random(3, 4)])
    weight.read()


def stored(device):
    for kind in ("bfloat16", "float16", "8bit"):
        step(device, "GaLore", 40, 24, lr=0.1, rank=9, state_dtype=kind)


PROGRAMS = {
    products: ["matmul"],
    indexing: ["scatter"],
    heads: ["attention", "attention_delta", "attention_grad"],
    scaled_losses: ["unscale", "update_scale", "nonfinite"],
    rows: ["sort_rows", "merge_rows", "sum_rows", "join_rows", "spread_rows", "nonfinite_rows", "unscale_rows"],
    roots: ["batched_matmul", "inverse_root_start"],
    eigenvectors: ["eigenvectors", "orthogonalise"],
    projected: ["random_projection", "channel_factors", "scale_channels"],
    curvature: ["damped_inverse_start"],
    stored: ["load_state", "store_state", "low_rank_adam"],
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: PROGRAMS[one][0])
def test_a_kernel_leaves_what_it_leaves_on_the_processor(program, xla, open_device, monkeypatch):
    from xla_comparisons import Comparison

    comparison = Comparison(monkeypatch, PROGRAMS[program])
    program(open_device("cpu"))
    assert set(PROGRAMS[program]) == comparison.launches.keys()
    assert comparison.differences == []


@pytest.mark.parametrize("program", [indexing, rows], ids=lambda program: program.__name__)
def test_indices_are_int32_where_jax_has_64_bits_as_well(program, xla, open_device, monkeypatch):
    import jax
    from xla_comparisons import Comparison

    comparison = Comparison(monkeypatch, PROGRAMS[program])
    with jax.enable_x64(True):
        program(open_device("cpu"))
    assert comparison.launches
    assert comparison.differences == []


LAYOUTS = [(name, layout) for name in named_row_kernels() for layout in ("adjacent", "strided")]
LAYOUTS += [(name, "segments") for name in ("sum", "sum_of_two", "layer_norm_affine_grad", "extremum")]


@pytest.mark.parametrize("wide", [False, True], ids=["", "where JAX has 64 bits as well"])
@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_a_kernel_that_reduces_rows_leaves_what_it_leaves_on_the_processor(name, layout, wide, xla):
    import jax

    from optirs_web.native_backends.cpu.numpy.forms import bind_form
    from optirs_web.native_backends.xla.forms import lower_form

    kernel = form_kernel(named_row_kernels()[name], layout)
    form, rng = kernel.form, np.random.default_rng(0)
    outer, columns, inner, segment = 3, 21, 1 if layout == "adjacent" else 4, 8
    segments = -(-columns // segment) if layout == "segments" else 1
    values = {"rows": outer * segments * inner, "columns": columns, "inner": inner, "segment": segment}
    values |= {number: 1 if type_ == "i32" else np.float32(0.1) for number, type_ in form.numbers.items()}
    sizes = {"element": outer * columns * inner, "row": outer * segments * inner, "column": columns}
    dtypes = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}
    given = [
        np.asarray(
            rng.integers(0, columns, sizes[kind]) if read.type == "i32" else rng.standard_normal(sizes[kind])
        ).astype(dtypes[read.type])
        for read, kind in zip(form.reads, form.kinds, strict=False)
    ]
    results = [
        np.zeros(sizes[kind], dtypes[write.type])
        for write, kind in zip(form.writes, form.kinds[len(form.reads) :], strict=True)
    ]
    bind_form(kernel, [array.view(np.uint8) for array in (*given, *results)], values)()
    with jax.enable_x64(wide):
        traced = jax.jit(lambda *arrays: lower_form(kernel, values, arrays)).trace(*given, *map(np.zeros_like, results))
        assert "callback" not in traced.lower(lowering_platforms=("tpu",)).as_text()
        for want, got in zip(results, traced.lower().compile()(*given, *map(np.zeros_like, results)), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


AXES = [
    (WindowAxis(7, 13, 3, 2, -1, 1, 1), WindowAxis(4, 12, 10, 1, -2, 1, 1)),
    (WindowAxis(19, 5, 4, 1, 0, 3, -2), WindowAxis(25, 9, 9, 1, 0, 2, -1)),
]


@pytest.mark.parametrize("wide", [False, True], ids=["", "where JAX has 64 bits as well"])
@pytest.mark.parametrize("axes", AXES, ids=["under taps", "over pixels"])
@pytest.mark.parametrize("name", named_window_kernels())
def test_a_kernel_over_windows_leaves_what_it_leaves_on_the_processor(name, axes, wide, xla):
    import jax

    from optirs_web.native_backends.cpu.numpy.windows import bind_windows
    from optirs_web.native_backends.xla.windows import TRACED_OF_WINDOWS, lower_windows

    kernel, rng, planes = form_kernel(named_window_kernels()[name], "windows"), np.random.default_rng(0), 3
    form, (down, across) = kernel.form, axes
    plane, places, taps = down.size * across.size, down.grid * across.grid, down.taps * across.taps
    plane_stride, tap_stride = (taps * plane, plane) if name == "fold" else (plane, 0)
    numbers = places * planes, taps, plane_stride, places, plane_stride, tap_stride, *axis_parameters(axes)
    values = {parameter: number for (parameter, _), number in zip(kernel.parameters, numbers, strict=True)}
    given = []
    for read, kind in zip(form.reads, form.kinds, strict=False):
        size = places * planes if kind == "row" else plane_stride * (1 + planes)
        of_type = rng.integers(0, 3, size) if read.type == "i32" else rng.standard_normal(size)
        given.append(of_type.astype({"f32": np.float32, "i32": np.int32}[read.type]))
    size = places * (planes * (1 if form.reduced else taps) + 1)
    results = [np.zeros(size, np.float32 if write.type == "f32" else np.int32) for write in form.writes]
    bind_windows(form, [array.view(np.uint8) for array in (*given, *results)], values)()
    fixed = {key: value for key, value in values.items() if key not in TRACED_OF_WINDOWS}
    rest = {key: np.uint32(values[key]) for key in TRACED_OF_WINDOWS}
    arrays = (*given, *map(np.zeros_like, results))
    with jax.enable_x64(wide):
        traced = jax.jit(lambda rest, *arrays: lower_windows(form, fixed | rest, arrays)).trace(rest, *arrays)
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
        assert "callback" not in text
        assert "scatter" not in text
        for want, got in zip(results, traced.lower().compile()(rest, *arrays), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def plateau(device):
    scheduler = ow.optim.lr_scheduler.ReduceLROnPlateau(ow.optim.AdamW([leaf(device, 3)]), patience=0, cooldown=1)
    return [
        [scheduler.step(ow.tensor(loss, device=device)), scheduler.get_last_lr(), scheduler.best]
        for loss in (5.0, 4.0, 4.5, 4.5, 4.5, 4.5, np.nan)
    ]


def test_options_follow_as_on_the_processor(xla, open_device):
    expected, got = plateau(open_device("cpu")), plateau(open_device("xla"))
    assert got == expected
    assert expected[-1][1] == [pytest.approx(1e-6)]
    for name in ("CyclicLR, exp_range", "noise gaussian", "OneCycleLR, linear, three phases"):
        values = [schedule(name, "SGD", 3, open_device(device))["device"] for device in ("cpu", "xla")]
        np.testing.assert_allclose(*values, rtol=2e-6)


def test_every_kernel_has_its_replacement_and_its_test(xla):
    from optirs_web.native_backends.xla import library as xla_library

    tested = {name for names in PROGRAMS.values() for name in names}
    assert xla_library.REPLACEMENTS.keys() == numpy_library.REPLACEMENTS.keys() == tested
    assert xla_library.TRACED.keys() <= tested
