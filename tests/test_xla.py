"""The device `xla`: what it compiles, how often, and for which platform."""

import os
import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner
from processes import run_python
from requirements import missing

import optirs_web as ow
from optirs_web.cli.commands import cli
from optirs_web.errors import DeviceNotAvailableError, LaunchError


@pytest.fixture
def device(xla):
    return xla


def compiled_in(device, call):
    """How many functions were compiled in a call."""
    device.synchronize()
    before = device.stats.copy()
    call()
    device.synchronize()
    return (device.stats - before).pipelines


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "optirs_web.native_backends.xla.backend", raising=False)
    monkeypatch.setattr("optirs_web.runtime.open_devices.by_name", {})
    with pytest.raises(DeviceNotAvailableError, match=r"jax is not installed: pip install 'jax>=0.9'"):
        ow.device("xla")
    reasons = {info.name: info.reason for info in ow.devices() if not info.available}
    assert "pip install 'jax>=0.9'" in reasons["xla"]


@pytest.mark.parametrize("platform", ["cuda", "nonsense"])
@pytest.mark.usefixtures("device")
def test_a_platform_that_jax_does_not_find_says_what_to_do(platform):
    program = """
    import optirs_web as ow
    try:
        ow.device("xla")
    except ow.errors.DeviceNotAvailableError as error:
        print(error)
    """
    (reason,) = run_python(program, JAX_PLATFORMS=platform)
    assert "JAX finds no device (" in reason
    assert f"unset JAX_PLATFORMS={platform}, or install JAX for it: pip install 'jax[cuda13]'" in reason


def test_a_jax_that_is_too_old_is_told_from_one_that_is_missing(device, monkeypatch):
    monkeypatch.setattr("jax.__version__", "0.4.38")
    (actual,) = (info for info in ow.devices() if info.name == "xla")
    assert (
        actual.reason == "the Python package jax is of version 0.4.38, which is not supported: pip install 'jax>=0.9'"
    )


def test_it_is_taken_by_name_only(device):
    assert ow.device("auto") is not device
    assert device.info.description.startswith("cpu")


def test_small_launches_of_one_function_are_compiled_once_whatever_the_shape(device):
    def shapes(sizes):
        for rows, columns in sizes:
            x = ow.ones((rows, columns), device=device)
            y = x.T * ow.ones((columns, 1), device=device) + float(rows)
            assert (y @ x).numpy()[0, 0] == rows * (rows + 1.0)

    shapes([(5, 7)])
    assert compiled_in(device, lambda: shapes([(2, 3), (4, 6), (8, 5)])) == 0


def test_a_step_with_other_numbers_is_not_compiled_again(device):
    w = ow.Parameter(np.ones(300, np.float32), device=device)
    optimizer = ow.optim.AdamW([w], lr=1e-2)

    def step(lr):
        optimizer.param_groups[0]["lr"] = lr
        w.grad = ow.tensor(np.full(300, lr, np.float32), device=device)
        optimizer.step()

    step(0.1)
    assert compiled_in(device, lambda: [step(0.1 / n) for n in range(2, 6)]) == 0


