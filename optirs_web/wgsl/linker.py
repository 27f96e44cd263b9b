"""Links several files to one module: resolves imports, sets flags, folds branches and drops unused declarations."""

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

__all__ = ["Loader", "add_module", "declarations_of", "link", "load_map_module", "package_loader"]

Path = tuple[str, ...]
Loader = Callable[[Path], Module]
"""Returns the parsed module of an import path such as ("lib", "math"); raises FileNotFoundError if there is none."""

_Key = tuple[Path, str]  # the file and name of a declaration; () is the module that is linked


def package_loader() -> Loader:
    """Return the loader of this package's shaders: ("lib", "math") is shaders/lib/math.wgsl. Each is parsed once."""
    return _load


_added: dict[Path, Module] = {}


def add_module(path: Path, module: Module) -> None:
    """Let the package's loader return a parsed module that is not a file of the package, such as a user's rule."""
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


@cache
def load_map_module(folder: str, name: str, functions: tuple[str, ...]) -> Module:
    """Return the functions of ``shaders/FOLDER/NAME.wgsl``, linked, with those that they call."""
    return link(_load((folder, name)), roots=list(functions))


def declarations_of(path: Path, name: str) -> list[Declaration]:
    """Return a declaration of a file of the package and all on which it depends, as they were parsed."""
    nowhere = Position(f"<{name}>", 1, 1)
    linker = _Linker(Module(nowhere.file, [], [Import(nowhere, path, [name])]), _load, frozenset())
    return [linker.find(key, nowhere) for key in linker.reach()]


def link(
    module: Module,
    load: Loader | None = None,
    constants: Mapping[str, bool | int | float] | None = None,
    roots: Iterable[str] | None = None,
) -> Module:
    """Return a complete, checked module without imports and overrides.

    Args:
        module: parsed; it is not changed, and may be linked again with other constants.
        load: returns imported modules; `package_loader()` if None.
        constants: values of overrides, by name; others have their default. Also the flags of conditional imports in
            the module and in imported files: ``@if(A) import ...; @elif(B) import ...; @else import ...;``; flags that
            are not named are False.
        roots: names of declarations to keep, with those on which they depend; None for the entry points or, in a
            module without any, for its functions, structs and variables.

    Branches whose condition is constant are decided, so a flag leaves no trace. A helper of an imported file whose
    name is taken is renamed; a name that is imported and declared as well is an error.

    Raises:
        ShaderError: for every error, with its position in the file.
    """
    constants = constants or {}
    linker = _Linker(module, load or package_loader(), {name for name, value in constants.items() if value})
    linked = linker.run()
    flags = linker.flags()
    _set_overrides(linked, {name: value for name, value in constants.items() if name not in flags})
    own = list(roots) if roots is not None else _default_roots(module)
    declared = {
        declaration.name for declaration in linked.declarations if not isinstance(declaration, Import | ConstAssert)
    }
    for name in own:
        if name not in declared:
            raise _at_start(module, f"there is no '{name}' to keep{similar(name, declared)}")
    fold(linked)
    drop_unused_builtins(linked)
    prune(linked, own)
    check_places(linked)
    return linked


def _at_start(module: Module, message: str) -> ShaderError:
    return ShaderError(message, file=module.file, line=1, column=1)


def _default_roots(module: Module) -> list[str]:
    functions = [declaration for declaration in module.declarations if isinstance(declaration, Function)]
    entries = [
        function.name for function in functions if any(attribute.name == "compute" for attribute in function.attributes)
    ]
    if entries:
        return entries
    own = [
        declaration
        for declaration in module.declarations
        if not isinstance(declaration, Import | ConstAssert | Constant | Override)
    ]
    constants = [declaration for declaration in module.declarations if isinstance(declaration, Constant)]
    return [declaration.name for declaration in own or constants]


# Overrides.


def _set_overrides(module: Module, values: Mapping[str, bool | int | float]) -> None:
    overrides = {
        declaration.name: declaration for declaration in module.declarations if isinstance(declaration, Override)
    }
    for name in values:
        if name not in overrides:
            known = f"; there are {', '.join(sorted(overrides))}" if overrides else "; it has no overrides"
            raise _at_start(module, f"the module has no override '{name}' to set{known}")
    module.declarations = [
        _as_constant(module, declaration, values.get(declaration.name))
        if isinstance(declaration, Override)
        else declaration
        for declaration in module.declarations
    ]


def _as_constant(module: Module, override: Override, value: bool | int | float | None) -> Constant:
    """Return the constant that replaces an override."""
    declared_type = override.type_name
    if value is None:
        if override.value is None:
            raise fail(
                override.position, f"override '{override.name}' has no default, so it must be set: link(constants=...)"
            )
        if declared_type is not None:
            return Constant(override.position, override.name, declared_type, override.value)
    type_ = DeclarationChecker(module).module_binding(override.name, override.position).type
    declared_type = declared_type or type_name(type_, override.position)
    if value is None:
        assert override.value is not None
        return Constant(override.position, override.name, declared_type, override.value)
    return Constant(override.position, override.name, declared_type, _override_value(override, type_, value))


