"""Check what is to be published: the wheels' metadata, and that they train where nothing else is installed.

    python scripts/check_release.py WHEELS CONSTRAINTS

Prints what is wrong and ends with status 1. `make release` runs it, and `twine check`, which renders the descriptions.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
WHEELS = ["optirs_web", "optirs_web_demo"]
PYTHON = Path("Scripts", "python.exe") if os.name == "nt" else Path("bin", "python")

TRAIN = """
import pathlib, sys
import optirs_web as ow

assert pathlib.Path(ow.__file__).is_relative_to(sys.prefix), ow.__file__
w = ow.Parameter([3.0], device="cpu")
optimizer = ow.optim.AdamW([w], lr=0.1)

def train():
    optimizer.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    optimizer.step()
    return loss

step = ow.compile(train, device="cpu")
losses = [step().item() for _ in range(20)]
assert losses[-1] < 0.5 * losses[0], losses
"""


def metadata(path: Path) -> Message:
    """Return the metadata of a wheel; its description is the payload."""
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode("utf-8"))


def faults_of(path: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with a wheel's metadata."""
    about = metadata(path)
    if about["Version"] != version:
        yield f"is of version {about['Version']}, not {version}"
    for needed in about.get_all("Requires-Dist") or ():
        name = re.match(r"[\w-]+", needed)[0]
        if name.startswith("optirs-web") and name != about["Name"] and f"=={version}" not in needed:
            yield f"requires {needed}, not the same version"
    if "Apache-2.0" not in (about["License-Expression"] or ""):
        yield "has no License-Expression"
    if about["Description-Content-Type"] != "text/markdown" or not str(about.get_payload()).strip():
        yield "has no description in Markdown"
    with zipfile.ZipFile(path) as wheel:
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist()):
            yield "has no file LICENSE"


def faults(folder: Path, version: str) -> Iterator[str]:
    """Yield what is wrong with the wheels of a folder, one sentence each."""
    paths = sorted(folder.glob("*.whl"))
    if [path.name.partition("-")[0] for path in paths] != WHEELS:
        yield f"the wheels are {[path.name for path in paths]}; there has to be one each of {WHEELS}"
    for path in paths:
        for fault in faults_of(path, version):
            yield f"{path.name} {fault}"


def install_and_train(folder: Path, constraints: Path) -> None:
    """Install the wheels in a new environment and run a training step and the command line there.

    Raises:
        subprocess.CalledProcessError: one of them failed.
    """
    wheels = [str(path.resolve()) for path in folder.glob("*.whl")]
    with tempfile.TemporaryDirectory() as where:
        venv.create(where, with_pip=True)
        python = str(Path(where) / PYTHON)
        commands = [
            ["-m", "pip", "install", "-qq", "--constraint", str(constraints.resolve()), *wheels],
            ["-m", "pip", "check"],
            ["-W", "error", "-c", TRAIN],
            ["-m", "optirs_web", "train", "digits", "--device", "cpu", "--epochs", "1"],
            ["-m", "optirs_web", "shader", "adamw"],
        ]
        for command in commands:
            done = subprocess.run([python, *command], cwd=where, capture_output=True, text=True)
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
                raise subprocess.CalledProcessError(done.returncode, command)


def main(wheels: str, constraints: str) -> None:
    """Check the wheels of a folder."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    faults_found = list(faults(Path(wheels), version))
    if faults_found:
        sys.exit("\n".join(faults_found))
    install_and_train(Path(wheels), Path(constraints))
    print(f"version {version}: {len(list(Path(wheels).glob('*.whl')))} wheels, installed and trained with")


if __name__ == "__main__":
    main(*sys.argv[1:])
