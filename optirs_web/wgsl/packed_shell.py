"""Rewrites kernels for buffers with elements of 16 bits, by replacing the code that reads and writes them.

On a device with f16 the buffers are arrays of it: elements are converted where they are read and written, and the
kernel computes in f32.

On others two elements are packed into a 32-bit word. A read element is extracted from its word and decoded. Elements
are written in one of two ways. A loop over all elements of a buffer (`lower.maps`) is changed to one over pairs, and an
invocation writes whole words. In other kernels another invocation may write the other element of a word at the same
time, so an element is replaced by an atomic operation: the difference of the old and new bits is added to the word by
exclusive or. That requires that each element is written only once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
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
_LOOP = "ElementwiseParameters"  # the parameters of a loop over elements; see `lower.maps`
_SHIFT = "(at % 2u * 16u)"


def repacked(module: Module, kinds: Mapping[str, str]) -> Module:
    """Return a complete module in which some bindings have elements of 16 bits.

    Args:
        module: of a kernel, parsed and without imports. It is changed, and must not be used afterwards.
        kinds: by binding "f16", or "float16" or "bfloat16" for packed 16-bit words. The type of the binding is
            array<f32>, or array<u32> if elements are only copied.

    Raises:
        ShaderError: a binding has another type, or is not only used element by element.
    """
    declared = {
        declaration.name: declaration for declaration in module.declarations if isinstance(declaration, GlobalVariable)
    }
    natives = [name for name, kind in kinds.items() if kind == "f16"]
    packed = {name: _PackedWords(declared[name], kind) for name, kind in kinds.items() if kind != "f16"}
    bindings: dict[str, _Elements] = {**packed, **{name: _Float16(declared[name], "f16") for name in natives}}
    written = [elements for elements in packed.values() if elements.is_written]
    loop = _element_loop(module, {elements.name for elements in written}) if written else None
    for words in written:
        words.stores = loop is None
    for function in module.declarations:
        if isinstance(function, Function):
            _replace(function.body.statements, bindings)
    _check_replaced(module, bindings)
    if loop is not None:
        _pair(loop, written)
    functions = sorted({name for elements in bindings.values() for name in elements.imports})
    imports: list[Declaration] = [Import(_NOWHERE, ("lib", "storage"), functions)] if functions else []
    text = "\n".join(elements.functions() for elements in bindings.values())
    helpers = parse(text, "<packed>").declarations
    for elements in bindings.values():
        elements.retype()
    enables = [*module.enables, *(["f16"] if natives else [])]
    return link(Module(module.file, enables, [*imports, *module.declarations, *helpers]))


class _Elements(ABC):
    """A variable whose elements have 16 bits, and the functions that read and write them.

    Attributes:
        element: the type of the elements in the kernel, "f32" or "u32".
        stores: elements are written one by one, by a function.
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
        """The functions of `lib/storage.wgsl` that `functions` calls."""

    @abstractmethod
    def functions(self) -> str:
        """Return the functions that load and store elements."""

    @abstractmethod
    def retype(self) -> None:
        """Change the type of the variable to that of the stored elements."""


class _Float16(_Elements):
    """Elements of type f16.

    If they are only copied, the kernel has their bits as u32. These are computed by functions of `lib/storage.wgsl`, as
    not every WGSL compiler can reinterpret an f16.
    """

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


class _PackedWords(_Elements):
    """Elements in packed 16-bit words; those that are stored one by one are replaced by atomic operations."""

    @property
    def imports(self) -> list[str]:
        return [f"from_{self.kind}", f"to_{self.kind}"] if self.element == "f32" else []

    def decoded(self, bits: str) -> str:
        """Return the element with these 16 bits."""
        return f"from_{self.kind}({bits})" if self.element == "f32" else bits

    def encoded(self, value: str) -> str:
        """Return the 16 bits of an element."""
        return f"to_{self.kind}({value})" if self.element == "f32" else value

    def functions(self) -> str:
        name, word = self.name, f"{self.name}[at / 2u]"
        bits = f"({f'atomicLoad(&{word})' if self.stores else word} >> {_SHIFT}) & 0xffffu"
        text = f"fn load_{name}(at: u32) -> {self.element} {{ return {self.decoded(bits)}; }}\n"
        if self.stores:
            text += (
                f"fn store_{name}(at: u32, value: {self.element}) {{\n"
                f"    let before = {bits};\n"
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
    """Return the node, or the call that replaces it; the nodes in it are replaced in place."""
    if isinstance(node, list):
        node[:] = [_replace(item, bindings) for item in node]
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
    """Return the buffer of which a node is an element; None if there is none."""
    is_element = isinstance(node, Index) and isinstance(node.base, Name)
    return bindings.get(node.base.name) if is_element else None


def _check_replaced(module: Module, bindings: Mapping[str, _Elements]) -> None:
    """Refuse any other use of the buffers, such as `arrayLength`, which would count words."""
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
    """Return True for an assignment to an element."""
    return isinstance(node, Assign) and isinstance(node.target, Index)


def _error(node: Any, message: str) -> ShaderError:
    position = node.position
    return ShaderError(message, file=position.file, line=position.line, column=position.column)


# Loops over elements.


def _element_loop(module: Module, written: Container[str]) -> For | None:
    """Return the loop over an invocation's iterations, if the module is a loop over all elements of what is written."""
    if not any(getattr(declaration, "name", "") == _LOOP for declaration in module.declarations):
        return None
    main = next(
        declaration
        for declaration in module.declarations
        if isinstance(declaration, Function) and declaration.name == "main"
    )
    loop = next(statement for statement in main.body.statements if isinstance(statement, For))
    stores = (node.target for node in walk(loop) if isinstance(node, Assign) and isinstance(node.target, Index))
    places = [target.index for target in stores if isinstance(target.base, Name) and target.base.name in written]
    return loop if all(isinstance(place, Name) and place.name == "index" for place in places) else None


def _pair(loop: For, written: list[_PackedWords]) -> None:
    """Change a loop over elements to one over pairs, which runs the statements for both, then writes packed words."""
    names = {elements.name: elements for elements in written}
    index_declaration, guarded = loop.body.statements
    statements = guarded.then.statements  # type: ignore[union-attr]
    for number, statement in enumerate(statements):
        stored = _binding_of(statement.target, names) if isinstance(statement, Assign) else None
        if stored is not None:
            parsed = parse(f"fn f() {{ {stored.name}_word |= {stored.encoded('0.0')} << (half * 16u); }}", "<packed>")
            assign = parsed.declarations[0].body.statements[0]  # type: ignore[union-attr]
            encoded = assign.value.left  # type: ignore[union-attr]
            if isinstance(encoded, Call):
                encoded.arguments[0] = statement.value
            else:
                assign.value.left = statement.value  # type: ignore[union-attr]
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
    body[0].value = index_declaration.value  # type: ignore[union-attr]
    inner = next(statement for statement in body[1].then.statements if isinstance(statement, For))  # type: ignore[union-attr]
    inner.body.statements[1].then.statements = statements  # type: ignore[union-attr]
    loop.body.statements = body
