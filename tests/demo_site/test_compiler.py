"""The server's texts of other compilers: each is made once, a few at a time, in a process that may crash."""

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from demo_servers import error_code
from requirements import missing

from optirs_web.cli.shader import find_kernel
from optirs_web.demo_site import compiler as compiler_module
from optirs_web.demo_site.compiler import Busy, Compiler
from optirs_web.demo_site.shader_kernels import Name, every_shader, variants
from optirs_web.translations import missing_compiler
from optirs_web.translations.naga import naga_file

ADAM = Name("optimizers", "adam", "update", "hlsl")
LION = ADAM._replace(file="lion")


@pytest.fixture(scope="module", autouse=True)
def naga():
    """Its file; a skip or a failure where there is none."""
    return missing("naga", missing_compiler("hlsl")) if missing_compiler("hlsl") else naga_file()


@pytest.fixture
def make_compiler():
    """`make_compiler(patience=1)`: one that is closed in the end."""
    made = []

    def make(patience=60.0, most_waiting=8):
        made.append(Compiler(patience, most_waiting))
        return made[-1]

    yield make
    for compiler in made:
        compiler.close()


def test_the_kernels_are_those_of_the_command_line():
    for folder, file in every_shader():
        for variant, kernel in variants(folder, file).items():
            if folder in ("optimizers", "kernels"):
                assert kernel.wgsl() == find_kernel(file, (), variant).wgsl()
            elif folder in ("elementwise", "rows"):
                assert kernel.wgsl() == find_kernel(variant, (), "update").wgsl()


def test_many_requests_for_a_text_compile_it_once(make_compiler):
    compiler = make_compiler(most_waiting=16)
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(compiler.translation, [ADAM] * 16))
    assert len({id(text) for text in texts}) == 1
    assert "[numthreads(" in texts[0].text
    compiler.close()
    assert compiler.translation(ADAM) is texts[0]  # without a process
    assert compiler._process is None


def test_requests_beyond_those_that_may_wait_are_refused(make_compiler, make_client):
    compiler = make_compiler(most_waiting=2)

    def ask(file):
        try:
            return compiler.translation(ADAM._replace(file=file)).text is not None
        except Busy:
            return False

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(ask, ["adam", "lion", "adamax", "nadam", "radam", "sgd", "lamb", "lars"]))
    assert 2 <= sum(answered) < 8
    assert all(map(ask, ["adam", "lion"]))  # afterwards there is room again
    client = make_client(max_compiles=0)
    refused = client.get("/api/shaders/optimizers/adam/update/hlsl")
    assert (refused.status_code, error_code(refused), refused.headers["retry-after"]) == (503, "busy", "1")
    assert client.get("/api/shaders/optimizers/adam/update/cuda").json()["text"]  # which takes no compiler of others


def test_a_text_that_takes_too_long_is_tried_once(make_compiler):
    compiler = make_compiler(patience=0.001)
    late = compiler.translation(ADAM)
    assert late.text is None
    assert "the compiler took longer than 0.001 s" in late.note
    assert compiler._process is None
    assert compiler.translation(ADAM) is late


def test_an_answer_that_comes_as_patience_ends_is_taken_and_the_next_request_has_another_process(
    make_compiler, monkeypatch
):
    class AtTheLastMoment(threading.Timer):
        def cancel(self):
            self.function(*self.args)
            super().cancel()

    compiler = make_compiler()
    with monkeypatch.context() as patched:
        patched.setattr(compiler_module.threading, "Timer", AtTheLastMoment)
        assert compiler.translation(ADAM).text
    assert compiler._process is None
    assert compiler.translation(LION).text


def test_a_process_that_was_lost_is_started_again(make_compiler):
    compiler = make_compiler()
    assert compiler.translation(ADAM).text
    compiler._process.kill()
    compiler._process.wait()
    assert compiler.translation(LION).text


def test_an_idle_process_ends(make_compiler, monkeypatch):
    monkeypatch.setattr(compiler_module, "_IDLE", 0.01)
    compiler = make_compiler()
    assert compiler.translation(ADAM).text
    compiler._idle.join()
    assert compiler._process is None
    assert compiler.translation(LION).text


def test_what_is_installed_meanwhile_is_used(make_compiler, monkeypatch, naga, tmp_path):
    monkeypatch.setenv("OPTIRS_NAGA", str(tmp_path / "naga_bg.wasm"))
    compiler = make_compiler()
    absent = compiler.translation(ADAM)
    assert absent.text is None
    assert "npm install naga-wasm@" in absent.note
    shutil.copy(naga, tmp_path)
    assert compiler.translation(ADAM).text


def test_targets_say_what_is_missing(client, monkeypatch):
    for name in ("cuda.bindings", "jax", "wasmtime"):
        monkeypatch.setitem(sys.modules, name, None)
    listed = {entry["name"]: entry["missing"] for entry in client.get("/api/shaders/targets").json()}
    assert {name for name, missing in listed.items() if missing} == {"ptx", "spirv", "msl", "hlsl", "stablehlo"}
    assert all("pip install" in missing for missing in listed.values() if missing)
