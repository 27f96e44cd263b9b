"""How the library's wheel for browsers has its modules and shaders read out of the archive that it brings.

`pack` says what that is. A text is decoded when it is asked for: a page that trains needs a third of them.
"""

import lzma
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType

__all__ = ["unpack"]


class _Words(dict[int, str]):
    """Words by their codes; any other code stands for itself."""

    def __missing__(self, code: int) -> str:
        return chr(code)


class _Archive:
    """Finds the modules of the archive. What it does not hold is looked for in the folder, as of any package."""

    def __init__(self, package: str, folder: str) -> None:
        with open(os.path.join(folder, "library.xz"), "rb") as file:
            words, _, coded = lzma.decompress(file.read()).partition(b"\0")
        self.words = _Words((code, chr(code)) for code in range(128))
        codes = [code for code in range(4, 2048) if code != 10 and not 32 <= code < 127]
        for code, word in zip(codes, words.decode().split("\1"), strict=False):
            self.words[code] = word
        files, _, strings = coded.partition(b"\1")
        self.strings = strings.split(b"\2")
        self.files: dict[str, tuple[bytes, int]] = {}  # each with the number of its first string
        self.package = package
        self.folder = folder
        used = 0
        for one in files.split(b"\0"):
            name, _, content = one.partition(b"\n")
            self.files[os.path.join(folder, self.decoded(name))] = content, used
            used += content.count(b"\3")

    def decoded(self, coded: bytes) -> str:
        """The text that it stands for."""
        # Faster than str.translate, which looks every character up as a number of its own.
        units = memoryview(coded.decode().encode("utf-16-le")).cast("H")
        return "".join(map(self.words.__getitem__, units))

    def read(self, path: str) -> bytes:
        """The text of a file."""
        coded, used = self.files[path]
        first, *others = coded.split(b"\3")
        strings = self.strings[used : used + len(others)]
        return self.decoded(first + b"".join(map(bytes.__add__, strings, others))).encode()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """What Python asks of all that finds modules."""
        package, *inside = name.split(".")
        if package != self.package:
            return None
        stem = os.path.join(self.folder, *inside)
        entry = os.path.join(stem, "__init__.py")
        file = entry if entry in self.files else f"{stem}.py"
        if file not in self.files:
            return None
        folders = [stem] if file == entry else None
        loader = _Loader(name, file, self)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


class _Loader(SourceFileLoader):
    """Reads from the archive what lies there."""

    def __init__(self, name: str, path: str, archive: _Archive) -> None:
        super().__init__(name, path)
        self.archive = archive

    def get_data(self, path: str) -> bytes:
        """The bytes of a module, or of a file beside it."""
        return self.archive.read(path) if path in self.archive.files else super().get_data(path)


def unpack(package: str, file: str) -> CodeType:
    """Have the modules of a package found in the archive beside `file`; the code of the package itself."""
    archive = _Archive(package, os.path.dirname(file))
    sys.meta_path.insert(0, archive)
    return compile(archive.read(file), file, "exec")
