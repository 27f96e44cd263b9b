"""Several files to one module: imports brought in, flags set, branches decided, and only what is reached kept."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping, Set
from functools import cache, partial
from pathlib import PurePosixPath

from ..errors import ShaderError
from .checker import check_places
from .constants import type_name
from .declarations import DeclarationChecker
from .fold import drop_unused_builtins, fold, prune
from .numeric import ConstantError, fit
from .parser import parse
from .references import module_references
from .scopes import fail, similar
from .syntax import (
    Constant,
    ConstAssert,
    Declaration,
    Function,
    Import,
    Literal,
    LocalDeclaration,
    Module,
    Override,
    Parameter,
    Position,
)
from .tree import clone, walk
from .types import BOOL, F16, F32, I32, U32, Type

__all__ = ["Loader", "add_module", "link", "package_loader"]

Path = tuple[str, ...]
Loader = Callable[[Path], Module]
"""Gives the parsed module of an import path such as ("lib", "math"); raises FileNotFoundError if there is none."""

_Key = tuple[Path, str]  # where a declaration comes from; () is the module that is linked


def package_loader() -> Loader:
    """A loader for the shaders of this package: ("lib", "math") is shaders/lib/math.wgsl. Each is parsed once."""
    return _load


_added: dict[Path, Module] = {}


def add_module(path: Path, module: Module) -> None:
    """Have the package's loader give a parsed module that is no file of the package: a user's own."""
    _added[path] = module


def _load(path: Path) -> Module:
    return _added.get(path) or _load_from_package(path)


@cache
def _load_from_package(path: Path) -> Module:
    name = f"{'/'.join(path)}.wgsl"
    raw = pkgutil.get_data("optirs_web.shaders", name)
    if raw is None:
        raise FileNotFoundError(name)
    return parse(raw.decode(), f"shaders/{name}")


def link(
    module: Module,
    load: Loader | None = None,
    constants: Mapping[str, bool | int | float] | None = None,
    roots: Iterable[str] | None = None,
) -> Module:
    """One complete, checked module without imports and overrides.

    Args:
        module: parsed; it stays as it is and may be linked again with other constants.
        load: gives imported modules; `package_loader()` if None.
        constants: values for overrides, by name; others take their default. And the flags by which imports are chosen,
            here and in imported files: ``@if(A) import ...; @elif(B) import ...; @else import ...;``, where those that
            are not named are False.
        roots: names of what to keep, with all it reaches; None for the entry points or, in a module that has none,
            for its functions, structs and variables.

    Branches whose condition is constant are decided, so a flag leaves no trace. A helper of an imported file whose
    name is taken is renamed; a name that is imported and declared as well is an error.

    Raises:
        ShaderError: with the place in the file that is at fault, for everything that can be wrong.
    """
    constants = constants or {}
    linker = _Linker(module, load or package_loader(), {name for name, value in constants.items() if value})
    linked = linker.run()
    flags = linker.flags()
    _set_overrides(linked, {name: value for name, value in constants.items() if name not in flags})
    own = list(roots) if roots is not None else _default_roots(module)
    known = {one.name for one in linked.declarations if not isinstance(one, Import | ConstAssert)}
    for name in own:
        if name not in known:
            raise _at_start(module, f"there is no '{name}' to keep{similar(name, known)}")
    fold(linked)
    drop_unused_builtins(linked)
    prune(linked, own)
    check_places(linked)
    return linked


def _at_start(module: Module, message: str) -> ShaderError:
    return ShaderError(message, file=module.file, line=1, column=1)


def _default_roots(module: Module) -> list[str]:
    functions = [one for one in module.declarations if isinstance(one, Function)]
    entries = [one.name for one in functions if any(attribute.name == "compute" for attribute in one.attributes)]
    if entries:
        return entries
    own = [one for one in module.declarations if not isinstance(one, Import | ConstAssert | Constant | Override)]
    constants = [one for one in module.declarations if isinstance(one, Constant)]
    return [one.name for one in own or constants]


# Overrides.


def _set_overrides(module: Module, values: Mapping[str, bool | int | float]) -> None:
    overrides = {one.name: one for one in module.declarations if isinstance(one, Override)}
    for name in values:
        if name not in overrides:
            known = f"; there are {', '.join(sorted(overrides))}" if overrides else "; it has no overrides"
            raise _at_start(module, f"the module has no override '{name}' to set{known}")
    module.declarations = [
        _as_constant(module, one, values.get(one.name)) if isinstance(one, Override) else one
        for one in module.declarations
    ]


def _as_constant(module: Module, one: Override, value: bool | int | float | None) -> Constant:
    """The constant that an override becomes."""
    declared_type = one.type_name
    if value is None:
        if one.value is None:
            raise fail(one.position, f"override '{one.name}' has no default, so it must be set: link(constants=...)")
        if declared_type is not None:
            return Constant(one.position, one.name, declared_type, one.value)
    type_ = DeclarationChecker(module).module_binding(one.name, one.position).type
    declared_type = declared_type or type_name(type_, one.position)
    if value is None:
        assert one.value is not None
        return Constant(one.position, one.name, declared_type, one.value)
    return Constant(one.position, one.name, declared_type, _override_value(one, type_, value))


def _override_value(one: Override, type_: Type, value: bool | int | float) -> Literal:
    kinds = {BOOL: (bool,), I32: (int,), U32: (int,), F32: (int, float), F16: (int, float)}[type_]  # type: ignore[index]
    if not isinstance(value, kinds) or (isinstance(value, bool) and type_ != BOOL):
        raise fail(one.position, f"override '{one.name}' is {type_}, and {value!r} is not")
    try:
        return Literal(one.position, fit(value, type_))  # type: ignore[arg-type]
    except ConstantError as error:
        raise fail(one.position, f"override '{one.name}': {error}") from error


# Imports.


class _File:
    """A module with what its names stand for; of imports with a condition those that these flags choose.

    Raises:
        ShaderError: a name stands for two things.
    """

    def __init__(self, path: Path, module: Module, flags: Set[str] = frozenset()) -> None:
        self.path = path
        self.module = module
        self.declared: dict[str, Declaration] = {}
        self.imported: dict[str, tuple[_Key, Position]] = {}
        self.flags: set[str] = set()
        self._references: dict[str, dict[str, Position]] = {}
        for one in module.declarations:
            if isinstance(one, Import):
                self.flags.update(dict(one.conditions))
                if not one.conditions or all((flag in flags) == is_wanted for flag, is_wanted in one.conditions):
                    for name in one.names:
                        self._note_import(one, name)
            elif not isinstance(one, ConstAssert):
                if one.name in self.declared:
                    earlier = self.declared[one.name].position
                    raise fail(one.position, f"'{one.name}' is declared twice; the first is at {earlier}")
                self.declared[one.name] = one
        for name, (_, position) in self.imported.items():
            if name in self.declared:
                place = self.declared[name].position
                raise fail(position, f"'{name}' is imported here and declared at {place}; rename the declaration")

    def _note_import(self, one: Import, name: str) -> None:
        key = (one.path, name)
        if name in self.imported and self.imported[name][0] != key:
            earlier = self.imported[name][1]
            raise fail(one.position, f"'{name}' is imported from two files; the first import is at {earlier}")
        self.imported[name] = key, one.position

    def target(self, name: str) -> _Key | None:
        """What a name of this file stands for; None for WGSL's own."""
        if name in self.declared:
            return self.path, name
        return self.imported[name][0] if name in self.imported else None

    def references(self, one: Declaration) -> dict[str, Position]:
        """The names in a declaration that stand for something of a module, each with the first place where it does."""
        if isinstance(one, Import | ConstAssert):
            return _first_places(one)
        if one.name not in self._references:
            self._references[one.name] = _first_places(one)
        return self._references[one.name]


