"""``optirs-web shader --target opencl``, ``cuda`` and ``ptx``."""

import sys

import pytest
from click.testing import CliRunner

from optirs_web.cli.commands import cli


def shader(*arguments):
    return CliRunner().invoke(cli, ["shader", *arguments])


@pytest.mark.parametrize(("target", "word"), [("opencl", "__kernel"), ("cuda", "__global__ void")])
@pytest.mark.parametrize("arguments", [["AdamW"], ["matmul"], ["relu"], ["lamb", "--part", "measure"]])
def test_every_kind_of_shader_prints_as_c(arguments, target, word):
    actual = shader(*arguments, "--target", target)
    assert actual.exit_code == 0
    assert actual.stdout.count(word) == 1


def test_elements_of_16_bits_print_as_c():
    assert "typedef half f16" in shader("matmul", "--elements", "f16", "--target", "opencl").stdout
    assert "from_bfloat16_(" in shader("relu", "--elements", "bfloat16", "--target", "cuda").stdout


@pytest.mark.usefixtures("nvrtc")
def test_ptx_is_for_the_architecture_that_is_asked_for():
    actual = shader("relu", "--target", "ptx", "--arch", "sm_90")
    assert ".target sm_90" in actual.stdout
    assert ".entry main_(" in actual.stdout
    assert ".target sm_80" in shader("relu", "--target", "ptx").stdout


@pytest.mark.usefixtures("nvrtc")
def test_an_architecture_that_there_is_not_says_what_there_is():
    actual = shader("relu", "--target", "ptx", "--arch", "sm_1")
    assert actual.exit_code == 2
    assert "does not know 'sm_1'; there are sm_75" in actual.stderr


def test_ptx_without_the_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    actual = shader("relu", "--target", "ptx")
    assert actual.exit_code == 2
    assert "pip install 'optirs-web[cuda]'" in actual.stderr
