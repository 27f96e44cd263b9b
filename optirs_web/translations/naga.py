"""naga, the shader compiler of wgpu and Firefox, from Python: WGSL to SPIR-V, MSL and HLSL.

It runs the WebAssembly of the npm package naga-wasm in wasmtime, so it needs neither Node nor Rust. `_imports` has the
part of the package's JavaScript that these translations need. Options set neither bindings nor bounds checks nor the
version of SPIR-V: the text that wgpu passes to a driver has the slots of its own layouts instead (MSL has
``[[user(fake0)]]`` here), and bounds checks.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ShaderError, UnsupportedError

__all__ = ["PACKAGE", "TARGETS", "VERSION", "Naga", "missing_naga", "naga_file"]

VERSION = "30.0.1"
"""The version of naga in the package."""

PACKAGE = "naga-wasm@30.1.0"
"""The npm package with its version: without it, Node before 24.12 installs an older package that is empty."""

TARGETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "spirv": ("writeSpirv", {}),
    "msl": ("writeMsl", {"langVersion": [2, 4]}),
    "hlsl": ("writeHlsl", {"shaderModel": "6_2"}),
}
"""The package's function for each target, and its options: Metal of macOS 12; the first shader model with f16."""

_SHA256 = "c7c5cd7322c14c5a0da57bf707fef71d1a51ee2c5094c0786d8216e04cfee4de"
_INSIDE = Path("node_modules", "naga-wasm", "dist", "wasm", "naga_bg.wasm")
_IN_CLONE = Path(__file__).resolve().parents[2] / "demo_site" / "frontend" / _INSIDE
_NO_WASMTIME = "this target is made by naga, which runs in wasmtime: pip install 'optirs-web[naga]'"
_HOW = f"npm install {PACKAGE}, and export OPTIRS_NAGA=$PWD/{_INSIDE.as_posix()}"


def naga_file() -> Path:
    """Return the path of the WebAssembly: the file that OPTIRS_NAGA names, or the one that `make demo` installs.

    Raises:
        UnsupportedError: there is none, or it is not the version that this module was written for.
    """
    setting = os.environ.get("OPTIRS_NAGA")
    path = Path(setting) if setting else _IN_CLONE
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        reason = (
            f"'{setting}', which OPTIRS_NAGA names, cannot be read: {error.strerror}" if setting else "it is not here"
        )
        raise UnsupportedError(f"this target is made by naga, and {reason}. Install it: {_HOW}") from None
    if digest != _SHA256:
        raise UnsupportedError(f"'{path}' is not the naga of {PACKAGE}: its SHA-256 is {digest}. Install that: {_HOW}")
    return path


def missing_naga() -> str:
    """Return why `Naga` cannot be used here and what to install, or ""; nothing is loaded to find out."""
    if find_spec("wasmtime") is None:
        return _NO_WASMTIME
    try:
        naga_file()
    except UnsupportedError as error:
        return str(error)
    return ""