def test_a_recorded_step_is_one_function_in_place_of_its_kernels(device):
    w = ow.Parameter(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30), device=device)
    optimizer = ow.optim.SGD([w], lr=0.1, momentum=0.9)

    def train():
        optimizer.zero_grad()
        loss = ((w @ w.T).relu() ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step = ow.compile(train, device=device)
    first = step().item()
    before = device.stats.copy()
    losses = [step().item() for _ in range(5)]
    spent = device.stats - before
    assert spent.pipelines <= 1
    assert spent.dispatches > 5 * 3
    assert losses[-1] < losses[0] < first


def test_a_written_buffer_is_donated_and_a_value_that_was_read_stays(device):
    x = ow.tensor(np.arange(4, dtype=np.float32), device=device)
    seen = x.numpy()
    old = device.backend.arrays_of(x.view.buffer.handle)
    device.copy(ow.ones((4,), device=device).view, x.view)
    device.synchronize()
    assert old.is_deleted()
    assert seen.tolist() == [0, 1, 2, 3]
    assert x.tolist() == [1, 1, 1, 1]


def test_a_launch_that_fails_is_named(device, monkeypatch):
    from optirs_web.native_backends.xla import kernels as xla_kernels

    def broken(*_):
        raise ValueError("no such luck")

    monkeypatch.setattr(xla_kernels, "lower_form", broken)
    with pytest.raises(LaunchError, match="'unfold' failed on device 'xla': ValueError: no such luck"):
        ow.ops.unfold(ow.ones((1, 2, 40, 40), device=device), 3).numpy()


def test_options_that_a_release_of_xla_does_not_know_are_left_out(device, monkeypatch):
    from optirs_web.native_backends.xla import programs as xla_programs

    monkeypatch.setitem(xla_programs._CHEAP, "xla_no_such_option", True)
    actual = xla_programs.quick_options.__wrapped__()
    assert "xla_no_such_option" not in actual
    assert actual["xla_backend_optimization_level"] == 0


@pytest.mark.parametrize(
    ("function", "places", "shape"),
    [("put_windows", [3], (1, 6)), ("put_windows", [0, 3], (2, 2)), ("put_at", [5], (1,)), ("put_at", [5, 7], (2,))],
)
def test_what_is_left_out_stays_also_in_a_part_of_a_buffer(device, function, places, shape):
    import jax
    from jax import lax

    from optirs_web.native_backends.arrays import jax_arrays
    from optirs_web.wgsl.jax_dialect import XLA_OPTIONS

    def change(words, first, starts, values, are_active):
        part = lax.dynamic_slice(words, (first,), (9,))
        changed = getattr(jax_arrays, function)(part, starts, values, are_active)
        return lax.dynamic_update_slice(words, changed, (first,))

    words, values = np.arange(32, dtype=np.uint32), np.full(shape, 77, np.uint32)
    compiled = jax.jit(change, compiler_options=dict(XLA_OPTIONS))
    for active in ([False] * len(places), [True] * len(places)):
        actual = compiled(words, np.int32(10), np.array(places, np.uint32), values, np.array(active))
        assert (np.asarray(actual) != words).sum() == values.size * active[0]


# Ahead of time.


def run(*arguments):
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("shape", "strides", "start"),
    [((7,), (1,), 3), ((3, 4), (10, 1), 2), ((2, 3, 2), (20, 5, 2), 1), ((4, 3), (1, 9), 5), ((5, 1), (3, 1), 0),
     ((), (), 4), ((0, 3), (3, 1), 0)],
)  # fmt: skip
@pytest.mark.usefixtures("device")
def test_strided_elements_of_a_vector_are_replaced(shape, strides, start):
    import jax

    from optirs_web.native_backends.arrays.jax_arrays import with_part

    old, values = np.arange(60, dtype=np.float32), -np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    want = old.copy()
    np.lib.stride_tricks.as_strided(want[start:], shape, [4 * stride for stride in strides])[...] = values
    assert np.array_equal(with_part(jax.numpy.asarray(old), start, jax.numpy.asarray(values), strides), want)
    replaced = jax.jit(lambda old, start, values: with_part(old, start, values, strides))
    assert np.array_equal(replaced(old, start, values), want)


def test_a_rule_is_printed_as_jax_and_as_stablehlo(device):
    text = run("shader", "adamw", "--target", "jax")
    assert "import jax.numpy as jnp" in text
    assert "exp_avg = state.exp_avg + h.one_minus_beta1 * (grad - state.exp_avg)" in text
    assert "stablehlo.sqrt" in run("shader", "adamw", "--target", "stablehlo")
    assert "stablehlo.multiply" in run("shader", "multiply", "--target", "stablehlo")


def test_what_has_no_shapes_of_its_own_is_refused_as_stablehlo(device):
    result = CliRunner().invoke(cli, ["shader", "matmul", "--target", "stablehlo"])
    assert result.exit_code == 1
    assert "the shapes of 'matmul' are not known" in result.output


