"""The compilers that look at shaders: naga, spirv-val, Tint and NVIDIA's."""

import hashlib
import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from optirs_web.errors import DeviceNotAvailableError, OptirsError, ShaderError, UnsupportedError
from optirs_web.runtime.nvrtc import compile_cuda
from optirs_web.translations.naga import Naga, naga_file
from optirs_web.wgsl.print_c import KERNEL

__all__ = [
    "ENVIRONMENT",
    "Nvidia",
    "Shader",
    "Tint",
    "Verdict",
    "missing_tools",
    "refused_by_nvidia",
    "spirv_val",
    "translate",
]

ENVIRONMENT = "vulkan1.1"
"""Of spirv-val: what wgpu needs of a driver."""

_HERE = Path(__file__).parent


class Shader(NamedTuple):
    """A shader to compile, and the kernel that it comes from.

    Attributes:
        for_naga: None for shaders that only Dawn compiles.
        for_nvidia: printed for CUDA; None for shaders of other adapters.
        fits: True within the limits of Dawn's null backend, which are the least that WebGPU allows.
    """

    name: str
    for_naga: str | None
    for_tint: str
    for_nvidia: str | None
    fits: bool = True


class Verdict(NamedTuple):
    """The results of naga and spirv-val for a shader.

    Attributes:
        digest: of its text.
        sizes: of its translations, in bytes, by target.
        refused: the error; "" if it is valid.
        later: its SPIR-V, which naga-wasm writes in version 1.0, is valid as version 1.3 alone.
        is_for_nvidia: NVIDIA's compiler takes it too.
    """

    name: str
    digest: bytes
    sizes: dict[str, int]
    refused: str
    later: bool = False
    is_for_nvidia: bool = True


@cache
def _naga() -> Naga:
    """One for each process."""
    return Naga()


def translate(shader: Shader) -> Verdict:
    """Translate a shader by naga, check the SPIR-V by spirv-val, and return the results."""
    digest = hashlib.sha256(shader.for_tint.encode()).digest()
    if shader.for_naga is None:
        return Verdict(shader.name, digest, {}, "", is_for_nvidia=False)
    try:
        result = _naga().translations(shader.for_naga, shader.name)
    except ShaderError as error:
        return Verdict(shader.name, digest, {}, str(error))
    sizes = {target: len(translation) for target, translation in result.items()}
    message = spirv_val(result["spirv"])
    later = any(reason in message for reason in _OF_1_3)
    if later:
        message = spirv_val(_as_1_3(result["spirv"]))
    refused = message and f"{shader.name}: refused by spirv-val: {message}"
    return Verdict(shader.name, digest, sizes, refused, later, shader.for_nvidia is not None)


_OF_1_3 = ("requires one of these extensions: SPV_KHR_16bit_storage", "requires SPIR-V version 1.3 or later")
"""naga names this extension where a buffer holds f16, and what it allows for each f16. Version 1.3 has it built in, and
quads too."""


def _as_1_3(words: bytes) -> bytes:
    return words[:4] + struct.pack("<I", 0x00010300) + words[8:]


def spirv_val(words: bytes) -> str:
    """Return the errors of spirv-val for a module; "" if it is valid."""
    command = ["spirv-val", "--target-env", ENVIRONMENT]
    done = subprocess.run(command, input=words, capture_output=True, check=False)
    return (done.stdout + done.stderr).decode(errors="replace").strip() if done.returncode else ""


class Tint:
    """Node with Tint, which is given shaders while others are made."""

    def __init__(self) -> None:
        """Start it. What it says goes to a file: nobody reads it before the end."""
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - open as long as Node runs
        self._process = subprocess.Popen(
            ["node", str(_HERE / "tint.mjs")], stdin=subprocess.PIPE, stdout=self._said, text=True, encoding="utf-8"
        )

    def take(self, shader: Shader) -> None:
        """One more."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([shader.name, shader.for_tint, shader.fits]) + "\n")

    def finish(self) -> tuple[str, int, list[str]]:
        """The version of the package, how many shaders there were, and what Tint says against some of them."""
        self._process.communicate()
        with self._said:
            self._said.seek(0)
            lines = [json.loads(line) for line in self._said]
        if self._process.returncode or not lines:
            raise SystemExit(f"tint.mjs ended with {self._process.returncode}")
        *refused, last = lines
        messages = [f"{name}:{line}:{column}: refused by Tint: {message}" for name, line, column, message in refused]
        return last["version"], last["shaders"], messages


class Nvidia:
    """NVIDIA's compiler, which makes PTX, and machine code for these architectures, of some shaders at once."""

    _AT_ONCE = 50

    def __init__(self, architectures: Iterable[str] = ()) -> None:
        """Nothing was refused yet."""
        self._architectures = tuple(architectures)
        self._waiting: dict[str, str] = {}
        self._refused: list[str] = []

    def take(self, shader: Shader) -> None:
        """One more."""
        if shader.for_nvidia is None:
            return
        self._waiting[f"{len(self._waiting)} {shader.name}"] = shader.for_nvidia
        if len(self._waiting) == self._AT_ONCE:
            self._compile()

    def finish(self) -> list[str]:
        """Compile the remaining kernels, and return the errors of all."""
        self._compile()
        return self._refused

    def _compile(self) -> None:
        for arch in (None, *self._architectures):
            for name, message in refused_by_nvidia(self._waiting, arch).items():
                self._refused.append(f"{name.partition(' ')[2]}{f' for {arch}' if arch else ''}: {message}")
        self._waiting.clear()


_FAST = ("--Ofast-compile=max",)


def refused_by_nvidia(texts: Mapping[str, str], arch: str | None = None) -> dict[str, str]:
    """Return the errors of NVIDIA's compiler for CUDA texts of kernels, by name; compiled together for speed.

    With `arch` it makes machine code for that architecture, as the device `cuda` has it, otherwise PTX in a hurry.
    """
    parts = [
        f"#define {KERNEL} kernel_{number}\nnamespace kernel_of_{number} {{\n{text}}}\n#undef {KERNEL}\n"
        for number, text in enumerate(texts.values())
    ]
    try:
        if arch is None:
            made = compile_cuda("".join(parts), options=_FAST)
        else:
            made = compile_cuda("".join(parts), arch, "cubin")
    except OptirsError as error:
        alone = {name: refused_by_nvidia({name: text}, arch) for name, text in texts.items()} if len(texts) > 1 else {}
        return {name: result[name] for name, result in alone.items() if result} or {next(iter(texts)): str(error)}
    mark = ".entry kernel_{}(" if arch is None else ".text.kernel_{}\0"
    assert all(mark.format(number).encode() in made for number in range(len(texts)))
    return {}


def missing_tools() -> list[str]:
    """Return the tools that are not installed, and how to install each."""
    missing = []
    if shutil.which("node") is None or not (_HERE / "node_modules" / "webgpu").is_dir():
        missing.append("Tint: install Node.js 20 or newer (https://nodejs.org), then npm ci --prefix tests/adapters")
    if shutil.which("spirv-val") is None:
        missing.append("spirv-val: install SPIRV-Tools (Debian: apt-get install spirv-tools)")
    try:
        naga_file()
    except UnsupportedError as error:
        missing.append(f"naga: {error}")
    try:
        compile_cuda("")
    except DeviceNotAvailableError as error:
        missing.append(str(error))
    return missing
