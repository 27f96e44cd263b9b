"""Parses tokens into a syntax tree, by recursive descent over the subset of WGSL that README.md defines.

Features of WGSL that are not in the subset are refused here if they can be recognized from the text alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ShaderError
from .lexer import Token
from .parse_statements import StatementParser
from .syntax import (
    Alias,
    Attribute,
    Constant,
    Declaration,
    Function,
    GlobalVariable,
    Import,
    Module,
    Name,
    Override,
    Parameter,
    StructDeclaration,
    StructField,
)
from .vocabulary import MATRIX_EXTENSION, REFUSED_ATTRIBUTES

__all__ = ["parse"]

_ATTRIBUTES = {"compute": (0, 0), "workgroup_size": (1, 3), "group": (1, 1), "binding": (1, 1), "builtin": (1, 1)}
_CONDITIONS = {"if": (1, 1), "elif": (1, 1), "else": (0, 0)}  # of imports
_EXTENSIONS = ("f16", "subgroups", MATRIX_EXTENSION)
_SPACES = ("storage", "uniform", "workgroup", "private")


def parse(text: str, file: str) -> Module:
    """Return the syntax tree of a file. Raises ShaderError at the first text that is not in the subset."""
    return _Parser(text, file).module()


class _Parser(StatementParser):
    """Parses declarations at module scope, with the rules for statements and expressions that it inherits."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self.flags: list[str] = []  # of the @if and @elif of the imports before
        self.declarations: dict[str, Callable[[Token, list[Attribute]], Declaration]] = {
            "struct": self.struct,
            "fn": self.function,
            "const": self.constant,
            "override": self.override,
            "alias": self.alias,
            "var": self.global_variable,
            "import": self.import_,
            "const_assert": lambda token, attributes: self.const_assert(token),
        }

    # Module scope.

    def module(self) -> Module:
        enables: list[str] = []
        while self.token.text == "enable":
            enables += self.enable()
        declarations: list[Declaration] = []
        while self.token.kind != "end":
            if not self.accept(";"):
                declarations.append(self.declaration())
        return Module(self.file, list(dict.fromkeys(enables)), declarations)

    def enable(self) -> list[str]:
        names: list[str] = []
        self.advance()
        while True:
            token = self.advance()
            if token.text not in _EXTENSIONS:
                raise self.error(
                    f"the extension '{token.text}' is not in the subset; there are {', '.join(_EXTENSIONS)}", token
                )
            names.append(token.text)
            if not self.accept(",") or self.token.text == ";":
                break
        self.expect(";", "after enable")
        return names

    def declaration(self) -> Declaration:
        attributes = self.attributes()
        token = self.token
        rule = self.declarations.get(token.text)
        if rule is None:
            raise self.unexpected_declaration(token)
        for attribute in attributes:
            is_condition = attribute.name in _CONDITIONS
            if is_condition != (token.text == "import") or token.text not in ("fn", "var", "import"):
                raise self.error(f"'{token.text}' does not take this attribute; leave @{attribute.name} out", attribute)
        if token.text != "import":
            self.flags = []
        self.advance()
        return rule(token, attributes)

    def unexpected_declaration(self, token: Token) -> ShaderError:
        if token.text == "enable":
            return self.error("enable directives come before all declarations; move it up", token)
        if token.text in ("requires", "diagnostic"):
            return self.error(f"'{token.text}' directives are not in the subset; leave it out", token)
        if token.text == "let":
            return self.error("'let' is for functions only; write const at module scope", token)
        return self.error(
            f"expected a declaration (struct, fn, const, override, alias, var, import), found {self.show(token)}", token
        )

    def attributes(self) -> list[Attribute]:
        attributes: list[Attribute] = []
        while self.token.text == "@":
            token = self.advance()
            name = self.advance().text
            known = _ATTRIBUTES | _CONDITIONS
            if name not in known:
                hint = REFUSED_ATTRIBUTES.get(name, f"there are {', '.join(_ATTRIBUTES)}")
                raise self.error(f"the attribute @{name} is not in the subset; {hint}", token)
            low, high = known[name]
            arguments = self.list_of(self.expression, ")") if high and self.accept("(") else []
            if not low <= len(arguments) <= high:
                expected = str(low) if low == high else f"{low} to {high}"
                raise self.error(f"@{name} takes {expected} arguments, not {len(arguments)}", token)
            if any(earlier.name == name for earlier in attributes):
                raise self.error(f"@{name} is given twice", token)
            attributes.append(Attribute(self.at(token), name, arguments))
        return attributes

    def struct(self, token: Token, attributes: list[Attribute]) -> StructDeclaration:
        name = self.identifier("the name of a struct")
        self.expect("{", "after the struct's name")
        fields = self.list_of(self.field, "}")
        if not fields:
            raise self.error(f"struct '{name.text}' has no members; it needs one", name)
        return StructDeclaration(self.at(token), name.text, fields)

    def field(self) -> StructField:
        for attribute in self.attributes():
            raise self.error(f"members take no attributes here; leave @{attribute.name} out", attribute)
        name = self.identifier("the name of a member")
        self.expect(":", "after the member's name")
        return StructField(self.at(name), name.text, self.type_name())

    def function(self, token: Token, attributes: list[Attribute]) -> Function:
        name = self.identifier("the name of a function")
        self.expect("(", "after the function's name")
        parameters = self.list_of(self.parameter, ")")
        return_type = None
        if self.accept("->"):
            if self.token.text == "@":
                raise self.error("results take no attributes in compute shaders; write to a storage buffer", self.token)
            return_type = self.type_name()
        body = self.block()
        return Function(self.at(token), name.text, parameters, return_type, body, attributes)

    def parameter(self) -> Parameter:
        attributes = self.attributes()
        name = self.identifier("the name of a parameter")
        self.expect(":", "after the parameter's name")
        return Parameter(self.at(name), name.text, self.type_name(), attributes)

    def constant(self, token: Token, attributes: list[Attribute]) -> Constant:
        name = self.identifier("the name of a constant")
        type_name = self.type_name() if self.accept(":") else None
        self.expect("=", "a constant needs a value")
        value = self.expression()
        self.expect(";", "after the constant")
        return Constant(self.at(token), name.text, type_name, value)

    def override(self, token: Token, attributes: list[Attribute]) -> Override:
        name = self.identifier("the name of an override")
        type_name = self.type_name() if self.accept(":") else None
        value = self.expression() if self.accept("=") else None
        if type_name is None and value is None:
            raise self.error(f"override '{name.text}' needs a type or a value", name)
        self.expect(";", "after the override")
        return Override(self.at(token), name.text, type_name, value)

    def alias(self, token: Token, attributes: list[Attribute]) -> Alias:
        name = self.identifier("the name of an alias")
        self.expect("=", "after the alias's name")
        type_name = self.type_name()
        self.expect(";", "after the alias")
        return Alias(self.at(token), name.text, type_name)

    def global_variable(self, token: Token, attributes: list[Attribute]) -> GlobalVariable:
        if not self.accept("<"):
            raise self.error(f"a variable at module scope needs an address space: var<{'|'.join(_SPACES)}>", self.token)
        space = self.advance()
        if space.text not in _SPACES:
            raise self.error(f"'{space.text}' is not an address space of the subset: {', '.join(_SPACES)}", space)
        access = "read" if space.text in ("storage", "uniform") else "read_write"
        if self.accept(",") and self.token.text != ">":
            if space.text != "storage":
                raise self.error(f"var<{space.text}> takes no access mode; leave it out", self.token)
            access = self.advance().text
            if access not in ("read", "read_write"):
                raise self.error(f"'{access}' is not an access mode of the subset: read or read_write", space)
            self.accept(",")
        self.close_template()
        name = self.identifier("the name of a variable")
        self.expect(":", "a variable at module scope needs a type")
        type_name = self.type_name()
        value = None
        if self.token.text == "=" and space.text != "private":
            raise self.error(f"var<{space.text}> takes no initial value; store it in the kernel", self.token)
        if self.accept("="):
            value = self.expression()
        self.expect(";", "after the variable")
        return GlobalVariable(self.at(token), space.text, access, name.text, type_name, attributes, value)

    def import_(self, token: Token, attributes: list[Attribute]) -> Import:
        if self.token.text != "package":
            raise self.error("an import begins with package::, as in import package::lib::math::log1p;", self.token)
        self.advance()
        path: list[str] = []
        names: list[str] = []
        while self.accept("::"):
            if self.accept("{"):
                names = [name.text for name in self.list_of(lambda: self.identifier("a name to import"), "}")]
                break
            path.append(self.identifier("a part of an import's path").text)
        if not names and path:
            names = [path.pop()]
        if not path or not names:
            raise self.error("an import names a file and what to take: import package::lib::math::{log1p};", token)
        if self.token.text == "as":
            raise self.error("imports keep their names here; leave 'as' out", self.token)
        self.expect(";", "after the import")
        return Import(self.at(token), tuple(path), names, self.conditions(attributes))

    def conditions(self, attributes: list[Attribute]) -> tuple[tuple[str, bool], ...]:
        """Return the conditions of an import, see `Import`, by its @if, @elif or @else and the imports before it."""
        flags, self.flags = self.flags, []
        if not attributes:
            return ()
        if len(attributes) > 1:
            raise self.error("an import has one condition", attributes[1])
        [attribute] = attributes
        if attribute.name != "if" and not flags:
            raise self.error(f"@{attribute.name} follows an import with @if", attribute)
        before = tuple((flag, False) for flag in flags if attribute.name != "if")
        if attribute.name == "else":
            return before
        [argument] = attribute.arguments
        if not isinstance(argument, Name):
            raise self.error(f"@{attribute.name} takes the name of a flag, as in @{attribute.name}(FLAG)", attribute)
        self.flags = [*(flag for flag, _ in before), argument.name]
        return (*before, (argument.name, True))
