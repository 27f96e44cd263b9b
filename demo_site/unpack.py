"""How the library's wheel for browsers has its modules and shaders read out of the archive that it brings."""

import lzma
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType

__all__ = ["unpack"]


class _Archive:
    """Finds the modules of the archive. What it does not hold is looked for in the folder, as of any package."""

    def __init__(self, package: str, folder: str) -> None:
        with open(os.path.join(folder, "library.xz"), "rb") as file:
            files = [one.partition(b"\n") for one in lzma.decompress(file.read()).split(b"\0")]
        self.files = {os.path.join(folder, name.decode()): content for name, _, content in files}
        self.package = package
        self.folder = folder

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
        return self.archive.files[path] if path in self.archive.files else super().get_data(path)


def unpack(package: str, file: str) -> CodeType:
    """Have the modules of a package found in the archive beside `file`; the code of the package itself."""
    archive = _Archive(package, os.path.dirname(file))
    sys.meta_path.insert(0, archive)
    return compile(archive.files[file], file, "exec")