def _override_value(override: Override, type_: Type, value: bool | int | float) -> Literal:
    kinds = {BOOL: (bool,), I32: (int,), U32: (int,), F32: (int, float), F16: (int, float)}[type_]  # type: ignore[index]
    if not isinstance(value, kinds) or (isinstance(value, bool) and type_ != BOOL):
        raise fail(override.position, f"override '{override.name}' is {type_}, and {value!r} is not")
    try:
        return Literal(override.position, fit(value, type_))  # type: ignore[arg-type]
    except ConstantError as error:
        raise fail(override.position, f"override '{override.name}': {error}") from error


# Imports.


class _File:
    """A module with its names resolved; of conditional imports, those that the flags select.

    Raises:
        ShaderError: a name is declared or imported twice.
    """

    def __init__(self, path: Path, module: Module, flags: Set[str] = frozenset()) -> None:
        self.path = path
        self.module = module
        self.declared: dict[str, Declaration] = {}
        self.imported: dict[str, tuple[_Key, Position]] = {}
        self.flags: set[str] = set()
        self._references: dict[str, dict[str, Position]] = {}
        for declaration in module.declarations:
            if isinstance(declaration, Import):
                self.flags.update(dict(declaration.conditions))
                if not declaration.conditions or all(
                    (flag in flags) == is_wanted for flag, is_wanted in declaration.conditions
                ):
                    for name in declaration.names:
                        self._note_import(declaration, name)
            elif not isinstance(declaration, ConstAssert):
                if declaration.name in self.declared:
                    earlier = self.declared[declaration.name].position
                    raise fail(
                        declaration.position, f"'{declaration.name}' is declared twice; the first is at {earlier}"
                    )
                self.declared[declaration.name] = declaration
        for name, (_, position) in self.imported.items():
            if name in self.declared:
                declared_at = self.declared[name].position
                raise fail(position, f"'{name}' is imported here and declared at {declared_at}; rename the declaration")
        self.targets: dict[str, _Key] = {name: key for name, (key, _) in self.imported.items()}
        """The declarations to which names in this file refer, but for names of WGSL."""
        self.targets.update((name, (path, name)) for name in self.declared)

    def _note_import(self, declaration: Import, name: str) -> None:
        key = (declaration.path, name)
        if name in self.imported and self.imported[name][0] != key:
            earlier = self.imported[name][1]
            raise fail(declaration.position, f"'{name}' is imported from two files; the first import is at {earlier}")
        self.imported[name] = key, declaration.position

    def references(self, declaration: Declaration) -> dict[str, Position]:
        """Return the names in a declaration that refer to a module, each with the position of its first use."""
        if isinstance(declaration, Import | ConstAssert):
            return _first_positions(declaration)
        if declaration.name not in self._references:
            self._references[declaration.name] = _first_positions(declaration)
        return self._references[declaration.name]


def _first_positions(declaration: Declaration) -> dict[str, Position]:
    positions: dict[str, Position] = {}
    for reference in module_references(declaration):
        positions.setdefault(reference.name, reference.position)
    return positions


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
        """Return the file of an import path."""
        if path not in self.files:
            of_package = self.load is _load and path not in _added
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
        """Return an imported declaration."""
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
            for declaration in file.module.declarations:
                if isinstance(declaration, ConstAssert) and path == ():
                    declarations.append(self.renamed(declaration, file, names))
                elif not isinstance(declaration, Import | ConstAssert) and (path, declaration.name) in reached:
                    copy = self.renamed(declaration, file, names)
                    copy.name = names[path, declaration.name]  # type: ignore[union-attr]
                    declarations.append(copy)
        enables = [name for path in self.files for name in self.files[path].module.enables]
        return Module(self.own.module.file, list(dict.fromkeys(enables)), declarations)

    def reach(self) -> dict[_Key, None]:
        """Return the declarations and imports of the module and all on which they depend, in a fixed order."""
        reached: dict[_Key, None] = dict.fromkeys(((), name) for name in self.own.declared)
        work: list[tuple[_File, Declaration]] = [
            (self.own, declaration) for declaration in reversed(self.own.module.declarations)
        ]
        for key, position in reversed(self.own.imported.values()):
            reached[key] = None
            work.append((self.file(key[0], position), self.find(key, position)))
        while work:
            file, declaration = work.pop()
            for name, position in file.references(declaration).items():
                target = file.targets.get(name)
                if target is not None and target not in reached:
                    reached[target] = None
                    imported = self.find(target, position)
                    work.append((self.files[target[0]], imported))
        return reached

    def final_names(self, reached: dict[_Key, None]) -> dict[_Key, str]:
        """Return the final name of each declaration; those that the module declares or imports keep theirs."""
        names: dict[_Key, str] = {((), name): name for name in self.own.declared}
        names.update({key: name for name, (key, _) in self.own.imported.items()})
        taken = set(names.values())
        for key in reached:
            if key not in names:
                names[key] = key[1] if key[1] not in taken else self.fresh(key, taken)
                taken.add(names[key])
        return names

    def fresh(self, key: _Key, taken: set[str]) -> str:
        """Return a name that no declaration and no local variable has."""
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

    def renamed(self, declaration: Declaration, file: _File, names: dict[_Key, str]) -> Declaration:
        """Return a copy of a declaration with the final names."""
        copy = clone(declaration)
        targets = file.targets
        finals = {name: names[targets[name]] for name in file.references(declaration) if name in targets}
        if any(name != final for name, final in finals.items()):
            for reference in module_references(copy):
                reference.name = finals.get(reference.name, reference.name)
        return copy
