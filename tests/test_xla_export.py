"""Compiled steps as files that JAX runs by itself."""

import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import optirs_web as ow
from optirs_web.cli.commands import cli
from optirs_web.errors import CheckpointError, UnsupportedError
from optirs_web.interop.safetensors import parts


@pytest.fixture
def device(xla):
    return xla


def trained_on(device):
    """A compiled step of a product and its optimizer, and the parameter."""
    w = ow.Parameter(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), device=device)
    optimizer = ow.optim.AdamW([w], lr=0.1)

    def train(x):
        optimizer.zero_grad()
        loss = ((x @ w).relu() ** 2).mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return ow.compile(train, device=device), w


def test_a_step_goes_on_in_jax_alone_as_it_does_here(device, tmp_path):
    step, w = trained_on(device)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    step(x)
    ow.interop.jax.export(step, x, parameters={"w": w}).save(tmp_path / "step.safetensors")
    loaded = ow.interop.jax.load(tmp_path / "step.safetensors")
    assert loaded.platforms == ("cpu", "cuda", "tpu")
    for _ in range(3):
        assert float(loaded(x)["loss"]) == pytest.approx(step(x)["loss"].item(), rel=1e-6)
        np.testing.assert_allclose(loaded.parameters()["w"], w.numpy(), rtol=0, atol=1e-6)
    again = ow.interop.jax.load(loaded.dump())
    np.testing.assert_array_equal(again.parameters()["w"], loaded.parameters()["w"])


def test_a_method_is_exported_with_its_object(device):
    class Model:
        def __init__(self):
            self.w = ow.Parameter([2.0, 3.0], device=device)

        @ow.compile
        def scaled(self, x):
            return x * self.w

    made = ow.interop.jax.export(Model().scaled, np.ones(2, np.float32), platforms=["cpu"])
    np.testing.assert_array_equal(made(np.array([1.0, -1.0], np.float32)), [2.0, -3.0])


def test_inputs_and_results_are_of_any_type(device):
    def mixed(x, mask, places):
        return {"halves": x * 2.0, "both": [ow.ops.where(mask, x, 1.0) > 0, ow.ops.argmax(x), places]}

    x, mask = np.array([[1.5, -2.0, 0.25]], np.float32), np.array([[True, True, False]])
    inputs = [ow.tensor(x, dtype="bfloat16", device=device), mask, np.array([3, -4], np.int32)]
    step = ow.compile(mixed, device=device)
    want, made = step(*inputs), ow.interop.jax.export(step, *inputs, platforms=["cpu"])
    import jax.numpy as jnp

    actual = made(jnp.asarray(x, jnp.bfloat16), mask, inputs[2])
    assert made.state == ()
    assert actual["halves"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(actual["halves"].astype(np.float32), want["halves"].numpy())
    for array, other in zip(actual["both"], want["both"], strict=True):
        np.testing.assert_array_equal(array, other.numpy())
        assert array.dtype == other.numpy().dtype


def test_what_cannot_be_exported_says_why(device, monkeypatch):
    step, _ = trained_on(device)
    x = np.ones((5, 3), np.float32)
    other = ow.Parameter([1.0], device=device)
    with pytest.raises(UnsupportedError, match="the step neither reads nor writes 'other'"):
        ow.interop.jax.export(step, x, parameters={"other": other})
    with pytest.raises(UnsupportedError, match="exported from the device 'xla', not 'cpu'"):
        ow.interop.jax.export(step, x, device="cpu")
    with pytest.raises(CheckpointError, match="contains no step"):
        ow.interop.jax.load(ow.dump_checkpoint({"other": other}))
    without_state = b"".join(parts({}, {"format": "optirs-web step 1", "parameters": "{}"}))
    with pytest.raises(CheckpointError, match=r"is damaged: parts of its step are missing \(KeyError\('artifact'\)\)"):
        ow.interop.jax.load(without_state)
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'optirs-web\[xla\]'"):
        ow.interop.jax.export(step, x)


def test_the_step_of_an_optimizer_is_exported(device, tmp_path):
    path = tmp_path / "step"
    arguments = ["compile", "sgd", "--flag", "lr=0.5", "--elements", "300", "--export", str(path)]
    assert "sgd of 300 parameters for cpu, cuda, tpu" in CliRunner().invoke(cli, arguments).output
    step = ow.interop.jax.load(path)
    step(np.full(300, 2.0, np.float32))
    assert (step.parameters()["param"] == -1).all()
    assert "stablehlo" in step.stablehlo


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a target: --topology v5e:2x4, or --export FILE"),
        (("nothing", "--export", "file"), "'nothing' is not an optimizer"),
        (("--export", "file", "--out", "hlo"), "--out is for the HLO of a --topology"),
        (("--topology", "v5e:2x4", "--platform", "tpu"), "--platform is for --export FILE"),
        (("--flag", "speed=3", "--export", "file"), "unexpected keyword argument 'speed'"),
        (("muon", "--export", "file"), "Invalid value for NAME: Muon only supports 2D parameters"),
        (("LBFGS", "--export", "file"), "LBFGS reads values back to the host"),
    ],
)
def test_what_is_asked_of_compile_makes_sense(device, arguments, message):
    result = CliRunner().invoke(cli, ["compile", *arguments])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("name", ["AdamW", "LAMB", "Adafactor", "CAME", "SM3", "AdamMini", "Prodigy"])
def test_a_step_over_tensors_of_several_shapes_looks_nothing_up(device, name):
    """Where tensors and their rows and columns are is known when a step is compiled; gathers would be slow."""
    shapes = [(4, 3), (3,), (2, 3, 5), (), (4, 3), (3,), (2, 300), (300, 2), (0, 2)]
    params = [ow.Parameter(np.full(shape, 0.5, np.float32), device=device) for shape in shapes]
    groups = [{"params": params[::2]}, {"params": params[1::2]}]
    optimizer = getattr(ow.optim, name)(groups, lr=0.01)

    def train():
        optimizer.step(grads=[param * 0.5 for param in (*params[::2], *params[1::2])])

    exported = ow.interop.jax.export(ow.compile(train, device=device), platforms=["cpu"])
    assert "stablehlo.multiply" in exported.stablehlo
    assert not re.findall(r"stablehlo\.\w*(?:gather|scatter)", exported.stablehlo)
