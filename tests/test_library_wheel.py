"""The library's wheel as the site makes it: whole, with its docstrings, and imported as far as a program asks."""

import base64
import csv
import hashlib
import inspect
import io
import json
import subprocess
import sys
import sysconfig
import zipfile
from functools import partial
from pathlib import Path

import pytest

import optirs_web as ow
from optirs_web.demo_site import library
from optirs_web.demo_site.library import library_wheel, page_wheel, wheel_name


@pytest.fixture(scope="module")
def archive():
    return zipfile.ZipFile(io.BytesIO(library_wheel()))


@pytest.fixture(scope="module")
def page(tmp_path_factory, archive):
    """The folder that a page has the library in."""
    folder = tmp_path_factory.mktemp("page")
    archive.extractall(folder)
    return folder


def run(folder, program):
    """Run Python with what is in this folder and NumPy, without the editable install beside them (-S)."""
    path = [str(folder), sysconfig.get_path("purelib")]
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_python_may_install_it():
    assert wheel_name() == f"optirs_web-{ow.__version__}-py3-none-any.whl"


def test_its_record_lists_and_hashes_each_file(archive):
    record = f"optirs_web-{ow.__version__}.dist-info/RECORD"
    rows = {name: row for name, *row in csv.reader(archive.read(record).decode().splitlines())}
    assert set(rows) == set(archive.namelist())
    assert rows.pop(record) == ["", ""]
    for name, (digest, size) in rows.items():
        body = archive.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(body))), name


def test_the_same_files_give_the_same_wheel():
    assert library_wheel() is library_wheel()


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A folder as `make pyodide` leaves it, of the files that there are now; the copy is no real one."""
    monkeypatch.setattr(library, "COMPILED", tmp_path)
    package = {"file_name": "copy.whl", "sha256": hashlib.sha256(b"bytecode").hexdigest()}
    (tmp_path / wheel_name()).write_bytes(library_wheel())
    (tmp_path / "copy.whl").write_bytes(b"bytecode")
    lock = {"info": {"python": "3.14.2"}, "packages": {"optirs-web": package}}
    (tmp_path / "pyodide-lock.json").write_text(json.dumps(lock))
    return tmp_path


def test_pages_load_its_compiled_copy(compiled):
    assert page_wheel(None) == page_wheel(compiled) == b"bytecode"


def test_pages_load_the_wheel_itself_once_a_file_has_changed(compiled):
    (compiled / wheel_name()).write_bytes(library_wheel()[:-1])
    assert page_wheel(None) == library_wheel()


@pytest.mark.parametrize("name", ["copy.whl", "pyodide-lock.json", wheel_name()])
@pytest.mark.parametrize(
    "damage", [Path.unlink, partial(Path.write_bytes, data=b""), partial(Path.write_text, data="[]")]
)
def test_pages_load_the_wheel_itself_where_the_copy_is_damaged(compiled, name, damage):
    damage(compiled / name)
    assert page_wheel(None) == library_wheel()


@pytest.mark.parametrize("lock", ['{"info": {"python": "3.13.2"}}', '{"packages": {}}', '{"info": ', None])
def test_another_python_gets_the_wheel_itself(compiled, tmp_path_factory, lock):
    distribution = tmp_path_factory.mktemp("pyodide")
    if lock:
        (distribution / "pyodide-lock.json").write_text(lock)
    assert page_wheel(distribution) == library_wheel()


ERROR = """
import inspect, optirs_web as ow
try:
    ow.compile(3)
except TypeError as error:
    print(inspect.getinnerframes(error.__traceback__)[-1].code_context[0].strip())
"""


def test_tracebacks_show_its_lines(page):
    assert run(page, ERROR).startswith("raise TypeError(")


DOCSTRINGS = """
import inspect, json, optirs_web as ow
names = [name for name in ow.__all__ if name not in ("__version__", "benchmarks", "datasets")]
public = [(ow, name) for name in names] + [(ow.optim, name) for name in ow.optim.__all__] + [(ow.nn, "Linear")]
print(json.dumps([[module.__name__, name, inspect.getdoc(getattr(module, name))] for module, name in public]))
"""


def test_help_says_what_it_says_natively(page):
    docstrings = json.loads(run(page, DOCSTRINGS))
    assert len(docstrings) > 100
    for module, name, docstring in docstrings:
        assert docstring == inspect.getdoc(getattr(sys.modules[module], name)), name


MODULES = """
import optirs_web as ow
from optirs_web import nn
model = nn.Sequential(nn.Linear(3, 4, device="cpu"), nn.LayerNorm(4, device="cpu"))
print(model(ow.ones((2, 3), device="cpu")).shape)
"""


def test_it_has_modules(page):
    assert run(page, MODULES).strip() == "(2, 4)"


TRAINING = """
import json
import optirs_web as ow
w = ow.Parameter([3.0, -2.0], device="cpu")
optimizer = ow.optim.AdamW([w], lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    (w * w).sum().backward()
    optimizer.step()
loaded = [name.removeprefix("optirs_web.") for name in sys.modules if name.startswith("optirs_web.")]
print(json.dumps([(w * w).sum().item(), loaded]))
"""
NOT_NEEDED = {
    *("checkpoints", "custom_operation", "derivatives", "explained", "gradchecks", "interop", "nn"),
    *("placing", "profiling", "tuner", "memory.reports", "native_backends.failed_steps"),
    *(
        "native_backends.cuda.backend",
        "native_backends.opencl.backend",
        "native_backends.wgpu.backend",
        "native_backends.xla.backend",
    ),
    *("ops.attention", "ops.convolution", "ops.losses", "ops.normalization", "ops.pooling", "optim.averaging"),
    *(
        "optim.kfac",
        "optim.lbfgs",
        "optim.transforms",
        "runtime.exhaustion",
        "runtime.large_steps",
        "runtime.packed_kernels",
    ),
    *("runtime.recompute", "runtime.tuner", "wgsl.lint", "wgsl.print_c"),
}


def test_it_trains_without_the_modules_that_a_step_does_not_need(page):
    loss, loaded = json.loads(run(page, TRAINING))
    assert loss < 0.01
    assert NOT_NEEDED.isdisjoint(loaded)
