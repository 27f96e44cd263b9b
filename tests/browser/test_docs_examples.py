"""The examples in docs/ run unchanged, and `make pyodide`'s package loads. The test serves what they fetch."""

import json
import mimetypes
import re

import pytest
from chromium import pyodide_folder
from requirements import missing
from wheels import ROOT

from optirs_web.demo_site.library import library_wheel, wheel_name

PAGE = "http://localhost"
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full"
PYSCRIPT = "https://cdn.jsdelivr.net/npm/@pyscript/core@0.7.31"
PYSCRIPT_FOLDER = ROOT / "tests/browser/node_modules/@pyscript/core"
PACKAGE = ROOT / "build/pyodide"
TYPES = {".mjs": "text/javascript", ".wasm": "application/wasm", ".whl": "application/zip"}

EMPTY = "<!doctype html><link rel=icon href=data:,>"
KERNEL = """
import { loadPyodide } from "PYODIDE/pyodide.mjs";

onmessage = async ({ data: { wheel, cells } }) => {
  const output = [];
  const pyodide = await loadPyodide({ stdout: (line) => output.push(line) });
  pyodide.FS.writeFile(wheel.slice(1), new Uint8Array(await (await fetch(wheel)).arrayBuffer()));
  try {
    for (const cell of cells) await pyodide.runPythonAsync(cell);
  } catch (error) {
    output.push(error.message);
  }
  postMessage(output);
};
""".replace("PYODIDE", PYODIDE)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    path = tmp_path_factory.mktemp("wheel") / wheel_name()
    path.write_bytes(library_wheel())
    return path


@pytest.fixture
def serve(page):
    """`serve(files)`: answer requests by URL from `files` and from local copies of what the CDN has; nothing else."""
    if not PYSCRIPT_FOLDER.is_dir():
        missing("webgpu", f"{PYSCRIPT_FOLDER} is not there: make setup")
    folders = {PAGE: ROOT / "docs/pyscript", PYODIDE: pyodide_folder(), PYSCRIPT: PYSCRIPT_FOLDER}

    def start(files):
        def answer(route):
            url = route.request.url
            base = next((folder for folder in folders if url.startswith(f"{folder}/")), None)
            if base is None:
                return route.abort()
            body = files.get(url, folders[base] / (url.removeprefix(f"{base}/") or "index.html"))
            if isinstance(body, str):
                return route.fulfill(body=body, content_type="text/html" if body.startswith("<") else "text/javascript")
            kind = TYPES.get(body.suffix) or mimetypes.guess_type(body)[0]
            return route.fulfill(path=body, content_type=kind, headers={"Access-Control-Allow-Origin": "*"})

        page.route("**/*", answer)

    return start


INSTALL = r"import shutil, site; shutil.unpack_archive(r'\1', site.getsitepackages()[0], 'zip')"


def code_cells(notebook):
    """Return the code of a notebook; the wheel that `%pip` installs from a file next to it is unpacked."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    return [
        re.sub(r"^%pip install -q emfs:(.*)$", INSTALL, "".join(cell["source"]), flags=re.MULTILINE) for cell in cells
    ]


def accuracy(text):
    return float(re.search(r"([\d.]+)% of (the|\d+) points are classified correctly", text)[1])


def test_the_pyscript_page_trains(page, serve, wheel):
    serve({f"{PAGE}/{wheel.name}": wheel})
    page.goto(f"{PAGE}/")
    result = page.get_by_text("points are classified correctly")
    result.wait_for(timeout=240_000)
    assert accuracy(result.text_content()) > 95


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs/jupyterlite").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebook_trains_in_a_worker_as_in_jupyterlites_kernel(page, serve, wheel, notebook):
    serve({f"{PAGE}/": EMPTY, f"{PAGE}/kernel.js": KERNEL, f"{PAGE}/{wheel.name}": wheel})
    page.goto(f"{PAGE}/")
    output = page.evaluate(
        """(task) => new Promise((resolve, reject) => {
            const kernel = new Worker("/kernel.js", { type: "module" });
            kernel.onmessage = ({ data }) => resolve(data.join("\\n"));
            kernel.onerror = (event) => reject(new Error(event.message));
            kernel.postMessage(task);
        })""",
        {"wheel": f"/{wheel.name}", "cells": code_cells(notebook)},
    )
    assert re.search(r"^epoch 100  loss 0\.\d+$", output, re.MULTILINE), output
    assert accuracy(output) > 95


def test_pyodides_lock_file_has_the_compiled_package(page, serve):
    if not (PACKAGE / "pyodide-lock.json").is_file():
        missing("webgpu", "the package for Pyodide is not built: make pyodide")
    serve({f"{PAGE}/": EMPTY, **{f"{PAGE}/{path.name}": path for path in PACKAGE.iterdir()}})
    page.goto(f"{PAGE}/")
    loaded, module = page.evaluate(
        """async ([pyodideUrl, lockFileURL]) => {
            const { loadPyodide } = await import(`${pyodideUrl}/pyodide.mjs`);
            const pyodide = await loadPyodide({ lockFileURL });
            await pyodide.loadPackage("optirs-web");
            const module = pyodide.runPython("import optirs_web.compiled; optirs_web.compiled.__cached__");
            return [Object.keys(pyodide.loadedPackages), module];
        }""",
        [PYODIDE, f"{PAGE}/pyodide-lock.json"],
    )
    assert loaded == ["optirs-web"]
    assert module.endswith("optirs_web/compiled.pyc")
