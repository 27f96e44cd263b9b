"""Sources made short for the browser, where a page downloads all of them: what runs stays.

Python loses comments, annotations, the `__all__` of modules, names that nobody else sees (`rename`), and docstrings but
for the first paragraph of what users call. WGSL and JavaScript lose comments and indentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set

from .rename import rename

__all__ = ["shorten"]

_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
# A dataclass without a docstring makes one of its signature, which takes a millisecond each.
_NO_DOCSTRING = "."
# Modules of which most names are in annotations alone, and what dataclasses look for in these.
_FOR_ANNOTATIONS = {"__future__", "collections.abc", "typing"}
_MARKS = {"ClassVar", "InitVar", "KW_ONLY"}
_COMMENT = {"wgsl": r"[ \t]*//.*", "js": r"(?m)^\s*//.*"}


def shorten(name: str, text: str, public: Set[str], kept: Set[str]) -> str:
    """A file with what a page does not need left out.

    Args:
        name: its suffix says what it is.
        text: its content.
        public: the functions and classes at the top of modules that keep the first paragraph of their docstrings, and
            those of their methods.
        kept: what files mention of others (`rename.mentioned`).
    """
    suffix = name.rpartition(".")[2]
    if suffix in _COMMENT:
        return re.sub(r"\n\s*", "\n", re.sub(_COMMENT[suffix], "", text)).lstrip()
    tree = _Shorten(public, is_package=name.endswith("__init__.py")).visit(ast.parse(text))
    short = ast.unparse(rename(ast.unparse(tree), kept))
    # One blank for each step, also of docstrings: other strings are on one line here.
    return re.sub(r"^(?: {4})+", lambda found: " " * (len(found[0]) // 4), f"{short}\n", flags=re.MULTILINE)


class _Shorten(ast.NodeTransformer):
    """Keeps docstrings within what is public."""

    def __init__(self, public: Set[str], *, is_package: bool) -> None:
        self.public = public
        self.is_package = is_package
        self.is_public = False
        self.depth = 0
        self.is_in_function = False

    def visit_Module(self, node: ast.Module) -> ast.Module:
        if not self.is_package:
            node.body = [one for one in node.body if not _is_list_of_names(one)]
        node.body = self._statements(node, keeps_docstring=False)
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        node.body = [one for one in node.body if not isinstance(one, ast.ImportFrom) or _is_used(one, used)]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        was_public, self.is_public = self.is_public, self._keeps_docstring(node.name)
        self.depth += 1
        node.body = self._statements(node, keeps_docstring=self.is_public)
        self.depth -= 1
        if node.decorator_list and ast.get_docstring(node) is None:
            node.body.insert(0, ast.Expr(ast.Constant(_NO_DOCSTRING)))
        self.is_public = was_public
        return node

    def _visit_function(self, node: _FUNCTION) -> _FUNCTION:
        was_in_function, self.is_in_function = self.is_in_function, True
        node.body = self._statements(node, keeps_docstring=not was_in_function and self._keeps_docstring(node.name))
        node.returns = None
        for one in ast.walk(node.args):
            if isinstance(one, ast.arg):
                one.annotation = None
        self.is_in_function = was_in_function
        return node

    def _keeps_docstring(self, name: str) -> bool:
        return self.is_public and not name.startswith("_") if self.depth else name in self.public

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if self.depth and not self.is_in_function:  # what dataclasses are made of
            mark = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
            node.annotation = mark if isinstance(mark, ast.Name) and mark.id in _MARKS else ast.Name("int")
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else None

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return [self.visit(one) for one in node.orelse]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def _statements(self, node: ast.Module | ast.ClassDef | _FUNCTION, *, keeps_docstring: bool) -> list[ast.stmt]:
        """The body of a node, shortened, with the first paragraph of its docstring."""
        docstring = ast.get_docstring(node) if keeps_docstring else None
        node.body = [one for one in node.body if not _is_string(one)]
        self.generic_visit(node)
        first = [ast.Expr(ast.Constant(docstring.split("\n\n")[0]))] if docstring else []
        return [*first, *node.body] or [ast.Pass()]


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_list_of_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _is_used(node: ast.ImportFrom, used: Set[str]) -> bool:
    """Whether names of an import are, where it is known to do nothing else; others are taken out."""
    if node.level == 0 and node.module in _FOR_ANNOTATIONS:
        node.names = [one for one in node.names if (one.asname or one.name) in used]
    return bool(node.names)