class Naga:
    """An instance of naga, compiled at first use on a machine in a few seconds and then kept in wasmtime's cache.

    Raises:
        UnsupportedError: wasmtime or naga is not installed.
    """

    def __init__(self) -> None:
        """Check the file, compile it and instantiate it."""
        try:
            import wasmtime
        except ModuleNotFoundError:
            raise UnsupportedError(_NO_WASMTIME) from None
        config = wasmtime.Config()
        with suppress(wasmtime.WasmtimeError):  # no folder can be written
            config.cache = True
        engine = wasmtime.Engine(config)
        module = wasmtime.Module.from_file(engine, str(naga_file()))
        self._store = wasmtime.Store(engine)
        functions = [
            wasmtime.Func(self._store, import_.type, self._imported(import_.name or ""))
            for import_ in module.imports
            if isinstance(import_.type, wasmtime.FuncType)
        ]
        self._exports: Any = wasmtime.Instance(self._store, module, functions).exports(self._store)
        self._call("__wbindgen_start")

    def translate(self, text: str, name: str, target: str) -> str | bytes:
        """Translate a WGSL module: return text, or for "spirv" its words as little-endian bytes.

        Args:
            text: the complete module, as `Kernel.wgsl` returns it for "naga".
            name: the module's name in errors.
            target: "spirv", "msl" or "hlsl".

        Raises:
            ShaderError: naga refuses the module; the error has the line of the text.
        """
        return self.translations(text, name, (target,))[target]

    def translations(self, text: str, name: str, targets: tuple[str, ...] = tuple(TARGETS)) -> dict[str, str | bytes]:
        """Translate a module to several targets, parsed and validated once; return the results by target."""
        source = text.encode()
        module = info = None
        try:
            module, _ = self._checked(name, "parseWgsl", self._allocate(source), len(source))
            info, _ = self._checked(name, "validate", module)
            return {target: self._written(name, module, info, *TARGETS[target]) for target in targets}
        finally:
            for function, pointer in (("__wbg_moduleinfo_free", info), ("__wbg_module_free", module)):
                if pointer is not None:
                    self._call(function, pointer, 0)

    def _written(self, name: str, module: int, info: int, function: str, options: Mapping[str, Any]) -> str | bytes:
        address, size = self._checked(name, function, module, info, options)
        unit = 4 if function == "writeSpirv" else 1  # SPIR-V is counted in words
        content = self._bytes(address, size * unit)
        self._call("__wbindgen_free", address, size * unit, unit)
        return content if unit == 4 else content.decode()

    def _checked(self, name: str, function: str, *arguments: Any) -> tuple[int, int]:
        """Call a function of naga and return its first two results; the last two are an error object and a flag."""
        results = self._call(function, *arguments)
        if results[-1]:
            message = self._objects.get(self._store, results[-2])
            self._call("__externref_table_dealloc", results[-2])
            raise _refused(name, str(message))
        return results[0], results[1]

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._exports[function](self._store, *arguments)

    # Memory and objects of the instance.

    @cached_property
    def _memory(self) -> Any:
        return self._exports["memory"]

    @cached_property
    def _objects(self) -> Any:
        return self._exports["__wbindgen_externrefs"]

    def _bytes(self, address: int, size: int) -> bytes:
        start = address & 0xFFFFFFFF  # wasmtime returns addresses as signed numbers
        return bytes(self._memory.read(self._store, start, start + size))

    def _allocate(self, content: bytes) -> int:
        """Copy bytes into naga's memory, which naga frees, and return the address."""
        address: int = self._call("__wbindgen_malloc", len(content), 1)
        self._write(address, content)
        return address

    def _write(self, address: int, content: bytes) -> None:
        self._memory.write(self._store, content, address & 0xFFFFFFFF)

    # The functions that naga's WebAssembly imports: they read the options and make errors.

    def _imported(self, name: str) -> Callable[..., Any]:
        plain = re.sub(r"^__wbg_+|_[0-9a-f]{16}$", "", name)  # each name ends in a hash

        def missing(*_: Any) -> Any:
            raise NotImplementedError(f"naga asks for '{plain}' of JavaScript, which no translation here needs")

        return self._imports.get(plain, missing)

    @cached_property
    def _imports(self) -> dict[str, Callable[..., Any]]:
        return {
            "Error": self._text,
            "Number": float,
            "get_unchecked": lambda values, index: values[index],
            "get_with_ref_key": lambda values, key: values.get(key, _UNDEFINED),
            "isArray": lambda value: int(isinstance(value, list)),
            "isSafeInteger": lambda value: int(isinstance(value, int)),
            "length": len,
            "wbindgen_in": lambda key, values: int(key in values),
            "wbindgen_is_object": lambda value: int(isinstance(value, Mapping | list)),
            "wbindgen_is_undefined": lambda value: int(value is _UNDEFINED),
            "wbindgen_jsval_loose_eq": lambda a, b: int(a == b),
            "wbindgen_string_get": self._get_string,
            "wbindgen_throw": self._throw,
            "__wbindgen_generic": self._text,
            "__wbindgen_init_externref_table": self._init_objects,
        }

    def _text(self, address: int, size: int) -> str:
        return self._bytes(address, size).decode()

    def _get_string(self, result: int, value: object) -> None:
        content = value.encode() if isinstance(value, str) else b""
        address = self._allocate(content) if isinstance(value, str) else 0
        self._write(result, struct.pack("<II", address & 0xFFFFFFFF, len(content)))

    def _throw(self, address: int, size: int) -> None:
        raise RuntimeError(self._text(address, size))

    def _init_objects(self) -> None:
        start = self._objects.grow(self._store, 4, None)
        self._objects.set(self._store, 0, _UNDEFINED)
        for index, value in enumerate((_UNDEFINED, None, True, False)):
            self._objects.set(self._store, start + index, value)


_UNDEFINED = object()
"""JavaScript's `undefined`."""

_LOCATION = re.compile(r"┌─ wgsl:(\d+):(\d+)")


def _refused(name: str, message: str) -> ShaderError:
    """Return an error with the first line of naga's message, its reasons, and the line and column that it marks."""
    lines = message.splitlines()
    reasons = [line.strip().removeprefix("= ") for line in lines[1:] if line.strip().startswith("= ")]
    location = _LOCATION.search(message)
    line, column = map(int, location.groups()) if location else (1, 1)
    reason = "; ".join([lines[0].removeprefix("error: "), *reasons])
    return ShaderError(f"refused by naga {VERSION}: {reason}", file=name, line=line, column=column)
