"""Kernels whose buffers hold elements of 16 bits: what reads and writes them is put in their place.

A device that has f16 is given arrays of it: elements are converted where they are read and written, and what a kernel
computes with them stays f32.

For others two elements share a word. Where a kernel reads one, the half of the word is taken and decoded. Where it
writes one, there are two ways. A loop over elements (`shell.element_loop`) goes over pairs instead, and an invocation
writes whole words. Elsewhere the other half of a word may be another invocation's at the same time, so the half is
exchanged by an atomic operation, in which each is written once: the difference of the old and new half, added to the
word by exclusive or.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import ShaderError
from .linker import link
from .parser import parse
from .syntax import (
    Assign,
    Call,
    CallStatement,
    Declaration,
    For,
    Function,
    GlobalVariable,
    Import,
    Index,
    LocalDeclaration,
    Module,
    Name,
    Parameter,
    Position,
    TypeName,
)
from .tree import walk

__all__ = ["repacked"]

_NOWHERE = Position("<packed>", 1, 1)
_LOOP = "ElementwiseParameters"  # the parameters of a loop over elements
_SHIFT = "(at % 2u * 16u)"


def repacked(module: Module, kinds: Mapping[str, str]) -> Module:
    """A complete module with some bindings of 16 bits.

    Args:
        module: a kernel's, parsed and without imports. It is used up.
        kinds: by binding "f16", or "float16" or "bfloat16" for halves of words. Its type is array<f32>; or array<u32>,
            where elements are moved without being looked at.

    Raises:
        ShaderError: a binding is of another type, or is used otherwise than by its elements.
    """
    declared = {one.name: one for one in module.declarations if isinstance(one, GlobalVariable)}
    natives = [name for name, kind in kinds.items() if kind == "f16"]
    halves = {name: _Halves(declared[name], kind) for name, kind in kinds.items() if kind != "f16"}
    bindings: dict[str, _Elements] = {**halves, **{name: _Natives(declared[name], "f16") for name in natives}}
    written = [one for one in halves.values() if one.is_written]
    loop = _element_loop(module) if written else None
    for half in written:
        half.stores = loop is None
    for function in module.declarations:
        if isinstance(function, Function):
            _replace(function.body.statements, bindings)
    _check_replaced(module, bindings)
    if loop is not None:
        _pair(loop, written)
    wanted = sorted({name for one in bindings.values() for name in one.imports})
    imports: list[Declaration] = [Import(_NOWHERE, ("lib", "storage"), wanted)] if wanted else []
    text = "\n".join(one.functions() for one in bindings.values())
    helpers = parse(text, "<packed>").declarations
    for one in bindings.values():
        one.retype()
    enables = [*module.enables, *(["f16"] if natives else [])]
    return link(Module(module.file, enables, [*imports, *module.declarations, *helpers]))


class _Elements(ABC):
    """A variable whose elements have 16 bits, and the functions that read and write them.

    Attributes:
        element: their type in the kernel, "f32" or "u32".
        stores: a function writes each of them.
    """

    def __init__(self, variable: GlobalVariable, kind: str) -> None:
        self.variable, self.kind = variable, kind
        self.name = variable.name
        self.is_written = self.stores = variable.access == "read_write"
        element, *size = variable.type_name.arguments if variable.type_name.name == "array" else [None]
        self.element = element.name if isinstance(element, TypeName) and not size else ""
        if self.element not in ("f32", "u32"):
            message = f"this kernel does not read '{self.name}' element by element, so it takes no {kind}"
            raise _error(variable, f"{message}; convert to float32")

    @property
    @abstractmethod
    def imports(self) -> list[str]:
        """What the functions need of `lib/storage.wgsl`."""

    @abstractmethod
    def functions(self) -> str:
        """Those that the kernel calls."""

    @abstractmethod
    def retype(self) -> None:
        """Declare it as what it is."""


class _Natives(_Elements):
    """Of f16. Where elements are moved, the kernel has their 16 bits, which WGSL's compilers do not all give."""

    @property
    def imports(self) -> list[str]:
        return ["from_float16", "to_float16"] if self.element == "u32" else []

    def functions(self) -> str:
        loaded, value = f"f32({self.name}[at])", "value"
        if self.element == "u32":
            loaded, value = f"to_float16({loaded})", "from_float16(value)"
        text = f"fn load_{self.name}(at: u32) -> {self.element} {{ return {loaded}; }}\n"
        if self.stores:
            text += f"fn store_{self.name}(at: u32, value: {self.element}) {{ {self.name}[at] = f16({value}); }}\n"
        return text

    def retype(self) -> None:
        self.variable.type_name.arguments[0] = TypeName(_NOWHERE, "f16")


class _Halves(_Elements):
    """Of halves of words; what is stored one by one is exchanged by atomic operations."""

    @property
    def imports(self) -> list[str]:
        return [f"from_{self.kind}", f"to_{self.kind}"] if self.element == "f32" else []

    def decoded(self, half: str) -> str:
        """The element of 16 bits."""
        return f"from_{self.kind}({half})" if self.element == "f32" else half

    def encoded(self, value: str) -> str:
        """The 16 bits of an element."""
        return f"to_{self.kind}({value})" if self.element == "f32" else value

    def functions(self) -> str:
        name, word = self.name, f"{self.name}[at / 2u]"
        half = f"({f'atomicLoad(&{word})' if self.stores else word} >> {_SHIFT}) & 0xffffu"
        text = f"fn load_{name}(at: u32) -> {self.element} {{ return {self.decoded(half)}; }}\n"
        if self.stores:
            text += (
                f"fn store_{name}(at: u32, value: {self.element}) {{\n"
                f"    let before = {half};\n"
                f"    atomicXor(&{word}, (before ^ {self.encoded('value')}) << {_SHIFT});\n}}\n"
            )
        return text

    def retype(self) -> None:
        word = TypeName(_NOWHERE, "u32")
        if self.stores:
            word = TypeName(_NOWHERE, "atomic", [word])
        self.variable.type_name = TypeName(_NOWHERE, "array", [word])


