"""naga, the shader compiler of wgpu and Firefox, from Python: WGSL to SPIR-V, MSL and HLSL.

It is the WebAssembly of the npm package naga-wasm, run by wasmtime, so it needs neither Node nor Rust. The package has
glue in JavaScript; what of it these translations need stands here, in `_imports`. Its options reach neither bindings
nor bounds checks nor the version of SPIR-V: what wgpu gives to a driver has the slots of its own layouts instead (MSL
has ``[[user(fake0)]]`` here), and checks of bounds.
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
"""Of naga, as the package says."""

PACKAGE = "naga-wasm@30.1.0"
"""What npm is asked for, by its version: a plain name gives Node before 24.12 an older package that is empty."""

TARGETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "spirv": ("writeSpirv", {}),
    "msl": ("writeMsl", {"langVersion": [2, 4]}),
    "hlsl": ("writeHlsl", {"shaderModel": "6_2"}),
}
"""For each the function of the package, and its options: Metal of macOS 12; the first shader model with f16."""

_SHA256 = "c7c5cd7322c14c5a0da57bf707fef71d1a51ee2c5094c0786d8216e04cfee4de"
_INSIDE = Path("node_modules", "naga-wasm", "dist", "wasm", "naga_bg.wasm")
_IN_CLONE = Path(__file__).resolve().parents[2] / "demo_site" / "frontend" / _INSIDE
_NO_WASMTIME = "this target is made by naga, which runs in wasmtime: pip install 'optirs-web[naga]'"
_HOW = f"npm install {PACKAGE}, and export OPTIRS_NAGA=$PWD/{_INSIDE.as_posix()}"


def naga_file() -> Path:
    """The WebAssembly: the file that OPTIRS_NAGA names, or what `make demo` installs in a clone.

    Raises:
        UnsupportedError: there is none, or it is another one than this module was written for.
    """
    named = os.environ.get("OPTIRS_NAGA")
    path = Path(named) if named else _IN_CLONE
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        reason = f"'{named}', which OPTIRS_NAGA names, cannot be read: {error.strerror}" if named else "it is not here"
        raise UnsupportedError(f"this target is made by naga, and {reason}. Install it: {_HOW}") from None
    if found != _SHA256:
        raise UnsupportedError(f"'{path}' is not the naga of {PACKAGE}: its SHA-256 is {found}. Install that: {_HOW}")
    return path


def missing_naga() -> str:
    """Why there can be no `Naga` here and what to install, or ""; found without loading anything."""
    if find_spec("wasmtime") is None:
        return _NO_WASMTIME
    try:
        naga_file()
    except UnsupportedError as error:
        return str(error)
    return ""


class Naga:
    """One instance of naga; compiled at first use on a machine, for a second or several, and kept in wasmtime's cache.

    Raises:
        UnsupportedError: wasmtime or naga is not installed.
    """

    def __init__(self) -> None:
        """Check the file and start it."""
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
            wasmtime.Func(self._store, one.type, self._imported(one.name or ""))
            for one in module.imports
            if isinstance(one.type, wasmtime.FuncType)
        ]
        self._exports: Any = wasmtime.Instance(self._store, module, functions).exports(self._store)
        self._call("__wbindgen_start")

    def translate(self, text: str, name: str, target: str) -> str | bytes:
        """One of the `TARGETS` of a WGSL module: text, or for "spirv" its words as bytes, the lowest first.

        Args:
            text: the complete module, as `Kernel.wgsl` gives it for "naga".
            name: what to call it in errors.
            target: "spirv", "msl" or "hlsl".

        Raises:
            ShaderError: naga refuses it, at that line of the text.
        """
        return self.translations(text, name, (target,))[target]

    def translations(self, text: str, name: str, targets: tuple[str, ...] = tuple(TARGETS)) -> dict[str, str | bytes]:
        """As `translate`, several at once: parsed and validated once."""
        source = text.encode()
        module = info = None
        try:
            module, _ = self._checked(name, "parseWgsl", self._given(source), len(source))
            info, _ = self._checked(name, "validate", module)
            return {one: self._written(name, module, info, *TARGETS[one]) for one in targets}
        finally:
            for function, pointer in (("__wbg_moduleinfo_free", info), ("__wbg_module_free", module)):
                if pointer is not None:
                    self._call(function, pointer, 0)

    def _written(self, name: str, module: int, info: int, function: str, options: Mapping[str, Any]) -> str | bytes:
        place, size = self._checked(name, function, module, info, options)
        unit = 4 if function == "writeSpirv" else 1  # SPIR-V is counted in words
        found = self._bytes(place, size * unit)
        self._call("__wbindgen_free", place, size * unit, unit)
        return found if unit == 4 else found.decode()

    def _checked(self, name: str, function: str, *arguments: Any) -> tuple[int, int]:
        """The first two results of a function of naga's; its last two are an error, if it has one, and whether."""
        found = self._call(function, *arguments)
        if found[-1]:
            message = self._objects.get(self._store, found[-2])
            self._call("__externref_table_dealloc", found[-2])
            raise _refused(name, str(message))
        return found[0], found[1]

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._exports[function](self._store, *arguments)

    # Memory and objects of the instance.

    @cached_property
    def _memory(self) -> Any:
        return self._exports["memory"]

    @cached_property
    def _objects(self) -> Any:
        return self._exports["__wbindgen_externrefs"]

    def _bytes(self, place: int, size: int) -> bytes:
        first = place & 0xFFFFFFFF  # wasmtime gives addresses as signed numbers
        return bytes(self._memory.read(self._store, first, first + size))

    def _given(self, content: bytes) -> int:
        """Where a copy of it is, which belongs to naga."""
        place: int = self._call("__wbindgen_malloc", len(content), 1)
        self._write(place, content)
        return place

    def _write(self, place: int, content: bytes) -> None:
        self._memory.write(self._store, content, place & 0xFFFFFFFF)

    # What naga's WebAssembly imports: how it looks into the options and makes errors.

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
            "wbindgen_jsval_loose_eq": lambda one, other: int(one == other),
            "wbindgen_string_get": self._get_string,
            "wbindgen_throw": self._throw,
            "__wbindgen_generic": self._text,
            "__wbindgen_init_externref_table": self._init_objects,
        }

    def _text(self, place: int, size: int) -> str:
        return self._bytes(place, size).decode()

    def _get_string(self, result: int, value: object) -> None:
        content = value.encode() if isinstance(value, str) else b""
        place = self._given(content) if isinstance(value, str) else 0
        self._write(result, struct.pack("<II", place & 0xFFFFFFFF, len(content)))

    def _throw(self, place: int, size: int) -> None:
        raise RuntimeError(self._text(place, size))

    def _init_objects(self) -> None:
        first = self._objects.grow(self._store, 4, None)
        self._objects.set(self._store, 0, _UNDEFINED)
        for number, value in enumerate((_UNDEFINED, None, True, False)):
            self._objects.set(self._store, first + number, value)


_UNDEFINED = object()
"""JavaScript's."""

_PLACE = re.compile(r"┌─ wgsl:(\d+):(\d+)")


def _refused(name: str, message: str) -> ShaderError:
    """Of naga's message: its first line, its reasons, and the place that it draws."""
    lines = message.splitlines()
    reasons = [line.strip().removeprefix("= ") for line in lines[1:] if line.strip().startswith("= ")]
    place = _PLACE.search(message)
    line, column = map(int, place.groups()) if place else (1, 1)
    said = "; ".join([lines[0].removeprefix("error: "), *reasons])
    return ShaderError(f"refused by naga {VERSION}: {said}", file=name, line=line, column=column)
