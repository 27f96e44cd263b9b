"""Short names for what only its own file sees: the variables of functions, and what is private to a module.

What callers, subclasses and saved states name stays: parameters, attributes, methods, classes, and what is public.
Names are given in the order in which they appear, so that functions that are alike stay alike.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import string
import symtable
from collections.abc import Collection, Iterator, Sequence, Set
from typing import NamedTuple, get_args

__all__ = ["mentioned", "rename"]

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_Places = dict[str, list[tuple[ast.AST, str]]]
# A function that uses one of these sees the names of its variables.
_SHOWS_VARIABLES = {"dir", "eval", "exec", "locals", "vars"}
# Where names of variables, parameters, functions, classes and imports are.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Name: ("id",),
    ast.arg: ("arg",),
    ast.alias: ("name", "asname"),
    ast.MatchMapping: ("rest",),
    ast.Global: ("names",),
    ast.Nonlocal: ("names",),
    **dict.fromkeys((*get_args(_FUNCTION), ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar), ("name",)),
}


def mentioned(tree: ast.Module) -> set[str]:
    """What a file may name of others: what it imports, attributes, and the words of its strings."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.update(one.name for one in node.names)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(r"\w+", node.value))
    return names


def rename(source: str, kept: Set[str]) -> ast.Module:
    """A module with short names.

    Args:
        source: without annotations of functions and variables, a statement on each line, as `ast.unparse` writes it.
        kept: what files mention (`mentioned`), for which a private name stays.
    """
    tree, module = ast.parse(source), symtable.symtable(source, "", "exec")
    tables = {(one.get_name(), one.get_lineno()): one for one in _outermost_tables(module)}
    for function in _outermost_functions(tree):
        places = _places(function.body)
        names = {*places, *_places([function.args, *function.decorator_list])}  # defaults and decorators are outside
        if _SHOWS_VARIABLES.isdisjoint(names):
            scope = _scope(tables[function.name, function.lineno])
            _shorten(places, scope.variables - scope.fixed - scope.outside, "", names)
        else:
            kept |= names
    places = _places([tree])
    defined = {one.get_name() for one in module.get_symbols() if one.is_assigned()}
    private = {name for name in defined - _scope(module).fixed - kept if re.match("_[^_]", name)}
    _shorten(places, private, "_", places)
    return tree


class _Scope(NamedTuple):
    """Names that it and those within use: their variables, what nobody may rename, and what comes from outside."""

    variables: set[str]
    fixed: set[str]
    outside: set[str]


def _scope(table: symtable.SymbolTable) -> _Scope:
    scope = _Scope(set(), set(), set())
    for symbol in table.get_symbols():
        is_member = table.get_type() == "class" and symbol.is_local()
        is_class = any(one.get_type() == "class" for one in symbol.get_namespaces())
        if is_member or is_class or symbol.is_parameter() or symbol.is_imported():
            scope.fixed.add(symbol.get_name())
        elif symbol.is_global() or symbol.is_namespace() or symbol.get_name().startswith("__"):
            scope.outside.add(symbol.get_name())  # as do names of functions, which have them as an attribute
        else:
            scope.variables.add(symbol.get_name())
    for child in table.get_children():
        for names, more in zip(scope, _scope(child), strict=True):
            names |= more
    return scope


def _outermost_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        if child.get_type() == "function":
            yield child
        else:
            yield from _outermost_tables(child)


def _outermost_functions(tree: ast.AST) -> Iterator[_FUNCTION]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTION):
            yield node
        elif isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from _outermost_functions(node)


def _places(trees: Sequence[ast.AST]) -> _Places:
    """Where each name is, in the order in which they appear."""
    places: _Places = {}
    waiting = list(reversed(trees))
    while waiting:
        node = waiting.pop()
        named = _FIELDS.get(type(node), ())
        inner: list[ast.AST] = []
        for field in node._fields:
            value = getattr(node, field)
            if isinstance(value, ast.AST):
                inner.append(value)
            elif field in named and value:
                if field == "name" and isinstance(node, ast.alias) and node.asname:
                    continue  # what another module calls it
                for name in value if isinstance(value, list) else [value]:
                    places.setdefault(name, []).append((node, field))
            elif isinstance(value, list):
                inner += [one for one in value if isinstance(one, ast.AST)]
        waiting += reversed(inner)
    return places


def _shorten(places: _Places, chosen: Set[str], prefix: str, taken: Collection[str]) -> None:
    """Give chosen names others that are not taken."""
    unused = (name for name in _short_names(prefix) if name not in taken)
    for name, short in zip((name for name in places if name in chosen), unused, strict=False):
        for node, field in places[name]:
            if isinstance(node, ast.Global | ast.Nonlocal):
                node.names[node.names.index(name)] = short
            else:
                setattr(node, field, short)


def _short_names(prefix: str) -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            name = prefix + "".join(letters)
            if not keyword.iskeyword(name):
                yield name