_Kind = TypeVar("_Kind", bound=_Elements)


def _replace(node: Any, bindings: Mapping[str, _Elements]) -> Any:
    """The node, or what takes its place; whatever it holds is replaced too."""
    if isinstance(node, list):
        node[:] = [_replace(one, bindings) for one in node]
        return node
    if not hasattr(type(node), "__dataclass_fields__") or isinstance(node, Position):
        return node
    target = node.target if isinstance(node, Assign) else None
    stored = _binding_of(target, bindings)
    if isinstance(node, Assign) and isinstance(target, Index) and stored is not None and stored.stores:
        if node.operator:
            raise _error(node, f"'{stored.name}' is changed in place, which packed 16-bit elements cannot be")
        arguments = [_replace(target.index, bindings), _replace(node.value, bindings)]
        return CallStatement(
            node.position, Call(node.position, TypeName(node.position, f"store_{stored.name}"), arguments)
        )
    if isinstance(node, Assign) and stored is not None:  # in a loop over elements, which `_pair` looks after
        node.value = _replace(node.value, bindings)
        return node
    loaded = _binding_of(node, bindings)
    if loaded is not None:
        index = _replace(node.index, bindings)
        return Call(node.position, TypeName(node.position, f"load_{loaded.name}"), [index])
    for name in type(node).__slots__:
        if name not in ("position", "name", "type"):
            setattr(node, name, _replace(getattr(node, name), bindings))
    return node


def _binding_of(node: Any, bindings: Mapping[str, _Kind]) -> _Kind | None:
    """The buffer of which this is an element."""
    is_element = isinstance(node, Index) and isinstance(node.base, Name)
    return bindings.get(node.base.name) if is_element else None


def _check_replaced(module: Module, bindings: Mapping[str, _Elements]) -> None:
    """Nothing else mentions a buffer of halves, as `arrayLength` does, which would count words."""
    for function in module.declarations:
        nodes = list(walk(function)) if isinstance(function, Function) else []
        own = {node.name for node in nodes if isinstance(node, Parameter | LocalDeclaration)}
        stored_to = {id(node.target.base) for node in nodes if _is_stored(node)}
        for node in nodes:
            if isinstance(node, Name) and node.name in bindings.keys() - own and id(node) not in stored_to:
                message = (
                    f"this kernel uses all of '{node.name}', so it takes no packed 16-bit elements; convert to float32"
                )
                raise _error(node, message)


def _is_stored(node: Any) -> bool:
    """It assigns to an element."""
    return isinstance(node, Assign) and isinstance(node.target, Index)


def _error(node: Any, message: str) -> ShaderError:
    place = node.position
    return ShaderError(message, file=place.file, line=place.line, column=place.column)


# Loops over elements.


def _element_loop(module: Module) -> For | None:
    """The loop over turns, if the module is a loop over elements."""
    if not any(getattr(one, "name", "") == _LOOP for one in module.declarations):
        return None
    main = next(one for one in module.declarations if isinstance(one, Function) and one.name == "main")
    return next(one for one in main.body.statements if isinstance(one, For))


def _pair(loop: For, written: list[_Halves]) -> None:
    """Go over pairs of elements: each is worked on as before, and what belongs to halves is written together."""
    names = {one.name: one for one in written}
    place, guarded = loop.body.statements
    statements = guarded.then.statements  # type: ignore[union-attr]
    for number, one in enumerate(statements):
        stored = _binding_of(one.target, names) if isinstance(one, Assign) else None
        if stored is not None:
            half = parse(f"fn f() {{ {stored.name}_word |= {stored.encoded('0.0')} << (half * 16u); }}", "<packed>")
            assign = half.declarations[0].body.statements[0]  # type: ignore[union-attr]
            encoded = assign.value.left  # type: ignore[union-attr]
            if isinstance(encoded, Call):
                encoded.arguments[0] = one.value
            else:
                assign.value.left = one.value  # type: ignore[union-attr]
            statements[number] = assign
    words = "\n".join(f"var {name}_word = 0u;" for name in names)
    stores = "\n".join(f"{name}[pair] = {name}_word;" for name in names)
    text = f"""fn f() {{
        let pair = 0u;
        if 2u * pair < parameters.size {{
            {words}
            for (var half = 0u; half < 2u; half++) {{
                let index = 2u * pair + half;
                if index < parameters.size {{ }}
            }}
            {stores}
        }}
    }}"""
    body = parse(text, "<packed>").declarations[0].body.statements  # type: ignore[union-attr]
    body[0].value = place.value  # type: ignore[union-attr]
    inner = next(one for one in body[1].then.statements if isinstance(one, For))  # type: ignore[union-attr]
    inner.body.statements[1].then.statements = statements  # type: ignore[union-attr]
    loop.body.statements = body