def test_compiling_for_tpus_says_what_to_install(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    result = CliRunner().invoke(cli, ["compile", "adamw", "--topology", "v5e:2x4"])
    assert result.exit_code == 1
    assert "libtpu is not installed: pip install libtpu" in result.output


@pytest.mark.parametrize(
    ("name", "message"),
    [("LAMB", "'lamb' measures something of all elements first"), ("reptile", "not update from a gradient alone")],
)
def test_what_a_step_for_a_topology_leaves_out_is_refused(device, name, message):
    result = CliRunner().invoke(cli, ["compile", name, "--topology", "v5e:2x4"])
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.needs("libtpu")
def test_a_step_for_eight_tpus_is_one_all_reduce_and_one_loop(device, tmp_path):
    if find_spec("libtpu") is None:
        missing("libtpu", "it is not installed")
    path = tmp_path / "adamw.hlo"
    printed = run("compile", "adamw", "--topology", "v5e:2x4", "--elements", "65536", "--out", str(path))
    assert "65,536 parameters on 8 x TPU v5 lite" in printed
    assert "bytes accessed" in printed
    lines = path.read_text().partition("\nENTRY")[2].splitlines()
    assert sum("replica_groups={{0,1,2,3,4,5,6,7}}" in line for line in lines) == 1
    results = [line.partition(" fusion(")[0] for line in lines if " fusion(" in line]
    assert sum(result.count("f32[65536]") == 3 for result in results) == 1  # parameters and both averages


def test_an_operation_that_has_no_memory_says_so_and_the_device_goes_on(device):
    if not os.path.exists("/proc/self/statm"):
        missing("linux", "the system does not tell what a process uses")
    lines = run_python(
        """
        import resource
        import optirs_web as ow
        x = ow.ones((4,), device="xla") + 1.0
        x.tolist()
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
        try:
            ow.ones((1 << 27,), device="xla").tolist()
        except ow.errors.OutOfDeviceMemoryError as error:
            print("the operation" in str(error))
        print((x + 1.0).tolist())
        """
    )
    assert lines == ["True", "[3.0, 3.0, 3.0, 3.0]"]


# The precision of products. XLA's processor computes the same in each, so it is read in what XLA is given.

XLA_NAMES = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}


@pytest.fixture
def precisions(device, tmp_path):
    """Call it for the precisions of the products that were compiled since the last call."""
    import jax

    def compiled():
        device.synchronize()
        texts = [(path, path.read_text()) for path in tmp_path.glob("*.mlir")]
        for path, _ in texts:
            path.unlink()
        lines = [line for _, text in texts for line in re.findall(r"stablehlo\.dot_general .*", text)]
        return {name for line in lines for name in re.search(r"precision = \[(\w+), (\w+)\]", line).groups()}

    device.synchronize()
    jax.config.update("jax_dump_ir_to", str(tmp_path))
    device.backend._single.clear()  # what other tests compiled
    yield compiled
    jax.config.update("jax_dump_ir_to", "")
    ow.set_float32_matmul_precision("highest")


def product(device):
    x = ow.ones((70, 90), device=device)
    (x @ x.T).read()


def product_of_16_bits(device):
    with ow.autocast():
        product(device)


def attention(device):
    x = ow.Parameter(np.ones((2, 8, 4), np.float32), device=device)
    ow.ops.scaled_dot_product_attention(x, x, x).sum().backward()
    x.grad.read()


def batched_product(device):
    w = ow.Parameter(np.ones((8, 4), np.float32), device=device)
    optimizer = ow.optim.Muon([w])
    optimizer.step(grads=[np.ones((8, 4), np.float32)])
    w.read()


@pytest.mark.parametrize("precision", XLA_NAMES)
@pytest.mark.parametrize("program", [product, product_of_16_bits, attention, batched_product])
def test_products_have_the_precision_that_was_set(device, precisions, program, precision):
    ow.set_float32_matmul_precision(precision)
    program(device)
    assert precisions() == {XLA_NAMES[precision]}


def test_a_product_has_the_precision_that_was_set_when_it_was_enqueued(device, precisions):
    x = ow.ones((70, 90), device=device)
    ow.set_float32_matmul_precision("high")
    result = x @ x.T
    ow.set_float32_matmul_precision("highest")
    result.read()
    assert precisions() == {"HIGH"}


def test_products_are_compiled_once_for_each_precision(device, precisions):
    for names in ([{"DEFAULT"}, {"HIGHEST"}], [set(), set()]):
        for precision, expected in zip(("medium", "highest"), names, strict=True):
            ow.set_float32_matmul_precision(precision)
            product(device)
            assert precisions() == expected


def test_a_compiled_step_keeps_the_precision_that_it_was_recorded_with(device, precisions):
    x = ow.ones((7, 9), device=device)
    step = ow.compile(lambda: x @ x.T, device=device)
    ow.set_float32_matmul_precision("high")
    result = step()
    ow.set_float32_matmul_precision("highest")
    assert result.tolist() == step().tolist() == [[9.0] * 7] * 7
    assert precisions() == {"HIGH"}
    assert "precision = [HIGH, HIGH]" in ow.interop.jax.export(step).stablehlo
