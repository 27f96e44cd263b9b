"""``optirs-web shader`` in the languages that naga writes; and that the check of all shaders finds what is wrong."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from adapters import compilers
from click.testing import CliRunner
from requirements import missing

from optirs_web.cli.commands import cli
from optirs_web.errors import ShaderError, UnsupportedError
from optirs_web.runtime.kernels import cooperative
from optirs_web.runtime.map_kernels import elementwise
from optirs_web.translations.naga import Naga, naga_file
from optirs_web.wgsl.print_c import print_c

MAGIC = bytes.fromhex("03022307")  # of SPIR-V
VERIFY = Path(compilers.__file__).with_name("verify.py")


@pytest.fixture(scope="module", autouse=True)
def naga():
    """An instance; a skip or a failure where there is none."""
    try:
        return Naga()
    except UnsupportedError as error:
        return missing("naga", str(error))


@pytest.fixture(scope="module")
def relu():
    kernel = elementwise("relu", "relu", ("tensor",), 0)
    return compilers.Shader("relu", kernel.wgsl("naga"), kernel.wgsl("tint"), print_c(kernel.module, "cuda"))


def needs(program):
    if shutil.which(program) is None:
        missing("shader-compilers", f"{program} is not installed")


def shader(*arguments):
    return CliRunner().invoke(cli, ["shader", *map(str, arguments)])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("msl", ["// language: metal", "kernel void main_(", "exp_avg_sq"]),
        ("hlsl", ["[numthreads(", "RWByteAddressBuffer", "exp_avg_sq"]),
    ],
)
def test_a_target_is_text_in_its_language(target, words):
    actual = shader("AdamW", "--target", target)
    assert actual.exit_code == 0, actual.output
    for word in words:
        assert word in actual.stdout


@pytest.mark.needs("shader-compilers")
def test_spirv_is_printed_as_text():
    needs("spirv-dis")
    actual = shader("AdamW", "--target", "spirv")
    assert actual.exit_code == 0, actual.output
    assert actual.stdout.startswith("; SPIR-V")
    assert "OpEntryPoint GLCompute" in actual.stdout


def test_without_spirv_dis_spirv_is_printed_as_numbers(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    actual = shader("relu", "--target", "spirv")
    assert actual.exit_code == 0, actual.output
    assert {len(part) for part in actual.stdout.split()} == {10}
    assert actual.stdout.startswith("0x07230203 ")
    assert "spirv-tools" in actual.stderr


def test_a_file_gets_the_words_of_spirv_and_other_targets_as_they_are_printed(tmp_path):
    for target in ("spirv", "hlsl", "wgsl"):
        actual = shader("relu", "--target", target, "--output", tmp_path / target)
        assert (actual.exit_code, actual.output) == (0, "")
    assert (tmp_path / "spirv").read_bytes().startswith(MAGIC)
    for target in ("hlsl", "wgsl"):
        assert (tmp_path / target).read_text().rstrip("\n") == shader("relu", "--target", target).stdout.rstrip("\n")


@pytest.mark.parametrize(("target", "word"), [("msl", "half"), ("hlsl", "half")])
def test_elements_of_f16_are_those_of_the_language(target, word):
    assert f"{word} " in shader("matmul", "--target", target, "--elements", "f16").stdout


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("fn f() {\n    let x = y;\n}", 2, 13, "no definition in scope for identifier: `y`"),
        ("const a = 1;\nfn f() -> f32 { return 1u; }", 2, 1, "does not match the declared return type"),
    ],
)
def test_what_naga_refuses_is_an_error_with_the_kernel_and_the_line(naga, text, line, column, reason):
    with pytest.raises(ShaderError, match=f"^a kernel:{line}:{column}: refused by naga .*{reason}") as caught:
        naga.translate(text, "a kernel", "msl")
    assert (caught.value.file, caught.value.line, caught.value.column) == ("a kernel", line, column)
    assert naga.translate("fn f() {}", "another", "hlsl")


def test_without_wasmtime_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    actual = shader("relu", "--target", "msl")
    assert actual.exit_code == 1
    assert "pip install 'optirs-web[naga]'" in actual.stderr


def test_without_naga_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIRS_NAGA", str(tmp_path / "naga_bg.wasm"))
    actual = shader("relu", "--target", "msl")
    assert actual.exit_code == 1
    assert "npm install naga-wasm@30.1.0" in actual.stderr
    assert "No such file" in actual.stderr


def test_another_file_than_nagas_is_not_run(monkeypatch, tmp_path):
    other = tmp_path / "naga_bg.wasm"
    other.write_bytes(naga_file().read_bytes()[:-1])
    monkeypatch.setenv("OPTIRS_NAGA", str(other))
    actual = shader("relu", "--target", "msl")
    assert actual.exit_code == 1
    assert "is not the naga of naga-wasm@30.1.0: its SHA-256 is" in actual.stderr


# The check of all shaders.


@pytest.mark.needs("shader-compilers")
def test_naga_and_spirv_val_find_what_is_wrong(naga, relu):
    needs("spirv-val")
    good, bad = map(compilers.translate, [relu, relu._replace(name="bad", for_naga="fn f( {}")])
    assert (good.refused, set(good.sizes)) == ("", {"spirv", "msl", "hlsl"})
    assert bad.refused.startswith("bad:1:7: refused by naga")
    words = naga.translate(relu.for_naga, "relu", "spirv")
    assert compilers.spirv_val(words) == ""
    assert "error" in compilers.spirv_val(words[:-4])


@pytest.mark.needs("shader-compilers")
def test_tint_finds_what_is_wrong(relu):
    needs("node")
    tint = compilers.Tint()
    for text in (relu.for_tint, "fn f( {}", "@compute @workgroup_size(512) fn main() {}"):
        tint.take(relu._replace(for_tint=text))
    _, shaders, refused = tint.finish()
    assert shaders == 3
    assert [message.partition(":")[0] for message in refused] == ["relu", "relu"]
    assert "1:7: refused by Tint: expected ')'" in refused[0]
    assert "exceeds the maximum allowed" in refused[1]


@pytest.mark.needs("shader-compilers")
def test_tint_finds_what_is_wrong_with_subgroup_matrices(relu):
    needs("node")
    good = cooperative("matmul", MATRICES=True).wgsl("tint")
    tint = compilers.Tint()
    for name, (before, after) in {
        "good": ("", ""),
        "spelled otherwise": ("row_major>(&a_tile", "diagonal>(&a_tile"),
        "not the same in a subgroup": ("let block = subgroup + 0u", "let block = lane + 0u"),
        "a stride below the columns": ("0u, 20u)", "0u, 2u)"),
        "without the extension": ("enable chromium_experimental_subgroup_matrix;\n", ""),
    }.items():
        assert before in good
        tint.take(relu._replace(name=name, for_naga=None, for_tint=good.replace(before, after)))
    _, _, refused = tint.finish()
    assert {message.partition(":")[0] for message in refused} == {
        "spelled otherwise",
        "not the same in a subgroup",
        "a stride below the columns",
        "without the extension",
    }
    verdict = compilers.translate(relu._replace(for_naga=None, for_tint=good))
    assert (verdict.refused, verdict.sizes) == ("", {})


def test_nvidias_compiler_finds_what_is_wrong(relu, nvrtc):
    nvidia = compilers.Nvidia()
    for name, text in ("good", relu.for_nvidia), ("bad", "int f( {}"), ("good again", relu.for_nvidia):
        nvidia.take(relu._replace(name=name, for_nvidia=text))
    (refused,) = nvidia.finish()
    assert refused.startswith("bad: NVIDIA's compiler refuses this")


def test_the_check_fails_where_a_compiler_is_missing(tmp_path):
    environment = {"PATH": str(tmp_path), "OPTIRS_NAGA": str(tmp_path / "none")}
    done = subprocess.run([sys.executable, VERIFY], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    for message in ("Tint: install Node.js", "spirv-val: install SPIRV-Tools", "naga: "):
        assert message in done.stderr
