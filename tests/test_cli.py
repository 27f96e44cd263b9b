"""The command line: what it prints, what it writes, and how it fails."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import optirs_web as ow
from optirs_web import cli as command_line, wgsl
from optirs_web.cli.commands import cli
from optirs_web.training import Config, DigitsTraining

PNG = b"\x89PNG\r\n\x1a\n"
FILES = {"checkpoint.safetensors", "curves.png", "metrics.json"}
PROGRAM = [sys.executable, "-c", "from optirs_web.cli import main; main()"]


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def train(out, *arguments):
    return run("train", "digits", "--device", "cpu", "--out", out, *arguments)


def test_devices_lists_each_and_says_what_auto_takes():
    result = run("devices")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.output.splitlines() if line]
    assert {device.label for device in ow.devices()} <= set(names)
    assert f'"auto" selects {ow.device("auto").name}: ' in result.output


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "matmul", "sum", "softmax", "relu", "exp", "random_normal"])
def test_shader_prints_a_complete_module_and_nothing_else(name):
    result = run("shader", name)
    assert result.exit_code == 0
    module = wgsl.parse(result.stdout, name)
    wgsl.check(module)
    assert "@compute" in result.stdout


def test_adamw_is_adam_with_decoupled_weight_decay():
    assert run("shader", "adamw").stdout == run("shader", "adam", "--flag", "decoupled_weight_decay=true").stdout
    assert run("shader", "adamw").stdout != run("shader", "adam").stdout


def test_flags_and_parts_change_the_shader():
    assert "max_exp_avg_sq: array" not in run("shader", "adamw").stdout
    assert "max_exp_avg_sq: array" in run("shader", "adamw", "--flag", "amsgrad=true").stdout
    assert run("shader", "adamw").stdout.count("var<storage") + 1 == (
        run("shader", "adamw", "--flag", "amsgrad=true").stdout.count("var<storage")
    )
    assert "fn advance" in run("shader", "adamw", "--part", "advance").stdout
    assert "fn measure" in run("shader", "lamb", "--part", "measure").stdout
    message = "'adam' has no 'settle'; its parts are update, advance\n"
    assert message in run("shader", "adamw", "--part", "settle").output


def test_a_shader_may_be_over_elements_of_16_bits():
    assert "a: array<f16>" in run("shader", "matmul", "--elements", "f16").stdout
    assert "from_bfloat16" in run("shader", "relu", "--elements", "bfloat16").stdout


@pytest.mark.parametrize("target", ["numpy", "numba"])
@pytest.mark.parametrize("name", ["adamw", "relu"])
def test_shader_for_numpy_and_numba_is_python(name, target):
    result = run("shader", name, "--target", target)
    assert result.exit_code == 0
    assert ("prange" in result.stdout) == (target == "numba")
    compile(result.stdout, name, "exec")


def test_the_text_of_a_map_for_numpy_is_what_cpu_runs():
    text = run("shader", "exp", "--target", "numpy").stdout
    assert "np.exp(x, out=out, dtype=np.float64" in text
    assert "_exp(v_x, out=a_result)" in text
    assert "table_values[" in run("shader", "gather").stdout


def test_without_a_name_the_shaders_are_listed():
    listed = run("shader").stdout
    assert listed.startswith("optimizers:\n  adabelief, adabound, ")
    assert all(f" {name}," in listed for name in ("adam", "matmul", "softmax", "relu"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rleu"], "did you mean 'relu'?"),
        (["Nope"], "there is no shader 'Nope'; `optirs-web shader` lists the names"),
        (["adamw", "--flag", "foo=true"], "'adam' has no flag 'foo'; it has"),
        (["relu", "--flag", "foo=true"], "it has none"),
        (["adamw", "--flag", "amsgrad=maybe"], "write amsgrad=true"),
        (["matmul", "--target", "numpy"], "it is written by hand there, with calls of NumPy"),
        (["relu", "--part", "advance"], "'relu' is not an optimizer"),
        (["relu", "--arch", "sm_90"], "it applies only to --target ptx"),
        (["matmul", "--target", "numba"], "'matmul' has no Numba text"),
        (["softmax", "--target", "numba"], "'softmax' has no Numba text: NumPy runs it there"),
        (["adamw", "--elements", "f16"], "'adam update' takes no 16-bit floats"),
        (["unscale", "--elements", "f16"], "'unscale' takes no 16-bit floats"),
        (["relu", "--elements", "f16", "--target", "numpy"], "16-bit elements are for --target wgsl only"),
    ],
)
def test_a_wrong_shader_request_says_what_there_is(arguments, message):
    result = run("shader", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_train_writes_its_files_and_says_what_it_did(tmp_path):
    out = tmp_path / "runs" / "digits"
    result = train(out, "--epochs", 2, "--optimizer", "sgd")
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == FILES
    assert (out / "curves.png").read_bytes().startswith(PNG)
    metrics = json.loads((out / "metrics.json").read_text())
    assert f"test accuracy {metrics['test_accuracy']:.2%}" in result.stdout
    assert metrics["config"]["optimizer"] == "sgd"
    assert metrics["device_description"] == ow.device("cpu").info.description
    for line in (
        "device: cpu",
        "1,437 training images, 360 test images (fold 0)",
        "epoch 2/2",
        str(out / "curves.png"),
    ):
        assert line in result.stdout


def test_resume_goes_on_to_the_same_figures(tmp_path):
    assert train(tmp_path / "whole", "--epochs", 3).exit_code == 0
    assert train(tmp_path / "parts", "--epochs", 1).exit_code == 0
    result = train(tmp_path / "parts", "--epochs", 3, "--resume")
    assert result.exit_code == 0
    assert "continued after epoch 1" in result.stdout
    whole, parts = (json.loads((tmp_path / one / "metrics.json").read_text()) for one in ("whole", "parts"))
    assert whole["history"] == parts["history"]
    again = train(tmp_path / "parts", "--epochs", 3, "--resume")
    assert again.exit_code == 0
    assert "epochs are done; continue with a larger --epochs" in again.stdout


def test_folds_trains_on_each_and_prints_the_mean(tmp_path):
    result = train(tmp_path, "--epochs", 1, "--folds")
    assert result.exit_code == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    accuracies = [metric["test_accuracy"] for metric in metrics["folds"]]
    assert len(accuracies) == 5
    assert metrics["test_accuracy"] == pytest.approx(sum(accuracies) / 5)
    assert f"mean of 5 folds: test accuracy {metrics['test_accuracy']:.2%}" in result.stdout
    assert {path.name for path in (tmp_path / "fold4").iterdir()} == FILES


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--lr", "nan"], 2, "lr must be a finite number above 0, not nan"),
        (["--optimizer", "abacus"], 2, "there is no optimizer 'abacus'; `optirs-web optimizers` lists them"),
        (["--optimizer", "AdamWW"], 2, "there is no optimizer 'AdamWW' (did you mean 'AdamW'?); "),
        (["--optimizer", "LBFGS"], 2, "LBFGS is not for this command"),
        (["--epochs", "0"], 2, "epochs must be at least 1"),
        (["--fold", "5"], 2, "fold"),
        (["--folds", "--resume"], 2, "use --fold instead of --folds"),
        (["--device", "abacus"], 1, "there is no device 'abacus'"),
        (["--resume"], 1, "start without --resume"),
        (["--optimizer", "sgd", "--lr", "1e10"], 1, "lower learning rate"),
    ],
)
def test_errors_are_one_line_on_stderr(arguments, status, message, tmp_path):
    result = train(tmp_path, *arguments)
    assert result.exit_code == status
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def full(file):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_the_machine_refuses_is_one_line_too(tmp_path, monkeypatch):
    result = run("shader", "adamw", "--output", tmp_path / "none" / "adamw.wgsl")
    assert (result.exit_code, result.stderr) == (1, f"Error: there is no folder {tmp_path / 'none'}\n")
    old = tmp_path / "adamw.wgsl"
    old.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    result = run("shader", "adamw", "--output", old)
    assert (result.exit_code, result.stderr) == (1, f"Error: {os.strerror(errno.ENOSPC)}\n")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    monkeypatch.setenv("OPTIRS_POWER", "most")
    result = run("devices")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: power (or OPTIRS_POWER) must be one of low, high, not 'most'\n",
    )


def test_a_file_in_the_way_is_an_error_of_one_line(tmp_path):
    (tmp_path / "taken").write_text("")
    result = train(tmp_path / "taken" / "run", "--epochs", 1)
    assert result.exit_code == 1
    assert "taken" in result.stderr


def test_another_config_in_the_checkpoint_is_an_error(tmp_path):
    assert train(tmp_path, "--epochs", 1).exit_code == 0
    result = train(tmp_path, "--epochs", 2, "--seed", 7, "--resume")
    assert result.exit_code == 1
    assert "seed is 0 there and 7 here" in result.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(command_line, "_NEEDED", ("click", "no_such_package"))
    with pytest.raises(SystemExit, match=r"needs no_such_package: pip install 'optirs-web\[train\]'"):
        command_line.main()


def test_version_is_the_package_s():
    assert ow.__version__ in run("--version").stdout


def test_the_real_program_prints_plain_lines_into_a_pipe():
    done = subprocess.run([*PROGRAM, "shader", "adamw"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout == run("shader", "adamw").stdout


def test_interrupted_training_leaves_a_usable_checkpoint(tmp_path):
    arguments = ["train", "digits", "--device", "cpu", "--epochs", "10000", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*PROGRAM, *arguments], env=environment, **pipes) as process:
        give_up = time.monotonic() + 60
        while not (tmp_path / "checkpoint.safetensors").exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # Python drops an interrupt that falls into a __del__
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"continue with --resume" in err
    assert b"\x1b" not in out
    training = DigitsTraining(Config(device="cpu", epochs=10000))
    training.load(tmp_path / "checkpoint.safetensors")
    assert training.history
