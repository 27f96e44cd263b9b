"""Build the two wheels for the tests that read them or load them into a page."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

__all__ = ["FOLDERS", "ROOT", "Wheels", "build_wheels"]

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "optirs_web": "optirs_web",
    "optirs_web/demo_site": "demo_site",
    "optirs_web/examples": "examples",
    "optirs_web/native_backends": "native_backends",
    "optirs_web/shaders": "shaders",
}
"""What the wheels call each folder of sources."""


class Wheels(NamedTuple):
    """Both wheels, and the copy of the sources that they were built from."""

    tree: Path
    library: zipfile.ZipFile
    demo: zipfile.ZipFile


def build_wheels(folder):
    """Build from a copy of the sources in `folder`, because setuptools writes files next to its sources."""
    tree, out = folder / "tree", folder / "out"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("docs", *FOLDERS.values()):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "frontend", "build"))
    for project in (tree, tree / "demo_site"):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, project]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return Wheels(tree, *(zipfile.ZipFile(next(out.glob(f"{one}-*.whl"))) for one in ("optirs_web", "optirs_web_demo")))