def _first_places(one: Declaration) -> dict[str, Position]:
    places: dict[str, Position] = {}
    for reference in module_references(one):
        places.setdefault(reference.name, reference.position)
    return places


@cache
def _file_of_package(path: Path, flags: frozenset[str]) -> _File:
    return _File(path, _load_from_package(path), flags)


class _Linker:
    def __init__(self, module: Module, load: Loader, chosen: Set[str]) -> None:
        self.load = load
        self.chosen = frozenset(chosen)
        self.own = _File((), module, self.chosen)
        self.files: dict[Path, _File] = {(): self.own}

    def file(self, path: Path, position: Position) -> _File:
        """The file of an import path."""
        if path not in self.files:
            of_package = self.load is _load_from_package
            try:
                make = partial(_file_of_package, path) if of_package else partial(_File, path, self.load(path))
                self.files[path] = make(self.chosen)
            except (FileNotFoundError, KeyError, NotADirectoryError, IsADirectoryError) as error:
                raise fail(position, f"there is no file {'/'.join(path)}.wgsl to import from") from error
        return self.files[path]

    def flags(self) -> set[str]:
        """Return the names of the flags that the imports of all files depend on."""
        return set().union(*[file.flags for file in self.files.values()])

    def find(self, key: _Key, position: Position) -> Declaration:
        """An imported declaration."""
        path, name = key
        file = self.file(path, position)
        if name not in file.declared:
            raise fail(position, f"{file.module.file} declares no '{name}' to import{similar(name, file.declared)}")
        return file.declared[name]

    def run(self) -> Module:
        reached = self.reach()
        names = self.final_names(reached)
        order = [path for path in self.files if path != ()]
        declarations: list[Declaration] = []
        for path in (*reversed(order), ()):
            file = self.files[path]
            for one in file.module.declarations:
                if isinstance(one, ConstAssert) and path == ():
                    declarations.append(self.renamed(one, file, names))
                elif not isinstance(one, Import | ConstAssert) and (path, one.name) in reached:
                    copy = self.renamed(one, file, names)
                    copy.name = names[path, one.name]  # type: ignore[union-attr]
                    declarations.append(copy)
        enables = [name for path in self.files for name in self.files[path].module.enables]
        return Module(self.own.module.file, list(dict.fromkeys(enables)), declarations)

    def reach(self) -> dict[_Key, None]:
        """Everything that the module declares, imports, and that these stand on, in a fixed order."""
        reached: dict[_Key, None] = dict.fromkeys(((), name) for name in self.own.declared)
        work: list[tuple[_File, Declaration]] = [(self.own, one) for one in reversed(self.own.module.declarations)]
        for key, position in reversed(self.own.imported.values()):
            reached[key] = None
            work.append((self.file(key[0], position), self.find(key, position)))
        while work:
            file, one = work.pop()
            for name, position in file.references(one).items():
                target = file.target(name)
                if target is not None and target not in reached:
                    reached[target] = None
                    found = self.find(target, position)
                    work.append((self.files[target[0]], found))
        return reached

    def final_names(self, reached: dict[_Key, None]) -> dict[_Key, str]:
        """The module's own names and what it imports stay; others give way."""
        names: dict[_Key, str] = {((), name): name for name in self.own.declared}
        names.update({key: name for name, (key, _) in self.own.imported.items()})
        taken = set(names.values())
        for key in reached:
            if key not in names:
                names[key] = key[1] if key[1] not in taken else self.fresh(key, taken)
                taken.add(names[key])
        return names

    def fresh(self, key: _Key, taken: set[str]) -> str:
        """A name that no declaration and no local variable has."""
        path, name = key
        used = set(taken)
        for file in self.files.values():
            used |= file.declared.keys()
            used |= {
                node.name for node in walk(file.module.declarations) if isinstance(node, LocalDeclaration | Parameter)
            }
        candidate = stem = f"{PurePosixPath(*path).name}_{name.lstrip('_')}"
        number = 2
        while candidate in used:
            candidate, number = f"{stem}{number}", number + 1
        return candidate

    def renamed(self, one: Declaration, file: _File, names: dict[_Key, str]) -> Declaration:
        """A copy in which every name of the module is the final one."""
        copy = clone(one)
        finals = {name: names[key] for name in file.references(one) if (key := file.target(name)) is not None}
        if any(name != final for name, final in finals.items()):
            for reference in module_references(copy):
                reference.name = finals.get(reference.name, reference.name)
        return copy
